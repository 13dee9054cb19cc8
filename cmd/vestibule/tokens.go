package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
)

func newTokensCmd() *cobra.Command {
	flags := &clientFlags{}
	cmd := &cobra.Command{Use: "tokens", Short: "Show, create and revoke tokens of the API"}
	flags.add(cmd, cmd.PersistentFlags())
	cmd.AddCommand(newTokensListCmd(flags), newTokensCreateCmd(flags), newTokensRevokeCmd(flags))
	return cmd
}

func newTokensListCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "Show all tokens, without their values",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.open(cmd)
			if err != nil {
				return err
			}
			var list []api.Token
			res, err := c.ListTokens(c.ctx)
			if err := take(res, err, &list); err != nil {
				return err
			}
			return c.print(list, func(w io.Writer) {
				fmt.Fprintln(w, "ID\tNAME\tROLE\tISSUED\tEXPIRES\tLAST USED")
				when := func(t *time.Time) string {
					if t == nil {
						return "-"
					}
					return t.Format(time.DateTime)
				}
				for _, t := range list {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.Id, t.Name, t.Role, when(&t.IssuedOn), when(t.ExpiresOn), when(t.LastUsedOn))
				}
			})
		},
	}
}

func newTokensCreateCmd(flags *clientFlags) *cobra.Command {
	role, expires := "", time.Duration(0)
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a token and show its value, this once",
		RunE: func(cmd *cobra.Command, args []string) error {
			if expires < 0 {
				return usagef("expires: must not be negative, got %v", expires)
			}
			c, err := flags.open(cmd)
			if err != nil {
				return err
			}
			ask := map[string]string{"name": args[0], "role": role}
			if expires > 0 {
				ask["expires_on"] = time.Now().Add(expires).UTC().Format(time.RFC3339)
			}
			data, err := json.Marshal(ask)
			if err != nil {
				return err
			}
			var made api.Token
			res, err := c.CreateToken(c.ctx, data)
			if err := take(res, err, &made); err != nil {
				return err
			}
			return c.print(made, func(w io.Writer) { fmt.Fprintln(w, *made.Value) })
		},
	}
	cmd.Flags().StringVar(&role, "role", "viewer", "viewer, operator, editor or admin")
	cmd.Flags().DurationVar(&expires, "expires", 0, "how long it is valid, 0 for ever")
	offer(cmd, "role", "viewer", "operator", "editor", "admin")
	return cmd
}

func newTokensRevokeCmd(flags *clientFlags) *cobra.Command {
	return &cobra.Command{
		Use: "revoke ID", Short: "Revoke a token",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.open(cmd)
			if err != nil {
				return err
			}
			gone := map[string]any{}
			res, err := c.DeleteToken(c.ctx, args[0])
			if err := take(res, err, &gone); err != nil {
				return err
			}
			return c.print(gone, func(w io.Writer) { fmt.Fprintf(w, "revoked %s\n", args[0]) })
		},
	}
}
