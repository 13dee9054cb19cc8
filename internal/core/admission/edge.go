package admission

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// edge is what the rooms of an engine have in common: who the edge is, what it
// knows of the time, and its bond with the regional.
type edge struct {
	cfg   Config
	home  ticket.DC
	clock fleettime.Clock
	guess fleettime.Clock // the machine's own clock: good enough to serve by before the first answer
	up    uplink

	since   fleettime.Time // since when this process has known the time, and counts; 0 for not yet
	guessed bool           // the regional goes by a time that was guessed, and has not stored so

	past []uint64 // incarnations before this one that have ended, the newest last
}

// moment is a reading of the edge's clock, and what fleet time is then.
type moment struct {
	now   fleettime.Mono
	time  fleettime.Time // before the first answer of a parent the machine's guess at it
	bound time.Duration  // by how much time may be wrong at most; fleet.Unsynced before the first answer
}

// at returns the moment of a reading of the clock.
func (e *edge) at(now fleettime.Mono) moment {
	t, bound := e.clock.Read(now)
	if bound == fleettime.Unsynced {
		t = max(e.guess.Now(now), t)
	}
	return moment{now: now, time: t, bound: bound}
}

// synced reports whether a parent has told fleet time.
func (m *moment) synced() bool { return m.bound != fleettime.Unsynced }

// second returns the Unix second.
func (m *moment) second() uint32 { return uint32(m.time.Second()) }

// stampTime returns the second from which tickets are stamped: what fleet time is at
// least. What the edge stamps by a clock that it is not sure of ends no later than
// what others stamp now, so nobody who waits for it to end has to know for how long
// there has been nobody to learn the time from.
func (m *moment) stampTime() uint32 {
	return uint32(fleettime.Certain(m.time, m.bound).Second())
}

// hurry makes the next report due as soon as the least gap allows.
func (e *edge) hurry(now fleettime.Mono) { e.up.hurry(now, e.cfg.Params.ReportGap) }

// owns reports whether sessions of a home are counted by this edge's regional. In a copy of a
// data centre they are not: the other one does not wait for this edge, nor hears what
// it renews.
func (e *edge) owns(home ticket.DC) bool {
	return home == e.home && !e.up.copied
}

// judges returns the fleet time by which the end of a session with the given home is
// judged here; see Judges.
func (e *edge) judges(m moment, home ticket.DC) fleettime.Time {
	if e.owns(home) && e.up.check(m.now) {
		return m.time
	}
	margin := 2 * fleettime.MaxError
	if m.bound > fleettime.MaxError && m.synced() {
		margin = fleettime.MaxError + m.bound
	}
	return m.time.Add(margin)
}

// Isolated reports whether the edge has been without a lease for so long that
// on_isolation applies. Nothing in a request can bring that about, nor does asking for it.
func (e *edge) Isolated(now fleettime.Mono) bool {
	l := &e.up
	return !l.leased(now) && l.alone != 0 && now.Sub(l.alone) >= e.cfg.Params.Isolation
}

// Leased reports whether the edge may act on its rights at now. It changes nothing.
func (e *edge) Leased(now fleettime.Mono) bool { return e.up.leased(now) }

// Judges returns the fleet time by which the end of a session with the given
// home is judged here. At home and under a lease that is our own: the regional
// frees no second that we have not reported past. Otherwise nobody waits for
// us, and the clocks that are waited for may be ahead of ours by what both may
// be wrong: so the session ends earlier.
func (e *edge) Judges(now fleettime.Mono, home ticket.DC) fleettime.Time {
	return e.judges(e.at(now), home)
}

// Time returns what the engine takes fleet time to be.
func (e *edge) Time(now fleettime.Mono) fleettime.Time {
	m := e.at(now)
	return m.time
}

// TimeBound returns by how much fleet time may be wrong at most, fleet.Unsynced
// before it was ever told.
func (e *edge) TimeBound(now fleettime.Mono) time.Duration { return e.clock.Bound(now) }

// Incarnations returns those that whoever succeeds this process may tell of, its own
// last. The shell keeps them: before the first report and whenever they change. Where
// it cannot, that costs use of the limit and no safety.
func (e *edge) Incarnations() []uint64 {
	return fleettime.Newest(append(slices.Clone(e.past), e.up.inc))
}

// Guess gives the machine's own idea of the time, used to judge sessions
// until the regional has told fleet time. Under it nothing is admitted or
// renewed.
func (e *edge) Guess(now fleettime.Mono, t fleettime.Time) { e.guess.Set(now, t, time.Hour) }

// Restore gives the edge fleet time as a process before it knew it.
func (e *edge) Restore(now fleettime.Mono, k fleettime.Known) {
	e.clock.Restore(now, k)
	e.begin(now)
}

// begin notes when the time was known first: nobody was counted here before.
func (e *edge) begin(now fleettime.Mono) {
	if e.since == 0 && e.clock.Bound(now) != fleettime.Unsynced {
		e.since = e.clock.Now(now)
	}
}

// Known returns fleet time for the data folder of the process; the zero value where it is not known, or the
// regional says that it is not to be relied on after a restart.
func (e *edge) Known(now fleettime.Mono) fleettime.Known {
	if e.guessed {
		return fleettime.Known{}
	}
	return e.clock.Known(now)
}

// newTicket returns a place in the line for who has none.
func (e *edge) newTicket(ft fleettime.Time, epoch uint32, in ticket.Network) ticket.Ticket {
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
func (e *edge) hear(now fleettime.Mono, g *wire.Grant) (fresh, complete bool) {
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
	if g.Echo != 0 && e.clock.Sync(now, g.Echo, g.Dwell, g.At, g.AtBound) {
		e.guessed = g.Guess
		e.begin(now)
	}
	e.clock.Floor(g.Watermark)
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
	return m.bound <= fleettime.MaxError || (m.bound <= fleettime.Rough && m.second()-m.stampTime() <= max(1, l.first()/4))
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
