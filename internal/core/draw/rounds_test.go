package draw

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
)

// roundAt is a round that begins when entries of the other tests close.
func roundAt(seed uint64) Round { return NewRound(StartOf(fleettime.TimeOf(closes)), seed) }

// TestInARoundEverybodyHasTheSameChance: a round that has called a share has called that share of the participants,
// in every group; and being called by one round does not influence the next.
func TestInARoundEverybodyHasTheSameChance(t *testing.T) {
	const people, share = 100_000, 0.3
	one, other := roundAt(1).Upto(share, 0), roundAt(2).Upto(share, 0)
	joined := one.Start().Add(-time.Minute)
	var called, both, group [10]float64
	for id := range uint64(people) {
		k := id * 10 / people
		group[k]++
		if one.Place(id, joined) <= one.Called {
			called[k]++
			if other.Place(id, joined) <= other.Called {
				both[k]++
			}
		}
	}
	for k := range called {
		for what, x := range map[string]struct{ seen, want float64 }{
			"called":       {called[k] / group[k], share},
			"called twice": {both[k] / group[k], share * share},
		} {
			if limit := 4 * math.Sqrt(x.want*(1-x.want)/group[k]); math.Abs(x.seen-x.want) > limit {
				t.Errorf("%s of group %d: %.4f, want %.4f ± %.4f", what, k, x.seen, x.want, limit)
			}
		}
	}
}

// TestWhoComesDuringARoundIsBehind: behind all participants, in order, so that joining again as a new visitor gives
// no further chance before the next round.
func TestWhoComesDuringARoundIsBehind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := roundAt(rapid.Uint64().Draw(t, "seed"))
		start := r.Start()
		id, other := rapid.Uint64().Draw(t, "id"), rapid.Uint64().Draw(t, "other")
		at := func(name string, from, to int64) fleettime.Time {
			return start + fleettime.Time(rapid.Int64Range(from, to).Draw(t, name))
		}
		waits, came, later := at("waits", -1e9, -1), at("came", 0, 50_000), at("later", 0, 50_000)
		p, q := r.Place(id, waits), r.Place(other, came)
		if p <= start || q <= p || q >= start.Add(RoundLength) {
			t.Fatalf("who waits is at %d of the round, who came during it at %d", p-start, q-start)
		}
		if came < later && r.Place(other, came) > r.Place(id, later) {
			t.Fatal("who came later is before")
		}
		for _, upto := range []Round{r, r.Upto(0.5, 0), r.Upto(1, 0), r.Upto(1, later)} {
			if upto.Start() != start {
				t.Fatalf("%+v began at %v, want %v", upto, upto.Start(), start)
			}
			if called := q <= upto.Called; called && (later <= start || came >= max(later, start)+2) {
				t.Fatalf("%+v calls who came %d ms after its start, who came before %d ms is to be called", upto, came-start,
					later-start)
			}
		}
		if all := r.Upto(1, 0); p > all.Called {
			t.Fatal("a round that has called everybody has not called somebody")
		}
	})
}

// TestWhoWasCalledStaysCalled: a call stays valid after its round. An uncalled visitor has its place in the newest
// round.
func TestWhoWasCalledStaysCalled(t *testing.T) {
	first := roundAt(1)
	second := NewRound(first.Start().Add(RoundLength), 2)
	joined := first.Start().Add(-time.Second)
	rounds := Rounds{first.Upto(0.5, 0), second}
	called := 0
	for id := range uint64(1000) {
		p := rounds.Place(id, joined)
		switch was := first.Place(id, joined); {
		case was <= rounds[0].Called:
			if called++; p != was {
				t.Fatalf("ticket %d was called at %v and stands at %v", id, was, p)
			}
		case p != second.Place(id, joined):
			t.Fatalf("ticket %d was not called and stands at %v", id, p)
		}
	}
	if called < 450 || called > 550 {
		t.Errorf("%d of 1000 were called", called)
	}
	// A round that ended before the visitor joined has not called it.
	if came := second.Start() + 1; rounds.Place(1, came) < second.Start() {
		t.Error("who came later was called by a round of before")
	}
}
