package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Apply takes what the regional said. A grant of a lower term, of another
// incarnation or tenure, or older than one applied changes nothing. The caller
// then calls Release.
func (e *Engine) Apply(now fleettime.Mono, g wire.Grant) {
	fresh, complete := e.hear(now, &g)
	if !fresh {
		return
	}
	for i := range g.Rooms { // under whatever tenure: the grant is acknowledged as taken
		if r := e.rooms[g.Rooms[i].Room]; r != nil {
			r.learn(now, &g.Rooms[i])
		}
	}
	if !e.obeys(now, &g) {
		return
	}
	l := &e.up
	l.joined, l.standing, l.copied = true, g.Standing, g.Copied
	if g.Site != 0 {
		l.site = g.Site
	}
	for i := range g.Rooms { // one not in our set yet is repeated until we report it
		if r := e.rooms[g.Rooms[i].Room]; r != nil {
			r.apply(now, &g.Rooms[i])
		}
	}
	if complete && l.extend(now, &g) { // not before every restriction that came with it
		e.rejoined()
	}
	for _, r := range e.order {
		r.forget(g.Watermark)
	}
}

// obeys follows the verdict of a grant, and reports whether the edge is to act on what
// else it says.
func (e *Engine) obeys(now fleettime.Mono, g *wire.Grant) bool {
	l := &e.up
	switch g.Adoption {
	case wire.Promise:
		return false
	case wire.Dead:
		e.reborn(now)
		return false
	case wire.Fenced:
		if g.Tenure > l.tenure && l.retired {
			e.revive(now, g.Tenure) // we never heard of it, and never shall act under it
		}
		l.retire(now)
		e.hurry(now)
		return false
	case wire.Adopted:
	default:
		return false // a verdict of a newer version: act on nothing that comes with it
	}
	if g.Tenure > l.tenure && l.retired {
		e.revive(now, g.Tenure)
	}
	return g.Tenure == l.tenure && !l.retired
}

// learn takes what a grant says of tickets, which holds whatever becomes of the lease.
func (r *roomState) learn(now fleettime.Mono, g *wire.RoomGrant) {
	for _, end := range g.Ends {
		r.ended.note(end)
	}
	for _, o := range g.Lines {
		m := r.edge.at(now)
		r.tickets.lines.Decide(m.second(), o.ID, o.Stamp, g.Life)
	}
}

// apply takes the rights, the life of tickets and the view of a grant.
func (r *roomState) apply(now fleettime.Mono, g *wire.RoomGrant) {
	if r.rights.take(g) {
		r.dirty = true // tell what we hold
	}
	if news, _ := r.passes.Take(r.edge.up.seen, &g.Passes); news {
		r.dirty = true
	}
	r.life.full = g.Life
	if g.View != nil {
		anew := r.view == nil || r.view.Rounds.Newest() != g.View.Rounds.Newest()
		if r.view = g.View; anew {
			r.held.order(&r.Room, r.view)
		}
	}
	if t, rate := r.rights.surplus(now, false); t+rate+r.passes.Surplus(false) > 0 {
		// Somebody else wants them. Held visitors are served first: the report
		// comes after Release.
		r.edge.hurry(now)
	}
}

// forget drops what the regional has taken and what every live edge has reported past.
func (r *roomState) forget(watermark fleettime.Time) {
	acked := r.edge.up.acked
	r.sessions.forget(watermark)
	r.moves.acked(acked)
	r.ends.Acked(acked)
	r.tickets.found.Acked(acked)
	r.ended.forget(watermark)
}

// revive begins a new tenure after one that lapsed: the regional has our exact
// numbers. Rights of T go on; those of R stayed behind with the old tenure,
// where they age.
func (e *Engine) revive(now fleettime.Mono, tenure uint64) {
	l := &e.up
	l.tenure, l.retired, l.leaseEnd = tenure, false, 0
	for _, r := range e.order {
		r.rights.rate.owe(&r.rights.past, now)
		r.dirty = true
	}
}

// reborn starts a new incarnation: the regional has forgotten this one, and
// everything it counted has aged out.
func (e *Engine) reborn(now fleettime.Mono) {
	l := &e.up
	l.left(now)
	e.past = e.Incarnations()
	l.born(e.cfg.Rand)
	for _, r := range e.order {
		r.rights.reborn(now)
		r.passes = wire.Hand{}
		r.sessions, r.moves = sessions{}, moveLog{first: 1}
		r.ends.Again()
		r.tickets.found.Again()
		r.admitted, r.queue.joined, r.entered = 0, 0, 0
		r.dirty, r.changedAt = true, 0
	}
	l.hurry(now, 0)
}
