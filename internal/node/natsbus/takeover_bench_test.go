package natsbus_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

// BenchmarkTakeover measures how long there is no leader after one of three dies silently: its connection is closed
// at a random time between renewals. The goal is 2 s at worst; the lease and the rivals' margin make 1.3 s.
func BenchmarkTakeover(b *testing.B) {
	s, err := embedded.Start(embedded.Options{Name: "bench", Dir: b.TempDir(), Listen: "127.0.0.1:0", Log: quiet})
	testkit.NoError(b, err)
	defer s.Stop()
	type tenure struct {
		conn *natsbus.Conn
		at   time.Time
	}
	leaders := make(chan tenure, 8)
	ctx, cancel := context.WithCancel(context.Background())
	var ended []chan struct{}
	stand := func(i int) {
		conn, err := natsbus.Connect(natsbus.Options{URL: s.URL(), Name: fmt.Sprint("c", i), Log: quiet})
		testkit.NoError(b, err)
		b.Cleanup(conn.Close)
		done := make(chan struct{})
		ended = append(ended, done)
		clock := node.NewClock()
		go func() {
			defer close(done)
			l := natsbus.NewLease(conn, "tenure", fmt.Sprint("c", i), 1, clock.Now)
			if err := l.Run(ctx, func() uint64 { return 0 }, func(ctx context.Context, _ wire.Leading) {
				leaders <- tenure{conn, time.Now()}
				<-ctx.Done()
			}); ctx.Err() == nil {
				b.Errorf("no longer stands: %v", err)
			}
		}()
	}
	for i := range 3 {
		stand(i)
	}
	leader := <-leaders
	var took []float64
	for i := 0; b.Loop(); i++ {
		// all watch; any time between renewals
		moment := time.NewTimer(2*time.Second + time.Duration(i%8)*50*time.Millisecond)
		<-moment.C
		died := time.Now()
		leader.conn.Close()
		stand(3 + i)
		leader = <-leaders
		took = append(took, leader.at.Sub(died).Seconds())
	}
	cancel()
	for _, done := range ended {
		<-done
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "s/p50")
	b.ReportMetric(took[len(took)-1], "s/max")
	b.ReportMetric(0, "ns/op")
	b.Logf("takeovers: %d, worst %.2f s, goal 2 s", len(took), took[len(took)-1])
}
