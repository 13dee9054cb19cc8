package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// BenchmarkIdle measures the CPU use of the cores of one data centre of 50 edges, and of global, with 1,000 rooms
// without visitors: their share of virtual time, without encoding and network.
func BenchmarkIdle(b *testing.B) {
	for b.Loop() {
		f := newIdle(1000, 50)
		f.run(20 * time.Second) // leases, first permits
		f.global, f.regional, f.edge = 0, 0, 0
		const length = 60 * time.Second
		f.run(length)
		share := func(d time.Duration) float64 { return 100 * d.Seconds() / length.Seconds() }
		b.ReportMetric(share(f.edge)/50, "%edge")
		b.ReportMetric(share(f.regional), "%regional")
		b.ReportMetric(share(f.global), "%global")
	}
}

// idle is a fleet without visitors, and the time used by its cores.
type idle struct {
	now    fleettime.Mono
	alloc  *root.Allocator
	agg    *region.Aggregator
	edges  []*admission.Engine
	byName map[string]*admission.Engine

	global, regional, edge time.Duration
}

func newIdle(rooms, edges int) *idle {
	p := wire.DefaultParams()
	f := &idle{now: 1, byName: map[string]*admission.Engine{}}
	var configs []ledger.RoomConfig
	var doors []admission.Room
	for i := range rooms {
		id := room.IDOf(fmt.Sprint("room-", i))
		configs = append(configs, ledger.RoomConfig{
			ID: id, Total: 1000, Rate: 600, Session: 5 * time.Minute,
			LostWait: time.Hour,
		})
		doors = append(doors, admission.Room{ID: id, Session: 5 * time.Minute})
	}
	slices.SortFunc(configs, func(a, b ledger.RoomConfig) int { return int(int64(a.ID>>1) - int64(b.ID>>1)) })
	f.alloc = root.New(f.now, root.Config{
		Term: wire.Term{N: 1, Nonce: 1}, Centres: []string{"dublin"}, Params: p,
		Bootstrap: true,
	})
	f.agg = region.New(f.now, region.Config{
		DC: "dublin", Term: wire.Term{N: 1, Nonce: 1}, Params: p, Bootstrap: true,
		ClusterID: 1,
	}, wire.Durable{})
	f.alloc.SetRooms(f.now, configs)
	f.agg.SetRooms(f.now, configs)
	for i := range edges {
		name := fmt.Sprintf("edge-%02d", i)
		e := admission.New(admission.Config{
			Edge: name, DC: "dublin", Params: p, Limits: admission.DefaultLimits(),
			Rand: rand.New(rand.NewPCG(1, uint64(i))),
		})
		e.SetRooms(f.now, doors)
		f.edges, f.byName[name] = append(f.edges, e), e
	}
	return f
}

// timed adds the duration of do to the sum.
func timed(sum *time.Duration, do func()) {
	begun := time.Now()
	do()
	*sum += time.Since(begun)
}

const wallAtStart = fleettime.Time(1_700_000_000_000)

func (f *idle) run(length time.Duration) {
	for end := f.now.Add(length); f.now < end; f.now = f.now.Add(10 * time.Millisecond) {
		now := f.now
		f.alloc.SetLease(now.Add(time.Minute))
		f.agg.SetLease(now.Add(time.Minute))
		timed(&f.global, func() { f.alloc.SetTime(now, wallAtStart.Add(time.Duration(now))) })
		for _, e := range f.edges {
			if e.Due() > now {
				continue
			}
			var reports []wire.Report
			timed(&f.edge, func() { reports = e.Report(now) })
			timed(&f.regional, func() {
				for _, m := range reports {
					f.agg.Observe(now, m)
				}
			})
		}
		if d, unsaved := f.agg.Unsaved(); unsaved {
			timed(&f.regional, func() { f.agg.Saved(now, d.Version) })
		}
		var grants, lent []wire.Grant
		var up []wire.Report
		timed(&f.regional, func() {
			if f.agg.GrantsDue() <= now {
				grants = f.agg.Grants(now)
			}
			if f.agg.ReportDue() <= now {
				up = f.agg.Report(now)
			}
		})
		timed(&f.edge, func() {
			for _, g := range grants {
				e := f.byName[g.To]
				e.Apply(now, g)
				e.Rooms.Release(now, nil)
			}
		})
		timed(&f.global, func() {
			for _, m := range up {
				f.alloc.Observe(now, m)
			}
			if f.alloc.GrantsDue() <= now {
				lent = f.alloc.Grants(now)
			}
		})
		timed(&f.regional, func() {
			for _, g := range lent {
				f.agg.Apply(now, g)
			}
		})
	}
}
