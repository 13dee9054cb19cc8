package admission

import (
	"math/rand/v2"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// edge is the state that the rooms of an engine share: the edge's identity, its clock, and the session with the
// regional.
type edge struct {
	cfg   Config
	home  ticket.DC
	clock Clock
	up    uplink

	snapshots Snapshots
}

// reportSoon schedules the next report as soon as the minimum gap allows.
func (e *edge) reportSoon(now fleettime.Mono) { e.up.reportSoon(now, e.cfg.Params.ReportGap) }

// owns reports whether this edge's regional counts the sessions of a home. An unlisted data centre owns none: it may be
// a copy, and the original neither waits for this edge nor learns of its renewals.
func (e *edge) owns(home ticket.DC) bool {
	return home == e.home && e.up.standing != wire.Unlisted
}

// expiryTime returns the fleet time for the expiry of a session with the given home. For the own home under a lease it
// is our own: the regional frees no second that we have not reported past. Otherwise nobody waits for us, and the
// clocks of the others may be ahead of ours by the uncertainty of both: the session ends that much earlier.
func (e *edge) expiryTime(m moment, home ticket.DC) fleettime.Time {
	if e.owns(home) && e.up.check(m.now) {
		return m.time
	}
	margin := 2 * fleettime.MaxError
	if m.bound > fleettime.MaxError && m.synced() {
		margin = fleettime.MaxError + m.bound
	}
	return m.time.Add(margin)
}

// isolated reports whether the edge has been without a lease long enough for on_isolation. Requests do not influence
// it.
func (e *edge) isolated(now fleettime.Mono) bool {
	l := &e.up
	return !l.leased(now) && l.alone != 0 && now.Sub(l.alone) >= e.cfg.Params.Isolation
}

// newTicket returns a new place in the queue.
func (e *edge) newTicket(ft fleettime.Time, epoch uint32, in ticket.Network) ticket.Ticket {
	return ticket.Ticket{ID: newID(e.cfg.Rand), Joined: ft, Seen: uint32(ft.Second()), Epoch: epoch, Network: in}
}

// newID returns a random ticket ID, which is not 0.
func newID(rng *rand.Rand) uint64 {
	for {
		if id := rng.Uint64(); id != 0 {
			return id
		}
	}
}

// descend makes t the next version of its session's ticket.
func descend(rng *rand.Rand, t *ticket.Ticket) {
	t.Parent = t.Stamp
	for t.Stamp = 0; t.Stamp == 0 || t.Stamp == t.Parent; {
		t.Stamp = rng.Uint32()
	}
}

// receive applies the part of a grant that concerns the edge. fresh reports whether the grant is new and from our
// parent, complete whether all parts of the parent's message have arrived.
func (e *edge) receive(now fleettime.Mono, g *wire.Grant) (fresh, complete bool) {
	l := &e.up
	if g.To != e.cfg.Edge || g.Instance != l.instance {
		return false, false
	}
	if was := l.retired; !l.check(now) && l.retired != was {
		// The answer came too late: only a final report allows us to continue.
		e.reportSoon(now)
	}
	before := l.seen
	if !l.follow(g.From) {
		return false, false
	}
	if before != l.seen {
		l.reportSoon(now, 0) // the promise justifies an extra report
	}
	if fresh, complete = l.grants.Take(g.Seq, g.Part, g.Parts); !fresh {
		return false, false
	}
	e.clock.receive(now, g)
	l.acked = max(l.acked, g.Acked)
	l.parent.Said(now, g.Reads)
	l.twin = g.Twin
	return true, complete
}

// life holds the ticket lives of a room, in seconds.
type life struct {
	full      uint32 // as granted; 0 stamps none
	probation uint32 // of the first ticket of a session; 0 for full
	fixed     uint32 // session length after the admission; 0 for a session that can be renewed
}

// first returns the life of the first ticket of a session, in seconds.
func (l life) first() uint32 {
	if l.fixed > 0 {
		return min(l.full, l.fixed)
	}
	if l.probation > 0 {
		return min(l.full, l.probation)
	}
	return l.full
}

// firm reports whether a session that began now would last. An uncertain clock shortens tickets; above a quarter
// the edge does not admit.
func (l life) firm(m moment) bool {
	return m.bound <= fleettime.MaxError || (m.bound <= fleettime.Rough && m.second()-m.stampTime() <= max(1, l.first()/4))
}

// until returns the expiry second of a ticket of the session of t stamped now.
func (l life) until(m moment, t *ticket.Ticket) uint32 {
	until := m.stampTime() + 1 + l.full
	if l.fixed > 0 {
		until = min(until, t.Admitted+1+l.fixed)
	}
	return until
}

// bound returns the expiry second of a ticket of the session of t, which counts until second until elsewhere.
func (l life) bound(t *ticket.Ticket, until uint32) uint32 {
	if l.fixed > 0 {
		return min(until, t.Admitted+1+l.fixed)
	}
	return until
}

// due reports whether a session's ticket is old enough for a renewal.
func (l life) due(m moment, t *ticket.Ticket) bool {
	return l.full != 0 && l.until(m, t) >= t.Until+wire.RenewAfter(l.full) && m.synced()
}
