package sim

import (
	"strings"
	"testing"
	"time"
)

// TestWordsCountWhatWentWrong: each kind of misleading information is counted, and nothing else.
func TestWordsCountWhatWentWrong(t *testing.T) {
	t.Parallel()
	const s = time.Second
	answer := func(at, wait time.Duration, ahead uint64) Telling {
		return Telling{At: at, Answer: true, Known: true, Wait: wait, Low: wait * 9 / 10, High: wait * 11 / 10, Ahead: ahead}
	}
	with := func(x Telling, change func(*Telling)) Telling { change(&x); return x }
	for _, c := range []struct {
		why               string
		forecasts         []Telling
		in                time.Duration
		err               float64
		inside            bool
		vain, wait, ahead int
	}{
		{
			"as forecast",
			[]Telling{answer(0, 60*s, 30), answer(20*s, 40*s, 20), answer(40*s, 20*s, 10)},
			60 * s, 0, true,
			0, 0, 0,
		},
		{
			"the second answer may not say more",
			[]Telling{answer(0, 30*s, 15), answer(2*s, 58*s, 30)},
			60 * s, 0.5, false,
			0, 1, 1,
		},
		{
			"nor may the third",
			[]Telling{answer(0, 60*s, 30), answer(2*s, 58*s, 29), answer(4*s, 70*s, 31)},
			60 * s, 0, true,
			0, 1, 1,
		},
		{"but with the word", []Telling{
			answer(0, 60*s, 30), answer(2*s, 58*s, 29),
			with(answer(4*s, 90*s, 41), func(t *Telling) { t.Longer = true }),
		}, 60 * s, 0, true, 0, 0, 0},
		{"a stream may not either", []Telling{
			answer(0, 60*s, 30), answer(2*s, 58*s, 29),
			with(answer(3*s, 58*s, 30), func(t *Telling) { t.Answer = false }),
		}, 60 * s, 0, true, 0, 0, 1},
		{"counting, then known", []Telling{{Answer: true, Counting: true}, answer(2*s, 58*s, 29)}, 60 * s, 0, true, 0, 0, 0},
		{
			"next, and soon in",
			[]Telling{answer(0, 20*s, 10), with(answer(15*s, s, 0), func(t *Telling) { t.Next = true })},
			20 * s, 0, true, 0, 0, 0,
		},
		{
			"next, and waits",
			[]Telling{with(answer(0, 20*s, 0), func(t *Telling) { t.Next = true })},
			20 * s, 0, true,
			1, 0, 0,
		},
	} {
		var h Hearing
		for _, x := range c.forecasts {
			h.Hear(x)
		}
		var w Words
		w.Entered(&h, 0, 0, c.in)
		wait, ahead := w.Rises()
		if e := w.Error(); e < c.err-1e-9 || e > c.err+1e-9 || (w.Covered() == 1) != c.inside || w.NextInVain() != c.vain ||
			wait != c.wait || ahead != c.ahead {
			t.Errorf("%s: %s", c.why, &w)
		}
	}
}

// TestLateness: admissions are late against the strict order of the line.
func TestLateness(t *testing.T) {
	t.Parallel()
	var a, all Words
	for _, x := range []turn{{10, 1 * time.Second}, {30, 2 * time.Second}, {40, 4 * time.Second}, {20, 5 * time.Second}} {
		a.Entered(&Hearing{}, x.place, 0, x.at)
	}
	if all.Add(&a); a.Late() != 3 || all.Late() != 3 {
		t.Errorf("the second in line entered as the last, %v and %v later; want 3 s", a.Late(), all.Late())
	}
}

// TestNobodyIsPassed: a fifth of the requests goes to any edge. In a steady room, a data centre uses the permits that
// become free there for its own visitors, and passes none in the other one. A raised limit frees as many permits as a
// minute admits, and the next ones follow a minute later: a called visitor between two polls keeps its permit.
func TestNobodyIsPassed(t *testing.T) {
	t.Parallel()
	for _, x := range Crowds() {
		if x.Name != "steady, bound by T" && !strings.HasPrefix(x.Name, "R changed") &&
			!strings.HasPrefix(x.Name, "T changed") {
			continue
		}
		var f Finding
		if all := f.words(&x, "", 2); f.Fault != "" || all.Late() > 1 {
			t.Errorf("%s: of a hundred visitors one enters %.1f s later than in the order of the line; %s", x.Name, all.Late(),
				f.Fault)
		}
	}
}

// TestNextIsKept: the sessions of a draw begin together, and when they end is a forecast. Nobody is shown as next and
// then waits for more than ten seconds.
func TestNextIsKept(t *testing.T) {
	t.Parallel()
	var f Finding
	var all Words
	for _, k := range anyRooms() {
		for _, seed := range []uint64{4, 6, 11, 13, 24} {
			if x := k.crowd(seed); x.Draw {
				f.gather(&x, seed+1, &all)
			}
		}
	}
	if f.Fault != "" || all.NextInVain() > 0 || all.next == 0 {
		t.Errorf("%d of %d shown as next in vain; %s", all.NextInVain(), all.next, f.Fault)
	}
}

// TestAPauseOfRIsForeseen: permits of R return in bursts, a minute after their use. Visitors next to a pause get
// that they wait for its end.
func TestAPauseOfRIsForeseen(t *testing.T) {
	t.Parallel()
	var f Finding
	var all Words
	for _, k := range anyRooms() {
		for seed := range uint64(10) {
			if x := k.crowd(seed); k.name == "rush, R" {
				f.gather(&x, seed+1, &all)
			}
		}
	}
	twice, half := all.Misled()
	f.judge(toldTwice, "", 100*twice)
	f.judge(toldHalf, "", 100*half)
	f.check(t)
}

// TestAFlashIsForeseen: visitors that come within one second are shown the visitors in front of them, and not those of
// a whole second, until the last one of that second enters. While the first sessions of a room end, forecasts may be off:
// how many visitors stay is not known yet.
func TestAFlashIsForeseen(t *testing.T) {
	t.Parallel()
	for _, x := range Flashes() {
		var f Finding
		all := f.words(&x, x.Name, 4)
		f.judge(firstError, x.Name, all.Error())
		f.judge(misledSoon, x.Name, 100*all.MisledSoon())
		f.check(t)
	}
}

// The ages of sessions and of permits of R outlive the leaders: the edges know them.
func TestForecastsAfterATakeover(t *testing.T) {
	for _, x := range takeovers() {
		if x.Name != "rush of 1,000 in 30 s, bound by T" && x.Name != "rush of 250 in 15 s, bound by R" {
			continue
		}
		var f Finding
		all := f.words(&x, x.Name, 2)
		f.judge(takeoverError, x.Name, all.Error())
		f.judge(nextInVain, x.Name, float64(all.NextInVain()))
		f.check(t)
	}
}
