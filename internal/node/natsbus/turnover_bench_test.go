package natsbus_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

// BenchmarkEdgesComeAndGo is an hour of a data centre, on virtual time: 1,000 edges start, admit visitors to 100
// rooms with sessions of 30 min, and stop. It measures the largest stored value, and how long an edge waits for its
// first lease. The store is real, and its time counts.
func BenchmarkEdgesComeAndGo(b *testing.B) {
	const (
		edges, rooms, visitors = 1000, 100, 5 // visitors of each room at each edge
		step                   = 200 * time.Millisecond
		life                   = 18 * int(time.Second/step) // steps: five edges at a time
	)
	for b.Loop() {
		s, err := embedded.Start(embedded.Options{Name: "bench", Dir: b.TempDir(), Listen: "127.0.0.1:0", Log: quiet})
		testkit.NoError(b, err)
		conn := testkit.Must(natsbus.Connect(natsbus.Options{URL: s.URL(), Name: "regional", Log: quiet}))(b)
		term := wire.Term{N: 1, Nonce: 1}
		eventually(b, "the regional is connected", conn.Connected)
		promises := natsbus.NewPromises(conn, "dublin", 1)
		testkit.Must(promises.Open(b.Context(), term))(b)
		nc := testkit.Must(nats.Connect("", nats.InProcessServer(s)))(b)
		js := testkit.Must(jetstream.New(nc))(b)
		kv := testkit.Must(js.KeyValue(b.Context(), "vestibule_promises"))(b)
		largest := 0
		w := testkit.Must(kv.WatchAll(b.Context()))(b)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for e := range w.Updates() {
				if e != nil {
					largest = max(largest, len(e.Value()))
				}
			}
		}()

		now, dawn := fleettime.Mono(time.Hour), fleettime.TimeOf(time.Unix(1_800_000_000, 0))
		params := wire.DefaultParams()
		root := root.New(now, root.Config{Term: term, Centres: []string{"dublin"}, Params: params, Bootstrap: true})
		root.SetLease(fleettime.Never)
		root.SetTime(now, dawn)
		agg := region.New(now, region.Config{DC: "dublin", Term: term, Params: params, Bootstrap: true, ClusterID: 1},
			wire.Durable{})
		agg.SetLease(fleettime.Never)
		var configs []ledger.RoomConfig
		var known []admission.Room
		for i := range rooms {
			id := room.IDOf(fmt.Sprint("room-", i))
			configs = append(configs, ledger.RoomConfig{
				ID: id, Total: 1_000_000, Rate: 10_000_000, Session: 30 * time.Minute,
				LostWait: 15 * time.Minute,
			})
			known = append(known, admission.Room{ID: id, Session: 30 * time.Minute, Probation: 30 * time.Minute})
		}
		root.SetRooms(now, configs)
		agg.SetRooms(now, configs)

		type guest struct {
			*admission.Engine
			begun  fleettime.Mono
			waited time.Duration // in the store
			leased bool
			age    int
		}
		var here []*guest
		longest, admitted := time.Duration(0), 0
		for n, tick := 0, 0; n < edges || len(here) > 0; tick++ {
			if n < edges && tick*int(step) >= n*int(time.Hour)/edges {
				e := admission.New(admission.Config{
					Edge: fmt.Sprint("pod-", n), DC: "dublin", Params: params, Limits: admission.DefaultLimits(),
					Rand: rand.New(rand.NewPCG(1, uint64(n))),
				})
				e.SetRooms(now, known)
				here = append(here, &guest{Engine: e, begun: now})
				n++
			}
			now = now.Add(step)
			root.SetTime(now, dawn.Add(now.Sub(fleettime.Mono(time.Hour))))
			var stay []*guest
			for _, g := range here {
				g.age++
				reports := g.Report(now)
				if g.age > life {
					reports = g.Leave(now)
				} else {
					stay = append(stay, g)
				}
				for _, m := range reports {
					agg.Observe(now, m)
				}
				if g.leased && g.age%2 == 0 && g.age/2 <= visitors*rooms/5 {
					for k := range 5 {
						if d := g.Arrive(now, known[(g.age*5/2+k)%rooms].ID, ticket.Ticket{}); d.Enters() {
							admitted++
						}
					}
				}
			}
			here = stay
			if d, ok := agg.Unsaved(); ok {
				begun := time.Now()
				testkit.NoError(b, promises.Put(b.Context(), d))
				for _, g := range here {
					g.waited += time.Since(begun)
				}
				agg.Saved(now, d.Version)
			}
			for _, m := range agg.Report(now) {
				root.Observe(now, m)
			}
			for _, g := range root.Grants(now) {
				agg.Apply(now, g)
			}
			for _, grant := range agg.Grants(now) {
				for _, g := range here {
					g.Apply(now, grant)
					if !g.leased && g.Status(now).Leased {
						g.leased = true
						longest = max(longest, now.Sub(g.begun)+g.waited)
					}
				}
			}
		}
		testkit.NoError(b, w.Stop())
		<-watched
		b.ReportMetric(float64(largest)/1024, "KiB-largest")
		b.ReportMetric(longest.Seconds(), "s-to-a-lease")
		b.ReportMetric(float64(admitted), "admitted")
		nc.Close()
		conn.Close()
		s.Stop()
	}
}
