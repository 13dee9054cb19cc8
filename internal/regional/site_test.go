package regional_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/wire"
	"vestibule/internal/edge"
	"vestibule/internal/global"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
	"vestibule/internal/regional"
)

// site is one data centre, dublin, with global, on one NATS server.
type site struct {
	t     *testing.T
	nats  *embedded.Server
	edges []*natsbus.Conn

	promises func(wire.PromiseStore) wire.PromiseStore // wraps the regionals' store; nil for none
	plain    bool                                      // global and regionals start without bootstrap
	absent   []string                                  // further data centres of the list, of which nothing runs
}

// operator opens the store as an operator.
func (s *site) operator() jetstream.JetStream {
	s.t.Helper()
	return testkit.JetStream(s.t, "", nats.InProcessServer(s.nats))
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := testkit.Must(embedded.Start(embedded.Options{Name: "test", Dir: t.TempDir(), Log: quiet}))(t)
	t.Cleanup(s.Stop)
	return &site{t: t, nats: s}
}

func (s *site) connect(name string) *natsbus.Conn {
	s.t.Helper()
	c := testkit.Must(natsbus.Connect(natsbus.Options{InProcess: s.nats, Name: name, Log: quiet}))(s.t)
	s.t.Cleanup(c.Close)
	return c
}

// run runs a server until the test ends, or it is stopped.
func (s *site) run(name string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("%s: %v", name, err)
		}
	})
	s.t.Cleanup(stop)
	return stop
}

func (s *site) global() (g *global.Server, stop func()) {
	s.t.Helper()
	cfg := global.DefaultConfig()
	cfg.DataDir, cfg.Rooms, cfg.DataCenters, cfg.Bootstrap = s.t.TempDir(), filepath.Join(s.t.TempDir(), "rooms.yaml"),
		append([]string{"dublin"}, s.absent...), !s.plain
	if err := os.WriteFile(cfg.Rooms,
		[]byte(`rooms: [{name: a, host: a.example, total_active_users: 10, new_users_per_minute: 600, session_duration: 1m, origin: "http://127.0.0.1:1"}]`), 0o600); err != nil {
		s.t.Fatal(err)
	}
	conn, clock := s.connect("global"), node.NewClock()
	g = testkit.Must(global.New(global.Options{
		Config: cfg, Params: wire.DefaultParams(), Bus: conn, Clock: clock, Reg: prometheus.NewRegistry(), Log: quiet,
		Docs:  natsbus.NewDocuments(conn, 1, node.RoomsDocument, node.KeysDocument, node.MembersDocument),
		Lease: natsbus.NewLease(conn, wire.Root, cfg.Name, 1, clock.Now).Bootstrap(cfg.Bootstrap),
	}))(s.t)
	return g, s.run("global", g.Run)
}

type candidate struct {
	*regional.Server
	dir  string // its data_dir
	conn *natsbus.Conn
	reg  *prometheus.Registry
	stop func()
}

func (c *candidate) leads() bool { return c.Status().Leading }

func (s *site) regional(name string) *candidate {
	s.t.Helper()
	return s.regionalIn(name, s.t.TempDir())
}

func (s *site) regionalIn(name, dir string) *candidate {
	s.t.Helper()
	cfg := regional.DefaultConfig()
	cfg.Name, cfg.DataCenter, cfg.DataDir, cfg.Bootstrap = name, "dublin", dir, !s.plain
	if errs := cfg.Validate(); len(errs) > 0 {
		s.t.Fatal(errs)
	}
	conn, clock, reg := s.connect(name), node.NewClock(), prometheus.NewPedanticRegistry()
	var promises wire.PromiseStore = natsbus.NewPromises(conn, "dublin", 1)
	if s.promises != nil {
		promises = s.promises(promises)
	}
	r, err := regional.New(regional.Options{
		Config: cfg, Params: wire.DefaultParams(), Edges: conn, Global: conn, Desk: conn, Clock: clock, Reg: reg, Log: quiet,
		Docs:     natsbus.NewDocuments(conn, 0, node.RoomsDocument, node.KeysDocument, node.MembersDocument),
		Lease:    natsbus.NewLease(conn, "regional.dublin", name, 1, clock.Now).Bootstrap(cfg.Bootstrap),
		Promises: promises,
	})
	testkit.NoError(s.t, err)
	return &candidate{r, dir, conn, reg, s.run(name, r.Run)}
}

func (s *site) edge() *edge.Server {
	s.t.Helper()
	cfg := edge.DefaultConfig()
	cfg.Name, cfg.DataCenter, cfg.DataDir, cfg.Listen = "edge-1", "dublin", s.t.TempDir(), "127.0.0.1:0"
	conn := s.connect("edge-1")
	s.edges = append(s.edges, conn)
	e := testkit.Must(edge.New(edge.Options{
		Config: cfg, Params: wire.DefaultParams(), Bus: conn, Reg: prometheus.NewRegistry(), Log: quiet,
		Docs: natsbus.NewDocuments(conn, 0, node.RoomsDocument, node.KeysDocument),
	}))(s.t)
	s.run("edge", e.Run)
	return e
}

func leased(e *edge.Server) func() bool {
	return func() bool { r := e.Ready(); return r.Ready && !r.Isolated }
}
