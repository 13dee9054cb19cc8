package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global"
	"vestibule/internal/node"
)

func newAdminCmd() *cobra.Command {
	folder, wait := "", time.Duration(0)
	again := &cobra.Command{
		Use: "recover", Short: "Make a new admin, beside a running global",
		Long: `Make a new admin, beside a running global: print an admin token that does not expire, and a link to the console that
works once, for 15 minutes. The request goes through the global's data folder, so it works without a token.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, link, err := recoverAdmin(cmd.Context(), folder, wait)
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "token    %s\nconsole  %s\n", token, link)
			}
			return err
		},
	}
	again.Flags().StringVar(&folder, "data-dir", "./vestibule", "data_dir of the global, or of vestibule serve")
	again.Flags().DurationVar(&wait, "wait", 10*time.Second, "how long to wait for the global")
	cmd := &cobra.Command{Use: "admin", Short: "Get access without a token"}
	cmd.AddCommand(again)
	return cmd
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// recoverAdmin asks the global of a data folder for a new admin, and returns its token and a link to the console.
func recoverAdmin(ctx context.Context, folder string, wait time.Duration) (token, link string, err error) {
	if of := filepath.Join(folder, "global"); isFolder(of) { // of vestibule serve and demo
		folder = of
	}
	if !isFolder(folder) {
		return "", "", usagef("data-dir: %s: no such folder: it must be the data_dir of a running global, or of vestibule serve",
			folder)
	}
	asked, answer := filepath.Join(folder, global.RecoverFile), filepath.Join(folder, global.RecoveredFile)
	if err := node.WriteFile(asked, nil); err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		_, err := os.Stat(asked)
		if errors.Is(err, fs.ErrNotExist) { // the answer was written before
			data, err := os.ReadFile(answer)
			if err != nil {
				return "", "", err
			}
			token, link, _ = strings.Cut(strings.TrimSpace(string(data)), "\n")
			return token, link, os.Remove(answer)
		}
		if err != nil {
			return "", "", err
		}
		select {
		case <-ctx.Done():
			if err := os.Remove(asked); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", "", err
			}
			return "", "", fmt.Errorf("no global with control.listen and the data folder %s answered within %v: is it running, and can it reach its store?",
				folder, wait)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
