package admission

import (
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// movers are visitors inside whose session another data centre holds and who
// wait for a right here, by ticket id. What is free is theirs before anybody
// who waits outside. Bounded: who does not fit keeps the old ticket.
type movers map[uint64]mover

// mover is when somebody who waits for a right was here last, and until when the session
// is valid elsewhere.
type mover struct {
	seen  fleettime.Mono
	until uint32
}

const (
	maxMovers = 1 << 12
	// moverWait is how long a right is kept for somebody who does not come back.
	moverWait = 30 * time.Second
)

// prune lets go of those who did not come back, and of those whose session has ended
// meanwhile: it cannot move any more. It reports whether anybody went.
func (m movers) prune(now fleettime.Mono, ft fleettime.Time) bool {
	n := len(m)
	for id, v := range m {
		if now.Sub(v.seen) > moverWait || int64(v.until) < ft.Second() {
			delete(m, id)
		}
	}
	return len(m) != n
}

// moveIn gives the session of another data centre a right of this one, and a
// ticket until second until, as soon as there is one. From then on it is
// counted here; there it is counted until the old ticket expires, or until its
// edges know not to renew it. So it is counted twice for a while and never not
// at all: moving cannot exceed the limit, wherever it happens.
func (r *roomState) moveIn(m moment, until uint32, d *Decision) {
	t := &d.Ticket
	home := r.edge.home
	if known := r.known(m, t.ID); known >= t.Until {
		// It came a moment ago and the reply was lost, or this is another request.
		t.Home, t.Until, t.Seen = home, known, m.second()
		d.Reseal = true
		r.edge.descend(t)
		return
	}
	if !r.edge.up.check(m.now) || r.gone || r.ended.covers(t.ID, home, until) != 0 {
		return
	}
	if r.rights.credit() == 0 || !r.sessions.issue(until) {
		if _, ok := r.movers[t.ID]; !ok && len(r.movers) < maxMovers {
			if r.movers == nil {
				r.movers = movers{}
			}
			r.dirty = true
			r.edge.hurry(m.now)
		} else if !ok {
			return
		}
		r.movers[t.ID] = mover{m.now, t.Until}
		return
	}
	r.rights.spent++
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
	if r.rights.low() {
		r.edge.hurry(m.now)
	}
}
