package admission

import (
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/ticket"
	"vestibule/internal/wire"
)

// edge is what the rooms of an engine have in common: who the edge is, what it
// knows of the time, and its bond with the regional.
type edge struct {
	cfg   Config
	home  ticket.DC
	clock fleet.Clock
	guess fleet.Clock // the machine's own clock: good enough to serve by before the first answer
	up    uplink
	past  []uint64 // incarnations before this one that have ended, the newest last
}

// moment is a reading of the edge's clock, and what fleet time is then.
type moment struct {
	now   fleet.Mono
	time  fleet.Time    // before the first answer of a parent the machine's guess at it
	bound time.Duration // by how much time may be wrong at most; fleet.Unsynced before the first answer
}

// at returns the moment of a reading of the clock.
func (e *edge) at(now fleet.Mono) moment {
	t, bound := e.clock.Read(now)
	if bound == fleet.Unsynced {
		t = max(e.guess.Now(now), t)
	}
	return moment{now: now, time: t, bound: bound}
}

// synced reports whether a parent has told fleet time.
func (m *moment) synced() bool { return m.bound != fleet.Unsynced }

// second returns the Unix second.
func (m *moment) second() uint32 { return uint32(m.time.Second()) }

// stampTime returns the second from which tickets are stamped: what fleet time is at
// least. What the edge stamps by a clock that it is not sure of ends no later than
// what others stamp now, so nobody who waits for it to end has to know for how long
// there has been nobody to learn the time from.
func (m *moment) stampTime() uint32 {
	if mutant.On(mutant.StampsAdrift) {
		return m.second()
	}
	return uint32(fleet.Certain(m.time, m.bound).Second())
}

// hurry makes the next report due as soon as the least gap allows.
func (e *edge) hurry(now fleet.Mono) { e.up.hurry(now, e.cfg.Params.ReportGap) }

// owns reports whether sessions of a home are counted by this edge's regional. In a copy of a
// data centre they are not: the other one does not wait for this edge, nor hears what
// it renews.
func (e *edge) owns(home ticket.DC) bool {
	return home == e.home && (!e.up.copied || mutant.On(mutant.CopyOwns))
}

// judges returns the fleet time by which the end of a session with the given home is
// judged here; see Judges.
func (e *edge) judges(m moment, home ticket.DC) fleet.Time {
	if (e.owns(home) && e.up.check(m.now)) || mutant.On(mutant.NoJudgeMargin) {
		return m.time
	}
	margin := 2 * fleet.MaxError
	if m.bound > fleet.MaxError && m.synced() {
		margin = fleet.MaxError + m.bound
	}
	return m.time.Add(margin)
}

// Isolated reports whether the edge has been without a lease for so long that
// on_isolation applies. Nothing in a request can bring that about, nor does asking for it.
func (e *edge) Isolated(now fleet.Mono) bool {
	l := &e.up
	return !l.leased(now) && l.alone != 0 && now.Sub(l.alone) >= e.cfg.Params.Isolation
}

// Leased reports whether the edge may act on its rights at now. It changes nothing.
func (e *edge) Leased(now fleet.Mono) bool { return e.up.leased(now) }

// Judges returns the fleet time by which the end of a session with the given
// home is judged here. At home and under a lease that is our own: the regional
// frees no second that we have not reported past. Otherwise nobody waits for
// us, and the clocks that are waited for may be ahead of ours by what both may
// be wrong: so the session ends earlier.
func (e *edge) Judges(now fleet.Mono, home ticket.DC) fleet.Time {
	return e.judges(e.at(now), home)
}

// Time returns what the engine takes fleet time to be.
func (e *edge) Time(now fleet.Mono) fleet.Time {
	m := e.at(now)
	return m.time
}

// TimeBound returns by how much fleet time may be wrong at most, fleet.Unsynced
// before it was ever told.
func (e *edge) TimeBound(now fleet.Mono) time.Duration { return e.clock.Bound(now) }

// Incarnations returns those that whoever succeeds this process may tell of, its own
// last. The shell keeps them: before the first report and whenever they change. Where
// it cannot, that costs use of the limit and no safety.
func (e *edge) Incarnations() []uint64 {
	return fleet.Newest(append(slices.Clone(e.past), e.up.inc))
}

// Guess gives the machine's own idea of the time, used to judge sessions
// until the regional has told fleet time. Under it nothing is admitted or
// renewed.
func (e *edge) Guess(now fleet.Mono, t fleet.Time) { e.guess.Set(now, t, time.Hour) }

// newTicket returns a place in the line for who has none.
func (e *edge) newTicket(ft fleet.Time, epoch uint32, in ticket.Network) ticket.Ticket {
	return ticket.Ticket{ID: e.newID(), Joined: ft, Seen: uint32(ft.Second()), Epoch: epoch, Network: in}
}

func (e *edge) newID() uint64 {
	for {
		if id := e.cfg.Rand.Uint64(); id != 0 {
			return id
		}
	}
}

// descend makes of t the next version of its session's ticket.
func (e *edge) descend(t *ticket.Ticket) {
	t.Parent = t.Stamp
	for t.Stamp = 0; t.Stamp == 0 || t.Stamp == t.Parent; {
		t.Stamp = e.cfg.Rand.Uint32()
	}
	if t.Root == 0 {
		t.Root = t.Stamp
	}
}

// hear takes what a grant says to the edge apart from rooms. fresh tells whether the
// grant is one to listen to that was not taken before, complete whether with it
// everything has come that the parent has said.
func (e *edge) hear(now fleet.Mono, g *wire.Grant) (fresh, complete bool) {
	l := &e.up
	if g.To != e.cfg.Edge || g.Inc != l.inc {
		return false, false
	}
	if was := l.retired; !l.check(now) && l.retired != was {
		// The answer came too late: only the final report lets us go on.
		e.hurry(now)
	}
	before := l.seen
	if !l.follow(g.From) {
		return false, false
	}
	if before != l.seen {
		l.hurry(now, 0) // the promise is worth a report of its own
	}
	if fresh, complete = l.grants.Take(g.Seq, g.Part, g.Parts); !fresh {
		return false, false
	}
	if g.Echo != 0 {
		e.clock.Sync(now, g.Echo, g.Dwell, g.At, g.AtBound)
	}
	if !mutant.On(mutant.ClockBehindWatermark) {
		e.clock.Floor(g.Watermark)
	}
	l.acked = max(l.acked, g.Acked)
	l.twin = g.Twin
	return true, complete
}

// life is for how many seconds tickets of a room are stamped.
type life struct {
	full      uint32 // as granted; 0 stamps none
	probation uint32 // the first ticket of a session; 0 for in full
	fixed     uint32 // a session ends so long after its admission; 0 for as long as it is renewed
}

// first returns for how many seconds the first ticket of a session is stamped.
func (l life) first() uint32 {
	if l.fixed > 0 {
		return min(l.full, l.fixed)
	}
	if l.probation > 0 {
		return min(l.full, l.probation)
	}
	return l.full
}

// firm reports whether a session that began now would last: an edge that is unsure of
// the time stamps tickets that end early, by no more than a quarter where it admits.
func (l life) firm(m moment) bool {
	return m.bound <= fleet.MaxError || (m.bound <= fleet.Rough && m.second()-m.stampTime() <= max(1, l.first()/4))
}

// until returns the expiry second of a ticket of the session of t that is stamped now.
func (l life) until(m moment, t *ticket.Ticket) uint32 {
	until := m.stampTime() + 1 + l.full
	if l.fixed > 0 {
		until = min(until, t.Admitted+1+l.fixed)
	}
	return until
}

// due reports whether the ticket of a session is so old that it is to be renewed.
func (l life) due(m moment, t *ticket.Ticket) bool {
	return l.full != 0 && l.until(m, t) >= t.Until+wire.RenewAfter(l.full) && m.synced()
}
