package global_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/natsbus"
	"vestibule/internal/natsbus/embedded"
	"vestibule/internal/node"
	"vestibule/internal/roomstore"
	"vestibule/internal/testkit"
)

// slow passes connections on to an address, each byte so much later.
func slow(b *testing.B, to string, by time.Duration) (addr string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
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

// BenchmarkChangeInForce tells how long after it was accepted a change of a room is in force at
// every one of four edges, two in each of two data centres, of which one is 100 ms away there and back:
// the document as edges follow it, by nats-servers of their own that join those of global.
func BenchmarkChangeInForce(b *testing.B) {
	quiet := slog.New(slog.DiscardHandler)
	start := func(o embedded.Options) *embedded.Server {
		o.Dir, o.Listen, o.Log = b.TempDir(), "127.0.0.1:0", quiet
		s, err := embedded.Start(o)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(s.Stop)
		return s
	}
	conn := func(s *embedded.Server, domain string) *natsbus.Conn {
		c, err := natsbus.Connect(natsbus.Options{InProcess: s, Name: "bench", Domain: domain, Log: quiet})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(c.Close)
		return c
	}
	leafs := testkit.FreeAddr(b)
	hub := start(embedded.Options{Name: "hub", Domain: "hub", Leafs: leafs})
	var edges []*node.Fleet
	for name, addr := range map[string]string{"near": leafs, "far": slow(b, leafs, 50*time.Millisecond)} {
		leaf := start(embedded.Options{Name: name, Domain: name, Hubs: []string{"nats-leaf://" + addr}})
		for range 2 {
			f, err := node.NewFleet(b.TempDir(), natsbus.NewDocuments(conn(leaf, "hub"), 0, node.RoomsDocument), quiet, prometheus.NewRegistry(), func() {})
			if err != nil {
				b.Fatal(err)
			}
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
		state, err := store.Change(b.Context(), roomstore.API, func(d *roomstore.Draft) error { return d.Put(club(n)) })
		if err != nil {
			b.Fatal(err)
		}
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
			time.Sleep(time.Duration(137*n%500) * time.Millisecond) // at any moment of an edge's half second
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
