package main

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
)

func newKeysCmd() *cobra.Command {
	flags := &clientFlags{}
	return flags.changes(&cobra.Command{Use: "keys", Short: "Rotate the keys of tickets"}, newKeysRotateCmd(flags))
}

func newKeysRotateCmd(flags *clientFlags) *cobra.Command {
	revoke, confirm := false, &confirmation{}
	cmd := &cobra.Command{
		Use: "rotate", Short: "Use the next key now",
		Long: `Take the announced ticket key into use now, and announce another one. All tickets stay valid. With --revoke-old, after a
leak of keys.json, begin with new keys: all places and sessions end. RUNBOOK has the steps.`,
		RunE: flags.run(func(c *client, _ []string) error {
			if revoke {
				if err := confirm.revocation(c); err != nil {
					return err
				}
			}
			return change(c, http.MethodPost, ofOurs("keys", "rotate"), object{"revoke_old": revoke},
				func(f api.Forgotten) string { return f.Done })
		}),
	}
	cmd.Flags().BoolVar(&revoke, "revoke-old", false, "void all tickets")
	confirm.addTo(cmd, "without a question")
	return cmd
}

// revocation asks whether to void all tickets. It names the visitors that lose theirs.
func (a *confirmation) revocation(c *client) error {
	states, err := c.status()
	if err != nil && !a.yes {
		return fmt.Errorf("what the revocation affects is not known: %w", err)
	}
	inside, waiting := 0, 0
	for i := range states {
		inside += states[i].EstimatedTotalActiveUsers
		waiting += states[i].EstimatedQueuedUsers
	}
	fmt.Fprintf(c.err, "to be revoked:\n  the sessions of %d visitors inside and the places of %d that wait, in all rooms\n", inside, waiting)
	if a.yes {
		return nil
	}
	if !isTerminal(c.in) {
		return usageError("yes: is needed to revoke without a terminal")
	}
	return c.ask("Revoke?", "nothing was revoked")
}
