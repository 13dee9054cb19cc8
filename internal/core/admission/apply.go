package admission

import (
	"cmp"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Apply applies a grant of the regional. It ignores a grant of a lower term, of another instance or lease epoch, or
// older than one already applied. The caller then calls Release.
func (e *Engine) Apply(now fleettime.Mono, g wire.Grant) {
	fresh, complete := e.receive(now, &g)
	if !fresh {
		return
	}
	for _, r := range e.order { // also of a regional that does not lend
		r.settle(cmp.Or(g.Told, g.Acked))
	}
	for i := range g.Rooms { // valid under every lease epoch: the grant is acknowledged
		if r := e.rooms[g.Rooms[i].Room]; r != nil {
			r.applyTicketFacts(now, &g.Rooms[i])
			if g.Rooms[i].Drop {
				e.drop(now, r)
			}
		}
	}
	if !e.applyHandshake(now, &g) {
		return
	}
	l := &e.up
	l.joined, l.standing = true, g.Standing
	if complete {
		e.snapshots.hear(&g)
	}
	if g.ClusterID != 0 {
		l.clusterID = g.ClusterID
	}
	for i := range g.Rooms { // a room that is not in our set yet is repeated until we report it
		if r := e.rooms[g.Rooms[i].Room]; r != nil && !g.Rooms[i].Drop {
			r.applyGrant(now, &g.Rooms[i])
		}
	}
	if complete && l.extend(now, &g) { // only after every restriction in the grant
		e.rejoined()
	}
	for _, r := range e.order {
		r.forget(g.Watermark)
	}
}

// applyHandshake handles the verdict of a grant and reports whether the rest of the grant applies.
func (e *Engine) applyHandshake(now fleettime.Mono, g *wire.Grant) bool {
	l := &e.up
	switch g.Handshake {
	case wire.Promise:
		return false
	case wire.Dead:
		e.restart(now)
		return false
	case wire.Fenced:
		if g.LeaseEpoch > l.leaseEpoch && l.retired {
			e.revive(now, g.LeaseEpoch) // we never received it, and cannot act under it any more
		}
		l.retire(now)
		e.reportSoon(now)
		return false
	case wire.Adopted:
	default:
		return false // unknown verdict of a newer version: ignore the rest
	}
	if g.LeaseEpoch > l.leaseEpoch && l.retired {
		e.revive(now, g.LeaseEpoch)
	}
	return g.LeaseEpoch == l.leaseEpoch && !l.retired
}

// applyTicketFacts applies the facts about tickets in a grant. They hold whether or not the lease is extended.
func (r *roomState) applyTicketFacts(now fleettime.Mono, g *wire.RoomGrant) {
	for _, end := range g.Ends {
		r.ended.note(end)
	}
	for _, o := range g.Lines {
		m := r.edge.at(now)
		r.tickets.lines.Decide(m.second(), o.ID, o.Stamp, g.Life)
	}
}

// applyGrant applies the permits, the ticket life and the view of a grant.
func (r *roomState) applyGrant(now fleettime.Mono, g *wire.RoomGrant) {
	if r.permits.applyGrant(g) {
		r.dirty = true // report our state
	}
	if news, _ := r.passes.Take(r.edge.up.seen, &g.Passes); news {
		r.dirty = true
	}
	r.life.full = g.Life
	r.foresee()
	if g.View != nil {
		anew := r.view == nil || r.view.Rounds.Newest() != g.View.Rounds.Newest()
		r.noteCalled(r.edge.at(now).time)
		if r.view = g.View; anew {
			r.held.order(&r.Room, r.view)
		}
		r.dirty = r.dirty || len(r.held.visits) > 0 && len(r.view.Rounds) > 0
	}
	if t, rate := r.permits.surplus(now, false); t+rate+r.passes.Surplus(false) > 0 {
		// Another edge wants them. Held visitors are served first: the report follows Release.
		r.edge.reportSoon(now)
	}
}

// forget drops sessions and marks that the regional has taken and every live edge has reported past.
func (r *roomState) forget(watermark fleettime.Time) {
	acked := r.edge.up.acked
	r.sessions.forget(watermark)
	r.moves.acked(acked)
	r.ends.Acked(acked)
	r.tickets.found.Acked(acked)
	r.ended.forget(watermark)
}

// revive begins a new lease epoch after a lapse: the regional has our exact counts. Permits of T stay valid.
// Permits of R remain in the old epoch, where they age.
func (e *Engine) revive(now fleettime.Mono, leaseEpoch uint64) {
	l := &e.up
	l.leaseEpoch, l.retired, l.leaseEnd = leaseEpoch, false, 0
	for _, r := range e.order {
		r.permits.rate.moveTo(&r.permits.past, now)
		r.dirty, r.ceiling.stale = true, true
	}
}

// restart starts a new instance: the regional has forgotten this one, and all its permits have expired.
func (e *Engine) restart(now fleettime.Mono) {
	l := &e.up
	l.loseLease(now)
	e.past = e.Instances()
	e.unsnapshot()
	l.newInstance(e.cfg.Rand)
	for _, r := range e.order {
		r.permits.reset(now)
		r.passes = wire.Hand{}
		r.sessions, r.moves = sessions{}, moveLog{first: 1}
		r.ends.Again()
		r.tickets.found.Again()
		r.dirty, r.changedAt, r.tellsAt = true, 0, 0
	}
	l.reportSoon(now, 0)
}

// rejoined records that the edge has a lease again.
func (e *Engine) rejoined() {
	again := e.up.alone != 0
	e.up.alone = 0
	for _, r := range e.order {
		r.alone.guests = 0
		if again {
			r.alone.letInNow = 0
		}
	}
}
