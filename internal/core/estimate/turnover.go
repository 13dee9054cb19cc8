package estimate

import (
	"math"
	"time"

	"vestibule/internal/core/fleettime"
)

// Turnover predicts how fast people will enter a room: from how many sessions
// there are, when they began, how long sessions were found to last, and the two
// limits. It is a value of fixed size. The zero value knows nothing.
//
// The model: during the life of a ticket people leave at a constant rate (with a goodbye), which is
// mostly 0. Those that stay longer then leave at another constant rate. Both rates are learned as
// sessions that ended over session-seconds. While nobody can have left yet because the doors have
// just opened, the model says so instead of taking the first rush for the rule.
type Turnover struct {
	life   time.Duration // of a ticket
	step   time.Duration // that one cell spans
	newest int64         // number of the newest cell
	began  [turnCells]float64
	alive  [turnCells]float64 // those of began that have not left early
	young  float64            // sum of alive within a life

	seen             bool
	at               fleettime.Mono
	active, admitted float64
	outlived         fleettime.Mono // when sessions began to last longer than the life of a ticket
	owed             float64        // sessions that appeared without being admitted, not yet believed

	// All of these fade.
	youngFor, early float64 // session-seconds within the life, sessions that ended there
	beyond, ended   float64 // session-seconds beyond the life, sessions that ended there
}

const (
	turnCells = 128 // of which a life fills 64
	turnLife  = 64
	minStep   = 500 * time.Millisecond

	// Before any session has ended, it is supposed to last three tenths longer
	// than its ticket, with the weight of ten that did.
	priorBeyond = 0.3
	priorEnds   = 10

	// Before any session has ended, nobody is supposed to leave early, with the weight of ten
	// sessions that lasted as long as their ticket.
	priorYoung = 10

	// A slot that came free is taken after so many seconds on average: expired sessions are counted
	// once a second, reported, and their slots lent.
	refill = 0.8

	// The room is played out for so many lives, and for so long at least; from then
	// on it is taken to be steady.
	lives   = 4
	horizon = 3 * time.Minute
)

// Limits are what bounds those who enter.
type Limits struct {
	Total, PerMinute float64
	Free             float64 // slots that will be given out at once, on top of those who are inside
}

// Observe takes the head-count and the admissions ever made, at now. Lives are
// counted from 1 s.
func (u *Turnover) Observe(now fleettime.Mono, life time.Duration, active, admitted float64) {
	life = max(life, time.Second)
	if u.life != life {
		u.relive(life)
	}
	if !u.seen {
		u.seen, u.at, u.admitted, u.newest, u.outlived = true, now, admitted, int64(now)/int64(u.step), now
	}
	dt := max(0, now.Sub(u.at).Seconds())
	fade := math.Exp(-dt / max(5*time.Minute, 2*life).Seconds())
	u.youngFor = u.youngFor*fade + min(u.active, u.young)*dt
	u.beyond = u.beyond*fade + max(0, u.active-u.young)*dt
	u.early *= fade
	u.ended *= fade
	u.turn(int64(now) / int64(u.step))
	came := max(0, admitted-u.admitted)
	u.begin(u.newest, came, came)
	u.young += came
	// Head-count and admissions are of slightly different moments.
	switch u.owed += came - (active - u.active); {
	case u.owed > 0:
		u.end(u.owed, active)
		u.owed = 0
	case u.owed < -max(5, active/50):
		// Sessions that nobody was seen to admit: they are older than we are.
		u.spread(-u.owed)
		u.owed = 0
	}
	u.at, u.active, u.admitted = now, active, admitted
	if active-u.young < 1 {
		u.outlived = now
	}
}

// begin notes sessions that began in a cell, and how many of them are still there.
func (u *Turnover) begin(cell int64, began, alive float64) {
	*at(&u.began, cell) += began
	*at(&u.alive, cell) += alive
}

// end notes that n sessions ended, and active are left. Those that are missing among the young left
// early; which of the young they are is not known.
func (u *Turnover) end(n, active float64) {
	early := min(n, max(0, u.young-active-max(1, active/50)))
	if early > 0 {
		left := 1 - early/u.young
		for i := range u.cells() {
			*at(&u.alive, u.newest-int64(i)) *= left
		}
		u.young *= left
	}
	u.early += early
	u.ended += n - early
}

// relive has tickets of another life from now on. People leave at the same rates as before. Of those
// inside that look on, each gets a ticket of the new life with the next page, as if admitted now; the
// others leave when the old ticket ends.
func (u *Turnover) relive(life time.Duration) {
	was := *u
	*u = Turnover{life: life, step: max(minStep, life/turnLife), youngFor: was.youngFor, early: was.early, beyond: was.beyond, ended: was.ended}
	if !was.seen {
		return
	}
	u.seen, u.at, u.active, u.admitted, u.outlived, u.owed = true, was.at, was.active, was.admitted, was.outlived, was.owed
	u.newest = int64(u.at) / int64(u.step)
	looking := max(0.05*was.life.Seconds(), was.stay().late)
	cell := func(age time.Duration) int64 {
		return u.newest - min(int64(max(0, age)/u.step), turnCells-1)
	}
	for i := range was.cells() {
		began, n, age := *at(&was.began, was.newest-int64(i)), *at(&was.alive, was.newest-int64(i)), time.Duration(i)*was.step
		still := n * math.Exp(-age.Seconds()/looking)
		u.begin(cell(age), began, 0)
		u.begin(u.newest, 0, still)
		u.begin(cell(age+life-was.life), 0, n-still)
	}
	u.count()
}

// Churn is what a Turnover has learned of how long sessions last. It outlives a restart.
type Churn struct {
	Life            time.Duration // of a ticket
	YoungFor, Early float64       // session-seconds within Life, sessions that ended there
	Beyond, Ended   float64       // session-seconds beyond Life, sessions that ended there
}

// Churn returns what was learned.
func (u *Turnover) Churn() Churn { return Churn{u.life, u.youngFor, u.early, u.beyond, u.ended} }

// Recall adds what a predecessor learned to what was observed. It ignores a Churn that no Turnover
// can have returned.
func (u *Turnover) Recall(c Churn) {
	if c.Life < time.Second || c.Life > 31*24*time.Hour {
		return
	}
	for _, x := range []float64{c.YoungFor, c.Early, c.Beyond, c.Ended} {
		if !(x >= 0 && x < 1e15) {
			return
		}
	}
	if !u.seen {
		u.relive(c.Life)
	}
	u.youngFor += c.YoungFor
	u.early += c.Early
	u.beyond += c.Beyond
	u.ended += c.Ended
}

// turn opens the cells up to number n.
func (u *Turnover) turn(n int64) {
	if n <= u.newest {
		return
	}
	u.newest = max(u.newest, n-turnCells)
	for u.newest < n {
		u.newest++
		*at(&u.began, u.newest), *at(&u.alive, u.newest) = 0, 0
	}
	u.count()
}

// count counts the sessions within a life.
func (u *Turnover) count() {
	u.young = 0
	for i := range u.cells() {
		u.young += *at(&u.alive, u.newest-int64(i))
	}
}

// at returns the cell with number n of a ring.
func at(ring *[turnCells]float64, n int64) *float64 {
	return &ring[((n%turnCells)+turnCells)%turnCells]
}

// cells returns how many cells a life spans.
func (u *Turnover) cells() int { return int((u.life + u.step - 1) / u.step) }

// spread takes sessions of unknown age to be the survivors of a steady flow.
func (u *Turnover) spread(n float64) {
	s := u.stay()
	began := n / s.mean() * u.life.Seconds() / float64(u.cells())
	for i := range u.cells() {
		alive := began * math.Exp(-s.hazard*(time.Duration(i)*u.step).Seconds())
		u.begin(u.newest-int64(i), began, alive)
		u.young += alive
	}
}

// stay is how long sessions last, in seconds.
type stay struct {
	hazard float64 // at which people leave within the life of their ticket
	young  float64 // mean time within it
	reach  float64 // share of the sessions that last longer
	late   float64 // their mean time beyond it
}

func (s *stay) mean() float64 { return s.young + s.reach*s.late }

func (u *Turnover) stay() stay {
	life := u.life.Seconds()
	weight := priorEnds + u.unsettled()
	s := stay{young: life, reach: 1, late: max(life/64, (u.beyond+weight*priorBeyond*life)/(u.ended+weight))}
	if u.early > 0 {
		s.hazard = min(20/life, u.early/(u.youngFor+priorYoung*life))
		s.reach = math.Exp(-s.hazard * life)
		s.young = (1 - s.reach) / s.hazard
	}
	return s
}

// Stay returns how long a slot stays taken on average.
func (u *Turnover) Stay() time.Duration {
	s := u.stay()
	return time.Duration(s.mean() * float64(time.Second))
}

// unsettled returns how many are inside for longer than a ticket lives, of whom it cannot be
// known yet for how long: the first who leave are those who stay least, so they are no measure for
// the others. It fades as time passes.
func (u *Turnover) unsettled() float64 {
	return max(0, u.active-u.young) * math.Exp(-2*max(0, u.at.Sub(u.outlived).Seconds())/u.life.Seconds())
}

// Doubt is what forecasts may be wrong by where nobody has seen yet what came of them.
type Doubt struct {
	// Stay is by how much a stay may differ from what is supposed, as a logarithm: more than a
	// fifth before any session has ended, and next to nothing once some hundred have and others
	// are not unsettled. 0 where sessions are not what bounds those who enter.
	Stay float64
	// ByRate says that R is what bounds them: when its rights are free again is known.
	ByRate bool
}

// Doubt returns what forecasts may be wrong by under these limits.
func (u *Turnover) Doubt(x Limits) Doubt {
	if !u.seen || x.Total/u.Stay().Seconds() > x.PerMinute/60 {
		return Doubt{ByRate: u.seen}
	}
	few := 30 + u.unsettled()
	return Doubt{Stay: 0.22 * few / (few + u.early + u.ended)}
}

// Paces returns how fast people will enter from now on, if there is always
// somebody who waits: at most [MaxPaces] phases. It is nil while nothing was
// observed, and where the limits let nobody in.
//
// It plays the room out: sessions of known age reach the life of a ticket and
// then end at the rate that was learned; who enters takes what came free, as far
// as the minute allows, and ends in turn.
func (u *Turnover) Paces(x Limits) []Pace {
	if !u.seen || x.Total <= 0 || x.PerMinute <= 0 {
		return nil
	}
	s, dt := u.stay(), u.step.Seconds()
	cells, began, n := int64(u.cells()), u.began, u.newest
	inside := max(u.active, min(x.Total, u.active+x.Free))
	*at(&began, n) += inside - u.active
	young := min(inside, u.young+inside-u.active)
	old := inside - young // longer inside than a ticket lives
	// Of each cell, those that will not leave early.
	lasting := u.alive
	*at(&lasting, n) += inside - u.active
	stays := math.Exp(-s.hazard * dt)
	for i, share := cells-1, stays; i >= 0; i, share = i-1, share*stays {
		*at(&lasting, n-i) *= share
	}
	window, used := int64(math.Round(60/dt)), 0.0 // a right of R is in use for a minute
	byWindow := window >= 2 && window < turnCells
	for i := int64(0); byWindow && i < window-1; i++ {
		used += *at(&began, n-i)
	}
	entered := make([]float64, 0, horizon/minStep+lives*turnCells) // on the stack
	vacant, keep := 0.0, math.Exp(-dt/refill)
	for range max(lives*cells, int64(horizon/u.step)) {
		n++
		last := *at(&lasting, n-cells)
		gone := max(0, young-last) * (1 - stays)
		young = max(0, young-gone-last)
		old += last
		left := old * -math.Expm1(-dt/s.late)
		old -= left
		gone += left
		inside -= gone
		vacant = (vacant + gone) * keep
		enter := max(0, x.Total-inside-vacant)
		if byWindow {
			enter = min(enter, max(0, x.PerMinute-used))
			used += enter - *at(&began, n-window+1)
		} else {
			enter = min(enter, x.PerMinute*dt/60)
		}
		inside += enter
		young += enter
		*at(&began, n), *at(&lasting, n) = enter, enter*s.reach
		entered = append(entered, enter)
	}
	return paced(entered, dt, Pace{Mu: min(x.Total/s.mean(), x.PerMinute/60)})
}

// MaxPaces is how many phases are told at most.
const MaxPaces = 16

// paced turns how many enter in each step of dt seconds into few steady phases, and
// the one after them. Nowhere are the people who entered by then off by much more than one and
// two in a hundred of them (of the first ten less: who is next is told by them), or by a small multiple of that where the phases would be too
// many: a rush comes back a minute later in all its bursts, and the phases must reach to the end.
func paced(entered []float64, dt float64, steady Pace) []Pace {
	for scale := 1.0; ; scale *= 1.2 {
		c := curve{slack: scale}
		for _, n := range entered {
			c.add(dt, n)
		}
		if c.close(); len(c.paces) < MaxPaces {
			return append(c.paces, steady)
		}
	}
}

// curve is the phases up to now. Of too many it keeps no more than the first.
type curve struct {
	slack           float64
	paces           []Pace
	t, n            float64 // now
	fromT, fromN    float64 // where the phase began
	lowest, highest float64 // pace that it may have
}

func (c *curve) add(dt, n float64) {
	t, sum := c.t+dt, c.n+n
	slack := c.slack * (min(1, 0.1+0.1*sum) + 0.02*sum)
	lo, hi := (sum-slack-c.fromN)/(t-c.fromT), (sum+slack-c.fromN)/(t-c.fromT)
	if c.t > c.fromT {
		lo, hi = max(lo, c.lowest), min(hi, c.highest)
		if lo > hi {
			c.close()
			lo, hi = (n-slack)/dt, (n+slack)/dt
		}
	}
	c.lowest, c.highest, c.t, c.n = lo, hi, t, sum
}

// close ends the phase here and now.
func (c *curve) close() {
	if d := c.t - c.fromT; d > 0 && len(c.paces) < MaxPaces {
		c.paces = append(c.paces, Pace{For: time.Duration(d * float64(time.Second)), Mu: (c.n - c.fromN) / d})
	}
	c.fromT, c.fromN = c.t, c.n
}
