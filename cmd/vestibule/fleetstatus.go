package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/core/ledger/root"
	"vestibule/internal/global/control/api"
)

func newFleetStatusCmd() *cobra.Command {
	flags, watch := &clientFlags{}, false
	cmd := &cobra.Command{
		Use: "status", Short: "Show globals, data centres, edges and alarms, by the API",
		RunE: flags.run(func(c *client, _ []string) error {
			return c.again(watch, func() error { return showFleet(c) })
		}),
	}
	flags.add(cmd, cmd.Flags())
	addWatch(cmd, &watch)
	return cmd
}

func showFleet(c *client) error {
	got, err := call[api.Fleet](c, http.MethodGet, ofOurs("fleet"), nil)
	if err != nil {
		return err
	}
	return c.show(got, func(row func(...any)) {
		row("CANDIDATE", "LEADS", "TERM", "ROOMS", "KEYS", "LIST", "BUILD", "AS OF")
		var newest time.Time
		for _, g := range got.Candidates {
			if g.AsOf.After(newest) {
				newest = g.AsOf
			}
		}
		for _, g := range got.Candidates {
			leads := ""
			switch {
			case newest.Sub(g.AsOf) > candidateSilent:
				leads = "silent"
			case g.Leading:
				leads = "yes"
			}
			row(g.Name, leads, g.Term, g.RoomsVersion, g.KeysVersion, g.MembersVersion, g.Build, g.AsOf)
		}
		if got.Leader == "" {
			row("no candidate leads")
			return
		}
		row("\nDATA CENTRE", "STATE", "TERM", "HEARD", "CLOCK", "PERMITS OF T", "IDLE", "PERMITS OF R", "IDLE", "SESSIONS",
			"MOVING IN", "OVERCOMMIT", "EDGES", "LEASE", "BUILD")
		for _, d := range got.DataCenters {
			state, clock := d.State, "unknown"
			switch {
			case d.Told:
			case d.HeardSeconds > root.SilentAfter.Seconds():
				state += ", silent"
			default: // it waits itself, or is not initialized
				state += ", permits unknown"
			}
			if d.ClockBoundSeconds != nil {
				clock = fmt.Sprintf("±%.0f ms", *d.ClockBoundSeconds*1000)
			}
			row(d.Name, state, d.Term, ago(d.HeardSeconds), clock,
				d.Permits, d.PermitsIdle, d.RatePermits, d.RatePermitsIdle, d.Sessions,
				d.MovingIn, d.Overcommit, d.EdgesCount, fmt.Sprintf("%.0f s", d.LeaseSeconds), d.Build)
		}
		row("\nEDGE", "DATA CENTRE", "STATE", "HEARD", "LEASE", "BUILD")
		for _, d := range got.DataCenters {
			for _, e := range d.Edges {
				row(e.Name, d.Name, e.State, ago(e.HeardSeconds), fmt.Sprintf("%.1f s", e.LeaseSeconds), e.Build)
			}
			if more := d.EdgesCount - len(d.Edges); more > 0 {
				row(fmt.Sprintf("and %d more", more), d.Name)
			}
		}
		for _, g := range got.Candidates {
			for _, a := range g.Alarms {
				row(fmt.Sprintf("\nalarm of %s: %s", g.Name, a))
			}
		}
	})
}

// candidateSilent is how much older than others the state of a candidate is that is called silent: each tells its own
// once a second.
const candidateSilent = 5 * time.Second

func ago(seconds float64) string { return fmt.Sprintf("%.1f s ago", seconds) }
