package slots_test

import (
	"testing"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/room"
	"vestibule/internal/slots"
	"vestibule/internal/wire"
)

// TestAStoreThatCameBackOlderIsNoticed: the roster is written before an edge gets
// its first lease. One that is not on it and holds sessions or rights tells that
// the store has lost writes.
func TestAStoreThatCameBackOlderIsNoticed(t *testing.T) {
	const second = 1622133200
	sale := room.IDOf("sale")
	with := func(r wire.RoomReport) []wire.RoomReport {
		r.Room = sale
		return []wire.RoomReport{r}
	}
	roster := wire.Durable{Version: 5, Roster: []wire.RosterEntry{{Edge: "d1", Inc: 7, Tenure: 1}}}
	inside := with(wire.RoomReport{Granted: 5, Spent: 5, Sessions: []wire.Expiry{{Until: second + 60, Stamped: 5}}})
	for _, c := range []struct {
		what   string
		stored wire.Durable
		rooms  []wire.RoomReport
		want   uint64
	}{
		{"an edge of the roster", roster, inside, 0},
		{"a new edge", wire.Durable{Version: 5}, nil, 0},
		{"an edge whose sessions have ended", wire.Durable{Version: 5}, with(wire.RoomReport{Granted: 5, Spent: 5, Sessions: []wire.Expiry{{Until: second, Stamped: 5}}}), 0},
		{"an edge whose sessions were renewed elsewhere", wire.Durable{Version: 5}, with(wire.RoomReport{Sessions: []wire.Expiry{{Until: second + 60, Consumed: 5}}}), 0},
		{"an edge with sessions, and the roster of before it came", wire.Durable{Version: 5}, inside, 1},
		{"an edge with rights, and the roster of before it came", wire.Durable{Version: 5}, with(wire.RoomReport{Granted: 5, Spent: 3, Returned: 1}), 1},
		{"an edge with sessions, and nothing stored", wire.Durable{}, inside, 1},
	} {
		now := fleet.Mono(time.Hour)
		term := wire.Term{N: 2, Nonce: 1}
		agg := slots.NewAggregator(now, slots.AggregatorConfig{DC: "dublin", Term: term, Params: wire.DefaultParams()}, c.stored)
		agg.SetLease(fleet.Never)
		m := wire.Report{
			From: "d1", Inc: 7, Tenure: 1, Seq: 2, Parts: 1, AsOf: second * 1000, Seen: term, Join: true, Rooms: c.rooms,
		}
		for range 2 { // it is noticed once
			agg.Observe(now, m)
			m.Seq++
		}
		if n, edge := agg.Surprises(); n != c.want || (n > 0) != (edge == "d1") {
			t.Errorf("%s: %d surprises (%q), want %d", c.what, n, edge, c.want)
		}
	}
}

// TestALateJoinIsNotTheEdge: an edge that was forgotten is adopted again by a
// report of its first tenure that was under way for long. What it says under a
// later tenure shows that, and it hears that it has to begin anew; it was never
// answered under its own tenure.
func TestALateJoinIsNotTheEdge(t *testing.T) {
	for _, tt := range []struct {
		final bool
		want  wire.Verdict
	}{{false, wire.Fenced}, {true, wire.Dead}} {
		now := fleet.Mono(time.Hour)
		term := wire.Term{N: 2, Nonce: 1}
		agg := slots.NewAggregator(now, slots.AggregatorConfig{DC: "dublin", Term: term, Params: wire.DefaultParams(), Bootstrap: true}, wire.Durable{})
		agg.SetLease(fleet.Never)
		last := func() wire.Verdict {
			if d, ok := agg.Unsaved(); ok {
				agg.Saved(now, d.Version)
			}
			v := wire.Verdict(99)
			for _, g := range agg.Grants(now) {
				v = g.Verdict
			}
			return v
		}
		r := wire.Report{From: "d1", Inc: 7, Tenure: 1, Seq: 2, Parts: 1, Seen: term, Join: true}
		agg.Observe(now, r)
		if v := last(); v != wire.Adopted {
			t.Fatalf("the late report is answered by %v", v)
		}
		r.Tenure, r.Seq, r.Join, r.Final = 2, 9, false, tt.final
		now = now.Add(100 * time.Millisecond)
		agg.Observe(now, r)
		if v := last(); v != tt.want {
			t.Errorf("final %v: the edge is answered by %v, want %v", tt.final, v, tt.want)
		}
	}
}
