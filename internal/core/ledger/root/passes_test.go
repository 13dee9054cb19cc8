package root_test

import (
	"testing"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// holds reports a data centre's number of held visitors, and the use of its passes.
func (l *lender) holds(dc string, instance, people, returned, spent uint64) {
	l.seq[dc]++
	g := l.last[dc]
	r := wire.RoomReport{
		Room: sale, Permits: kept(&g), Idle: g.Permits.Sessions.Granted, RateIdle: g.Permits.Rate.Granted, Callable: people,
		Passes: wire.Passes{Release: g.Passes.Release, Allocation: wire.Allocation{
			Granted: g.Passes.Granted, Returned: returned,
		}, Spent: spent},
	}
	for i := range people {
		r.HeldJoined = append(r.HeldJoined, l.wall-60_000+fleettime.Time(i))
	}
	l.root.Observe(l.now, wire.Report{
		From: dc, Instance: instance, Seq: l.seq[dc], Parts: 1, Sent: l.now, Seen: l.term, Acked: l.acked[dc],
		Join: l.seq[dc] == 1, Rooms: []wire.RoomReport{r},
	})
}

// newReleaser returns a coordinator of a paused room, with a release of 5 visitors for the leader of term by.
func newReleaser(t *testing.T, by wire.Term) *lender {
	l := newLender(t, "16:33:20", 20, 20)
	l.set(func(r *ledger.RoomConfig) {
		r.Shut, r.Release = true, ledger.Release{ID: 7, N: 5, Lender: by}
	})
	return l
}

func (l *lender) lent() uint64 {
	return l.last["dublin"].Passes.Granted + l.last["nairobi"].Passes.Granted
}

// TestRule11AReleaseIsLentByWhoTookIt: not before it is taken in the store, and by nobody else.
func TestRule11AReleaseIsLentByWhoTookIt(t *testing.T) {
	for _, tt := range []struct {
		who  string
		by   wire.Term
		want uint64
	}{
		{"nobody", wire.Term{}, 0},
		{"a predecessor", wire.Term{N: 0, Nonce: 3}, 0},
		{"one of an equal term", wire.Term{N: 1, Nonce: 3}, 0},
		{"it", wire.Term{N: 1, Nonce: 1}, 5},
	} {
		l := newReleaser(t, tt.by)
		for range 4 {
			l.holds("dublin", 1, 4, 0, 0)
			l.holds("nairobi", 1, 4, 0, 0)
			l.grants()
		}
		if l.lent() != tt.want {
			t.Errorf("taken by %s: %d passes are lent, want %d", tt.who, l.lent(), tt.want)
		}
		if called := l.view.Called != 0; called != (tt.want > 0) || l.view.Cutoff != 0 {
			t.Errorf("taken by %s: people are called up to %d, and without a pass up to %d", tt.who, l.view.Called,
				l.view.Cutoff)
		}
	}
}

// TestRule11WhatComesBackIsLentOnce: passes that come back unused are lent to others, once each, however often the
// return is reported; used ones never are.
func TestRule11WhatComesBackIsLentOnce(t *testing.T) {
	l := newReleaser(t, wire.Term{N: 1, Nonce: 1})
	for range 3 {
		l.holds("dublin", 1, 9, 0, 0)
		l.holds("nairobi", 1, 0, 0, 0)
		l.grants()
	}
	if n := l.last["dublin"].Passes.Granted; n != 5 {
		t.Fatalf("%d passes are lent to dublin, want 5", n)
	}
	for range 4 {
		l.holds("dublin", 1, 0, 2, 3)
		l.holds("nairobi", 1, 9, 0, 0)
		l.grants()
	}
	if n := l.last["nairobi"].Passes.Granted; n != 2 {
		t.Errorf("dublin used 3 of 5 passes and gave 2 back: nairobi is lent %d, want 2", n)
	}
	l.holds("dublin", 1, 0, 5, 3) // more than it was lent
	l.grants()
	if p := l.root.Totals(sale).Passes; p.Free != 0 || p.Spent != 3 {
		t.Errorf("after a report that cannot be: %+v, want nothing free and 3 used", p)
	}
}

// TestRule11ASuccessorIsLentNothingTwice: the passes of a replaced aggregator never come back, and its successor is
// lent from the rest. The same holds for a report of passes under another term.
func TestRule11ASuccessorIsLentNothingTwice(t *testing.T) {
	l := newReleaser(t, wire.Term{N: 1, Nonce: 1})
	for range 3 {
		l.holds("dublin", 1, 3, 0, 0)
		l.holds("nairobi", 1, 0, 0, 0)
		l.grants()
	}
	for range 3 {
		l.holds("dublin", 2, 9, 0, 0)
		l.holds("nairobi", 1, 0, 0, 0)
		l.grants()
	}
	if n := l.last["dublin"].Passes.Granted; n != 2 {
		t.Errorf("3 of 5 passes were lent to an aggregator that was replaced: its successor learns of %d, want 2", n)
	}
	l.holds("dublin", 2, 9, 2, 3)
	l.grants()
	if p := l.root.Totals(sale).Passes; p.Free != 0 {
		t.Errorf("what the predecessor did is reported: %+v, want nothing free", p)
	}
}

// TestRule11AClosedReleaseIsCalledBack: once the room admits everybody again, or a later release is open, nothing of
// the earlier one is lent or may be kept.
func TestRule11AClosedReleaseIsCalledBack(t *testing.T) {
	term := wire.Term{N: 1, Nonce: 1}
	l := newReleaser(t, term)
	exchange := func() {
		for range 3 {
			l.holds("dublin", 1, 3, 0, 0)
			l.holds("nairobi", 1, 0, 0, 0)
			l.grants()
		}
	}
	exchange()
	l.set(func(r *ledger.RoomConfig) { r.Shut, r.Release = false, ledger.Release{} })
	exchange()
	if p := l.last["dublin"].Passes; p.Granted != 3 || p.Keep != 0 {
		t.Errorf("the room lets people in: %+v, want 3 that were lent and none to keep", p)
	}
	l.set(func(r *ledger.RoomConfig) { r.Shut, r.Release = true, ledger.Release{ID: 8, N: 1, Lender: term} })
	exchange()
	if p := l.last["dublin"].Passes; p != (wire.Passes{Release: 8, Allocation: wire.Allocation{Granted: 1, Keep: 1}}) {
		t.Errorf("a release of one person: %+v", p)
	}
	l.set(func(r *ledger.RoomConfig) { r.Release = ledger.Release{ID: 7, N: 5, Lender: term} })
	exchange()
	if p := l.last["dublin"].Passes; p.Release != 8 || p.Granted != 1 {
		t.Errorf("an older one comes again: %+v", p)
	}
}

// TestPassesAreLentWhereTheyLetSomebodyIn: not to a data centre where a pass would admit none of the held visitors.
func TestPassesAreLentWhereTheyLetSomebodyIn(t *testing.T) {
	l := newReleaser(t, wire.Term{N: 1, Nonce: 1})
	for range 3 {
		l.crowd("nairobi", 1, false, 30, 0)
		l.holds("dublin", 1, 2, 0, 0)
		l.grants()
	}
	if n := l.last["nairobi"].Passes.Granted; n != 0 || l.last["dublin"].Passes.Granted != 2 {
		t.Errorf("nairobi, where a pass lets in nobody, is lent %d, and dublin %d, want 0 and 2", n,
			l.last["dublin"].Passes.Granted)
	}
}
