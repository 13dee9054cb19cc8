package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/core/wire"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

func newFleetCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "fleet", Short: "Show and change the data centres of a fleet",
		Long: `Show and change the data centres of a fleet.

All commands but status use NATS, with the keys of the section nats of a node's configuration. No global needs to run;
forget and rejoin need the regional that leads. The list is changed in the store by compare-and-set.`,
	}
	cmd.AddCommand(newFleetStatusCmd(), newFleetListCmd(), newFleetAddCmd(), newFleetDrainCmd(), newFleetRemoveCmd(),
		newFleetForgetCmd(), newFleetRejoinCmd())
	return cmd
}

func newFleetListCmd() *cobra.Command {
	cfg := newFleetConfig()
	cmd := &cobra.Command{Use: "list", Short: "Show the data centres of the fleet, and the permits they hold"}
	cfg.runs(cmd, cfg, func(ctx context.Context, l *fleetList, _ string) error { return l.list(ctx) })
	return cmd
}

func newFleetAddCmd() *cobra.Command {
	cfg := newFleetConfig()
	cmd := &cobra.Command{Use: "add DC", Short: "Add a data centre to the list, or end its draining"}
	cfg.runs(cmd, cfg, func(ctx context.Context, l *fleetList, name string) error {
		return l.change(ctx, func(now time.Time, m *node.Members) (*node.Members, error) { return m.Add(now, name) })
	})
	return cmd
}

func newFleetDrainCmd() *cobra.Command {
	cfg := newFleetConfig()
	cmd := &cobra.Command{
		Use: "drain DC", Short: "End admissions in a data centre, and remove it from the list",
		Long: "End admissions in a data centre. It leaves the list by itself once all its permits are returned.",
	}
	cfg.runs(cmd, cfg, func(ctx context.Context, l *fleetList, name string) error {
		return l.change(ctx, func(now time.Time, m *node.Members) (*node.Members, error) { return m.Drain(now, name) })
	})
	return cmd
}

// removeConfig is the configuration of fleet remove.
type removeConfig struct {
	fleetConfig `mapstructure:",squash"`
	Force       bool `mapstructure:"force" doc:"remove it while it holds permits; its sessions may exceed the limit until they end"`
}

func newFleetRemoveCmd() *cobra.Command {
	cfg := &removeConfig{fleetConfig: *newFleetConfig()}
	cmd := &cobra.Command{
		Use: "remove DC", Short: "Remove a data centre that is lost",
		Long: "Remove a data centre that is lost. It needs --force: its sessions may exceed the limit until they end.",
	}
	cfg.runs(cmd, cfg, func(ctx context.Context, l *fleetList, name string) error {
		if !cfg.Force {
			if err := l.mayRemove(ctx, name); err != nil {
				return err
			}
		}
		return l.change(ctx,
			func(now time.Time, m *node.Members) (*node.Members, error) { return m.RemoveByForce(now, name) })
	})
	return cmd
}

// fleetConfig is the NATS connection for the list of data centres, with the same keys as in nodes.
type fleetConfig struct {
	NATS node.ClientConfig `mapstructure:"nats"`
	Wait time.Duration     `mapstructure:"wait" doc:"how long to try to reach NATS"`
}

func newFleetConfig() *fleetConfig {
	return &fleetConfig{NATS: node.DefaultClient(), Wait: 5 * time.Second}
}

// Validate implements [node.Config].
func (c *fleetConfig) Validate() []error {
	errs := c.NATS.Validate("nats")
	if c.Wait <= 0 {
		errs = append(errs, fmt.Errorf("wait: must be above 0, got %v", c.Wait))
	}
	return errs
}

// runs makes a command operate on the list of data centres. Its flags are those of whole, which contains c.
func (c *fleetConfig) runs(cmd *cobra.Command, whole node.Config,
	do func(ctx context.Context, l *fleetList, name string) error,
) {
	load := node.Flags(whole, cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if check, err := loadConfig(load); err != nil || check {
			return err
		}
		return c.connect(cmd, func(ctx context.Context, conn *natsbus.Conn) error {
			return do(ctx, &fleetList{docs: natsbus.NewDocuments(conn, 0), out: cmd.OutOrStdout()}, strings.Join(args, ""))
		})
	}
}

// connect calls do with a connection to NATS.
func (c *fleetConfig) connect(cmd *cobra.Command, do func(ctx context.Context, conn *natsbus.Conn) error) error {
	log := node.NewLogger(cmd.ErrOrStderr(), node.LogConfig{Level: "error", Format: "text"})
	conn, err := natsbus.Connect(c.NATS.Options("vestibule-fleet", natsbus.OperatorInbox, log))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), c.Wait)
	defer cancel()
	if err := c.await(ctx, conn); err != nil {
		return err
	}
	return do(ctx, conn)
}

// await returns once there is a connection, or the reason for none when ctx ends.
func (c *fleetConfig) await(ctx context.Context, conn *natsbus.Conn) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !conn.Connected() {
		select {
		case <-ctx.Done():
			if why := conn.Refused(); why != "" {
				return fmt.Errorf("NATS at %s refuses this user (see --nats-creds, --nats-cert): %s", c.NATS.URL, why)
			}
			return fmt.Errorf("NATS at %s does not answer within %v (see --nats-url, --wait)", c.NATS.URL, c.Wait)
		case <-tick.C:
		}
	}
	return nil
}

// fleetList is the list of data centres in the store.
type fleetList struct {
	docs *natsbus.Documents
	out  io.Writer
}

// errUnfounded means that no list is stored.
var errUnfounded = errors.New("the store holds no list of data centres yet: global makes it once every data centre in its data_centers has reported; see the alarms of its /readyz")

func (f *fleetList) get(ctx context.Context) (*node.Members, uint64, error) {
	data, revision, err := f.docs.Get(ctx, node.MembersDocument)
	if err != nil {
		return nil, 0, err
	}
	if data == nil {
		return nil, 0, errUnfounded
	}
	m, err := node.DecodeMembers(data)
	return m, revision, err
}

// status returns the last status published by the leading global; nil for none.
func (f *fleetList) status(ctx context.Context) (*node.MembersStatus, error) {
	data, _, err := f.docs.Get(ctx, node.MembersStatusDocument)
	if err != nil || data == nil {
		return nil, err
	}
	var st node.MembersStatus
	if err := json.Unmarshal(data, &st); err != nil {
		return nil, fmt.Errorf("%s document: %w", node.MembersStatusDocument, err)
	}
	return &st, nil
}

// change changes the list, and tries again after a concurrent change.
func (f *fleetList) change(ctx context.Context, change func(time.Time, *node.Members) (*node.Members, error)) error {
	for {
		m, revision, err := f.get(ctx)
		if err != nil {
			return err
		}
		st, err := f.status(ctx)
		if err != nil {
			return err
		}
		if st != nil && max(st.Version, st.Newest) > m.Version {
			return fmt.Errorf("the store came back older: it holds version %d of the list, and the fleet knows version %d; a global that knows that one gives it back to the store", m.Version, max(st.Version, st.Newest))
		}
		next, err := change(time.Now(), m)
		if err != nil {
			return err
		}
		data, err := node.EncodeMembers(next)
		if err != nil {
			return err
		}
		switch _, err := f.docs.Put(ctx, node.MembersDocument, data, revision); {
		case errors.Is(err, wire.ErrChanged):
			continue
		case err != nil:
			return fmt.Errorf("it is not known whether the list was changed, see vestibule fleet list: %w", err)
		}
		if err := f.list(ctx); err != nil {
			fmt.Fprintf(f.out, "the list was changed, and is version %d; it cannot be shown now: %v\n", next.Version, err)
		}
		return nil
	}
}

// mayRemove returns the reason why a data centre cannot be removed from the list, if any.
func (f *fleetList) mayRemove(ctx context.Context, name string) error {
	m, _, err := f.get(ctx)
	if err != nil {
		return err
	}
	i := m.Find(name)
	if i < 0 {
		return fmt.Errorf("data centre %q: %w", name, node.ErrNoMember)
	}
	if m.List[i].State != node.Draining {
		return fmt.Errorf("data centre %q does not drain: vestibule fleet drain %s first; it leaves the list by itself", name,
			name)
	}
	st, err := f.status(ctx)
	if err != nil {
		return err
	}
	what := "no global has reported its permits"
	if st != nil {
		for _, c := range st.List {
			if c.Name == name {
				what = fmt.Sprintf("%d permits of T and %d of R are out, %d sessions (as of %s)", c.Held, c.RateHeld, c.Sessions,
					st.At.UTC().Format(time.RFC3339))
				if !c.Told {
					what = "it does not report; at its last report, " + what
				}
			}
		}
	}
	return fmt.Errorf("data centre %q is draining and leaves the list when it is empty: %s; --force removes it now, and its sessions may exceed the limit", name, what)
}

func (f *fleetList) list(ctx context.Context) error {
	m, _, err := f.get(ctx)
	if err != nil {
		return err
	}
	st, err := f.status(ctx)
	if err != nil {
		return err
	}
	var listed, copies []node.CentreState
	if st != nil {
		for _, c := range st.List {
			if c.State == wire.Unlisted.String() {
				copies = append(copies, c)
			} else {
				listed = append(listed, c)
			}
		}
	}
	err = writeTable(f.out, func(row func(...any)) {
		row("DATA CENTRE", "STATE", "PERMITS OF T", "PERMITS OF R", "SESSIONS", "OVERCOMMIT")
		line := func(c node.CentreState, state string) {
			if !c.Told {
				state += ", silent"
			}
			row(c.Name, state, c.Held, c.RateHeld, c.Sessions, c.Overcommit)
		}
		for _, d := range m.List {
			i := slices.IndexFunc(listed, func(c node.CentreState) bool { return c.Name == d.Name })
			if i < 0 {
				row(d.Name, d.State, "-", "-", "-", "-")
				continue
			}
			line(listed[i], string(d.State))
		}
		for _, c := range copies {
			state := c.State
			if m.Find(c.Name) >= 0 {
				state += fmt.Sprintf(" copy, cluster ID %016x", c.ClusterID)
			}
			line(c, state)
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(f.out, "\nversion %d of the list", m.Version)
	switch {
	case st == nil:
		fmt.Fprint(f.out, "; no global has reported the permits")
	case st.Version != m.Version:
		fmt.Fprintf(f.out, "; the permits are from a global with version %d, at %s", st.Version,
			st.At.UTC().Format(time.RFC3339))
	}
	_, err = fmt.Fprintln(f.out)
	return err
}
