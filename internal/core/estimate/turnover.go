package estimate

import (
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
)

// Turnover predicts the admission rate of a room from its session count, the start times of sessions, the observed
// session length and the two limits. It has a fixed size. The zero value is empty.
//
// The model: within the life of its ticket a session ends at a constant rate (by a goodbye), usually 0. Of the
// sessions that reach the ticket life, a constant share has never been renewed and ends then, and the others end at
// another constant rate. The end of a session is observed a moment later, so that all of this is later by [observed].
// Rates and the share are learned. Just after opening, while no session can have ended yet, the model knows that and
// does not take the first rush for a steady rate.
type Turnover struct {
	life   time.Duration // of a ticket
	step   time.Duration // span of one cell
	newest int64         // number of the newest cell
	began  [turnCells]float64
	alive  [turnCells]float64 // sessions of began that have not ended early
	young  float64            // sum of alive within one ticket life

	seen             bool
	at               fleettime.Mono
	active, admitted float64
	owed             float64 // sessions that appeared without an admission, not yet accepted
	first            int64   // number of the first cell; admissions before it are known from past alone
	past             []admissions
	recalled         bool // past has changed

	// These decay.
	youngFor, early float64 // session-seconds within the ticket life, sessions that ended there
	beyond, ended   float64 // session-seconds beyond the ticket life, sessions that ended there
	reached         float64 // sessions that reached the ticket life
}

const (
	turnCells = 128 // a ticket life fills 64 of them
	turnLife  = 64
	minStep   = 500 * time.Millisecond

	// Prior: a session lasts 1.3 ticket lives. once is the share of those without a renewal, which end when they reach
	// the ticket life; it is taken to be uniform between none and half. moreDoubt is the standard deviation of the
	// logarithm of the time beyond the life of the others.
	priorBeyond = 0.3
	once        = 0.25
	onceDoubt   = 0.144
	moreDoubt   = 0.93
	priorDoubt  = 0.22 // of the whole session

	// observed is the mean delay from the ticket life to the observed end of a session without a renewal.
	observed = 500 * time.Millisecond

	// unseen is how much later it may be observed on a busy day.
	unseen = 4 * time.Second

	// The prior for early ends: none in one ticket life.
	priorYoung = 1

	// refill is the mean delay, in seconds, until a session permit that is known to be free is used: it is granted to
	// an edge with a held visitor.
	refill = 0.25

	// The simulation of a room covers this many ticket lives, at least cutoff seconds. Afterwards the pace is
	// taken to be steady.
	lives  = 4
	cutoff = 3 * time.Minute
)

// admissions are admissions that were made before the first observation, and when.
type admissions struct {
	at fleettime.Mono
	n  float64
}

// remembered is for how long after an admission children remember it. All earlier ones are of unknown time.
const remembered = 64 * time.Second

// Admitted adds n admissions at a time before the first observation, or of a child that was not observed then.
func (u *Turnover) Admitted(at fleettime.Mono, n float64) {
	u.past, u.recalled = append(u.past, admissions{at, n}), true
}

// Limits bound the admissions of a room.
type Limits struct {
	Total, PerMinute float64
	Free             float64 // permits granted at once, beyond the current sessions
}

// Observe records the session count and the total of admissions at now. Ticket lives below 1 s count as 1 s.
func (u *Turnover) Observe(now fleettime.Mono, life time.Duration, active, admitted float64) {
	life = max(life, time.Second)
	if u.life != life {
		u.setLife(life)
	}
	if !u.seen {
		u.seen, u.at, u.admitted, u.newest = true, now, admitted, int64(now)/int64(u.step)
		u.first = u.newest
	}
	dt := max(0, now.Sub(u.at).Seconds())
	fade := math.Exp(-dt / max(5*time.Minute, 2*life).Seconds())
	u.youngFor = u.youngFor*fade + min(u.active, u.young)*dt
	u.beyond = u.beyond*fade + max(0, u.active-u.young+u.owed)*dt // those that are owed may be of any age
	u.early *= fade
	u.ended *= fade
	u.reached *= fade
	u.rotate(int64(now) / int64(u.step))
	came := max(0, admitted-u.admitted)
	u.begin(u.newest, came, came)
	u.young += came
	// The session count and the admissions are from slightly different times.
	switch u.owed += came - (active - u.active); {
	case u.recalled:
		u.recall(now, active)
		u.owed = 0
	case u.owed > 0:
		u.end(u.owed, active)
		u.owed = 0
	case u.owed < -max(5, active/50):
		// Sessions without an observed admission are older than this process.
		u.spread(-u.owed, 0)
		u.owed = 0
	}
	u.at, u.active, u.admitted = now, active, admitted
}

// begin adds sessions to a cell; alive of them have not ended.
func (u *Turnover) begin(cell int64, began, alive float64) {
	*at(&u.began, cell) += began
	*at(&u.alive, cell) += alive
}

// end records the end of n sessions, after which active are left. Sessions missing among the young ended early;
// their ages are unknown.
func (u *Turnover) end(n, active float64) {
	within := 0.0
	for i := range int(u.life / u.step) {
		within += *at(&u.alive, u.newest-int64(i))
	}
	early := min(n, max(0, within-active-max(1, active/50)))
	if early > 0 {
		left := 1 - early/within
		for i := range int(u.life / u.step) {
			*at(&u.alive, u.newest-int64(i)) *= left
		}
		u.young -= early
	}
	u.early += early
	u.ended += n - early
}

// setLife switches to a new ticket life. Sessions end at the same rates as before. An active visitor's next page
// brings a ticket of the new life, as if admitted now; the others leave when their old ticket expires.
func (u *Turnover) setLife(life time.Duration) {
	was := *u
	*u = Turnover{
		life: life, step: max(minStep, life/turnLife), past: was.past, recalled: was.recalled,
		youngFor: was.youngFor, early: was.early, beyond: was.beyond, ended: was.ended, reached: was.reached,
	}
	if !was.seen {
		return
	}
	u.seen, u.at, u.active, u.admitted, u.owed = true, was.at, was.active, was.admitted, was.owed
	u.newest = int64(u.at) / int64(u.step)
	u.first = u.newest - turnCells
	looking := max(0.05*was.life.Seconds(), was.stay().more)
	cell := func(age time.Duration) int64 {
		return u.newest - min(int64(max(0, age)/u.step), turnCells-1)
	}
	for i := range was.cells() {
		began, n, age := *at(&was.began, was.newest-int64(i)), *at(&was.alive, was.newest-int64(i)), time.Duration(i)*was.step
		still := n * (1 - once) * math.Exp(-age.Seconds()/looking)
		u.begin(cell(age), began, 0)
		u.begin(u.newest, 0, still)
		u.begin(cell(age+life-was.life), 0, n-still)
	}
	u.recount()
}

// Churn is the learned session length. It outlives a restart.
type Churn struct {
	Life            time.Duration // of a ticket
	YoungFor, Early float64       // session-seconds within Life, sessions that ended there
	Beyond, Ended   float64       // session-seconds beyond Life, sessions that ended there
}

// Churn returns the learned session length.
func (u *Turnover) Churn() Churn { return Churn{u.life, u.youngFor, u.early, u.beyond, u.ended} }

// Recall adds the Churn of a predecessor. It ignores a value that no Turnover can have returned.
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
		u.setLife(c.Life)
	}
	u.youngFor += c.YoungFor
	u.early += c.Early
	u.beyond += c.Beyond
	u.ended += c.Ended
	u.reached += c.Ended // as many, but for those that go on
}

// rotate opens the cells up to number n.
func (u *Turnover) rotate(n int64) {
	if n <= u.newest {
		return
	}
	u.newest = max(u.newest, n-turnCells)
	for u.newest < n {
		u.newest++
		*at(&u.began, u.newest), *at(&u.alive, u.newest) = 0, 0
		u.reached += *at(&u.alive, u.newest-int64(u.cells()))
	}
	u.recount()
}

// recount sums the sessions within one ticket life.
func (u *Turnover) recount() {
	u.young = 0
	for i := range u.cells() {
		u.young += *at(&u.alive, u.newest-int64(i))
	}
}

// at returns the cell with number n of a ring.
func at(ring *[turnCells]float64, n int64) *float64 {
	return &ring[((n%turnCells)+turnCells)%turnCells]
}

// cells returns how many cells a ticket life spans, until its end is observed.
func (u *Turnover) cells() int { return int((u.life + observed + u.step/2) / u.step) }

// spread distributes n sessions of unknown age, at least that of a cell, as the survivors of a steady flow.
func (u *Turnover) spread(n float64, from int) {
	s := u.stay()
	before := (time.Duration(from) * u.step).Seconds() // the time that a session spends at lower ages
	if s.hazard > 0 {
		before = -math.Expm1(-s.hazard*before) / s.hazard
	}
	began := n / (s.mean() - before) * (u.life + observed).Seconds() / float64(u.cells())
	for i := from; i < u.cells(); i++ {
		alive := began * math.Exp(-s.hazard*(time.Duration(i)*u.step).Seconds())
		u.begin(u.newest-int64(i), began, alive)
		u.young += alive
	}
}

// recall replaces the sessions of before the first observation by those that are remembered. The others are older.
func (u *Turnover) recall(now fleettime.Mono, active float64) {
	u.recalled = false
	for n := u.newest - turnCells + 1; n < u.first; n++ {
		*at(&u.began, n), *at(&u.alive, n) = 0, 0
	}
	s := u.stay()
	u.past = slices.DeleteFunc(u.past, func(p admissions) bool {
		n, age := int64(p.at)/int64(u.step), now.Sub(p.at)
		if age > remembered || n <= u.newest-turnCells {
			return true
		}
		u.begin(n, p.n, p.n*math.Exp(-s.hazard*age.Seconds()))
		return n >= u.first
	})
	u.recount()
	if rest, from := active-u.young, int(remembered/u.step); rest < 0 && u.young > 0 { // some have ended
		for i := range u.cells() {
			*at(&u.alive, u.newest-int64(i)) *= active / u.young
		}
	} else if rest > 0 && from < u.cells() {
		u.spread(rest, from)
	}
	u.recount()
}

// stay is the session length, in seconds.
type stay struct {
	hazard float64 // rate of ends within the ticket life
	young  float64 // mean time within the ticket life
	reach  float64 // share of sessions that reach the ticket life
	single float64 // share of these without a renewal, which end then
	more   float64 // mean time beyond it of the others
	late   float64 // of all
	doubt  float64 // standard deviation of the logarithm of late
}

func (s *stay) mean() float64 { return s.young + s.reach*s.late }

func (u *Turnover) stay() stay {
	life := (u.life + observed).Seconds()
	s := stay{young: life, reach: 1}
	s.single, s.more, s.doubt = u.beyondLife()
	s.late = (1 - s.single) * s.more
	if u.early > 0 {
		s.hazard = min(20/life, u.early/(u.youngFor+priorYoung*life))
		s.reach = math.Exp(-s.hazard * life)
		s.young = (1 - s.reach) / s.hazard
	}
	return s
}

// beyondLife returns the share of sessions that end when they reach the ticket life, the mean time beyond it of the
// others, and the standard deviation of the logarithm of that of all. They are the most likely ones, given their priors
// and the number of sessions that have ended: a few seconds in which none ends are no evidence of very long sessions,
// because the share may be small and the ends may be observed late.
func (u *Turnover) beyondLife() (single, more, doubt float64) {
	prior := priorBeyond * u.life.Seconds() / (1 - once)
	recent := 0.0 // sessions with an end that may not have been observed yet
	for i := range int64(unseen/u.step) + 1 {
		recent += *at(&u.alive, u.newest-int64(u.cells())-i)
	}
	noise := 1 + u.ended + once*recent*once*recent
	// rate returns the logarithm of the rate of renewed sessions over that of the prior, and how many have ended then, if
	// the others are a share with a standard deviation.
	var n float64
	rate := func(share, doubt float64) float64 {
		low, high := -8.0, 4.0
		for range 24 {
			x := (low + high) / 2
			excess := u.ended - share*u.reached - u.beyond/prior*math.Exp(x)
			if n = u.beyond / prior * math.Exp(x); x/(moreDoubt*moreDoubt) < excess*n/(noise+doubt*doubt*u.reached*u.reached) {
				low = x
			} else {
				high = x
			}
		}
		return low
	}
	x := rate(once, onceDoubt)
	single = once +
		onceDoubt*onceDoubt*u.reached*(u.ended-once*u.reached-n)/(noise+onceDoubt*onceDoubt*u.reached*u.reached)
	if bound := min(max(0, single), 0.9); bound != single { // no share is below 0: then the others end less often
		single, x = bound, rate(bound, 0)
	}
	more = max(u.life.Seconds()/64, prior*math.Exp(-x))
	// The inverse of the information about both.
	a, b, c := 1/(moreDoubt*moreDoubt)+n*n/noise, n*u.reached/noise, 1/(onceDoubt*onceDoubt)+u.reached*u.reached/noise
	g := 1 / (1 - single)
	return single, more, math.Sqrt((c - 2*b*g + a*g*g) / (a*c - b*b))
}

// Stay returns the mean time that a session holds its permit.
func (u *Turnover) Stay() time.Duration {
	s := u.stay()
	return time.Duration(s.mean() * float64(time.Second))
}

// Doubt is the uncertainty of forecasts that have no outcomes yet.
type Doubt struct {
	// Stay is the standard deviation of the mean session length, as a logarithm: priorDoubt before any session has
	// ended. 0 if sessions do not limit admissions.
	Stay float64
	// ByRate reports whether R limits admissions; then it is known when permits return.
	ByRate bool
}

// Doubt returns the uncertainty of forecasts under these limits.
func (u *Turnover) Doubt(x Limits) Doubt {
	if !u.seen || x.Total/u.Stay().Seconds() > x.PerMinute/60 {
		return Doubt{ByRate: u.seen}
	}
	s := u.stay()
	return Doubt{Stay: min(priorDoubt, s.reach*s.late/s.mean()*s.doubt)}
}

// Paces returns the admission rate from now on while visitors wait, in at most [MaxPaces] phases. It is nil before
// the first observation, and if the limits admit nobody.
//
// It simulates the room: sessions of known age reach the ticket life and then end at the learned rate. Freed
// permits are used at once, as far as R allows, and the new sessions end in turn.
func (u *Turnover) Paces(x Limits) []Pace {
	if !u.seen || x.Total <= 0 || x.PerMinute <= 0 {
		return nil
	}
	s, dt := u.stay(), u.step.Seconds()
	cells, began, n := int64(u.cells()), u.began, u.newest
	inside := max(u.active, min(x.Total, u.active+x.Free))
	*at(&began, n) += inside - u.active
	young := min(inside, u.young+inside-u.active)
	old := inside - young // sessions beyond a ticket life
	// The sessions of each cell that will reach the ticket life.
	lasting := u.alive
	*at(&lasting, n) += inside - u.active
	stays := math.Exp(-s.hazard * dt)
	for i, share := cells-1, stays; i >= 0; i, share = i-1, share*stays {
		*at(&lasting, n-i) *= share
	}
	window, used := int64(math.Round(60/dt)), 0.0 // a permit of R is in use for a minute
	byWindow := window >= 2 && window < turnCells
	for i := int64(0); byWindow && i < window-1; i++ {
		used += *at(&began, n-i)
	}
	entered := make([]float64, 0, cutoff/minStep+lives*turnCells) // on the stack
	vacant, keep := 0.0, math.Exp(-dt/refill)
	for range max(lives*cells, int64(cutoff/u.step)) {
		n++
		last := *at(&lasting, n-cells)
		gone := max(0, young-last) * (1 - stays)
		young = max(0, young-gone-last)
		left := old * -math.Expm1(-dt/s.more)
		old += (1-s.single)*last - left
		gone += s.single*last + left
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

// MaxPaces is the maximum number of phases: enough for the bursts and pauses of three minutes after a change of R. With
// half as many the tolerance of [paced] grew, and waits next to a pause were off by the length of the pause.
const MaxPaces = 32

// paced compresses the admissions per step of dt seconds into a few steady phases, followed by steady. The cumulative
// error stays near one admission plus two percent (less for the first ten, which decide the next admissions). A phase
// into a pause admits no more than entered: those next to the pause would be forecast to enter before it. The tolerance
// grows until the phases fit: a rush repeats a minute later with all its bursts, and the phases must reach the end.
func paced(entered []float64, dt float64, steady Pace) []Pace {
	for scale := 1.0; ; scale *= 1.2 {
		c := curve{slack: scale}
		for _, n := range entered {
			c.extend(dt, n)
		}
		if c.close(); len(c.paces) < MaxPaces {
			return append(c.paces, steady)
		}
	}
}

// curve is the phases up to now. It keeps only the first phases if there are too many.
type curve struct {
	slack           float64
	paces           []Pace
	t, n            float64 // now
	fromT, fromN    float64 // start of the phase
	lowest, highest float64 // bounds of its pace
}

func (c *curve) extend(dt, n float64) {
	t, sum := c.t+dt, c.n+n
	slack := c.slack * (min(1, 0.1+0.1*sum) + 0.02*sum)
	lo, hi := (sum-slack-c.fromN)/(t-c.fromT), (sum-c.fromN)/(t-c.fromT)
	if c.t > c.fromT {
		lo, hi = max(lo, c.lowest), min(hi, c.highest)
		if lo > hi {
			c.close()
			lo, hi = (n-slack)/dt, n/dt
		}
	}
	c.lowest, c.highest, c.t, c.n = lo, hi, t, sum
}

// close ends the phase now.
func (c *curve) close() {
	if d := c.t - c.fromT; d > 0 && len(c.paces) < MaxPaces {
		c.paces = append(c.paces, Pace{For: time.Duration(d * float64(time.Second)), Mu: (c.n - c.fromN) / d})
	}
	c.fromT, c.fromN = c.t, c.n
}
