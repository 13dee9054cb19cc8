package main

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
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
			Use: "revoke TOKEN", Short: "Revoke a token, by name or ID",
			RunE: flags.run(func(c *client, args []string) error { return revokeToken(c, args[0]) }),
		})
}

func newTokensCreateCmd(flags *clientFlags) *cobra.Command {
	role, expires, end, rooms := "", "", "", []string(nil)
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a token and show its value once",
		PreRunE: func(*cobra.Command, []string) (err error) {
			end, err = expiryOf(time.Now(), expires)
			return err
		},
		RunE: flags.run(func(c *client, args []string) error {
			ask := object{"name": args[0], "role": role}
			if len(rooms) > 0 {
				ask["rooms"] = rooms
			}
			if end != "" {
				ask["expires_on"] = end
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
	cmd.Flags().StringVar(&expires, "expires", "", "how long it is valid, such as 90d or 12h, or never (365d)")
	cmd.Flags().StringSliceVar(&rooms, "rooms", nil, "names or IDs of the rooms that it reaches (all)")
	offer(cmd, "role", "viewer", "operator", "editor", "admin")
	return cmd
}

// expiryOf returns the end of a token as the API takes it, for a duration; "" for the API's default.
func expiryOf(now time.Time, text string) (string, error) {
	if text == "" || text == "never" {
		return text, nil
	}
	life, err := parseDuration(text)
	if err != nil || life <= 0 {
		return "", usagef("expires: must be never, or a duration above zero such as 90d or 12h, got %q", text)
	}
	return now.Add(life).UTC().Format(time.RFC3339), nil
}

// revokeToken revokes a token by its ID, or by the name of one alone.
func revokeToken(c *client, name string) error {
	list, err := call[[]api.Token](c, http.MethodGet, ofOurs("tokens"), nil)
	if err != nil {
		return err
	}
	t, err := oneOf("token", list, func(t *api.Token) (id, name string) { return t.Id, t.Name }, name)
	if err != nil {
		return err
	}
	return change(c, http.MethodDelete, ofOurs("tokens", t.Id), nil,
		func(any) string { return fmt.Sprintf("revoked %s (%s)", t.Name, t.Id) })
}

// namesOfRooms returns a function that turns IDs of rooms into names. The ID of a deleted room stays.
func (c *client) namesOfRooms() (func(ids []string) []string, error) {
	all, err := c.all()
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(all))
	for _, r := range all {
		names[r.Id] = r.Name
	}
	return func(ids []string) []string {
		out := make([]string, len(ids))
		for i, id := range ids {
			out[i] = cmp.Or(names[id], id)
		}
		return out
	}, nil
}

func listTokens(c *client) error {
	list, err := call[[]api.Token](c, http.MethodGet, ofOurs("tokens"), nil)
	if err != nil {
		return err
	}
	names, err := c.namesOfRooms()
	if err != nil {
		return err
	}
	return showList(c, list, []any{"ID", "NAME", "ROLE", "ROOMS", "ISSUED", "EXPIRES", "LAST USED"},
		func(t *api.Token) []any {
			rooms := cmp.Or(strings.Join(names(t.Rooms), " "), "all")
			return []any{t.Id, t.Name, t.Role, rooms, t.IssuedOn, t.ExpiresOn, t.LastUsedOn}
		})
}
