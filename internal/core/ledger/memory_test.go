package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// house is one data centre with all its servers, without a network: messages arrive at once.
type house struct {
	now   fleettime.Mono
	room  room.ID
	root  *root.Allocator
	agg   *region.Aggregator
	edges []*admission.Engine
	sync  int // bytes of the largest report to global, all parts

	alter func(m *wire.Report) // changes the reports of edges; nil for none
}

func newHouse(tb testing.TB, total uint64) *house {
	h := &house{now: fleettime.Mono(time.Hour), room: room.IDOf("sale")}
	params := wire.DefaultParams()
	h.root = root.New(h.now, root.Config{
		Term: wire.Term{N: 1, Nonce: 1}, Centres: []string{"dublin"}, Params: params,
		Bootstrap: true,
	})
	h.root.SetLease(fleettime.Never)
	h.root.SetTime(h.now, dawn)
	rooms := []ledger.RoomConfig{{ID: h.room, Total: total, Rate: 10_000_000, Session: 5 * time.Minute}}
	h.root.SetRooms(h.now, rooms)
	h.agg = region.New(h.now, region.Config{
		DC: "dublin", Term: wire.Term{N: 1, Nonce: 1}, Params: params, Bootstrap: true,
		ClusterID: 1,
	}, wire.Durable{})
	h.agg.SetLease(fleettime.Never)
	h.agg.SetRooms(h.now, rooms)
	for k := range 4 {
		e := admission.New(admission.Config{
			Edge: fmt.Sprint("edge", k), DC: "dublin", Params: params, Limits: admission.DefaultLimits(),
			Rand: rand.New(rand.NewPCG(1, uint64(k))),
		})
		e.SetRooms(h.now, []admission.Room{{ID: h.room}})
		h.edges = append(h.edges, e)
	}
	for range 20 {
		h.talk(tb)
	}
	return h
}

// talk has every node send its pending messages once, 250 ms later.
func (h *house) talk(tb testing.TB) {
	h.now = h.now.Add(250 * time.Millisecond)
	h.root.SetTime(h.now, dawn.Add(h.now.Sub(fleettime.Mono(time.Hour))))
	for _, e := range h.edges {
		for _, m := range e.Report(h.now) {
			if h.alter != nil {
				h.alter(&m)
			}
			h.agg.Observe(h.now, m)
		}
	}
	if d, ok := h.agg.Unsaved(); ok {
		h.agg.Saved(h.now, d.Version)
	}
	sync := 0
	for _, m := range h.agg.Report(h.now) {
		sync += len(wire.EncodeReport(&m))
		h.root.Observe(h.now, m)
	}
	h.sync = max(h.sync, sync)
	for _, g := range h.root.Grants(h.now) {
		h.agg.Apply(h.now, g)
	}
	for _, g := range h.agg.Grants(h.now) {
		for _, e := range h.edges {
			e.Apply(h.now, g)
		}
	}
	for _, e := range h.edges {
		e.Rooms.Release(h.now, nil)
	}
}

// wait has n visitors that joined in the last ten minutes come back once to ask for their turn.
func (h *house) wait(tb testing.TB, n int) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		e := h.edges[i%len(h.edges)]
		joined := e.Clock.Time(h.now).Add(-time.Duration(rng.Int64N(int64(10 * time.Minute))))
		t := ticket.Ticket{
			ID: rng.Uint64() | 1, Joined: joined,
			Seen: uint32(max(joined.Second(), e.Clock.Time(h.now).Second()-20)),
		}
		if d := e.Arrive(h.now, h.room, t); d.Enters() {
			tb.Fatal("there is no permit, and somebody entered")
		}
	}
	for range 8 {
		h.talk(tb)
	}
	if got := h.agg.Ledger(h.room).Waiting; int(got+0.5) != n {
		tb.Fatalf("%v wait, want %d", got, n)
	}
}

// heap returns the live bytes on the heap.
func heap() int64 {
	runtime.GC()
	runtime.GC() // objects that the first collection made unreachable
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// fullHouse is a room for one visitor, with one session.
func fullHouse(tb testing.TB) *house {
	h := newHouse(tb, 1)
	v := &admission.Visit{Room: h.room}
	d := h.edges[0].Arrive(h.now, h.room, ticket.Ticket{})
	if v.Ticket = d.Ticket; d.Verdict == admission.Hold {
		h.edges[0].Rooms.Hold(h.now, v)
	}
	for range 8 {
		h.talk(tb)
	}
	if got := h.agg.Ledger(h.room).Active; got != 1 {
		tb.Fatalf("%d sessions, want 1", got)
	}
	return h
}

// BenchmarkWaitingMemory measures the memory of all servers per waiting visitor: the growth from ten thousand to a
// million of them.
func BenchmarkWaitingMemory(b *testing.B) {
	measure := func(n int) int64 {
		before := heap()
		h := fullHouse(b)
		h.wait(b, n)
		after := heap()
		runtime.KeepAlive(h)
		return after - before
	}
	for b.Loop() {
		few, many := measure(10_000), measure(1_000_000)
		b.ReportMetric(float64(many-few)/990_000, "B/visitor")
		b.ReportMetric(float64(many)/1024, "KiB-with-1,000,000")
	}
}

// admitted has an edge report, beginning with m, n admissions.
func (h *house) admitted(m wire.Report, n int) {
	const life = 320
	rng := rand.New(rand.NewPCG(3, m.Instance))
	r := wire.RoomReport{Room: h.room, FirstMove: 1, Permits: wire.Permits{Sessions: wire.Allocation{Granted: uint64(n)}}}
	sessions := make([]wire.Expiry, life)
	for s := range sessions {
		sessions[s].Until = uint32(dawn.Second() + 10 + int64(s))
	}
	for done := 0; done < n; done += len(r.Moves) {
		r.FirstMove += uint64(len(r.Moves))
		r.Moves = nil
		for range min(wire.MaxMoves, n-done) {
			s := &sessions[rng.IntN(life)]
			s.Stamped++
			r.Moves = append(r.Moves, wire.Move{ID: rng.Uint64() | 1, Until: s.Until})
		}
		r.Spent = uint64(done + len(r.Moves))
		r.Sessions = slices.Clone(sessions)
		m.Rooms = []wire.RoomReport{r}
		h.agg.Observe(h.now, m)
		m.Seq++
	}
}

// BenchmarkSessionMemory measures a regional's bytes per session, with a million of them: the head-count by second,
// and the ids that cancel doubles.
func BenchmarkSessionMemory(b *testing.B) {
	const n = 1_000_000
	for b.Loop() {
		before := heap()
		h := newHouse(b, n)
		for _, e := range h.edges {
			for _, m := range e.Report(h.now) {
				h.admitted(m, n/len(h.edges))
			}
		}
		if got := h.agg.Ledger(h.room).Active; got != n {
			b.Fatalf("%d sessions, want %d", got, n)
		}
		after := heap()
		runtime.KeepAlive(h)
		b.ReportMetric(float64(after-before)/n, "B/session")
	}
}

// TestAMillionWaitInOneReport: the size of a data centre's report to global does not grow with its waiting visitors.
func TestAMillionWaitInOneReport(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	h := fullHouse(t)
	h.wait(t, n)
	if h.sync == 0 || h.sync > 64<<10 {
		t.Errorf("a report of %d bytes, want 64 KiB or less", h.sync)
	}
}

// BenchmarkSyncSize measures the size of a data centre's report with a million waiting visitors.
func BenchmarkSyncSize(b *testing.B) {
	for b.Loop() {
		h := fullHouse(b)
		h.wait(b, 1_000_000)
		b.ReportMetric(float64(h.sync), "B/sync")
	}
}
