package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// rights are the permits of T and of R that the regional lends the edge in a room, and how many
// sessions the edge may renew before it has reported them.
//
// Invariants: sessions.Returned+spent <= sessions.Granted; renewed <= renewCeil under a lease.
type rights struct {
	sessions wire.Allocation // of T
	spent    uint64          // of those

	rate rateRights // of R
	past rateRights // of R, used under tenures that are over

	renewed, renewCeil uint64
	renewedSaid        uint64 // by the last report

	demand demand
	want   uint64 // what the last report said
}

// credit returns the unspent permits of T.
func (r *rights) credit() uint64 { return r.sessions.Unused(r.spent) }

// low reports whether half of what was wanted is spent: more is to be here before
// there is none.
func (r *rights) low() bool { return r.credit() <= r.want/2 }

// wants takes the demand since it was asked last; it reports whether that changes what
// the regional is to be told.
func (r *rights) wants(now fleettime.Mono, p *wire.Params) bool {
	want := r.demand.sampleAt(now, p.ReportFast)
	changed := want != r.want
	r.want = want
	return changed
}

// mayRenew reports whether one more renewal keeps the promise to report no
// more than was allowed in advance.
func (r *rights) mayRenew(leased, capped bool) bool {
	if leased {
		return r.renewed < r.renewCeil
	}
	return !capped // isolated: the regional keeps our sessions counted until it hears of us
}

// nearCeiling reports whether half of the renewals are made that may be made before
// the regional answers.
func (r *rights) nearCeiling() bool {
	return r.renewed+max(2, r.renewed-r.renewedSaid) >= r.renewCeil
}

// surplus returns the unused permits beyond the idle targets; all unused ones where none may be
// kept.
func (r *rights) surplus(now fleettime.Mono, none bool) (sessions, rate uint64) {
	sessions, rate = r.credit(), r.rate.idle(now)
	if none {
		return sessions, rate
	}
	return r.sessions.Surplus(sessions), r.rate.Surplus(rate)
}

// giveBack returns the surplus to the regional. It reports whether there was any.
func (r *rights) giveBack(now fleettime.Mono, none bool) (any bool) {
	sessions, rate := r.surplus(now, none)
	r.sessions.Returned += sessions
	r.rate.Returned += rate
	return sessions+rate > 0
}

// take applies a grant. It reports whether the grant lends more than before.
func (r *rights) take(g *wire.RoomGrant) (more bool) {
	moreT, _ := r.sessions.Apply(g.Permits.Sessions)
	moreR, _ := r.rate.Apply(g.Permits.Rate)
	more = moreT || moreR || g.RenewCeil > r.renewCeil
	r.renewCeil = max(r.renewCeil, g.RenewCeil)
	return more
}

// tell writes the permits and renewals into a report.
func (r *rights) tell(now fleettime.Mono, out *wire.RoomReport) {
	r.renewedSaid = r.renewed
	out.Permits = wire.Permits{Sessions: r.sessions.Told(), Rate: r.rate.Told()}
	out.Spent, out.RateIdle, out.RateOwed = r.spent, r.rate.idle(now), r.past.owed(now)
	out.Renewed, out.RenewCeil = r.renewed, r.renewCeil
	out.Want = r.want
}

// reborn begins without permits, as a new incarnation does. Permits of R that are in use stay busy
// in past.
func (r *rights) reborn(now fleettime.Mono) {
	r.sessions.Reset()
	r.spent = 0
	r.renewed, r.renewCeil, r.renewedSaid = 0, 0, 0
	r.rate.owe(&r.past, now)
}
