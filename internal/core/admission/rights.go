package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// rights are the permits that the regional granted for a room, of T and of R, and how many unreported renewals it
// allows.
//
// Invariants: returned+spent <= granted; renewed <= renewCeil under a lease.
type rights struct {
	granted, spent, returned uint64 // of T
	keep                     uint64

	rate     rateRights // of R
	past     rateRights // of R, used in past lease epochs
	rateKeep uint64

	renewed, renewCeil uint64
	renewedSaid        uint64 // in the last report

	demand demand
	want   uint64 // in the last report
}

// credit returns the unspent permits of T.
func (r *rights) credit() uint64 { return sub(r.granted, r.spent+r.returned) }

// low reports whether half of the wanted permits are spent: time to refill.
func (r *rights) low() bool { return r.credit() <= r.want/2 }

// wants samples the demand. It reports whether the wanted number changed.
func (r *rights) wants(now fleettime.Mono, p *wire.Params) bool {
	want := r.demand.sampleAt(now, p.ReportFast)
	changed := want != r.want
	r.want = want
	return changed
}

// mayRenew reports whether one more renewal stays within the allowance for unreported renewals.
func (r *rights) mayRenew(leased, capped bool) bool {
	if leased {
		return r.renewed < r.renewCeil
	}
	return !capped // isolated: the regional counts our sessions until it receives a report
}

// nearCeiling reports whether half of the unreported renewals are used.
func (r *rights) nearCeiling() bool {
	return r.renewed+max(2, r.renewed-r.renewedSaid) >= r.renewCeil
}

// giveBack returns the permits above the idle target, or all with none. It reports whether there were any.
func (r *rights) giveBack(now fleettime.Mono, none bool) (any bool) {
	keep, rateKeep := r.keep, r.rateKeep
	if none {
		keep, rateKeep = 0, 0
	}
	if n := sub(r.credit(), keep); n > 0 {
		r.returned += n
		any = true
	}
	if n := sub(r.rate.idle(now), rateKeep); n > 0 {
		r.rate.returned += n
		any = true
	}
	return any
}

// take applies a grant. It reports whether it brought new permits.
func (r *rights) take(g *wire.RoomGrant) (more bool) {
	more = g.Granted > r.granted || g.RateGranted > r.rate.granted || g.RenewCeil > r.renewCeil
	r.granted = max(r.granted, g.Granted)
	r.rate.granted = max(r.rate.granted, g.RateGranted)
	r.renewCeil = max(r.renewCeil, g.RenewCeil)
	r.keep, r.rateKeep = g.Keep, g.RateKeep
	return more
}

// surplus reports whether there are more unspent permits than the idle target.
func (r *rights) surplus(now fleettime.Mono) bool {
	return r.credit() > r.keep || r.rate.idle(now) > r.rateKeep
}

// tell adds the state of the permits to a report.
func (r *rights) tell(now fleettime.Mono, out *wire.RoomReport) {
	r.renewedSaid = r.renewed
	out.Granted, out.Returned, out.Spent = r.granted, r.returned, r.spent
	out.RateGranted, out.RateReturned, out.RateIdle = r.rate.granted, r.rate.returned, r.rate.idle(now)
	out.RateOwed = r.past.owed(now)
	out.Renewed, out.RenewCeil = r.renewed, r.renewCeil
	out.Want = r.want
}

// reborn resets the permits for a new instance. Those of R stay behind, where they age.
func (r *rights) reborn(now fleettime.Mono) {
	r.granted, r.spent, r.returned = 0, 0, 0
	r.renewed, r.renewCeil, r.renewedSaid = 0, 0, 0
	r.rate.owe(&r.past, now)
}
