package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
)

func newTokensCmd() *cobra.Command {
	flags := &clientFlags{}
	return flags.changes(&cobra.Command{Use: "tokens", Short: "Show, create and revoke tokens of the API"},
		&cobra.Command{
			Use: "list", Short: "Show all tokens, without their values",
			RunE: flags.run(func(c *client, _ []string) error { return listTokens(c) }),
		},
		newTokensCreateCmd(flags),
		&cobra.Command{
			Use: "revoke ID", Short: "Revoke a token",
			RunE: flags.run(func(c *client, args []string) error {
				return change(c, http.MethodDelete, ofOurs("tokens", args[0]), nil, func(any) string { return "revoked " + args[0] })
			}),
		})
}

func newTokensCreateCmd(flags *clientFlags) *cobra.Command {
	role, expires := "", time.Duration(0)
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a token and show its value, this once",
		PreRunE: func(*cobra.Command, []string) error {
			if expires < 0 {
				return usagef("expires: must not be negative, got %v", expires)
			}
			return nil
		},
		RunE: flags.run(func(c *client, args []string) error {
			ask := object{"name": args[0], "role": role}
			if expires > 0 {
				ask["expires_on"] = time.Now().Add(expires).UTC().Format(time.RFC3339)
			}
			made, err := call[api.Token](c, http.MethodPost, c.because(ofOurs("tokens")), ask)
			if err == nil && made.Value == nil {
				err = fmt.Errorf("token %s was created, but the API did not return its value", made.Id)
			}
			if err != nil {
				return err
			}
			return c.show(made, func(row func(...any)) { row(*made.Value) })
		}),
	}
	cmd.Flags().StringVar(&role, "role", "viewer", "viewer, operator, editor or admin")
	cmd.Flags().DurationVar(&expires, "expires", 0, "how long it is valid, 0 for ever")
	offer(cmd, "role", "viewer", "operator", "editor", "admin")
	return cmd
}

func listTokens(c *client) error {
	list, err := call[[]api.Token](c, http.MethodGet, ofOurs("tokens"), nil)
	if err != nil {
		return err
	}
	return c.show(list, func(row func(...any)) {
		row("ID", "NAME", "ROLE", "ISSUED", "EXPIRES", "LAST USED")
		for _, t := range list {
			row(t.Id, t.Name, t.Role, t.IssuedOn, t.ExpiresOn, t.LastUsedOn)
		}
	})
}
