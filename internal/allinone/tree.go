// Package allinone wires a whole tree into one process: an embedded
// nats-server, global, a regional per data centre, edges, and a demo site
// behind them. It is what `make run` runs and what integration tests stand on;
// every node is the one that runs alone elsewhere, over real NATS.
package allinone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/edge"
	"vestibule/internal/global"
	"vestibule/internal/natsbus"
	"vestibule/internal/natsbus/embedded"
	"vestibule/internal/node"
	"vestibule/internal/regional"
	"vestibule/internal/room"
	"vestibule/internal/wire"
)

// Options say what the tree looks like.
type Options struct {
	DataCenters []string
	Edges       int // per data centre
	Listen      string
	Control     string // host:port of the API, "" for a free port of this machine
	DataDir     string
	Params      wire.Params
	Log         *slog.Logger

	TotalActiveUsers  int
	NewUsersPerMinute int
	SessionDuration   time.Duration
	Origin            string // "" for the demo origin
}

// Validate returns everything that is wrong with the options.
func (o *Options) Validate() []error {
	var errs []error
	if len(o.DataCenters) == 0 {
		errs = append(errs, errors.New("data-centers: at least one must be named"))
	}
	seen := map[string]bool{}
	for _, dc := range o.DataCenters {
		if err := wire.CheckName(dc); err != nil {
			errs = append(errs, fmt.Errorf("data-centers: %w", err))
		}
		if seen[dc] {
			errs = append(errs, fmt.Errorf("data-centers: %q is named twice", dc))
		}
		seen[dc] = true
	}
	if o.Edges < 1 || o.Edges > 100 {
		errs = append(errs, fmt.Errorf("edges: must be 1 to 100, got %d", o.Edges))
	}
	errs = append(errs, node.CheckAddr("listen", o.Listen)...)
	if _, port, err := net.SplitHostPort(o.Listen); err == nil {
		n, err := strconv.Atoi(port)
		last := n + o.Edges*len(o.DataCenters) - 1
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("listen: port must be a number, got %q", port))
		case n > 0 && n <= 65535 && last > 65535:
			errs = append(errs, fmt.Errorf("listen: the ports of all edges must end at 65535, got %d to %d", n, last))
		}
	}
	if o.Control != "" {
		c := global.ControlConfig{Listen: o.Control}
		errs = append(errs, c.Validate()...)
	}
	if o.DataDir == "" {
		errs = append(errs, errors.New("data-dir: must not be empty"))
	}
	for _, f := range o.settings("http://127.0.0.1:1").Validate() {
		f.Field = strings.ReplaceAll(f.Field, "_", "-")
		errs = append(errs, f)
	}
	if o.SessionDuration == 0 {
		errs = append(errs, errors.New("session-duration: must be 5s to 1h in whole seconds, got 0s"))
	}
	return errs
}

// settings is the demo's room, as it is in the rooms file.
func (o *Options) settings(origin string) room.Settings {
	if o.Origin != "" {
		origin = o.Origin
	}
	return room.Settings{
		Name: "demo", Host: "127.0.0.1", Origin: origin,
		TotalActiveUsers: o.TotalActiveUsers, NewUsersPerMinute: o.NewUsersPerMinute, SessionDuration: o.SessionDuration,
	}
}

// EdgeInfo is where an edge of the tree is found.
type EdgeInfo struct {
	DC      string `json:"dc"`
	Name    string `json:"name"`
	URL     string `json:"url"`
	Metrics string `json:"metrics"`
}

// NodeInfo is where a node without visitors is found.
type NodeInfo struct {
	DC      string `json:"dc,omitempty"`
	Name    string `json:"name"`
	Metrics string `json:"metrics"`
}

// Info is where everything of the tree is found: what the READY line says.
type Info struct {
	Edges     []EdgeInfo `json:"edges"`
	Origin    string     `json:"origin"`
	NATS      string     `json:"nats"`
	Global    NodeInfo   `json:"global"`
	Regionals []NodeInfo `json:"regionals"`
	Rooms     string     `json:"rooms"` // the rooms file

	Control *global.ControlInfo `json:"control"` // the API, with its token once it is ready
}

// Tree is a running tree.
type Tree struct {
	Info   Info
	Origin *Origin // nil where Options named one

	log    *slog.Logger
	closer node.Closer
	nats   *embedded.Server
	edges  []*edge.Node
	global *global.Node
	tiers  []*tier // in the order in which they stop
}

// tier is what stops together.
type tier struct {
	name string
	stop context.CancelFunc
	g    *errgroup.Group
	ctx  context.Context
}

func (t *Tree) tier(name string) *tier {
	ctx, stop := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	x := &tier{name: name, stop: stop, g: g, ctx: ctx}
	t.tiers = append(t.tiers, x)
	return x
}

// Start starts a tree. The caller must call Stop, also after an error of Wait.
func Start(o Options) (*Tree, error) {
	if errs := o.Validate(); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	t := &Tree{log: o.Log}
	if err := t.start(&o); err != nil {
		return nil, errors.Join(err, t.Stop())
	}
	return t, nil
}

func (t *Tree) start(o *Options) (err error) {
	// A folder that is new has never had anybody admitted.
	fresh := false
	if _, err := os.Stat(filepath.Join(o.DataDir, "nats")); errors.Is(err, os.ErrNotExist) {
		fresh = true
	}
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return fmt.Errorf("data-dir: %w", err)
	}
	if t.nats, err = embedded.Start(embedded.Options{
		Name: "vestibule-demo", Dir: filepath.Join(o.DataDir, "nats"), Listen: "127.0.0.1:0", Log: o.Log,
	}); err != nil {
		return err
	}
	t.closer.Add("nats-server", t.nats.Stop)
	t.Info.NATS = t.nats.URL()

	// They stop in this order: edges tell their regionals what they leave
	// behind, regionals store it.
	edges, regionals, globals, origins := t.tier("edges"), t.tier("regionals"), t.tier("global"), t.tier("origin")

	origin := o.Origin
	if origin == "" {
		if t.Origin, err = NewOrigin(OriginOptions{Listen: "127.0.0.1:0", Session: o.SessionDuration, Log: o.Log}); err != nil {
			return err
		}
		origin = t.Origin.URL()
		origins.g.Go(func() error { return t.Origin.Run(origins.ctx) })
	}
	t.Info.Origin = origin
	t.Info.Rooms = filepath.Join(o.DataDir, "rooms.yaml")
	if err := writeRooms(t.Info.Rooms, o, origin); err != nil {
		return err
	}
	if err := t.startGlobal(globals, o, fresh); err != nil {
		return err
	}
	for _, dc := range o.DataCenters {
		if err := t.startRegional(regionals, o, dc, fresh); err != nil {
			return err
		}
	}
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	next, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	for _, dc := range o.DataCenters {
		for i := range o.Edges {
			if err := t.startEdge(edges, o, dc, fmt.Sprintf("edge-%d", i+1), net.JoinHostPort(host, strconv.Itoa(next))); err != nil {
				return err
			}
			if next != 0 {
				next++
			}
		}
	}
	return nil
}

// writeRooms writes the demo's room, in a file that may be edited while the
// demo runs.
func writeRooms(file string, o *Options, origin string) error {
	r := o.settings(origin)
	hosts := []string{"localhost"}
	if host, _, err := net.SplitHostPort(o.Listen); err == nil && host != "" && host != "0.0.0.0" && host != "::" && host != r.Host && host != hosts[0] {
		hosts = append(hosts, strings.Trim(host, "[]"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# The demo's room. Edit it while the demo runs: every edge follows within two
# seconds. A mistake is refused with its line, and the last good version stays.
rooms:
  - name: %s
    host: %s
    path: /
    additional_routes:
`, r.Name, r.Host)
	for _, h := range hosts {
		fmt.Fprintf(&b, "      - {host: %q, path: /}\n", h)
	}
	fmt.Fprintf(&b, `    total_active_users: %d
    new_users_per_minute: %d
    session_duration: %s
    origin: %s
`, r.TotalActiveUsers, r.NewUsersPerMinute, r.SessionDuration, r.Origin)
	return os.WriteFile(file, []byte(b.String()), 0o600)
}

// connect returns a connection of a node to the embedded server.
func (t *Tree) connect(name string, log *slog.Logger) (*natsbus.Conn, error) {
	c, err := natsbus.Connect(natsbus.Options{Name: name, InProcess: t.nats, Log: log})
	if err != nil {
		return nil, err
	}
	t.closer.Add("connection of "+name, c.Close)
	return c, nil
}

func (t *Tree) startGlobal(x *tier, o *Options, fresh bool) error {
	log := o.Log.With(slog.String("node", "global"))
	conn, err := t.connect("global-1", log)
	if err != nil {
		return err
	}
	cfg := global.DefaultConfig()
	cfg.DataDir, cfg.DataCenters, cfg.Rooms, cfg.Bootstrap = filepath.Join(o.DataDir, "global"), o.DataCenters, t.Info.Rooms, fresh
	cfg.NATS.Replicas, cfg.Control.Listen = 1, o.Control
	if o.Control == "" {
		cfg.Control.Listen = "127.0.0.1:0"
	}
	cfg.Control.Origin = t.Info.Origin
	n, err := global.NewNode(cfg, o.Params, conn, log)
	if err != nil {
		return err
	}
	x.g.Go(func() error { return n.Run(x.ctx) })
	t.global, t.Info.Control = n, n.Control.Info()
	t.Info.Global = NodeInfo{Name: cfg.Name, Metrics: n.Debug.URL()}
	return nil
}

func (t *Tree) startRegional(x *tier, o *Options, dc string, fresh bool) error {
	log := o.Log.With(slog.String("node", dc))
	conn, err := t.connect("regional-"+dc, log)
	if err != nil {
		return err
	}
	cfg := regional.DefaultConfig()
	cfg.DataDir, cfg.DataCenter, cfg.Bootstrap = filepath.Join(o.DataDir, dc), dc, fresh
	cfg.NATS.Replicas = 1
	n, err := regional.NewNode(cfg, o.Params, conn, conn, log)
	if err != nil {
		return err
	}
	x.g.Go(func() error { return n.Run(x.ctx) })
	t.Info.Regionals = append(t.Info.Regionals, NodeInfo{DC: dc, Name: cfg.Name, Metrics: n.Debug.URL()})
	return nil
}

func (t *Tree) startEdge(x *tier, o *Options, dc, name, listen string) error {
	log := o.Log.With(slog.String("node", dc+" "+name))
	conn, err := t.connect(dc+"-"+name, log)
	if err != nil {
		return err
	}
	cfg := edge.DefaultConfig()
	cfg.DataDir, cfg.DataCenter, cfg.Name, cfg.Listen = filepath.Join(o.DataDir, dc+"-"+name), dc, name, listen
	cfg.Connections.Total, cfg.Events.Total = 4000, 2500 // all edges share the files that one process may open
	n, err := edge.NewNode(cfg, o.Params, conn, log)
	if err != nil {
		return err
	}
	x.g.Go(func() error { return n.Run(x.ctx) })
	t.edges = append(t.edges, n)
	t.Info.Edges = append(t.Info.Edges, EdgeInfo{DC: dc, Name: name, URL: n.URL(), Metrics: n.Debug.URL()})
	return nil
}

// WaitReady returns when every edge can admit visitors and the API has a token, or with ctx's error.
func (t *Tree) WaitReady(ctx context.Context) (err error) {
	if t.Info.Control.Token, err = t.global.Control.Token(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for _, e := range t.edges {
		for r := e.Ready(); !r.Ready || r.Isolated; r = e.Ready() {
			select {
			case <-ctx.Done():
				return fmt.Errorf("edges are not ready: %v: %w", r.Reasons, ctx.Err())
			case <-tick.C:
			}
		}
	}
	return nil
}

// Wait returns when ctx ends, or with the error of the first node that failed.
func (t *Tree) Wait(ctx context.Context) error {
	failed := make(chan struct{}, len(t.tiers))
	for _, x := range t.tiers {
		go func() {
			<-x.ctx.Done()
			failed <- struct{}{}
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case <-failed:
		return t.Stop()
	}
}

// Stop stops the tree from the edges up, and returns the first error of a node.
func (t *Tree) Stop() error {
	var err error
	for _, x := range t.tiers {
		x.stop()
		if e := x.g.Wait(); e != nil && err == nil {
			err = fmt.Errorf("%s: %w", x.name, e)
		}
	}
	t.tiers = nil
	t.closer.Close(t.log)
	return err
}
