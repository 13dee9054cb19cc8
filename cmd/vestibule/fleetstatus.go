package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
)

func newFleetStatusCmd() *cobra.Command {
	flags, watch := &clientFlags{}, false
	cmd := &cobra.Command{
		Use: "status", Short: "Show globals, data centres, edges and alarms, by the API",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.open(cmd)
			if err != nil {
				return err
			}
			return c.again(watch, c.fleet)
		},
	}
	flags.add(cmd, cmd.Flags())
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again every two seconds, until interrupted")
	return cmd
}

// again calls show, and with watch set repeats it every two seconds.
func (c *client) again(watch bool, show func() error) error {
	for {
		if err := show(); err != nil || !watch {
			return err
		}
		select {
		case <-c.ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
	}
}

func (c *client) fleet() error {
	var got api.Fleet
	res, err := c.GetFleet(c.ctx)
	if err := take(res, err, &got); err != nil {
		return err
	}
	return c.print(got, func(w io.Writer) {
		fmt.Fprintln(w, "CANDIDATE\tLEADS\tTERM\tROOMS\tKEYS\tLIST\tBUILD\tAS OF")
		for _, g := range got.Candidates {
			leads := "-"
			if g.Leading {
				leads = "yes"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", g.Name, leads, cmp.Or(g.Term, "-"), g.RoomsVersion, g.KeysVersion, g.MembersVersion, g.Build, g.AsOf.Format(time.TimeOnly))
		}
		if got.Leader == "" {
			fmt.Fprintln(w, "nobody has said of late that it leads")
			return
		}
		fmt.Fprintln(w, "\nDATA CENTRE\tSTATE\tTERM\tHEARD\tCLOCK\tPERMITS OF T\tIDLE\tPERMITS OF R\tIDLE\tSESSIONS\tOVERCOMMIT\tEDGES\tLEASE\tBUILD")
		for _, d := range got.DataCenters {
			state, clock := d.State, "unknown"
			if !d.Told {
				state += ", not heard"
			}
			if d.ClockBoundSeconds != nil {
				clock = fmt.Sprintf("±%.0f ms", *d.ClockBoundSeconds*1000)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%.1f s ago\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f s\t%s\n", d.Name, state, d.Term, d.HeardSeconds, clock,
				d.Permits, d.PermitsIdle, d.RatePermits, d.RatePermitsIdle, d.Sessions, d.Overcommit, d.EdgesCount, d.LeaseSeconds, cmp.Or(d.Build, "-"))
		}
		fmt.Fprintln(w, "\nEDGE\tDATA CENTRE\tSTATE\tHEARD\tLEASE\tBUILD")
		for _, d := range got.DataCenters {
			for _, e := range d.Edges {
				fmt.Fprintf(w, "%s\t%s\t%s\t%.1f s ago\t%.1f s\t%s\n", e.Name, d.Name, e.State, e.HeardSeconds, e.LeaseSeconds, cmp.Or(e.Build, "-"))
			}
			if more := d.EdgesCount - len(d.Edges); more > 0 {
				fmt.Fprintf(w, "and %d more\t%s\n", more, d.Name)
			}
		}
		for _, g := range got.Candidates {
			for _, a := range g.Alarms {
				fmt.Fprintf(w, "\nalarm of %s: %s\n", g.Name, a)
			}
		}
	})
}
