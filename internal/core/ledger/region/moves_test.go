package region

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// movesLedger returns a room of data centre 1 with session 5, which counts until second until, and its edge.
func movesLedger(until uint32) (*roomLedger, *account) {
	came := &edge{name: movesName, num: 2, state: left}
	all := rooms{home: 1, byID: map[room.ID]*roomLedger{}, moverEdge: func() *edge { return came }}
	b := all.open(7)
	b.counts.start(fleettime.Time((int64(until) - 60) * 1000))
	acc := b.account(&edge{name: "edge-1", instance: 1, num: 1, state: alive})
	acc.report = &wire.RoomReport{Room: 7}
	acc.sessions.applyReport(&b.counts, []wire.Expiry{{Until: until, Stamped: 1}})
	b.ids.record(&b.counts, wire.Move{ID: 5, Until: until}, 1, 16)
	return b, acc
}

// TestRule7ASessionLeavesOnceItsMarkIsKnownAndStored: a session leaves in the report after every edge has acknowledged the
// mark, and after the store has it.
func TestRule7ASessionLeavesOnceItsMarkIsKnownAndStored(t *testing.T) {
	const until = uint32(1_622_131_260)
	for _, c := range []struct {
		name         string
		known, saved uint64
		moved        int64
	}{
		{"an edge does not know the mark", 2, 9, 0},
		{"the store does not have it", 3, 8, 0},
		{"both do", 3, 9, 1},
	} {
		b, _ := movesLedger(until)
		b.moves.asked = []wire.Ask{{ID: 5, Home: 1, For: 2, Shown: until, Until: until + 30}}
		b.moves.keep(&departure{id: 5, n: 3, marked: until + 10, version: 9})
		if moved, _ := b.depart(c.known, c.saved, 100, 1); moved != c.moved || b.counts.total() != 1-c.moved {
			t.Errorf("%s: %d sessions left, want %d; %d count", c.name, moved, c.moved, b.counts.total())
		}
	}
}

// TestRule7AnAskThatIsPassedOn: a session went to data centre 2, which is asked for it. Before it has arrived there, the ask
// is no evidence that it counts there.
func TestRule7AnAskThatIsPassedOn(t *testing.T) {
	const until = uint32(1_622_131_260)
	for _, arrived := range []bool{false, true} {
		b, acc := movesLedger(until)
		b.ids.end(&b.counts, 5, until)
		acc.report.Asks = []wire.Ask{{ID: 5, Home: 1, For: 1, Shown: until, Until: until + 30}}
		b.moves.keep(&departure{id: 5, marked: until + 10, to: 2, until: until + 11, said: arrived})
		want := wire.Ask{ID: 5, Home: 2, For: 1, Until: until + 30}
		if arrived {
			want.Shown = until + 11
		}
		if got := b.asksUp(); len(got) != 1 || got[0] != want {
			t.Errorf("arrived %v: it asks %+v, want %+v", arrived, got, want)
		}
	}
}

// TestRule7AnEdgeRenewsOnceItKnowsAllMarks: an edge begins to report a room of which more sessions left than fit into a
// grant.
func TestRule7AnEdgeRenewsOnceItKnowsAllMarks(t *testing.T) {
	const until = uint32(1_622_131_260)
	b, acc := movesLedger(until)
	for i := range uint64(2*wire.MaxAsks + 5) {
		b.moves.n++
		b.moves.keep(&departure{id: 100 + i, n: b.moves.n, marked: until})
	}
	b.sendStaysTo(acc)
	acc.renewCeil = 9
	e, told := acc.edge, 0
	for seq := uint64(1); ; seq++ {
		pack := wire.NewGrantPacker(wire.Grant{To: e.name, Seq: seq})
		e.packChanges(pack, seq)
		g := pack.Grants()[0].Rooms
		if len(g) != 1 || seq > 3 {
			t.Fatalf("grant %d has %d rooms, after %d marks", seq, len(g), told)
		}
		if told += len(g[0].Stays); g[0].RenewCeil == 0 {
			e.acked, e.ackedReported = seq, seq
			continue
		}
		if told != len(b.moves.leaving) {
			t.Errorf("it may renew once it knows %d of %d marks", told, len(b.moves.leaving))
		}
		return
	}
}

// TestRule7VoidPermitsDoNotMove: the permits of a data centre become void while a session is on its way with one of them:
// it counts at its home again, which lists it no more.
func TestRule7VoidPermitsDoNotMove(t *testing.T) {
	const until = uint32(1_622_131_260)
	b, _ := movesLedger(until)
	b.moves.asked = []wire.Ask{{ID: 5, Home: 1, For: 2, Shown: until, Until: until + 30}}
	b.moves.keep(&departure{id: 5, n: 3, marked: until + 10, version: 9})
	if moved, _ := b.depart(3, 9, 100, 1); moved != 1 {
		t.Fatal("the session does not leave")
	}
	b.voidMoves()
	if b.counts.total() != 1 || len(b.moves.sent) != 0 || b.here(5, until) != until {
		t.Errorf("%d sessions count, %d are on their way", b.counts.total(), len(b.moves.sent))
	}
}

// TestRule7TwoHomesSendASessionToEachOther: two data centres count a session, because one of them did not answer for a
// while. Each sends it to the other one, until the same second. Neither of them has sent on what comes: it counts.
func TestRule7TwoHomesSendASessionToEachOther(t *testing.T) {
	const until = uint32(1_622_131_260)
	for _, c := range []struct {
		name  string
		left  uint32 // it counts elsewhere until then
		count int64
	}{
		{"it left after it had come", until + 1, 0},
		{"they cross", until, 1},
		{"it comes back", until - 1, 1},
	} {
		b, _ := movesLedger(until)
		b.ids.end(&b.counts, 5, until)
		b.moves.keep(&departure{id: 5, marked: c.left - 1, to: 2, until: c.left})
		b.takeTransfers(0, []wire.Transfer{{ID: 5, From: 2, To: 1, Tag: 1, N: 1, Until: until}})
		if got := b.counts.total(); got != c.count {
			t.Errorf("%s: %d sessions count, want %d", c.name, got, c.count)
		}
	}
}

// TestRule7ASessionThatEndsSoonMoves: a home keeps a session beyond its ticket until it can leave. A successor, which
// counts what is stored, never counts less than there is.
func TestRule7ASessionThatEndsSoonMoves(t *testing.T) {
	const until = uint32(1_622_131_260)
	b, _ := movesLedger(until)
	b.moves.asked = []wire.Ask{{ID: 5, Home: 1, For: 2, Shown: until, Until: until + 30}}
	stored := func() (c counts) {
		c.start(fleettime.Time((int64(until) - 60) * 1000))
		for _, acc := range b.accounts {
			(&sessions{}).applyReport(&c, acc.sessions.expiries)
		}
		return c
	}
	check := func(when string, count, later int64) {
		t.Helper()
		c := stored()
		now := c.total()
		c.free(fleettime.Time(int64(until) * 1000).Add(fleettime.Guard))
		if now != count || c.total() != later || b.counts.total() != count {
			t.Errorf("%s: %d sessions count, by what is stored %d, and %d once the ticket has expired, want %d and %d", when,
				b.counts.total(), now, c.total(), count, later)
		}
	}
	b.mark(0, fleettime.Time(int64(until)*1000).Add(-time.Second), until+9)
	check("marked", 1, 1)
	b.moves.leaving[5].version = 1
	if moved, _ := b.depart(b.moves.n, 1, 100, 1); moved != 1 {
		t.Fatal("the session does not leave")
	}
	b.arrived([]wire.Taken{{From: 1, To: 2, Tag: 1, N: 1}})
	check("arrived", 0, 0)
}
