package admission

import (
	"cmp"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Apply applies a grant of the regional. It ignores a grant of a lower term, of another instance or lease epoch, or
// older than one already applied. The caller then calls Release.
func (e *Engine) Apply(now fleettime.Mono, g wire.Grant) {
	fresh, complete := e.edge.receive(now, &g)
	if !fresh {
		return
	}
	for _, r := range e.Rooms.order { // also of a regional that does not lend
		r.forwarded.settle(cmp.Or(g.Forwarded, g.Acked))
	}
	for i := range g.Rooms { // valid under every lease epoch: the grant is acknowledged
		if r := e.Rooms.byID[g.Rooms[i].Room]; r != nil {
			r.account.applyTicketFacts(now, &g.Rooms[i])
			if g.Rooms[i].Drop {
				e.Rooms.drop(now, r)
			}
		}
	}
	if !e.applyHandshake(now, &g) {
		return
	}
	l := e.up
	l.joined, l.standing = true, g.Standing
	if complete {
		e.Snapshots.hear(&g)
	}
	if g.ClusterID != 0 {
		l.clusterID = g.ClusterID
	}
	for i := range g.Rooms { // a room that is not in our set yet is repeated until we report it
		if r := e.Rooms.byID[g.Rooms[i].Room]; r != nil && !g.Rooms[i].Drop {
			r.applyGrant(now, &g.Rooms[i])
		}
	}
	if complete && l.extend(now, &g) { // only after every restriction in the grant
		for _, r := range e.Rooms.order {
			if r.account.alone.guests = 0; l.alone != 0 {
				r.account.alone.letInNow = 0
			}
		}
		l.alone = 0
	}
	for _, r := range e.Rooms.order {
		r.account.forget(g.Watermark)
	}
}

// applyHandshake handles the verdict of a grant and reports whether the rest of the grant applies.
func (e *Engine) applyHandshake(now fleettime.Mono, g *wire.Grant) bool {
	l := e.up
	switch g.Handshake {
	case wire.Promise:
		return false
	case wire.Dead: // the regional has forgotten this instance, and all its permits have expired
		l.loseLease(now)
		l.past = l.instances()
		e.Snapshots.reset()
		l.newInstance(e.edge.cfg.Rand)
		for _, r := range e.Rooms.order {
			r.account.restart(now)
			r.dirty, r.changedAt, r.forwarded.at = true, 0, 0
		}
		l.reportSoon(now, 0)
		return false
	case wire.Fenced, wire.Adopted:
	default:
		return false // unknown verdict of a newer version: ignore the rest
	}
	if g.LeaseEpoch > l.leaseEpoch && l.retired {
		// The regional has our exact counts. Permits of T stay valid; those of R remain in the old epoch, where they age.
		l.leaseEpoch, l.retired, l.leaseEnd = g.LeaseEpoch, false, 0
		for _, r := range e.Rooms.order {
			r.account.permits.rate.moveTo(&r.account.permits.past, now)
			r.dirty, r.account.ceiling.stale = true, true
		}
	}
	if g.Handshake == wire.Fenced { // we never received this lease epoch, and cannot act under it any more
		l.retire(now)
		e.edge.reportSoon(now)
		return false
	}
	return g.LeaseEpoch == l.leaseEpoch && !l.retired
}

// applyGrant applies the permits, the ticket life and the view of a grant.
func (r *roomState) applyGrant(now fleettime.Mono, g *wire.RoomGrant) {
	a, l := &r.account, &r.line
	if a.permits.applyGrant(g) {
		r.dirty = true // report our state
	}
	if news, _ := a.passes.Take(r.edge.up.seen, &g.Passes); news {
		r.dirty = true
	}
	a.life.full = g.Life
	a.ceiling.foresee(&r.edge.snapshots, a.likely(len(l.held.visits)), g.Life)
	if g.View != nil {
		anew := l.view == nil || l.view.Rounds.Newest() != g.View.Rounds.Newest()
		l.noteCalled(r.edge.clock.at(now).time)
		if l.view = g.View; anew {
			l.held.order(&r.settings, l.view)
		}
		r.dirty = r.dirty || len(l.held.visits) > 0 && len(l.view.Rounds) > 0
	}
	if t, rate := a.permits.surplus(now, false); t+rate+a.passes.Surplus(false) > 0 {
		// Another edge wants them. Held visitors are served first: the report follows Release.
		r.edge.reportSoon(now)
	}
}
