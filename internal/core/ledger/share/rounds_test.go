package share

import (
	"math"
	"testing"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

const roundStart = fleettime.Time(1622133200_000) // a round begins

// people returns n visitors that joined in the ten seconds after from.
func people(n float64, from fleettime.Time) estimate.Histogram {
	return estimate.Histogram{{Start: from, Width: 10_000, N: n}}
}

// TestRoundsCallAsManyAsAreWanted: each round of a long line calls the number wanted beyond visitors that were called
// and have not entered. The others stay indistinguishable, and each round has its own seed.
func TestRoundsCallAsManyAsAreWanted(t *testing.T) {
	var r Rounds
	l := Lot{Term: wire.Term{N: 3, Nonce: 9}, Room: 7}
	const waiting, rate = 5000.0, 10.0
	whole := people(waiting, roundStart-600_000)
	seeds := map[uint64]bool{}
	called, held, all := 0.0, 0.0, 0.0
	// Arrivals equal departures, and each visitor hears of the call within a round.
	for ms := fleettime.Time(0); ms < 100_000; ms += 200 {
		before, round := r.share, r.recent
		r.advance((roundStart + ms).Second())
		was := r.coming()
		r.begin(roundStart+ms, l)
		r.call(roundStart+ms, whole, ahead.Seconds()*rate, held)
		if n := len(r.recent); n > draw.MaxRounds || round.Newest() == r.recent.Newest() && r.share < before {
			t.Fatalf("%d rounds, share %v after %v", n, r.share, before)
		}
		newest := r.recent[len(r.recent)-1]
		seeds[newest.Seed] = true
		if newest.Start() != draw.StartOf(roundStart+ms) {
			t.Fatalf("at %d ms the newest round began at %v", ms, newest.Start())
		}
		if ms%20_000 == 19_800 {
			called += r.share
		}
		all += (r.coming() - was) / (1 - 0.5/float64(callSeconds))
		held = max(0, all-r.coming()-rate*float64(ms)/1000) // each free permit takes one of them
	}
	if want := (ahead.Seconds() + 100) * rate / waiting; len(seeds) != 5 || math.Abs(called/want-1) > 0.25 {
		t.Errorf("five rounds with %d seeds called %.3f of the line together, want %.3f", len(seeds), called, want)
	}
	if other := (Lot{Term: wire.Term{N: 4, Nonce: 9}, Room: 7}); seeds[other.seed(roundStart)] ||
		other.seed(roundStart) == other.seed(roundStart+20_000) {
		t.Error("another leader draws as its predecessor, or every round alike")
	}
}

// TestNewcomersAreCalledOnceEverybodyIs: visitors that came during a round are called only after all participants, in
// order.
func TestNewcomersAreCalledOnceEverybodyIs(t *testing.T) {
	l := Lot{Term: wire.Term{N: 1, Nonce: 1}, Room: 7}
	whole := estimate.Sum(people(100, roundStart-60_000), people(100, roundStart))
	for _, tc := range []struct {
		want  float64
		share float64
		came  time.Duration // after the start of the round
	}{{50, 0.5, 0}, {100, 1, 0}, {150, 1, 5 * time.Second}, {1000, 1, 10 * time.Second}} {
		var r Rounds
		r.begin(roundStart+12_000, l)
		r.call(roundStart+12_000, whole, tc.want, 0)
		came := max(0, r.calledUpTo.Sub(roundStart))
		off := (came-tc.came).Abs() > 100*time.Millisecond && r.calledUpTo != 0 || r.calledUpTo == 0 && tc.came > 0
		if off || math.Abs(r.share-tc.share) > 1e-9 {
			t.Errorf("of 100 who take part and 100 newcomers %v are wanted: share %v, newcomers up to %v", tc.want, r.share,
				came)
		}
		if r.call(roundStart+12_200, whole, tc.want, 0); r.coming() > tc.want+0.5 {
			t.Errorf("%v are wanted, %v are coming", tc.want, r.coming())
		}
	}
}

// TestARoundGoesOnUnderADebt: a random room that owes permits before its first visitor waits, to sessions that move,
// promises no order. It calls and holds the visitors that will enter once the debt is paid, and admits none. A paused
// room calls nobody, and holds the first of its line for a release.
func TestARoundGoesOnUnderADebt(t *testing.T) {
	x := Prospect{
		Flow: &Flow{}, Rounds: &Rounds{}, Rate: 1000, Total: 100, Limit: 1000,
		Debt: true, Random: true, Lot: Lot{Term: wire.Term{N: 1, Nonce: 1}, Room: 7},
		Tally: Tally{Active: 100, Admitted: 100, Life: time.Minute},
	}
	view := func(s fleettime.Time) *wire.View {
		return x.View(fleettime.Mono(s)*fleettime.Mono(time.Second), roundStart+s*1000)
	}
	if v := view(0); len(v.Rounds) != 1 || v.Cutoff != 0 {
		t.Errorf("nobody waits: rounds %v, cutoff %v", v.Rounds, v.Cutoff)
	}
	x.Lines = []estimate.Histogram{people(1500, roundStart-10_000)}
	x.Debt, x.Paused = false, true
	if v := view(1); v.Rounds.Called() != roundStart || v.Cutoff != 0 || v.Park == estimate.Open || v.Park > roundStart {
		t.Errorf("paused: rounds %v, cutoff %v, held up to %v", v.Rounds, v.Cutoff, v.Park)
	}
	x.Debt, x.Paused = true, false
	v := view(2)
	if v.Rounds.Called() <= roundStart || v.Cutoff != 0 || v.Park != v.Rounds.Called() || !v.Waits.Known() {
		t.Errorf("rounds %v, cutoff %v, held up to %v, waits %v", v.Rounds, v.Cutoff, v.Park, v.Waits)
	}
	called := v.Rounds.Called()
	x.Debt = false
	if v = view(3); len(v.Rounds) != 1 || v.Cutoff < called {
		t.Errorf("without the debt: rounds %v, cutoff %v; called by then: %v", v.Rounds, v.Cutoff, called)
	}
}
