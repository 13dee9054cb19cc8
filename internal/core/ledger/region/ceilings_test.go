package region

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// walk is sessions that two edges renew. Each edge counts the tickets that it stamped and consumed.
type walk struct {
	at     [2]map[uint32]wire.Expiry
	moves  [2][]wire.Move
	newest map[uint64]visit
	ids    uint64
}

// visit is the newest ticket of a session.
type visit struct {
	edge  int
	until uint32
}

func (w *walk) count(edge int, second uint32, stamped, consumed uint64) {
	x := w.at[edge][second]
	x.Until, x.Stamped, x.Consumed = second, x.Stamped+stamped, x.Consumed+consumed
	w.at[edge][second] = x
}

// stamp admits a session (from 0) or renews it.
func (w *walk) stamp(edge int, id uint64, until uint32) {
	from := w.newest[id].until
	if from != 0 {
		w.count(edge, from, 0, 1)
	}
	w.count(edge, until, 1, 0)
	w.moves[edge] = append(w.moves[edge], wire.Move{ID: id, From: from, Until: until})
	w.newest[id] = visit{edge, until}
}

// expiries returns the counts of an edge from a second on.
func (w *walk) expiries(edge int, from uint32) (out []wire.Expiry) {
	for _, x := range w.at[edge] {
		if x.Until >= from {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b wire.Expiry) int { return int(a.Until) - int(b.Until) })
	return out
}

// TestRule5TheCeilingCoversASilentEdge: whatever an edge renewed before it fell silent and renews afterwards, its
// ceiling and the counts of the other edge are never less than the sessions that are valid.
func TestRule5TheCeilingCoversASilentEdge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const life = 20
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		w := walk{at: [2]map[uint32]wire.Expiry{{}, {}}, newest: map[uint64]visit{}}
		moves := rapid.Float64Range(0, 1).Draw(t, "moves")
		// walks renews sessions in one second. After the silence of the first edge none moves to it.
		walks := func(now uint32, silent bool) {
			for id, v := range w.newest {
				if v.until < now {
					delete(w.newest, id)
				}
			}
			for id := uint64(1); id <= w.ids; id++ { // in order, for equal runs
				v, ok := w.newest[id]
				if !ok || rng.IntN(6) > 0 || now+life == v.until {
					continue
				}
				to := v.edge
				if rng.Float64() < moves && (!silent || to == 0) {
					to = 1 - to
				}
				w.stamp(to, id, now+life)
			}
		}
		const start = 1_622_133_200
		rs, es := rooms{byID: map[room.ID]*roomLedger{}}, roster{}
		b := rs.open(1)
		b.counts.start(fleettime.Time(start) * 1000)
		b.loan.permits.Sessions.Granted = 1000
		for _, name := range []string{"silent", "stays"} {
			e := es.add(name, 1)
			e.state = alive
			b.account(e).report = &wire.RoomReport{}
		}
		now, end := uint32(start), uint32(start+rapid.IntRange(1, 60).Draw(t, "seconds"))
		for ; now < end; now++ {
			walks(now, false)
			if rng.IntN(2) == 0 {
				w.ids++
				w.stamp(rng.IntN(2), w.ids, now+life)
			}
			for i, acc := range b.accounts {
				acc.sessions.applyReport(&b.counts, w.expiries(i, now))
				b.applyMoves(acc, &wire.RoomReport{FirstMove: 1, Moves: w.moves[i]}, 0, fleettime.Time(now)*1000)
			}
		}
		b.counts.free(fleettime.Time(now) * 1000)
		b.measure()
		ceiling := b.accounts[0].ceiling.used
		for ; now < end+3*life; now++ {
			walks(now, true)
			counted := int64(0)
			for _, x := range w.expiries(1, now) {
				counted += int64(x.Stamped) - int64(x.Consumed)
			}
			valid := int64(0)
			for _, v := range w.newest {
				if v.until >= now {
					valid++
				}
			}
			if counted+ceiling < valid {
				t.Fatalf("%d s after the silence began %d sessions are valid: %d are counted, and the ceiling is %d",
					now-end, valid, counted, ceiling)
			}
		}
	})
}

// TestRule5ASuccessorCountsByTheCeiling: it waits for the lease of an edge that it does not hear, and then counts its
// ceilings, unless the store is older than they are relied on.
func TestRule5ASuccessorCountsByTheCeiling(t *testing.T) {
	sale := room.IDOf("sale")
	for name, tt := range map[string]struct {
		until time.Duration // after the takeover
		cap   bool
		want  int64
	}{
		"they are relied on":      {until: ceilingsFor * time.Second, want: 40},
		"under cap":               {until: ceilingsFor * time.Second, cap: true, want: 40},
		"the store is older":      {until: -time.Second},
		"a release without them ": {until: -time.Duration(comersDay) * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			c := &comers{t: t, now: fleettime.Mono(time.Hour), room: sale, cap: tt.cap}
			c.lead(wire.Durable{
				Version: 7, Life: 62, MovedIn: 1, CeilingsUntil: comersDay.Add(tt.until).Second(),
				Roster: []wire.RosterEntry{
					{Edge: "goes", Instance: 1, LeaseEpoch: 1}, {Edge: "stays", Instance: 1, LeaseEpoch: 1},
				},
				Ceilings: []wire.CeilingEdge{{Edge: "goes", Instance: 1}, {Edge: "stays", Instance: 1}},
				Rooms: []wire.StoredRoom{{Room: sale, Ceilings: []wire.PermitCounts{
					{Sessions: 40, Rate: 9}, {Sessions: 50, Rate: 9},
				}}},
			})
			for began := c.now; c.now.Sub(began) < 15*time.Second; c.step(time.Second) {
				c.agg.clock.Set(c.now, c.time(), 0)
				c.say("stays", 1, wire.Report{Join: c.seq == 0})
				if c.now.Sub(began) < wire.DefaultParams().EdgeLease && !c.agg.roster.recovering() {
					t.Fatalf("the lease of the edge may last, and it is not waited for after %v", c.now.Sub(began))
				}
			}
			if waits := c.agg.roster.recovering(); waits != (tt.want == 0) {
				t.Fatalf("waits for the edge: %v", waits)
			}
			if n := c.agg.rooms.open(sale).active(); n != tt.want {
				t.Errorf("%d sessions count, want %d", n, tt.want)
			}
			if n := c.agg.rooms.open(sale).rates.sum(); n != 9 && tt.want > 0 {
				t.Errorf("%d permits of R count, want 9", n)
			}
			if tt.want == 0 {
				return
			}
			c.say("goes", 1, wire.Report{Join: true})
			c.step(time.Second)
			if n := c.agg.rooms.open(sale).active(); n != 0 {
				t.Errorf("the edge reports, and %d sessions count for it", n)
			}
			// Under cap its lease epoch has ended: permits of R that it may have used then count for a minute.
			if n := c.agg.rooms.open(sale).rates.sum(); n != 0 && !tt.cap {
				t.Errorf("the edge reports what it holds, and %d permits of R count for it", n)
			}
		})
	}
}

// TestCeilingsEndWithTheLeaseEpoch: what a store says of an edge before it joined is no ceiling of what it gets now.
func TestCeilingsEndWithTheLeaseEpoch(t *testing.T) {
	sale := room.IDOf("sale")
	c := &comers{t: t, now: fleettime.Mono(time.Hour), room: sale}
	goes := wire.CeilingEdge{Edge: "goes", Instance: 1}
	c.lead(wire.Durable{
		Version: 7, Life: 62, CeilingsUntil: comersDay.Add(ceilingsFor * time.Second).Second(),
		Ceilings: []wire.CeilingEdge{goes},
		Roster:   []wire.RosterEntry{{Edge: "goes", Instance: 1, LeaseEpoch: 1}},
		Rooms:    []wire.StoredRoom{{Room: sale, Ceilings: []wire.PermitCounts{{Sessions: 4}}}},
	})
	c.agg.clock.Set(c.now, c.time(), 0)
	c.say("goes", 1, wire.Report{Join: true})
	c.step(time.Second)
	if e := c.agg.roster.find("goes", 1); e.state != alive {
		t.Fatalf("the edge is %s", edgeStates[e.state])
	}
	if d := c.agg.stored.durable; slices.Contains(d.Ceilings, goes) {
		t.Errorf("the edge has a lease, and the store its ceilings %v", d.Rooms)
	}
}
