package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// permits are the permits that the regional granted for a room, of T and of R, and how many unreported renewals it
// allows.
//
// Invariants: sessions.Returned+spent <= sessions.Granted; renewed <= renewCeil under a lease.
type permits struct {
	sessions wire.Allocation // of T
	spent    uint64          // of those

	rate ratePermits // of R
	past ratePermits // of R, used in past lease epochs

	renewed, renewCeil uint64
	renewedSaid        uint64 // in the last report

	demand demand
	want   uint64 // in the last report
}

// credit returns the unspent permits of T.
func (r *permits) credit() uint64 { return r.sessions.Unused(r.spent) }

// low reports whether half of the wanted permits are spent: time to refill.
func (r *permits) low() bool { return r.credit() <= r.want/2 }

// wants samples the demand. It reports whether the wanted number changed.
func (r *permits) wants(now fleettime.Mono, p *wire.Params) bool {
	want := r.demand.sampleAt(now, p.ReportFast)
	changed := want != r.want
	r.want = want
	return changed
}

// mayRenew reports whether one more renewal stays within the allowance for unreported renewals.
func (r *permits) mayRenew(leased, capped bool) bool {
	if leased {
		return r.renewed < r.renewCeil
	}
	return !capped // isolated: the regional counts our sessions until it receives a report
}

// nearCeiling reports whether half of the unreported renewals are used.
func (r *permits) nearCeiling() bool {
	return r.renewed+max(2, r.renewed-r.renewedSaid) >= r.renewCeil
}

// surplus returns the unused permits beyond the idle targets; all unused ones where none may be
// kept.
func (r *permits) surplus(now fleettime.Mono, none bool) (sessions, rate uint64) {
	sessions, rate = r.credit(), r.rate.idle(now)
	if none {
		return sessions, rate
	}
	return r.sessions.Surplus(sessions), r.rate.Surplus(rate)
}

// giveBack returns the surplus to the regional. It reports whether there was any.
func (r *permits) giveBack(now fleettime.Mono, none bool) (any bool) {
	sessions, rate := r.surplus(now, none)
	r.sessions.Returned += sessions
	r.rate.Returned += rate
	return sessions+rate > 0
}

// applyGrant applies a grant. It reports whether it brought new permits.
func (r *permits) applyGrant(g *wire.RoomGrant) (more bool) {
	moreT, _ := r.sessions.Apply(g.Permits.Sessions)
	moreR, _ := r.rate.Apply(g.Permits.Rate)
	more = moreT || moreR || g.RenewCeil > r.renewCeil
	r.renewCeil = max(r.renewCeil, g.RenewCeil)
	return more
}

// addToReport adds the state of the permits to a report.
func (r *permits) addToReport(now fleettime.Mono, out *wire.RoomReport) {
	r.renewedSaid = r.renewed
	out.Permits = wire.Permits{Sessions: r.sessions.Reported(), Rate: r.rate.Reported()}
	out.Spent, out.RateIdle, out.RateOwed = r.spent, r.rate.idle(now), r.past.owed(now)
	out.Renewed, out.RenewCeil = r.renewed, r.renewCeil
	out.Want = r.want
}

// reset resets the permits for a new instance. Those of R stay behind, where they age.
func (r *permits) reset(now fleettime.Mono) {
	r.sessions.Reset()
	r.spent = 0
	r.renewed, r.renewCeil, r.renewedSaid = 0, 0, 0
	r.rate.moveTo(&r.past, now)
}
