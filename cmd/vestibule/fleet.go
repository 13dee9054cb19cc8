package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vestibule/internal/global/control/api"
	"vestibule/internal/global/members"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

func newFleetCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "fleet", Short: "Show and change the data centres of a fleet",
		Long: `Show and change the data centres of a fleet.

The commands use the API. With the keys of the section nats of a node's configuration (--nats-url) they use NATS, where
no global can be reached: list, add, drain and remove that of global, forget that of the data centre. rejoin always uses
the NATS of the data centre, which tells a copy apart.`,
	}
	cmd.AddCommand(newFleetStatusCmd(),
		memberCommand(&cobra.Command{
			Use: "list", Short: "Show the data centres of the fleet, and the permits they hold",
		}, nil, nil),
		memberCommand(&cobra.Command{
			Use: "add DC", Short: "Add a data centre to the list, or end its draining",
		}, setMember(members.Active), (*members.List).Add),
		memberCommand(&cobra.Command{
			Use: "drain DC", Short: "End admissions in a data centre, and remove it from the list",
			Long: "End admissions in a data centre. It leaves the list by itself once all its permits are returned.",
		}, setMember(members.Draining), (*members.List).Drain),
		newFleetRemoveCmd(), newFleetForgetCmd(), newFleetRecoverCmd(), newFleetRejoinCmd())
	return cmd
}

// byNATS reports whether the user configures a connection to NATS.
func byNATS(cmd *cobra.Command) bool {
	given := os.Getenv("VESTIBULE_NATS_URL") != "" || os.Getenv("VESTIBULE_CONFIG") != ""
	cmd.Flags().Visit(func(f *pflag.Flag) {
		given = given || strings.HasPrefix(f.Name, "nats-") ||
			slices.Contains([]string{"config", "check-config", "wait"}, f.Name)
	})
	return given
}

// orNATS makes a command use the API or, if the user configures a connection, NATS.
func (c *clientFlags) orNATS(
	cmd *cobra.Command, cfg node.Config, byAPI func(c *client, args []string) error, direct runFunc,
) {
	direct = configured(cmd, cfg, direct).RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if byNATS(cmd) {
			return direct(cmd, args)
		}
		return c.run(byAPI)(cmd, args)
	}
	c.add(cmd, cmd.Flags())
}

// memberCommand makes a command change the list of data centres, by the API or in the store, if it changes it, and show
// it.
func memberCommand(
	cmd *cobra.Command, byAPI func(c *client, name string) error,
	direct func(l *members.List, ctx context.Context, name string) error,
) *cobra.Command {
	cfg, flags, changes := newFleetConfig(), &clientFlags{}, direct != nil
	cfg.stream = natsbus.DocumentsStream
	use := func(args []string, change func(name string) error, view func() (*api.Members, error)) error {
		if changes {
			if err := change(args[0]); err != nil {
				return err
			}
		}
		all, err := view()
		if err != nil && changes {
			return fmt.Errorf("the list was changed, and cannot be shown now: %w", err)
		}
		if err != nil {
			return err
		}
		if changes {
			noteSilent(cmd.ErrOrStderr(), all, args[0])
		}
		c := client{output: flags.output, out: cmd.OutOrStdout()}
		return c.show(all, func(row func(...any)) { showMembers(row, all) })
	}
	flags.orNATS(cmd, cfg, func(c *client, args []string) error {
		return use(args, func(name string) error { return byAPI(c, name) }, c.members)
	}, func(cmd *cobra.Command, args []string) error {
		return cfg.connect(cmd, func(ctx context.Context, conn *natsbus.Conn) error {
			l := &members.List{Docs: natsbus.NewDocuments(conn, 0)}
			return use(args, func(name string) error { return direct(l, ctx, name) },
				func() (*api.Members, error) { return l.View(ctx) })
		})
	})
	if changes {
		flags.addReason(cmd.Flags())
	}
	return cmd
}

// noteSilent says that an active data centre of a name has never reported: the name may be mistyped.
func noteSilent(w io.Writer, all *api.Members, name string) {
	for _, d := range all.DataCenters {
		if d.Name == name && d.State == members.Active && !d.Known {
			fmt.Fprintf(w, "note: data centre %s has not reported yet, and gets permits once its regional does; "+
				"to take back a mistyped name: vestibule fleet remove %s --force\n", name, name)
		}
	}
}

func newFleetRemoveCmd() *cobra.Command {
	force := false
	cmd := memberCommand(&cobra.Command{
		Use: "remove DC", Short: "Remove a data centre that is lost",
		Long: `Remove a data centre that is lost. It needs --force: where all rooms have partition_policy serve, its permits are granted again
after a minute of silence, and its sessions may exceed the limit until they end. Where a room has cap, they are granted
once its last ticket has expired, two minutes and a session_duration after its last report at most: nothing is exceeded.`,
	}, func(c *client, name string) error {
		target := fmt.Sprintf("%s?force=%t", ofOurs("data_centers", name), force)
		_, err := call[any](c, http.MethodDelete, c.because(target), nil)
		return err
	}, func(l *members.List, ctx context.Context, name string) error { return l.Remove(ctx, name, force) })
	cmd.Flags().BoolVar(&force, "force", false,
		"remove it while it holds permits; under partition_policy serve its sessions may exceed the limit until they end")
	return cmd
}

// members returns the list of data centres.
func (c *client) members() (*api.Members, error) {
	return call[*api.Members](c, http.MethodGet, ofOurs("data_centers"), nil)
}

// setMember returns a function that sets the state of a data centre.
func setMember(state string) func(c *client, name string) error {
	return func(c *client, name string) error {
		_, err := call[any](c, http.MethodPut, c.because(ofOurs("data_centers", name)), object{"state": state})
		return err
	}
}

func showMembers(row func(...any), all *api.Members) {
	row("DATA CENTRE", "STATE", "PERMITS OF T", "PERMITS OF R", "SESSIONS", "OVERCOMMIT")
	for _, d := range all.DataCenters {
		if !d.Known {
			row(d.Name, d.State, "-", "-", "-", "-")
			continue
		}
		state := d.State
		if d.CopyClusterId != "" {
			state += " copy, cluster ID " + d.CopyClusterId
		}
		if !d.Told {
			state += ", silent"
		}
		row(d.Name, state, d.Permits, d.RatePermits, d.Sessions, d.Overcommit)
	}
	note := ""
	switch {
	case all.AsOf == nil:
		note = "; no global has reported the permits"
	case all.StatusVersion != all.Version:
		note = fmt.Sprintf("; the permits are from a global with version %d, at %s", all.StatusVersion, cellText(all.AsOf))
	}
	row(fmt.Sprintf("\nversion %d of the list%s", all.Version, note))
}

// fleetConfig is the NATS connection for the list of data centres, with the same keys as in nodes.
type fleetConfig struct {
	NATS node.ClientConfig `mapstructure:"nats"`
	Wait time.Duration     `mapstructure:"wait" doc:"how long to try to reach NATS"`

	stream string // that the command reads, "" for none
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
	err = do(ctx, conn)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w%s", err, cause(&c.NATS, "vestibule-fleet", natsbus.OperatorInbox, c.stream))
	}
	return err
}

// cause returns why a connection cannot be made, or does not reach a stream ("" for none), with what to do next, after
// a colon; "" for unknown.
func cause(c *node.ClientConfig, name, inbox, stream string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // that of the command is over
	defer cancel()
	if err := natsbus.Diagnose(ctx, c.Options(name, inbox, slog.New(slog.DiscardHandler)), stream); err != nil {
		return ": " + err.Error()
	}
	return ""
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
			return fmt.Errorf("NATS at %s does not answer within %v (see --nats-url, --wait)%s", c.NATS.URL, c.Wait,
				cause(&c.NATS, "vestibule-fleet", natsbus.OperatorInbox, ""))
		case <-tick.C:
		}
	}
	return nil
}
