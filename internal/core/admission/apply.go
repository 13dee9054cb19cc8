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
		r.told.settle(cmp.Or(g.Told, g.Acked))
	}
	for i := range g.Rooms { // valid under every lease epoch: the grant is acknowledged
		if r := e.rooms[g.Rooms[i].Room]; r != nil {
			r.account.applyTicketFacts(now, &g.Rooms[i])
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
		r.account.forget(g.Watermark)
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
		l.noteCalled(r.edge.at(now).time)
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

// revive begins a new lease epoch after a lapse: the regional has our exact counts. Permits of T stay valid.
// Permits of R remain in the old epoch, where they age.
func (e *Engine) revive(now fleettime.Mono, leaseEpoch uint64) {
	l := &e.up
	l.leaseEpoch, l.retired, l.leaseEnd = leaseEpoch, false, 0
	for _, r := range e.order {
		r.account.permits.rate.moveTo(&r.account.permits.past, now)
		r.dirty, r.account.ceiling.stale = true, true
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
		r.account.restart(now)
		r.dirty, r.changedAt, r.told.at = true, 0, 0
	}
	l.reportSoon(now, 0)
}

// rejoined records that the edge has a lease again.
func (e *Engine) rejoined() {
	again := e.up.alone != 0
	e.up.alone = 0
	for _, r := range e.order {
		r.account.alone.guests = 0
		if again {
			r.account.alone.letInNow = 0
		}
	}
}
