package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// rights are what the regional lends the edge in a room: rights of T and of R, and
// how many sessions it may renew before it has told of them.
//
// Invariants: returned+spent <= granted; renewed <= renewCeil under a lease.
type rights struct {
	granted, spent, returned uint64 // of T
	keep                     uint64

	rate     rateRights // of R
	past     rateRights // of R, used under tenures that are over
	rateKeep uint64

	renewed, renewCeil uint64
	renewedSaid        uint64 // by the last report

	demand demand
	want   uint64 // what the last report said
}

// credit returns the rights of T in hand.
func (r *rights) credit() uint64 { return sub(r.granted, r.spent+r.returned) }

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

// giveBack returns the rights that are not to be kept, none where none is true. It
// reports whether there were any.
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

// take takes what the regional lends. It reports whether that is more than before.
func (r *rights) take(g *wire.RoomGrant) (more bool) {
	more = g.Granted > r.granted || g.RateGranted > r.rate.granted || g.RenewCeil > r.renewCeil
	r.granted = max(r.granted, g.Granted)
	r.rate.granted = max(r.rate.granted, g.RateGranted)
	r.renewCeil = max(r.renewCeil, g.RenewCeil)
	r.keep, r.rateKeep = g.Keep, g.RateKeep
	return more
}

// surplus reports whether more is in hand than is to be kept.
func (r *rights) surplus(now fleettime.Mono) bool {
	return r.credit() > r.keep || r.rate.idle(now) > r.rateKeep
}

// tell writes into a report what became of the rights.
func (r *rights) tell(now fleettime.Mono, out *wire.RoomReport) {
	r.renewedSaid = r.renewed
	out.Granted, out.Returned, out.Spent = r.granted, r.returned, r.spent
	out.RateGranted, out.RateReturned, out.RateIdle = r.rate.granted, r.rate.returned, r.rate.idle(now)
	out.RateOwed = r.past.owed(now)
	out.Renewed, out.RenewCeil = r.renewed, r.renewCeil
	out.Want = r.want
}

// reborn begins with nothing, as a new incarnation does. Rights of R stay behind, where
// they age.
func (r *rights) reborn(now fleettime.Mono) {
	r.granted, r.spent, r.returned = 0, 0, 0
	r.renewed, r.renewCeil, r.renewedSaid = 0, 0, 0
	r.rate.owe(&r.past, now)
}
