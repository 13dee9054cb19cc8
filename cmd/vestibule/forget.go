package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/members"
	"vestibule/internal/node/natsbus"
)

// forgetConfig is the configuration of fleet forget.
type forgetConfig struct {
	fleetConfig `mapstructure:",squash"`
	DC          string `mapstructure:"dc" doc:"data centre of the edge"`
	All         bool   `mapstructure:"all" doc:"in place of EDGE: every edge that is not heard, also those that a lost store listed"`
	Over        bool   `mapstructure:"over" doc:"with all: their sessions too"`
	Instance    string `mapstructure:"instance" doc:"only this process of the edge, Instance in /status of the regional; without it all silent ones"`
}

func newFleetForgetCmd() *cobra.Command {
	cfg, flags := &forgetConfig{fleetConfig: *newFleetConfig()}, &clientFlags{}
	cmd := &cobra.Command{
		Use: "forget [EDGE]", Short: "Declare that an edge has ended for good",
		Long: `Declare that an edge of data centre --dc has ended for good: its permits count until its sessions would have expired, not
until lost_after. It is refused for an edge that is heard. Use it only with evidence: an edge that lives on, cut off,
goes on renewing sessions that nobody counts. With --nats-url, the NATS of the data centre, it needs no global.`,
	}
	configured(cmd, cfg, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && !cfg.All {
			return usagef("EDGE: needs the NAME of an edge, or --all")
		}
		ask, err := cfg.ask(strings.Join(args, ""))
		if err != nil {
			return usageError(err.Error())
		}
		if !byNATS(cmd) {
			return flags.run(func(c *client, _ []string) error { return forgetByAPI(c, cfg.DC, &ask, "") })(cmd, args)
		}
		question, err := json.Marshal(ask)
		if err != nil {
			return err
		}
		return cfg.connect(cmd, func(ctx context.Context, conn *natsbus.Conn) error {
			return askRegional(ctx, conn, cfg.DC, wire.ForgetSubject(cfg.DC), question, cmd.OutOrStdout())
		})
	})
	flags.add(cmd, cmd.Flags())
	flags.addReason(cmd.Flags())
	return cmd
}

// forgetByAPI asks the API to forget an edge, and prints the answer after a prefix.
func forgetByAPI(c *client, dc string, ask *wire.ForgetAsk, prefix string) error {
	body := object{"edge": ask.Edge, "all": ask.All, "over": ask.Over}
	if ask.Instance != 0 {
		body["instance"] = strconv.FormatUint(ask.Instance, 10)
	}
	return change(c, http.MethodPost, ofOurs("data_centers", dc, "forget"), body,
		func(f api.Forgotten) string { return prefix + f.Done })
}

func newFleetRecoverCmd() *cobra.Command {
	flags, yes := &clientFlags{}, false
	cmd := &cobra.Command{
		Use: "recover", Short: "End the wait for processes that a lost store listed",
		Long: `Declare, for every data centre, that the sessions from before a loss of the store have ended at all processes that do not
run: then nobody waits for them. Sessions of edges that report count as before. Use it only with evidence: sessions that
go on come on top of the limits.`,
		Args: cobra.NoArgs,
	}
	flags.add(cmd, cmd.Flags())
	flags.addReason(cmd.Flags())
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "without a question")
	cmd.RunE = flags.run(func(c *client, _ []string) error { return recoverFleet(c, yes) })
	return cmd
}

// regionalWithin is how long to wait for a regional that leads and knows which edges report.
const regionalWithin = 30 * time.Second

// recoverFleet asks every data centre of the list to forget what is from before.
func recoverFleet(c *client, yes bool) error {
	all, err := c.members()
	if err != nil {
		return err
	}
	if !yes {
		if !isTerminal(c.in) {
			return usageError("yes: is needed without a terminal")
		}
		question := "Does every edge that runs report (vestibule fleet status), and have the sessions at all others ended?"
		if err := c.ask(question, "nothing was declared"); err != nil {
			return err
		}
	}
	ask := wire.ForgetAsk{All: true, Over: true}
	var errs []error
	for _, d := range all.DataCenters {
		if d.State == members.Removed || d.CopyClusterId != "" {
			continue
		}
		for begun := time.Now(); ; { // a new regional refuses for the length of a lease
			err = forgetByAPI(c, d.Name, &ask, d.Name+": ")
			if err == nil || time.Since(begun) > regionalWithin || c.ctx.Err() != nil {
				break
			}
			select {
			case <-c.ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.Name, err))
		}
	}
	return errors.Join(errs...)
}

func newFleetRejoinCmd() *cobra.Command {
	cfg := newFleetConfig()
	return configured(&cobra.Command{
		Use: "rejoin DC", Short: "Declare that a data centre taken for a copy is the one of the list",
		Long: `Declare that the data centre of this NATS, which is taken for a copy, is the one of the list: its store was lost with every
edge. Use it only with evidence: if the other one lives, both hold its permits.`,
	}, cfg, func(cmd *cobra.Command, args []string) error {
		if err := wire.CheckName(args[0]); err != nil {
			return fmt.Errorf("DC: %w", err)
		}
		return cfg.connect(cmd, func(ctx context.Context, conn *natsbus.Conn) error {
			return askRegional(ctx, conn, args[0], wire.RejoinSubject(args[0]), nil, cmd.OutOrStdout())
		})
	})
}

// ask returns the request to the regional, or all faults of the flags.
func (c *forgetConfig) ask(edge string) (wire.ForgetAsk, error) {
	ask := wire.ForgetAsk{Edge: edge, All: c.All, Over: c.Over}
	var errs []error
	if err := wire.CheckName(edge); err != nil && !c.All {
		errs = append(errs, fmt.Errorf("EDGE: %w", err))
	}
	if c.All && (edge != "" || c.Instance != "") {
		errs = append(errs, errors.New("all: names every silent edge, so EDGE and instance must be left out"))
	}
	if c.Over && !c.All {
		errs = append(errs, errors.New("over: needs all: nobody can tell the sessions of one edge apart"))
	}
	if err := wire.CheckName(c.DC); err != nil {
		errs = append(errs, fmt.Errorf("dc: %w", err))
	}
	if c.Instance != "" {
		var err error
		if ask.Instance, err = strconv.ParseUint(c.Instance, 10, 64); err != nil || ask.Instance == 0 {
			errs = append(errs, fmt.Errorf("instance: must be a whole number above zero, got %q", c.Instance))
		}
	}
	return ask, errors.Join(errs...)
}

// askRegional sends a request to the leading regional of dc on a subject of operators, and prints its answer.
func askRegional(ctx context.Context, conn *natsbus.Conn, dc, subject string, question []byte, out io.Writer) error {
	data, err := conn.Ask(ctx, subject, question)
	if errors.Is(err, natsbus.ErrNobody) {
		return fmt.Errorf("no regional leads %s here, or it is older than this command: is this the NATS of the data centre's edges?", dc)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer for %s: it needs the NATS of that data centre and its user operator: %w", dc, err)
	}
	if err != nil {
		return err
	}
	var answer wire.ForgetAnswer
	if err := json.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	_, err = fmt.Fprintln(out, answer.Done)
	return err
}
