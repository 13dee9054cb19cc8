package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// movers are the visitors with a session of another data centre that wait for a permit here, by ticket ID. Free
// permits go to them before the queue. The map is bounded: without space the visitor keeps the old ticket.
type movers map[uint64]mover

// mover is a migrating session: its last request here and its expiry elsewhere.
type mover struct {
	seen  fleettime.Mono
	until uint32
}

const (
	maxMovers = 1 << 12
	// moverWait is how long a permit is reserved for an absent visitor.
	moverWait = 30 * time.Second
)

// prune removes absent visitors, and sessions that have expired and cannot migrate any more. It reports whether it
// removed any.
func (m movers) prune(now fleettime.Mono, ft fleettime.Time) bool {
	n := len(m)
	for id, v := range m {
		if now.Sub(v.seen) > moverWait || int64(v.until) < ft.Second() {
			delete(m, id)
		}
	}
	return len(m) != n
}

// moveIn migrates the session of another data centre, as soon as a permit is free, with a ticket until second
// until. The session is then counted here, and there until the old ticket expires or its edges know not to renew
// it. So it is counted twice for a while and never zero times: migration cannot exceed the limit in any place.
func (r *roomState) moveIn(m moment, until uint32, d *Decision) {
	t := &d.Ticket
	home := r.edge.home
	if known := r.sessionExpiry(m, t.ID); known >= t.Until {
		// A repeated request: it migrated just before, and the response was lost or is on its way.
		t.Home, t.Until, t.Seen = home, known, m.second()
		d.Reseal = true
		r.edge.descend(t)
		return
	}
	if !r.edge.up.check(m.now) || r.gone || r.ended.covers(t.ID, home, until) != 0 {
		return
	}
	if r.permits.credit() == 0 || !r.mayStamp(m) || !r.sessions.issue(until) {
		if _, ok := r.movers[t.ID]; !ok && len(r.movers) < maxMovers {
			if r.movers == nil {
				r.movers = movers{}
			}
			r.dirty = true
			r.edge.reportSoon(m.now)
		} else if !ok {
			return
		}
		r.movers[t.ID] = mover{m.now, t.Until}
		return
	}
	r.permits.spent++
	r.stamped()
	delete(r.movers, t.ID)
	r.moves.add(wire.Move{ID: t.ID, Until: until})
	r.tickets.remember(m.second(), t, until)
	end := wire.End{ID: t.ID, Home: uint32(t.Home), Until: t.Until, Kind: wire.Moved}
	r.ended.note(end) // for the next regional: it matters if the visitor leaves soon
	r.ends.Add(end, 0)
	t.Home, t.Until, t.Seen = home, until, m.second()
	r.dirty = true
	d.Reseal = true
	r.edge.descend(t)
	if r.permits.low() {
		r.edge.reportSoon(m.now)
	}
}
