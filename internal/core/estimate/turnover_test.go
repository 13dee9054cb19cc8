package estimate

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
)

// site simulates a room session by session: the naive twin of Turnover.
type site struct {
	rng          *rand.Rand
	life, browse float64 // seconds
	total, rate  int
	ends         floats
	entered      []float64 // times, newest last
	admitted     int
}

type floats []float64

func (f floats) Len() int           { return len(f) }
func (f floats) Less(i, j int) bool { return f[i] < f[j] }
func (f floats) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *floats) Push(x any)        { *f = append(*f, x.(float64)) }
func (f *floats) Pop() any {
	old := *f
	x := old[len(old)-1]
	*f = old[:len(old)-1]
	return x
}

// step moves the site to second t, with want visitors waiting, and returns how many entered.
func (s *site) step(t float64, want int) (n int) {
	for len(s.ends) > 0 && s.ends[0] <= t {
		heap.Pop(&s.ends)
	}
	for len(s.entered) > 0 && s.entered[0] <= t-60 {
		s.entered = s.entered[1:]
	}
	for n < want && len(s.ends) < s.total && len(s.entered) < s.rate {
		n++
		s.admitted++
		stay := s.life + observed.Seconds()
		if s.rng.Float64() >= once {
			stay += s.rng.ExpFloat64() * s.browse / (1 - once)
		}
		heap.Push(&s.ends, t+stay)
		s.entered = append(s.entered, t)
	}
	return n
}

// TestTurnoverForeseesAnotherLife: after a change of the ticket life the learned behaviour stays valid, and the
// admissions of the next minutes are predicted at once.
func TestTurnoverForeseesAnotherLife(t *testing.T) {
	for _, to := range []float64{35, 12} {
		const total, browse, before, after = 1000, 9.0, 120.0, 90.0
		s := &site{rng: rand.New(rand.NewPCG(7, 7)), total: total, rate: math.MaxInt32}
		type visitor struct{ stops, ends float64 } // browses until, and is counted until
		var inside []*visitor
		var u Turnover
		life, admitted, foreseen := 22.0, 0, 0.0
		var atChange int
		for sec := 0.0; sec < before+after; sec += 0.25 {
			if sec == before {
				life, atChange = to, admitted
				for _, v := range inside {
					if v.stops > sec {
						v.ends = v.stops + life
					}
				}
				u.Observe(fleettime.Mono(sec*1e9), time.Duration(life*1e9), float64(len(inside)), float64(admitted))
				foreseen = Entered(u.Paces(Limits{Total: total, PerMinute: 1e9}), time.Duration(after*1e9))
			}
			kept := inside[:0]
			for _, v := range inside {
				if v.ends > sec {
					kept = append(kept, v)
				}
			}
			inside = kept
			for n := 0; n < 40 && len(inside) < total; n++ {
				stops := sec
				if s.rng.Float64() >= once {
					stops += s.rng.ExpFloat64() * browse / (1 - once)
				}
				inside = append(inside, &visitor{stops, stops + life})
				admitted++
			}
			u.Observe(fleettime.Mono(sec*1e9), time.Duration(life*1e9), float64(len(inside)), float64(admitted))
		}
		if seen := float64(admitted - atChange); math.Abs(foreseen/seen-1) > 0.06 {
			t.Errorf("life 22 s to %v s: %.0f entered in %v s, foreseen were %.0f", to, seen, after, foreseen)
		}
	}
}

// TestTurnoverForeseesWhoEnters compares predictions with the following admissions, in rooms that have been full
// for long, have just opened, or are about to change their limit.
func TestTurnoverForeseesWhoEnters(t *testing.T) {
	const crowd = math.MaxInt32
	for _, c := range []struct {
		why         string
		life        time.Duration
		browse      float64 // seconds beyond the ticket life
		total, rate int
		quiet       int           // seconds with half the demand
		full        int           // seconds with too much demand, before the forecast
		lower       int           // T from then on, 0 for unchanged
		slack       float64       // of the visitors that enter in that time
		after       time.Duration // from then on
	}{
		{"full for long, T binds", 66 * time.Second, 50, 1000, 1 << 20, 0, 1200, 0, 0.05, 5 * time.Minute},
		{"full for long, R binds", 66 * time.Second, 50, 100_000, 600, 0, 1200, 0, 0.05, 5 * time.Minute},
		{
			"the doors have just opened, and nobody can have left", 330 * time.Second, 100, 1000, 1 << 20, 0, 5, 0, 0.05,
			4 * time.Minute,
		},
		{"the same, until all have left once", 330 * time.Second, 100, 1000, 1 << 20, 0, 5, 0, 0.1, 10 * time.Minute},
		{"R lets the room fill up, then T binds", 330 * time.Second, 100, 2000, 1200, 0, 60, 0, 0.05, 10 * time.Minute},
		{"a quiet site that is stormed", 66 * time.Second, 50, 1000, 1 << 20, 900, 5, 0, 0.07, 5 * time.Minute},
		{"T is halved", 66 * time.Second, 50, 1000, 1 << 20, 0, 1200, 500, 0.1, 5 * time.Minute},
		{"T is doubled", 66 * time.Second, 50, 1000, 1 << 20, 0, 1200, 2000, 0.07, 5 * time.Minute},
	} {
		s := &site{rng: rand.New(rand.NewPCG(1, 2)), life: c.life.Seconds(), browse: c.browse, total: c.total, rate: c.rate}
		var u Turnover
		second := 0
		u.Observe(0, c.life, 0, 0)
		play := func(n, want int) {
			for range n {
				second++
				s.step(float64(second), want)
				u.Observe(fleettime.Mono(second)*fleettime.Mono(time.Second), c.life, float64(len(s.ends)), float64(s.admitted))
			}
		}
		half := int(0.5 * float64(c.total) / (s.life + s.browse))
		play(c.quiet, half)
		play(c.full, crowd)
		if c.lower > 0 {
			s.total = c.lower
		}
		paces := u.Paces(Limits{Total: float64(s.total), PerMinute: float64(c.rate)})
		if len(paces) > MaxPaces {
			t.Errorf("%s: %d phases", c.why, len(paces))
		}
		before := s.admitted
		want, at := 0.0, 0.0
		step := max(minStep, c.life/turnLife).Seconds() // a forecast is late or early by a cell
		for range int(c.after.Seconds()) {
			second++
			s.step(float64(second), crowd)
			at++
			want = entered(paces, at)
			if got := float64(s.admitted - before); at >= 5 &&
				(entered(paces, at+step)-got < -c.slack*got-0.03*float64(s.total) ||
					entered(paces, max(0, at-step))-got > c.slack*got+0.03*float64(s.total)) {
				t.Errorf("%s: %v in %v s, foreseen %.0f: %v", c.why, got, at, want, paces)
				break
			}
		}
	}
}

// entered returns how many visitors enter within s seconds.
func entered(paces []Pace, s float64) (n float64) {
	for i, p := range paces {
		d := p.For.Seconds()
		if i == len(paces)-1 || d > s {
			return n + p.Mu*s
		}
		n, s = n+p.Mu*d, s-d
	}
	return n
}

// TestTurnoverBearsAnything: for any input the output is a valid forecast within the limits.
func TestTurnoverBearsAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u Turnover
		now := fleettime.Mono(rapid.Int64Range(-1<<40, 1<<50).Draw(t, "now"))
		admitted := 0.0
		life := time.Second
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(20*time.Minute)).Draw(t, "later")))
			admitted += float64(rapid.IntRange(0, 5000).Draw(t, "came"))
			if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
				life = time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "life"))
				admitted = 0
			}
			if rapid.IntRange(0, 9).Draw(t, "recalls") == 0 {
				u.Recall(Churn{
					Life:     time.Duration(rapid.Int64().Draw(t, "recalled life")),
					YoungFor: rapid.Float64().Draw(t, "recalled young"), Early: rapid.Float64().Draw(t, "recalled early"),
					Beyond: rapid.Float64().Draw(t, "recalled beyond"), Ended: rapid.Float64().Draw(t, "recalled ended"),
				})
			}
			u.Observe(now, life, float64(rapid.IntRange(0, 5000).Draw(t, "active")), admitted)
		}
		x := Limits{
			Total: float64(rapid.IntRange(0, 4000).Draw(t, "T")), PerMinute: float64(rapid.IntRange(0, 4000).Draw(t, "R")),
			Free: float64(rapid.IntRange(0, 4000).Draw(t, "free")),
		}
		paces := u.Paces(x)
		if len(paces) > MaxPaces {
			t.Fatalf("%d phases", len(paces))
		}
		for _, p := range paces {
			if !(p.Mu >= 0) || math.IsInf(p.Mu, 0) || p.For < 0 {
				t.Fatalf("%v", paces)
			}
		}
		if d := u.Doubt(x).Stay; !(d >= 0 && d < 1) {
			t.Fatalf("doubt %v", d)
		}
		// The window of R slides; half a window cannot admit more than R.
		if n := entered(paces, 30); n > x.PerMinute*1.1+2 {
			t.Fatalf("%.0f in 30 s with R %v: %v", n, x.PerMinute, paces)
		}
	})
}

// TestTurnoverBeginsInTheMiddle: an observer of an already full room learns its pace without having seen
// admissions.
func TestTurnoverBeginsInTheMiddle(t *testing.T) {
	s := &site{rng: rand.New(rand.NewPCG(3, 4)), life: 66, browse: 50, total: 1000, rate: 1 << 20}
	var u Turnover
	before := 0
	for second := range 2400 {
		s.step(float64(second), math.MaxInt32)
		if second < 1200 {
			before = s.admitted
			continue
		}
		u.Observe(fleettime.Mono(second)*fleettime.Mono(time.Second), 66*time.Second, float64(len(s.ends)),
			float64(s.admitted-before))
		if second == 1205 { // the prior stay is 1.3 lives: 86 s instead of 116
			if n := entered(u.Paces(Limits{Total: 1000, PerMinute: 1e6}), 60); n < 300 || n > 900 {
				t.Errorf("%.0f within a minute, of some 520", n)
			}
		}
	}
	if n := entered(u.Paces(Limits{Total: 1000, PerMinute: 1e6}), 60); math.Abs(n-1000*60/116) > 50 {
		t.Errorf("%.0f within a minute, of some %v", n, 1000*60/116)
	}
}

// TestDoubtFallsAsSessionsEnd: four times as many ends of renewed sessions halve the error of a mean. While many
// sessions have yet to end, the share of those without a renewal keeps the doubt up. There is none while R limits
// admissions.
func TestDoubtFallsAsSessionsEnd(t *testing.T) {
	for _, c := range []struct {
		ended, reached, perMinute, want float64
	}{
		{0, 0, 6000, 0.2177},
		{40, 40, 6000, 0.0477},
		{160, 160, 6000, 0.0238},
		{640, 640, 6000, 0.0119},
		{40, 80, 6000, 0.1069},
		{40, 40, 60, 0},
	} {
		u := Turnover{
			life: time.Minute, step: time.Second, seen: true, active: 10, reached: c.reached, ended: c.ended,
			beyond: c.ended * 18,
		}
		d := u.Doubt(Limits{Total: 100, PerMinute: c.perMinute})
		if math.Abs(d.Stay-c.want) > 0.0006 || d.ByRate != (c.want == 0) {
			t.Errorf("%v ended of %v, R %v: %+v, want %v", c.ended, c.reached, c.perMinute, d, c.want)
		}
	}
}

// TestTheFirstLifeIsNoEvidenceOfLongSessions: a room fills in a second, and the ends of its sessions are observed later
// than usual. While the first ones reach their life, nobody hears of twice the wait.
func TestTheFirstLifeIsNoEvidenceOfLongSessions(t *testing.T) {
	for _, late := range []float64{0, 1, 3} { // seconds, more than observed
		for _, total := range []int{40, 150, 1000} {
			s := &site{
				rng: rand.New(rand.NewPCG(1, uint64(total))), life: 22 + late, browse: 8, total: total,
				rate: math.MaxInt32,
			}
			var u Turnover
			u.Observe(0, 22*time.Second, 0, 0)
			enters := make([]float64, 0, 6*total)        // times
			type forecast struct{ at, of, wait float64 } // of the visitor with that number
			var forecasts []forecast
			for at := 0.5; len(enters) < 5*total; at += 0.5 {
				for range s.step(at, 5*total-len(enters)) {
					enters = append(enters, at)
				}
				u.Observe(fleettime.Mono(at*1e9), 22*time.Second, float64(len(s.ends)), float64(s.admitted))
				paces := u.Paces(Limits{Total: float64(total), PerMinute: 1e9})
				for of := 2 * total; of < 5*total; of += total / 2 {
					if wait, ok := Estimate(float64(of-len(enters)), paces, 0); ok && of > len(enters) {
						forecasts = append(forecasts, forecast{at, float64(of), wait.Seconds()})
					}
				}
			}
			for _, f := range forecasts {
				if wait := enters[int(f.of)-1] - f.at; wait > 30 && (f.wait > 2*wait || f.wait < wait/2) {
					t.Errorf("T %d, ends observed %v s late: after %v s visitor %v got a forecast of %.0f s and waited for %.0f",
						total, late, f.at, f.of, f.wait, wait)
					break
				}
			}
		}
	}
}

// TestASessionThatIsCountedTwiceIsNoLongSession: while a session moves between data centres, both count it. Before any
// session has reached the ticket life, these are no evidence about the time beyond it.
func TestASessionThatIsCountedTwiceIsNoLongSession(t *testing.T) {
	const life = 20 * time.Second
	stay := func(twice float64) time.Duration {
		var u Turnover
		for sec := range 15 {
			n := min(300, 60*float64(sec))
			u.Observe(fleettime.Mono(sec)*fleettime.Mono(time.Second), life, n+twice, n)
		}
		return u.Stay()
	}
	if once, twice := stay(0), stay(4); (twice - once).Abs() > 100*time.Millisecond {
		t.Errorf("with 4 of 300 sessions counted twice a session lasts %v, without %v", twice, once)
	}
}

// TestARushComesBackInAllItsBursts: bursts of admissions return their permits of R in the same bursts a minute
// later, and the forecast follows them to the last.
func TestARushComesBackInAllItsBursts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const rate = 352
	var u Turnover
	var used []float64 // times, in seconds
	at := 0.0
	u.Observe(0, 40*time.Second, 0, 0)
	look := func() {
		at += 0.6
		u.Observe(fleettime.Mono(at*float64(time.Second)), 40*time.Second, float64(len(used)), float64(len(used)))
	}
	for len(used) < rate {
		for range min(rate-len(used), 2*rng.IntN(2)*rng.IntN(12)) {
			used = append(used, at)
		}
		look()
	}
	for range 10 {
		look()
	}
	paces := u.Paces(Limits{Total: 10 * rate, PerMinute: rate})
	if len(paces) > MaxPaces {
		t.Errorf("%d phases", len(paces))
	}
	for d := 1.0; d < 60; d++ {
		want := 0.0
		for _, s := range used {
			if s+60 <= at+d {
				want++
			}
		}
		if got := entered(paces, d); math.Abs(got-want) > 0.1*rate {
			t.Fatalf("within %v s %v permits come back, foreseen %.0f: %v", d, want, got, paces)
		}
	}
}

// TestARecalledChurnForeseesAfterARestart: sessions last five minutes, and people leave after one. A
// successor that recalls what was learned foresees who enters; one that does not is off by a factor.
func TestARecalledChurnForeseesAfterARestart(t *testing.T) {
	const total, life = 1000.0, 5 * time.Minute
	stay := time.Minute.Seconds()
	play := func(u *Turnover, from, seconds int, active, admitted float64) {
		for s := range seconds {
			admitted += total / stay
			u.Observe(fleettime.Mono(from+s)*fleettime.Mono(time.Second), life, active, admitted)
		}
	}
	var before Turnover
	play(&before, 0, 1800, total, 0)
	limits := Limits{Total: total, PerMinute: 1e6}
	want := entered(before.Paces(limits), 60)
	if math.Abs(want-total) > 0.1*total {
		t.Fatalf("%.0f are foreseen within a minute before the restart, %.0f enter", want, total)
	}
	var with, without Turnover
	with.Recall(before.Churn())
	play(&with, 0, 3, total, 0)
	play(&without, 0, 3, total, 0)
	if got := entered(with.Paces(limits), 60); math.Abs(got-total) > 0.15*total {
		t.Errorf("%.0f are foreseen within a minute after the restart, %.0f enter", got, total)
	}
	if got := entered(without.Paces(limits), 60); got > total/2 {
		t.Errorf("%.0f are foreseen without what was learned: the test shows nothing", got)
	}
	// It may also be reported late.
	without.Recall(before.Churn())
	if got, want := without.Stay(), with.Stay(); math.Abs(got.Seconds()-want.Seconds()) > 0.1*want.Seconds() {
		t.Errorf("a stay of %v where it is recalled late, of %v otherwise", got, want)
	}
}

// TestASuccessorWithTheAdmissionsForecastsAlike: it knows the admissions of the last minute from others, and the
// learned lengths of sessions.
func TestASuccessorWithTheAdmissionsForecastsAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		life := time.Duration(rapid.IntRange(10, 300).Draw(t, "life")) * time.Second
		x := Limits{
			Total:     float64(rapid.IntRange(50, 500).Draw(t, "T")),
			PerMinute: float64(rapid.IntRange(100, 3000).Draw(t, "R")),
		}
		const dt = time.Second / 5
		// since the room opened: no session has ended
		length := rapid.IntRange(5, min(285, int((life-3*time.Second)/dt))).Draw(t, "length")
		var old, young Turnover
		var made []float64 // admissions by step
		admitted := 0.0
		at := func(i int) fleettime.Mono { return fleettime.Mono(time.Duration(i) * dt) }
		old.Observe(at(-1), life, 0, 0)
		for i := range length {
			n := min(x.Total-admitted, x.PerMinute-admitted, 20)
			made, admitted = append(made, n), admitted+n
			old.Observe(at(i), life, admitted, admitted)
		}
		young.Recall(old.Churn())
		for i, n := range made {
			if n > 0 {
				young.Admitted(at(i), n)
			}
		}
		young.Observe(at(length-1), life, admitted, admitted)
		for _, within := range []time.Duration{10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute} {
			n, paces := Entered(old.Paces(x), within), young.Paces(x)
			soon, late := Entered(paces, within-time.Second), Entered(paces, within+time.Second) // a cell of either
			if slack := 5 + 0.1*n; n < soon-slack || n > late+slack {
				t.Fatalf("within %v: %.1f enter, %.1f to %.1f by the successor", within, n, soon, late)
			}
		}
	})
}
