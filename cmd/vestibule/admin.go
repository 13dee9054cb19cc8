package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global"
	"vestibule/internal/node"
)

func newAdminCmd() *cobra.Command {
	folder, wait := "", time.Duration(0)
	again := &cobra.Command{
		Use: "recover", Short: "Print a link by which you become an admin, beside a running global",
		Long: `Print a link by which you become an admin, beside a running global.

It asks in the global's data folder, so it works for whoever may write there, also if nobody else can log in. The link
is valid once, for 15 minutes. It sets a password and removes the second factor of the name that you give.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			link, err := adminLink(cmd.Context(), folder, wait)
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), link)
			}
			return err
		},
	}
	again.Flags().StringVar(&folder, "data-dir", "./vestibule", "data_dir of the global")
	again.Flags().DurationVar(&wait, "wait", 10*time.Second, "how long to wait for the global")
	cmd := &cobra.Command{Use: "admin", Short: "Get access to the console"}
	cmd.AddCommand(again)
	return cmd
}

// adminLink asks the global of a data folder for a link.
func adminLink(ctx context.Context, folder string, wait time.Duration) (string, error) {
	asked := filepath.Join(folder, global.RecoverFile)
	if err := node.WriteFile(asked, nil); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		_, err := os.Stat(asked)
		if errors.Is(err, fs.ErrNotExist) { // the link was written before
			link, err := os.ReadFile(filepath.Join(folder, global.LinkFile))
			return string(link[:max(0, len(link)-1)]), err
		}
		if err != nil {
			return "", err
		}
		select {
		case <-ctx.Done():
			if err := os.Remove(asked); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
			return "", fmt.Errorf("no global with control.listen and the data folder %s answered within %v: is it running, and can it reach its store?", folder, wait)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
