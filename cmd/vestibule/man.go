package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newManCmd() *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write manual pages of all commands into a folder",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // manual pages are public
				return err
			}
			return doc.GenManTree(cmd.Root(), &doc.GenManHeader{Section: "1", Source: "vestibule"}, args[0])
		},
	}
}
