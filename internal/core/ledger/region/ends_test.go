package region

import (
	"testing"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// TestWhoLeavesAfterATakeover: an aggregator that took over knows a session by its seconds alone. If its visitor
// leaves with a ticket older than the newest one, the session permit comes free once no edge accepts any of them.
func TestWhoLeavesAfterATakeover(t *testing.T) {
	const now, shown, newest = int64(1_622_131_200), uint32(1_622_131_260), uint32(1_622_131_290)
	all := rooms{home: 1, byID: map[room.ID]*roomLedger{}}
	b := all.open(7)
	b.counts.start(fleettime.Time(now * 1000))
	gone := &edge{name: "edge-1", instance: 1, num: 1, state: left}
	b.restore(0, gone, &wire.RosterRoom{Room: 7, Sessions: []wire.Expiry{{Until: newest, Stamped: 1}}}, 60)
	here := &edge{name: "edge-1", instance: 2, num: 2, state: alive}
	acc := b.account(here)
	b.recordEnd(wire.End{ID: 5, Home: 1, Until: shown, Shown: shown, Kind: wire.Left}, true)
	at := closeConditions{
		known: b.terminations.n, watermark: fleettime.Time(now * 1000), expired: uint32(now + 70), movedIn: 1,
	}
	cleared := func() {
		m := b.terminations.order[0]
		b.recordEnd(wire.End{ID: 5, Home: 1, Until: m.Until, Kind: wire.Cleared}, false)
	}
	cleared()
	b.closeTerminations(at)
	if b.counts.total() != 1 {
		t.Error("the permit is free before the edges refuse the newest ticket")
	}
	ends := acc.ends.Take(1, 0)
	if last := ends[len(ends)-1]; last.Until < at.expired {
		t.Errorf("edges refuse tickets until %d, and the newest ends at %d", last.Until, newest)
	}
	at.expired, at.known = uint32(now+91), b.terminations.n
	cleared()
	b.closeTerminations(at)
	if b.counts.total() != 0 {
		t.Errorf("%d sessions count once every edge refuses the ticket", b.counts.total())
	}
	// From when the ticket that was shown is over the newest one counts again: nobody knew that it was there.
	b.counts.free(fleettime.Time(int64(shown)*1000 + 2000))
	if b.counts.total() != 1 {
		t.Errorf("%d sessions count after the second of the ticket that was shown, want 1", b.counts.total())
	}

	// Tickets of another data centre may be valid for sessions that moved here: nothing is subtracted.
	b.recordEnd(wire.End{ID: 6, Home: 1, Until: newest, Shown: newest, Kind: wire.Left}, true)
	at.movedIn, at.known = int64(newest), b.terminations.n
	for range 2 {
		b.recordEnd(wire.End{ID: 6, Home: 1, Until: newest, Kind: wire.Cleared}, false)
		b.closeTerminations(at)
	}
	if b.counts.total() != 1 {
		t.Errorf("%d sessions count, want 1", b.counts.total())
	}
}

// TestRule7LostMovesRaiseALeaveAgain: a session that only a predecessor heard of ends. Before every edge refuses its
// tickets, a report omits moves that may have given it a newer one: its permit comes free once that one is refused
// too.
func TestRule7LostMovesRaiseALeaveAgain(t *testing.T) {
	const now, newest = int64(1_622_131_200), uint32(1_622_131_290)
	all := rooms{home: 1, byID: map[room.ID]*roomLedger{}}
	b := all.open(7)
	b.counts.start(fleettime.Time(now * 1000))
	acc := b.account(&edge{name: "edge-1", instance: 1, num: 1, state: alive})
	lose := func(first uint64) {
		b.applyMoves(acc, &wire.RoomReport{Room: 7, FirstMove: first}, fleettime.Time(now*1000), fleettime.Time(now*1000))
	}
	lose(5) // they were reported to the predecessor
	acc.sessions.applyReport(&b.counts, []wire.Expiry{{Until: newest, Stamped: 1}})
	b.recordEnd(wire.End{ID: 5, Home: 1, Until: newest, Shown: newest, Kind: wire.Left}, true)
	at := closeConditions{watermark: fleettime.Time(now * 1000), expired: newest + 10, movedIn: 1}
	finish := func() {
		t.Helper()
		b.recordEnd(wire.End{ID: 5, Home: 1, Until: b.terminations.order[0].Until, Kind: wire.Cleared}, false)
		at.known = b.terminations.n // every edge knows everything
		b.closeTerminations(at)
	}
	b.closeTerminations(at) // raised
	lose(9)
	at.expired = newest + 60
	finish()
	if n := b.counts.total(); n != 1 {
		t.Fatalf("%d sessions count, though a move that was not reported may have renewed one", n)
	}
	ends := acc.ends.Take(1, 0)
	if last := ends[len(ends)-1]; last.Until < at.expired {
		t.Errorf("edges refuse tickets until %d, and one may be valid until %d", last.Until, at.expired)
	}
	finish()
	if n := b.counts.total(); n != 0 {
		t.Errorf("%d sessions count once every edge refuses every ticket", n)
	}
}

// TestRule7ASessionThatMovedAwayIsSubtractedOnce: a session left with its permit. Its entry in the table is dropped, as all that
// count nothing, and the visitor ends the visit with the old ticket.
func TestRule7ASessionThatMovedAwayIsSubtractedOnce(t *testing.T) {
	const now, shown = int64(1_622_131_200), uint32(1_622_131_260)
	for _, d := range []*departure{nil, {id: 5, marked: shown, to: 2, until: shown + 9}, {id: 5, marked: shown, doubt: true}} {
		all := rooms{home: 1, byID: map[room.ID]*roomLedger{}}
		b := all.open(7)
		b.counts.start(fleettime.Time(now * 1000))
		acc := b.account(&edge{name: "edge-1", instance: 1, num: 1, state: alive})
		acc.sessions.applyReport(&b.counts, []wire.Expiry{{Until: shown, Stamped: 1}}) // of another session
		if d != nil {
			b.moves.keep(d)
		}
		b.recordEnd(wire.End{ID: 5, Home: 1, Until: shown, Shown: shown, Kind: wire.Left}, true)
		at := closeConditions{watermark: fleettime.Time(now * 1000), expired: shown + 10, movedIn: 1}
		for range 2 {
			b.closeTerminations(at)
			b.recordEnd(wire.End{ID: 5, Home: 1, Until: b.terminations.order[0].Until, Kind: wire.Cleared}, false)
			at.known = b.terminations.n
		}
		b.closeTerminations(at)
		if n, want := b.counts.total(), int64(min(1, len(b.moves.leaving))); n != want {
			t.Errorf("departure %+v: %d sessions count, want %d", d, n, want)
		}
	}
}
