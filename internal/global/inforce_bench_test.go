package global_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge"
	"vestibule/internal/global"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
	regionals "vestibule/internal/regional"
)

// slow passes connections on to an address, each byte so much later.
func slow(b *testing.B, to string, by time.Duration) (addr string) {
	b.Helper()
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(b)
	var g sync.WaitGroup
	pass := func(dst, src net.Conn) {
		type piece struct {
			data []byte
			at   time.Time
		}
		queue := make(chan piece, 4096)
		g.Go(func() {
			defer close(queue)
			for {
				buf := make([]byte, 32<<10)
				n, err := src.Read(buf)
				if n > 0 {
					queue <- piece{buf[:n], time.Now().Add(by)}
				}
				if err != nil {
					return
				}
			}
		})
		g.Go(func() {
			defer dst.Close()
			for p := range queue {
				time.Sleep(time.Until(p.at))
				if _, err := dst.Write(p.data); err != nil {
					_, _ = io.Copy(io.Discard, src)
				}
			}
		})
	}
	g.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			pass(c, d)
			pass(d, c)
		}
	})
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Error(err)
		}
		g.Wait()
	})
	return l.Addr().String()
}

// BenchmarkChangeInForce measures the time from the acceptance of a room's change until it is in force at every one
// of four edges, two in each of two data centres, one of which has a round trip of 100 ms: edges follow the document
// over nats-servers of their own that join those of global.
func BenchmarkChangeInForce(b *testing.B) {
	quiet := slog.New(slog.DiscardHandler)
	start := func(o embedded.Options) *embedded.Server {
		o.Dir, o.Listen, o.Log = b.TempDir(), "127.0.0.1:0", quiet
		s := testkit.Must(embedded.Start(o))(b)
		b.Cleanup(s.Stop)
		return s
	}
	conn := func(s *embedded.Server, domain string) *natsbus.Conn {
		c := testkit.Must(natsbus.Connect(natsbus.Options{InProcess: s, Name: "bench", Domain: domain, Log: quiet}))(b)
		b.Cleanup(c.Close)
		return c
	}
	leafs := testkit.FreeAddr(b)
	hub := start(embedded.Options{Name: "hub", Domain: "hub", Leafs: leafs})
	var edges []*node.Fleet
	for name, addr := range map[string]string{"near": leafs, "far": slow(b, leafs, 50*time.Millisecond)} {
		leaf := start(embedded.Options{Name: name, Domain: name, Hubs: []string{"nats-leaf://" + addr}})
		for range 2 {
			f, err := node.NewFleet(b.TempDir(), natsbus.NewDocuments(conn(leaf, "hub"), 0, node.RoomsDocument), quiet,
				prometheus.NewRegistry(), func() {})
			testkit.NoError(b, err)
			ctx, cancel := context.WithCancel(context.Background())
			var g sync.WaitGroup
			g.Go(func() { _ = f.Run(ctx) })
			b.Cleanup(func() { cancel(); g.Wait() })
			edges = append(edges, f)
		}
	}
	docs := natsbus.NewDocuments(conn(hub, ""), 1, roomstore.OwnedDocument)
	store := roomstore.New(roomstore.Options{Docs: docs, Log: quiet, Floor: func() uint64 { return 0 }})
	n := 0
	change := func() *roomstore.State {
		n++
		state, err := store.Change(b.Context(), func(d *roomstore.Draft) error { d.Put(club(n)); return nil })
		testkit.NoError(b, err)
		return state
	}
	inForce := func(version uint64) bool {
		return !slices.ContainsFunc(edges, func(f *node.Fleet) bool { return f.Set() == nil || f.Set().Version() < version })
	}
	first := change()
	testkit.Eventually(b, "every edge has the first", func() bool { return inForce(first.Version) })
	var took []time.Duration
	for b.Loop() {
		for range 60 {
			time.Sleep(time.Duration(137*n%500) * time.Millisecond) // spread over an edge's half second
			state := change()
			begun := time.Now()
			for !inForce(state.Version) {
				time.Sleep(time.Millisecond)
			}
			took = append(took, time.Since(begun))
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms")
}

// BenchmarkAgeOfNumbers measures the time from an admission at an edge until the status of the room counts it at both
// candidates for global, whichever leads: visit, report of the edge, report of the regional, message of the leader to
// the others. The quiet room has no other visitors, the busy one twenty more per second.
func BenchmarkAgeOfNumbers(b *testing.B) {
	s := serve(b)
	site := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.Cleanup(site.Close)
	file := filepath.Join(b.TempDir(), "rooms.yaml")
	rooms := fmt.Appendf(nil, "rooms: [{name: a, host: a.example, total_active_users: 10000, "+
		"new_users_per_minute: 60000, session_duration: 1h, origin: %q}]", site.URL)
	testkit.NoError(b, os.WriteFile(file, rooms, 0o600))
	var nodes []*global.Node
	for _, name := range []string{"one", "two"} {
		nodes = append(nodes, runNode(b, s, name, func(c *global.Config) { c.Rooms = file }))
	}
	run := func(run func(context.Context) error) {
		ctx, cancel := context.WithCancel(context.Background())
		var g sync.WaitGroup
		g.Go(func() { _ = run(ctx) })
		b.Cleanup(func() { cancel(); g.Wait() })
	}
	rc := regionals.DefaultConfig()
	rc.Name, rc.DataCenter, rc.DataDir, rc.Bootstrap = "regional-1", "dublin", b.TempDir(), true
	conn, clock := connect(b, s, rc.Name), node.NewClock()
	r := testkit.Must(regionals.New(regionals.Options{
		Config: rc, Params: wire.DefaultParams(), Edges: conn, Global: conn, Desk: conn, Clock: clock,
		Reg: prometheus.NewRegistry(), Log: quiet,
		Docs:     natsbus.NewDocuments(conn, 0, node.RoomsDocument, node.KeysDocument, node.MembersDocument),
		Lease:    natsbus.NewLease(conn, "regional.dublin", rc.Name, 1, clock.Now).Bootstrap(true),
		Promises: natsbus.NewPromises(conn, "dublin", 1),
	}))(b)
	run(r.Run)
	ec := edge.DefaultConfig()
	ec.Name, ec.DataCenter, ec.DataDir, ec.Listen = "edge-1", "dublin", b.TempDir(), "127.0.0.1:0"
	conn = connect(b, s, ec.Name)
	e := testkit.Must(edge.New(edge.Options{
		Config: ec, Params: wire.DefaultParams(), Bus: conn, Reg: prometheus.NewRegistry(), Log: quiet,
		Docs: natsbus.NewDocuments(conn, 0, node.RoomsDocument, node.KeysDocument),
	}))(b)
	run(e.Run)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	visit := func(cookies []*http.Cookie) (*http.Response, bool) {
		req := testkit.Must(http.NewRequestWithContext(b.Context(), http.MethodGet, e.URL()+"/", nil))(b)
		req.Host = "a.example"
		for _, c := range cookies {
			req.AddCookie(c)
		}
		res, err := client.Do(req)
		if err != nil {
			return nil, false
		}
		_ = res.Body.Close()
		return res, res.StatusCode == http.StatusOK && res.Header.Get("Vestibule-Decision") == ""
	}
	var inside atomic.Int64
	// enter admits one visitor, which keeps its cookie.
	enter := func() bool {
		first, in := visit(nil)
		if in {
			inside.Add(1)
			_, _ = visit(first.Cookies())
		}
		return in
	}
	id := room.IDOf("a")
	shown := func(people int64) bool {
		return !slices.ContainsFunc(nodes, func(n *global.Node) bool {
			x, ok := n.Numbers(b.Context(), id)
			return !ok || int64(x.Active) < people
		})
	}
	testkit.Eventually(b, "somebody is let in", enter)
	testkit.Eventually(b, "and counted", func() bool { return shown(1) })
	measure := func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			for n := range 40 {
				time.Sleep(time.Duration(137*n%1000) * time.Millisecond) // spread over the second between two reports
				var begun time.Time
				testkit.Eventually(b, "the next is let in", func() bool { begun = time.Now(); return enter() })
				// Reports are complete: if later visitors are counted, so is this one.
				for people := inside.Load(); !shown(people); {
					time.Sleep(time.Millisecond)
				}
				took = append(took, time.Since(begun))
			}
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms")
	}
	b.Run("quiet", measure)
	ctx, cancel := context.WithCancel(b.Context())
	var crowd sync.WaitGroup
	crowd.Go(func() {
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				enter()
			}
		}
	})
	b.Run("busy", measure)
	cancel()
	crowd.Wait()
}
