// Package allinone runs a whole tree in one process: an embedded nats-server, global, a regional per data centre,
// edges, and a demo site behind them. `make run` and the integration tests use it. Every node is the production
// one, on real NATS.
package allinone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/wire"
	"vestibule/internal/edge"
	"vestibule/internal/global"
	"vestibule/internal/global/members"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
	"vestibule/internal/notify"
	"vestibule/internal/regional"
)

// EdgeInfo holds the address of an edge.
type EdgeInfo struct {
	DC   string `json:"dc"`
	Name string `json:"name"`
	URL  string `json:"url"`
}

// Info holds the addresses of the tree: the content of the READY line.
type Info struct {
	Edges   []EdgeInfo `json:"edges"`
	Origin  string     `json:"origin"`
	NATS    string     `json:"nats"`
	Metrics string     `json:"metrics"`        // metrics, health and status of all nodes
	Rooms   string     `json:"rooms"`          // the rooms file
	Busy    string     `json:"busy,omitempty"` // address of a room with a queue, with [Tree.Crowd]
	// folder of configurations for running the nodes as separate processes
	Split string `json:"split,omitempty"`

	Control *global.ControlInfo `json:"control"` // the API, with its token once available
}

// Tree is a running tree.
type Tree struct {
	Info   Info
	Origin *Origin // nil if Options named one

	log     *slog.Logger
	closer  node.Closer
	nats    *embedded.Server
	monitor *node.Monitoring
	metrics string // address of monitor, as asked for
	edges   []*edge.Node
	global  *global.Node
	tiers   []*tier // in the order of shutdown
	ports   *ports
	split   int           // configurations written
	ended   chan struct{} // closed when a tier ends
	end     func()
}

// tier is a group of components that stop together.
type tier struct {
	name string
	stop context.CancelFunc
	g    *errgroup.Group
	ctx  context.Context
}

func (t *Tree) tier(name string) *tier {
	ctx, stop := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	context.AfterFunc(ctx, t.end)
	x := &tier{name: name, stop: stop, g: g, ctx: ctx}
	t.tiers = append(t.tiers, x)
	return x
}

// Start starts a tree. The caller must call Stop, also after an error of Wait.
func Start(o Options) (*Tree, error) {
	if errs := o.Validate(); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	t := &Tree{log: o.Log, ports: o.followingPorts(), ended: make(chan struct{})}
	t.end = sync.OnceFunc(func() { close(t.ended) })
	if err := t.start(&o); err != nil {
		return nil, errors.Join(err, t.Stop())
	}
	return t, nil
}

func (t *Tree) start(o *Options) (err error) {
	// With a new folder nobody was ever admitted. A start that failed, or was interrupted, leaves the mark.
	global, err := o.absolute("global")
	if err != nil {
		return err
	}
	fresh := false
	if _, err := os.Stat(filepath.Join(global, embedded.Store)); errors.Is(err, os.ErrNotExist) {
		fresh = true
	}
	mark, err := o.absolute(newMark)
	if err != nil {
		return err
	}
	folder, err := node.OpenFolder(o.DataDir)
	if err != nil {
		return err
	}
	t.closer.Add("data folder", func() {
		if err := folder.Close(); err != nil {
			t.log.Debug("data folder", slog.Any("error", err))
		}
	})
	if t.Info.Split, err = o.absolute(splitFolder); err != nil {
		return err
	}
	if err := os.MkdirAll(t.Info.Split, 0o700); err != nil {
		return fmt.Errorf("data-dir: %w", err)
	}

	if fresh && !o.uninitialized {
		if err := node.WriteFile(mark, nil); err != nil {
			return fmt.Errorf("data-dir: %w", err)
		}
	}

	// The order of shutdown: edges send final reports to their regionals, regionals store them.
	initial := t.tier("initialization")
	notifiers, edges, regionals := t.tier("notifiers"), t.tier("edges"), t.tier("regionals")
	globals, origins, monitors := t.tier("global"), t.tier("origin"), t.tier("monitoring")

	if o.Control == "" {
		o.Control = t.ports.nextAddr()
	}
	if err := t.startMonitoring(monitors, o); err != nil {
		return err
	}
	if err := t.startSite(origins, o); err != nil {
		return err
	}
	if err := t.startGlobal(globals, o, fresh && !o.uninitialized); err != nil {
		return err
	}
	for _, dc := range o.DataCenters {
		if err := t.startRegional(regionals, o, dc, fresh && !o.uninitialized); err != nil {
			return err
		}
	}
	for i, dc := range o.DataCenters {
		for j := range o.Edges {
			listen, err := after(o.Listen, i*o.Edges+j)
			if err != nil {
				return fmt.Errorf("listen: %w", err)
			}
			if err := t.startEdge(edges, o, dc, fmt.Sprintf("edge-%d", j+1), listen); err != nil {
				return err
			}
		}
	}
	if err := t.startNotifier(notifiers, o); err != nil {
		return err
	}
	if err := t.initialize(initial, mark); err != nil {
		return err
	}
	if o.Busy {
		t.Info.Busy = t.Info.Edges[0].URL + BusyPath
	}
	return nil
}

// newMark is a file of the data folder until the fleet in it is initialized.
const newMark = "new"

// initialize initializes the fleet of a folder with the mark, unless bootstrap has done so: a leader of a start that
// failed admitted nobody, but makes bootstrap void.
func (t *Tree) initialize(x *tier, mark string) error {
	if _, err := os.Stat(mark); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	conn, err := t.connect("initialization", "", t.log)
	if err != nil {
		return err
	}
	list := members.List{Docs: natsbus.NewDocuments(conn, 0)}
	x.g.Go(func() error {
		try := time.NewTicker(time.Second)
		defer try.Stop()
		for {
			select {
			case <-x.ctx.Done():
				return nil
			case <-try.C:
			}
			_, err := list.Init(x.ctx)
			if err == nil || errors.Is(err, members.ErrInitialized) {
				return os.Remove(mark)
			}
			t.log.Debug("the new fleet is not initialized yet", slog.Any("error", err)) // alarms say so too
		}
	})
	return nil
}

// startSite starts the site, and writes the rooms file.
func (t *Tree) startSite(x *tier, o *Options) (err error) {
	t.Info.Origin, t.Info.Rooms = o.Origin, o.RoomsFile
	if o.RoomsFile != "" {
		return nil
	}
	if o.Origin == "" {
		if t.Origin, err = NewOrigin(OriginOptions{
			Listen: t.ports.nextAddr(), Session: o.SessionDuration,
			Log: o.Log,
		}); err != nil {
			return err
		}
		t.Info.Origin = t.Origin.URL()
		x.g.Go(func() error { return t.Origin.Run(x.ctx) })
	}
	if o.StoreRooms {
		return nil
	}
	t.Info.Rooms = filepath.Join(o.DataDir, "rooms.yaml")
	return writeRooms(t.Info.Rooms, o, t.Info.Origin)
}

// startMonitoring starts the listener for the metrics of all nodes.
func (t *Tree) startMonitoring(x *tier, o *Options) (err error) {
	if t.metrics = o.Metrics; t.metrics == "" {
		t.metrics = t.ports.nextAddr()
	}
	if t.monitor, err = node.NewMonitoring(t.metrics, o.Log); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	t.Info.Metrics = t.monitor.URL()
	x.g.Go(func() error { return t.monitor.Run(x.ctx) })
	return nil
}

// splitMetrics returns the metrics address of the next node as a separate process: the ports from that of the tree on.
func (t *Tree) splitMetrics() (string, error) {
	t.split++
	return after(t.metrics, t.split-1)
}

// writeSplitConfig writes the configuration for running a node as a separate process.
func (t *Tree) writeSplitConfig(name string, cfg, defaults node.Config) error {
	text, err := node.File(cfg, defaults)
	if err != nil {
		return err
	}
	tier, _, _ := strings.Cut(name, "-")
	head := fmt.Sprintf("# Runs this node as a process of its own, on the data that is there: %s --config THIS.\n# Stop the one process before. Each start of it writes this file anew: copy it, then edit the copy.\n",
		tier)
	return node.WriteFile(filepath.Join(t.Info.Split, name+".yaml"), append([]byte(head), text...))
}

// connect returns a node's connection to the embedded server.
func (t *Tree) connect(name, inbox string, log *slog.Logger) (*natsbus.Conn, error) {
	c, err := natsbus.Connect(t.nats.Client(name, inbox, log))
	if err != nil {
		return nil, err
	}
	t.closer.Add("connection of "+name, c.Close)
	return c, nil
}

func (t *Tree) startGlobal(x *tier, o *Options, fresh bool) (err error) {
	log := o.Log.With(slog.String("node", "global"))
	cfg, defaults := global.DefaultConfig(), global.DefaultConfig()
	if cfg.DataDir, err = o.absolute("global"); err != nil {
		return err
	}
	if cfg.Rooms = ""; !o.StoreRooms {
		if cfg.Rooms, err = filepath.Abs(t.Info.Rooms); err != nil {
			return err
		}
	}
	if cfg.Metrics.Listen, err = t.splitMetrics(); err != nil {
		return err
	}
	cfg.DataCenters, cfg.Control.Listen, cfg.Control.Origin, cfg.NATS.Embedded = o.DataCenters, cmp.Or(o.Control, anyFree),
		t.Info.Origin, true
	cfg.Notices.Networks = o.Networks
	if o.NATS {
		cfg.NATS.Listen = t.ports.nextAddr()
	}
	apart := cfg
	apart.NATS.Listen = splitNATS
	if err := t.writeSplitConfig("global", &apart, &defaults); err != nil {
		return err
	}
	cfg.Bootstrap = fresh
	conn, err := t.connectGlobal(&cfg, log)
	if err != nil {
		return err
	}
	n, err := global.NewNode(cfg, o.Params, conn, t.monitor, log)
	if err != nil {
		return err
	}
	x.g.Go(func() error { return n.Run(x.ctx) })
	t.global, t.Info.Control = n, n.Control.Info()
	return nil
}

// connectGlobal returns the connection of a global. The first one has the nats-server in its folder, as in a
// separate process.
func (t *Tree) connectGlobal(cfg *global.Config, log *slog.Logger) (conn *natsbus.Conn, err error) {
	inbox := natsbus.NodeInbox(natsbus.RoleGlobal, wire.Root, cfg.Name)
	if t.nats != nil {
		return t.connect(cfg.Name, inbox, log)
	}
	conn, t.nats, err = embedded.Join(cfg.Name, inbox, cfg.DataDir, &cfg.NATS, &t.closer, log)
	t.Info.NATS = t.nats.URL()
	return conn, err
}

func (t *Tree) startRegional(x *tier, o *Options, dc string, fresh bool) (err error) {
	log := o.Log.With(slog.String("node", "regional-"+dc))
	cfg, defaults := regional.DefaultConfig(), regional.DefaultConfig()
	if cfg.DataDir, err = o.absolute(dc); err != nil {
		return err
	}
	if cfg.Metrics.Listen, err = t.splitMetrics(); err != nil {
		return err
	}
	cfg.DataCenter = dc
	if err := t.writeSplitConfig("regional-"+dc, &cfg, &defaults); err != nil {
		return err
	}
	cfg.Bootstrap = fresh
	conn, err := t.connect(dc+"-"+cfg.Name, natsbus.NodeInbox(natsbus.RoleRegional, dc, cfg.Name), log)
	if err != nil {
		return err
	}
	n, err := regional.NewNode(cfg, o.Params, conn, conn, t.monitor, log)
	if err != nil {
		return err
	}
	x.g.Go(func() error { return n.Run(x.ctx) })
	return nil
}

func (t *Tree) startEdge(x *tier, o *Options, dc, name, listen string) (err error) {
	log := o.Log.With(slog.String("node", "edge-"+dc+"-"+name))
	cfg, defaults := edge.DefaultConfig(), edge.DefaultConfig()
	if cfg.DataDir, err = o.absolute(dc + "-" + name); err != nil {
		return err
	}
	if cfg.Metrics.Listen, err = t.splitMetrics(); err != nil {
		return err
	}
	cfg.DataCenter, cfg.Name, cfg.Listen, cfg.TLS, cfg.Proxies = dc, name, listen, o.TLS, o.Proxies
	if o.PushServices != nil {
		cfg.PushServices = o.PushServices
	}
	if err := t.writeSplitConfig("edge-"+dc+"-"+name, &cfg, &defaults); err != nil {
		return err
	}
	if o.Edges*len(o.DataCenters) > 1 {
		cfg.Connections.Total, cfg.Events.Total = 4000, 2500 // all edges share the file limit of one process
	}
	conn, err := t.connect(dc+"-"+name, natsbus.NodeInbox(natsbus.RoleEdge, dc, name), log)
	if err != nil {
		return err
	}
	n, err := edge.NewNode(cfg, o.Params, conn, o.Sockets, t.monitor, log)
	if err != nil {
		return err
	}
	x.g.Go(func() error { return n.Run(x.ctx) })
	t.edges = append(t.edges, n)
	t.Info.Edges = append(t.Info.Edges, EdgeInfo{DC: dc, Name: name, URL: n.URL()})
	return nil
}

// startNotifier starts a notifier, if there is a contact.
func (t *Tree) startNotifier(x *tier, o *Options) (err error) {
	if o.Notify == "" {
		return nil
	}
	cfg := notify.DefaultConfig()
	if cfg.Contact = o.Notify; o.PushServices != nil {
		cfg.Services = o.PushServices
	}
	log := o.Log.With(slog.String("node", cfg.Name))
	conn, err := t.connect(cfg.Name, natsbus.NodeInbox(natsbus.RoleNotifier, wire.Root, cfg.Name), log)
	if err != nil {
		return err
	}
	n, err := notify.NewNode(cfg, conn, t.monitor, log)
	if err != nil {
		return err
	}
	x.g.Go(func() error { return n.Run(x.ctx) })
	return nil
}

// TakeToken sets the API's token and a one-time link to the console in Info, for the owner of the whole tree.
func (t *Tree) TakeToken(ctx context.Context) (err error) {
	if t.Info.Control.Token, err = t.global.Control.Token(ctx); err != nil {
		return err
	}
	t.Info.Control.Console, err = t.global.Control.Link(ctx, t.Info.Control.Token)
	return err
}

// WaitReady returns when every edge can admit visitors, or with ctx's error, or after the failure of a node.
func (t *Tree) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for _, e := range t.edges {
		for r := e.Ready(); !r.Ready || r.Isolated; r = e.Ready() {
			select {
			case <-ctx.Done():
				return fmt.Errorf("edges are not ready: %v: %w", r.Reasons, ctx.Err())
			case <-t.ended:
				return errEnded
			case <-tick.C:
			}
		}
	}
	return nil
}

// errEnded means that a node has ended unexpectedly; Stop returns the reason.
var errEnded = errors.New("a node has ended")

// Wait returns when ctx ends, or with the error of the first failed node.
func (t *Tree) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-t.ended:
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
