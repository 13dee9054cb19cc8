package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// big is a coordinator with 20 data centres, 100 rooms and waiting visitors in 120 slices of every line.
type big struct {
	root    *root.Allocator
	now     fleettime.Mono
	reports [][]wire.Report // by data centre, complete
	seq     []uint64
	acked   []uint64
}

const (
	bigCentres = 20
	bigRooms   = 100
	bigSlices  = 120
)

func newBig() *big {
	g := &big{now: fleettime.Mono(time.Hour)}
	var names []string
	for d := range bigCentres {
		names = append(names, fmt.Sprintf("dc%02d", d))
	}
	term := wire.Term{N: 1, Nonce: 1}
	g.root = root.New(g.now, root.Config{Term: term, Centres: names, Params: wire.DefaultParams(), Bootstrap: true})
	g.root.SetLease(fleettime.Never)
	g.root.SetTime(g.now, dawn)
	var rooms []ledger.RoomConfig
	for r := range bigRooms {
		rooms = append(rooms, ledger.RoomConfig{
			ID: room.IDOf(fmt.Sprint("room", r)), Total: 100_000, Rate: 60_000,
			Session: 5 * time.Minute,
		})
	}
	g.root.SetRooms(g.now, rooms)
	g.seq, g.acked = make([]uint64, bigCentres), make([]uint64, bigCentres)
	for d, name := range names {
		head := wire.Report{From: name, Instance: 1, Sent: g.now, AsOf: dawn, Seen: term, Join: true}
		pack := wire.NewReportPacker(head)
		for r := range bigRooms {
			var h estimate.Histogram
			for s := range bigSlices {
				h = append(h, estimate.Slice{
					Start: dawn - fleettime.Time(1000*(bigSlices-s)), Width: 1000,
					N: float64(1 + (s+d)%5),
				})
			}
			pack.Add(wire.RoomReport{
				Room: rooms[r].ID, Permits: wire.Permits{
					Sessions: wire.Allocation{Granted: 3000},
					Rate:     wire.Allocation{Granted: 2000},
				}, Active: 3000, Waiting: h, Want: 3,
				Arrivals: []wire.Minute{{Start: dawn.Minute().Add(-2 * time.Minute), N: uint64(10 + d)}},
			})
		}
		g.reports = append(g.reports, pack.Reports())
	}
	for d := range bigCentres {
		g.report(d, -1, 0)
	}
	g.sync()
	return g
}

// report sends data centre d's full report, or only the changes of one room.
func (g *big) report(d, only int, n uint64) {
	g.seq[d]++
	send := func(m wire.Report) {
		m.Seq, m.Sent, m.Acked, m.Join = g.seq[d], g.now, g.acked[d], g.seq[d] == 1
		g.root.Observe(g.now, m)
	}
	if only >= 0 {
		m := g.reports[d][0]
		one := m.Rooms[only]
		one.Active, one.Admitted = 3000+n%2, n
		m.Rooms, m.Part, m.Parts = []wire.RoomReport{one}, 0, 1
		send(m)
		return
	}
	for _, m := range g.reports[d] {
		for i := range m.Rooms {
			m.Rooms[i].Active, m.Rooms[i].Admitted = 3000+n%2, n
		}
		send(m)
	}
}

// sync makes the grants that are due, and acknowledges them.
func (g *big) sync() int {
	rooms := 0
	for _, m := range g.root.Grants(g.now) {
		for d := range g.reports {
			if g.reports[d][0].From == m.To {
				g.acked[d] = max(g.acked[d], m.Seq)
			}
		}
		rooms += len(m.Rooms)
	}
	return rooms
}

// BenchmarkGlobalSync measures one data centre's report, with the division and the messages that follow: once with
// all of its rooms changed, once with one. The difference shows that the cost depends on the changes, not on the
// number of rooms.
func BenchmarkGlobalSync(b *testing.B) {
	for _, bb := range []struct {
		name string
		only int
	}{{"all-changed", -1}, {"one-changed", 0}} {
		b.Run(bb.name, func(b *testing.B) {
			g := newBig()
			for d := range bigCentres { // everything is acknowledged
				g.now = g.now.Add(time.Second)
				g.report(d, 0, 0)
				g.sync()
			}
			b.ReportAllocs()
			n := uint64(0)
			rooms := 0
			for b.Loop() {
				n++
				g.now = g.now.Add(25 * time.Millisecond) // 20 data centres, each twice a second
				g.report(int(n)%bigCentres, bb.only, n/bigCentres)
				rooms += g.sync()
			}
			b.ReportMetric(float64(rooms)/float64(n), "rooms-reported/op")
		})
	}
}

// BenchmarkRegionalReport measures the report to global of an aggregator with ten edges and a hundred rooms, all of
// them changed.
func BenchmarkRegionalReport(b *testing.B) {
	const edges, rooms = 10, 100
	now := fleettime.Mono(time.Hour)
	params := wire.DefaultParams()
	agg := region.New(now, region.Config{
		DC: "dublin", Term: wire.Term{N: 1, Nonce: 1}, Params: params, Bootstrap: true,
		ClusterID: 1,
	}, wire.Durable{})
	agg.SetLease(fleettime.Never)
	var set []ledger.RoomConfig
	var edgeSet []admission.Room
	for r := range rooms {
		id := room.IDOf(fmt.Sprint("room", r))
		set = append(set, ledger.RoomConfig{ID: id, Total: 1000, Rate: 600, Session: 5 * time.Minute})
		edgeSet = append(edgeSet, admission.Room{ID: id})
	}
	agg.SetRooms(now, set)
	save := func() {
		if d, ok := agg.Unsaved(); ok {
			agg.Saved(now, d.Version)
		}
	}
	save()
	var reports []wire.Report
	var cores []*admission.Engine
	for k := range edges {
		e := admission.New(admission.Config{
			Edge: fmt.Sprint("edge", k), DC: "dublin", Params: params, Limits: admission.DefaultLimits(),
			Rand: rand.New(rand.NewPCG(1, uint64(k))),
		})
		e.SetRooms(now, edgeSet)
		cores = append(cores, e)
	}
	for range 4 { // promise, join, roster, lease
		for _, e := range cores {
			for _, m := range e.Report(now) {
				agg.Observe(now, m)
			}
		}
		save()
		for _, g := range agg.Grants(now) {
			for _, e := range cores {
				e.Apply(now, g)
			}
		}
		now = now.Add(50 * time.Millisecond)
	}
	for _, e := range cores {
		reports = append(reports, e.Report(now)...)
	}
	for i := range reports {
		var h estimate.Histogram
		for s := range bigSlices {
			h = append(h, estimate.Slice{Start: dawn - fleettime.Time(1000*(bigSlices-s)), Width: 1000, N: float64(1 + s%5)})
		}
		reports[i].Rooms = nil
		for _, r := range set {
			reports[i].Rooms = append(reports[i].Rooms, wire.RoomReport{Room: r.ID, Waiting: h, FirstMove: 1})
		}
	}
	b.ReportAllocs()
	reported := 0
	n := 0
	for b.Loop() {
		b.StopTimer()
		n++
		now = now.Add(50 * time.Millisecond)
		for i := range reports {
			m := &reports[i]
			m.Seq++
			m.Sent = now
			for k := range m.Rooms {
				m.Rooms[k].Admitted++
			}
			agg.Observe(now, *m)
		}
		b.StartTimer()
		for _, m := range agg.Report(now) {
			reported += len(m.Rooms)
		}
	}
	b.ReportMetric(float64(reported)/float64(n), "rooms-reported/op")
}
