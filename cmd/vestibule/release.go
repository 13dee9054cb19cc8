package main

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
)

func newReleaseCmd() *cobra.Command {
	flags, reason, replace, key := &clientFlags{}, "", false, ""
	cmd := &cobra.Command{
		Use: "release ROOM [N]", Short: "Admit the next N visitors of a paused room", ValidArgsFunction: flags.completeRoom,
		Long: `Admit the next N visitors (1 to 1000) of a paused room, the earliest first: never more, and as many as the limits of the
room allow. Without N: show how far the newest release is. A release ends with the pause. One that the leading global
did not end itself admits fewer; the output says so.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if reason != "" || replace || key != "" {
					return usagef("N: is needed")
				}
				return flags.releases(cmd, args[0])
			}
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 1 {
				return usagef("N: must be a number above 0, got %q", args[1])
			}
			return flags.release(cmd, args[0], cmp.Or(key, rand.Text()), map[string]any{"people": n, "reason": reason, "replace": replace})
		},
	}
	flags.add(cmd, cmd.Flags())
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, shown with the release")
	cmd.Flags().BoolVar(&replace, "replace", false, "end the open release before it: it admits nobody any more")
	cmd.Flags().StringVar(&key, "key", "", "idempotency key: a repeated command with the same key asks for the same release; random by default")
	return cmd
}

// releases shows the newest release of a room.
func (c *clientFlags) releases(cmd *cobra.Command, name string) error {
	return c.ofRoom(func(cl *client, r api.Room) error {
		all := []api.Release{}
		res, err := cl.ListReleases(cl.ctx, r.Id)
		if err := take(res, err, &all); err != nil {
			return err
		}
		return cl.printReleases(all)
	})(cmd, []string{name})
}

// release asks for a release and shows it.
func (c *clientFlags) release(cmd *cobra.Command, name, key string, ask map[string]any) error {
	return c.ofRoom(func(cl *client, r api.Room) error {
		body, err := json.Marshal(ask)
		if err != nil {
			return err
		}
		all := make([]api.Release, 1)
		res, err := cl.CreateRelease(cl.ctx, r.Id, &api.CreateReleaseParams{IdempotencyKey: &key}, body)
		if err := take(res, err, &all[0]); err != nil {
			return err
		}
		return cl.printReleases(all)
	})(cmd, []string{name})
}

func (c *client) printReleases(all []api.Release) error {
	return c.print(all, func(w io.Writer) {
		fmt.Fprintln(w, "RELEASE\tPEOPLE\tLET IN\tSTATE\tSINCE\tBY\tREASON")
		for _, k := range all {
			in := "unknown"
			if k.LetIn != nil {
				in = strconv.Itoa(*k.LetIn)
			}
			fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", k.Id, k.People, in, k.State, k.At.Format(time.RFC3339), k.By, k.Reason)
		}
	})
}
