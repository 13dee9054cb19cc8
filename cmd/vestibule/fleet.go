package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// fleetConfig says where the list of data centres is, with the keys that nodes have.
type fleetConfig struct {
	NATS  node.ClientConfig `mapstructure:"nats"`
	Force bool              `mapstructure:"force" doc:"remove: whatever the data centre may hold; its sessions may be above the limit until they end"`
	Wait  time.Duration     `mapstructure:"wait" doc:"how long to try to reach NATS"`
	DC    string            `mapstructure:"dc" doc:"forget: data centre of the edge"`
	All   bool              `mapstructure:"all" doc:"forget: in place of EDGE: every edge of the data centre that is not heard"`
	Inc   string            `mapstructure:"incarnation" doc:"forget: only this process of the edge, the number Inc in /status of the regional; without it all that are silent"`
}

// Validate implements [node.Config].
func (c *fleetConfig) Validate() []error {
	errs := c.NATS.Validate("nats")
	if c.Wait <= 0 {
		errs = append(errs, fmt.Errorf("wait: must be above 0, got %v", c.Wait))
	}
	return errs
}

const fleetUsage = `usage: vestibule fleet list|status|add NAME|drain NAME|remove NAME|forget EDGE|forget --all|rejoin NAME [flags]

  status         candidates for global and data centres as they said a second ago, by the API:
                 who leads, versions, clocks, rights held and idle, alarms (vestibule login)
  list           the data centres of the fleet, and what they have out
  add NAME       list a data centre; one that drains stays
  drain NAME     let nobody in there any more; it leaves the list by itself when
                 all that it holds has come back
  remove NAME    take a data centre off that will not come back (needs --force:
                 its sessions may be above the limit until they end)
  forget EDGE    say that an edge of data centre --dc has ended for good: what it held
                 counts until it would have expired, not until lost_after. Refused
                 for one that is heard. Only with evidence: an edge that lives on, cut
                 off, goes on renewing sessions that nobody counts
  forget --all   say so of every edge of data centre --dc that is not heard, also of
                 those that a lost store told of
  rejoin NAME    say that the data centre whose NATS this is, and which is taken for a
                 copy, is the one of the list: its store was lost with every edge that
                 ran. Only with evidence: if the other one lives, both hold its rights

No global needs to run, but for forget and rejoin the regional that leads. The list is changed in the store by compare-and-set.
vestibule fleet list --help shows the flags. A file for --config has the section nats and nothing else.

`

// fleet changes and shows the list of data centres.
func fleet(args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 || args[0] == "--help" || args[0] == "-h" || args[0] == "help" {
		fmt.Fprint(stdout, fleetUsage)
		if len(args) == 0 {
			return node.ErrUsage
		}
		return errHelp
	}
	if args[0] == "status" {
		return fleetStatus(args[1:], stdout, stderr)
	}
	verb := args[0]
	name, rest, err := fleetName(verb, args[1:], stderr)
	if err != nil {
		return err
	}
	cfg := fleetConfig{NATS: node.DefaultClient(), Wait: 5 * time.Second}
	if check, err := load("fleet "+verb, &cfg, rest, stdout, stderr); err != nil || check {
		return err
	}
	var ask wire.ForgetAsk
	if verb == "forget" {
		if ask, err = cfg.forgetAsk(name); err != nil {
			fmt.Fprintf(stderr, "vestibule fleet forget: %v\n", err)
			return node.ErrUsage
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := node.NewLogger(stderr, node.LogConfig{Level: "error", Format: "text"})
	conn, err := natsbus.Connect(cfg.NATS.Options("vestibule-fleet", natsbus.OperatorInbox, log))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, cfg.Wait)
	defer cancel()
	if err := cfg.await(ctx, conn); err != nil {
		return err
	}
	switch verb {
	case "forget":
		question, err := json.Marshal(ask)
		if err != nil {
			return err
		}
		return askRegional(ctx, conn, cfg.DC, wire.ForgetSubject(cfg.DC), question, stdout)
	case "rejoin":
		if err := wire.CheckName(name); err != nil {
			return fmt.Errorf("NAME: %w", err)
		}
		return askRegional(ctx, conn, name, wire.RejoinSubject(name), nil, stdout)
	}
	f := &fleetList{docs: natsbus.NewDocuments(conn, 0), out: stdout}
	return f.do(ctx, verb, name, cfg.Force)
}

// fleetName returns the name that a verb is about, "" where it needs none, and the
// arguments after it.
func fleetName(verb string, args []string, stderr io.Writer) (name string, rest []string, err error) {
	switch verb {
	case "list":
		return "", args, nil
	case "add", "drain", "remove", "forget", "rejoin":
	default:
		fmt.Fprintf(stderr, "vestibule fleet: unknown command %q (see vestibule fleet --help)\n", verb)
		return "", nil, node.ErrUsage
	}
	if len(args) > 0 && (args[0] == "--help" || args[0] == "-h") || (verb == "forget" && slices.Contains(args, "--all")) {
		return "", args, nil // all edges that are not heard have no name
	}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		what := "a data centre"
		if verb == "forget" {
			what = "an edge"
		}
		fmt.Fprintf(stderr, "vestibule fleet %s: needs the NAME of %s (see vestibule fleet --help)\n", verb, what)
		return "", nil, node.ErrUsage
	}
	return args[0], args[1:], nil
}

// await returns when there is a connection, or why there is none when ctx ends.
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

// fleetList is the list in the store.
type fleetList struct {
	docs *natsbus.Documents
	out  io.Writer
}

// do shows the list, or changes it and shows what it is now.
func (f *fleetList) do(ctx context.Context, verb, name string, force bool) error {
	switch verb {
	case "list":
		return f.list(ctx)
	case "add":
		return f.change(ctx, func(now time.Time, m *node.Members) (*node.Members, error) { return m.Add(now, name) })
	case "drain":
		return f.change(ctx, func(now time.Time, m *node.Members) (*node.Members, error) { return m.Drain(now, name) })
	}
	if !force {
		if err := f.mayRemove(ctx, name); err != nil {
			return err
		}
	}
	return f.change(ctx, func(now time.Time, m *node.Members) (*node.Members, error) { return m.RemoveByForce(now, name) })
}

// errUnfounded says that no list is stored.
var errUnfounded = errors.New("the store holds no list of data centres yet: global makes it once every data centre of its data_centers was heard; see the alarms of its /readyz")

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

// status returns what the leading global told last; nil where none did.
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

// change changes the list, anew where somebody else did meanwhile.
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

// mayRemove reports what speaks against taking a data centre off the list.
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
		return fmt.Errorf("data centre %q does not drain: vestibule fleet drain %s first; it leaves the list by itself", name, name)
	}
	st, err := f.status(ctx)
	if err != nil {
		return err
	}
	what := "no global has told what it has out"
	if st != nil {
		for _, c := range st.List {
			if c.Name == name {
				what = fmt.Sprintf("%d rights of T and %d of R are out, %d sessions (as of %s)", c.Held, c.RateHeld, c.Sessions, st.At.UTC().Format(time.RFC3339))
				if !c.Told {
					what = "it is not heard; when it was, " + what
				}
			}
		}
	}
	return fmt.Errorf("data centre %q drains and leaves the list by itself: %s; --force takes it off now, and its sessions may be above the limit", name, what)
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
	w := tabwriter.NewWriter(f.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DATA CENTRE\tSTATE\tRIGHTS OF T\tRIGHTS OF R\tSESSIONS\tEXCESS")
	told := map[string]node.CentreState{}
	if st != nil {
		for _, c := range st.List {
			if c.State != wire.Unlisted.String() {
				told[c.Name] = c
			}
		}
	}
	line := func(name, state string) {
		c, ok := told[name]
		delete(told, name)
		if !ok {
			fmt.Fprintf(w, "%s\t%s\t-\t-\t-\t-\n", name, state)
			return
		}
		if !c.Told {
			state += ", not heard"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\n", name, state, c.Held, c.RateHeld, c.Sessions, c.Excess)
	}
	for _, d := range m.List {
		line(d.Name, string(d.State))
	}
	if st != nil {
		for _, c := range st.List {
			if c.State != wire.Unlisted.String() {
				continue
			}
			state := c.State
			if m.Find(c.Name) >= 0 {
				state += fmt.Sprintf(" copy, site %016x", c.Site)
			}
			told[c.Name] = c
			line(c.Name, state)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(f.out, "\nversion %d of the list", m.Version)
	switch {
	case st == nil:
		fmt.Fprint(f.out, "; no global has told what is out")
	case st.Version != m.Version:
		fmt.Fprintf(f.out, "; what is out was told by a global with version %d, at %s", st.Version, st.At.UTC().Format(time.RFC3339))
	}
	if len(m.Forced) > 0 {
		names := make([]string, len(m.Forced))
		for i, d := range m.Forced {
			names[i] = d.Name
		}
		fmt.Fprintf(f.out, "\ntaken off by force, and may have sessions yet: %s", strings.Join(names, ", "))
	}
	_, err = fmt.Fprintln(f.out)
	return err
}
