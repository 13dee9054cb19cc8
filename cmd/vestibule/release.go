package main

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
)

func newReleaseCmd() *cobra.Command {
	flags, n, reason, replace, key := &clientFlags{}, 0, "", false, ""
	cmd := &cobra.Command{
		Use: "release ROOM [N]", Short: "Admit the next N visitors of a paused room",
		Long: `Admit the next N visitors (1 to 1000) of a paused room, the earliest first: never more, and as many as the limits of the
room allow. Without N: show how far the newest release is. A release ends with the pause. One that the leading global
did not end itself admits fewer; the output says so.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (reason != "" || replace || key != "") {
				return usagef("N: is needed")
			}
			if len(args) > 1 {
				var err error
				if n, err = strconv.Atoi(args[1]); err != nil || n < 1 {
					return usagef("N: must be a number above 0, got %q", args[1])
				}
			}
			return named(cmd, args)
		},
		RunE: flags.ofRoom(func(c *client, r *api.Room, args []string) error {
			at := ofOurs("rooms", r.Id, "releases")
			if len(args) == 0 {
				all, err := call[[]api.Release](c, http.MethodGet, at, nil)
				return showReleases(c, all, err)
			}
			ask := object{"people": n, "reason": reason, "replace": replace}
			once := func(r *http.Request) { r.Header.Set("Idempotency-Key", cmp.Or(key, rand.Text())) }
			made, err := call[api.Release](c, http.MethodPost, at, ask, once)
			return showReleases(c, []api.Release{made}, err)
		}),
	}
	flags.add(cmd, cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, shown with the release")
	cmd.Flags().BoolVar(&replace, "replace", false, "end the open release before it; it admits no more visitors")
	cmd.Flags().StringVar(&key, "key", "",
		"idempotency key: with the same key the same release; random by default")
	return cmd
}

// showReleases shows releases that were asked for, or returns the error.
func showReleases(c *client, all []api.Release, err error) error {
	if err != nil {
		return err
	}
	return showList(c, all, []any{"RELEASE", "PEOPLE", "LET IN", "STATE", "SINCE", "BY", "REASON"},
		func(k *api.Release) []any { return []any{k.Id, k.People, k.LetIn, k.State, k.At, k.By, k.Reason} })
}
