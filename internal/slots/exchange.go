package slots

import (
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/line"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// This file is what the books of a room tell global, and what they take from it.

// report returns what global is to be told of the room.
func (b *books) report(now fleet.Mono, free, rateFree int64) wire.RoomReport {
	t := b.tally()
	idle, ridle := b.idle()
	r := wire.RoomReport{
		Room: b.ID, Gen: b.gen, Reconstructed: b.reconstructed,
		Granted: b.granted, Returned: b.returned,
		RateGranted: b.rateGranted, RateReturned: b.rateReturned,
		Idle:     uint64(max(0, free) + idle),
		RateIdle: uint64(max(0, rateFree) + ridle),
		Active:   t.active,
		Admitted: t.admitted, Joined: t.joined, Entered: t.entered,
		Excess: uint64(b.excess()), Outcomes: t.outcomes,
	}
	var few struct { // mostly there are no more edges: no garbage
		lines, pending [8]line.Histogram
		heldJoined     [8][]fleet.Time
	}
	lines, pending, heldJoined := few.lines[:0], few.pending[:0], few.heldJoined[:0]
	var absent []line.Histogram
	some := false
	for _, acc := range b.accounts {
		if acc.edge.state != alive {
			if acc.report != nil {
				absent = append(absent, remaining(acc.report.Waiting, now.Sub(acc.edge.recv)))
			}
			continue
		}
		some = true
		r.Want += acc.want
		r.HeldPeople += acc.heldPeople
		r.Movers += acc.movers
		pending = append(pending, acc.pending(acc.edge.asOf))
		heldJoined = append(heldJoined, acc.heldJoined)
		if acc.report != nil {
			lines = append(lines, acc.report.Waiting)
			for _, m := range acc.report.Arrivals {
				r.Arrivals = addMinute(r.Arrivals, m)
			}
		}
	}
	r.HeldJoined = mergeTimes(heldJoined, wire.MaxHeld)
	r.Pending = line.Sum(pending...).Compact(wire.MaxSlices)
	r.Unseen = max(0, r.Pending.Total())
	if some { // else nobody is let in here
		// Told of like who is expected, and not called: they are not there.
		r.Pending = line.Sum(append(absent, r.Pending)...).Compact(wire.MaxSlices)
	}
	b.waiting = line.Sum(lines...).Clamp().Compact(wire.MaxSlices)
	r.Waiting = b.waiting
	b.flow.sample(now, &t, b.waiting.Total())
	slices.SortFunc(r.Arrivals, func(x, y wire.Minute) int { return int(x.Start - y.Start) })
	if n := len(r.Arrivals); n > wire.MaxMinutes {
		r.Arrivals = r.Arrivals[n-wire.MaxMinutes:]
	}
	return r
}

// addMinute adds the visitors of m to the few minutes that there are.
func addMinute(minutes []wire.Minute, m wire.Minute) []wire.Minute {
	for i := range minutes {
		if minutes[i].Start == m.Start {
			minutes[i].N += m.N
			return minutes
		}
	}
	return append(minutes, m)
}

// giveBack returns so many rights of T and of R to global; none where that is not positive.
func (b *books) giveBack(t, rate int64) {
	if t > 0 {
		b.returned += uint64(t)
		b.dirty = true
	}
	if rate > 0 {
		b.rateReturned += uint64(rate)
		b.dirty = true
	}
}

// apply takes what global said of the room. It reports whether global is to hear of us soon.
func (b *books) apply(from wire.Term, g *wire.RoomGrant) (hurry bool) {
	b.takePasses(from, &g.Passes)
	if g.Gen < b.gen {
		return false // of books that were voided since
	}
	if g.Gen > b.gen {
		// Global has given our rights to others, long after it had last heard
		// of us. Sessions that still exist are more than we hold now; nothing
		// is granted until they have gone.
		if b.reconstructed = false; !mutant.On(mutant.VoidAgain) {
			b.gen = g.Gen
		}
		b.granted, b.returned, b.rateGranted, b.rateReturned = 0, 0, 0, 0
		b.dirty = true
	}
	if b.reconstructed && g.Confirmed {
		b.reconstructed, b.dirty = false, true
	}
	if g.Granted > b.granted || g.RateGranted > b.rateGranted {
		b.dirty = true
	}
	b.granted = max(b.granted, g.Granted)
	b.rateGranted = max(b.rateGranted, g.RateGranted)
	hurry = g.Keep < b.keep || g.RateKeep < b.rateKeep // somebody else wants what lies idle here
	b.keep, b.rateKeep = g.Keep, g.RateKeep
	b.stale = true
	for _, end := range g.Ends {
		b.end(end, false)
	}
	if g.View != nil {
		b.show(g.View)
	}
	return hurry
}

// adopt takes the books that global has of the room, as ours are lost.
func (b *books) adopt(g *wire.RoomGrant) {
	b.gen, b.reconstructed = g.Gen, !g.Confirmed
	b.granted, b.returned = g.Granted, g.Returned
	b.rateGranted, b.rateReturned = g.RateGranted, g.RateReturned
	b.dirty, b.stale = true, true
}

// reconstruct makes books out of what the edges hold and count: nobody knows how
// much was lent. They cover every session and every right at an edge, so global
// lends no more than T and R beside them. But they cover what is only presumed
// as well, and doubles, and so may be more than was ever lent: until global has
// seen that all books together keep the limits, nothing in them is used twice.
func (b *books) reconstruct() {
	credit, rate := b.lent()
	rate += b.ratePresumed()
	b.granted, b.returned = uint64(max(0, b.active()+credit)), 0
	b.rateGranted, b.rateReturned = uint64(rate), 0
	b.reconstructed = true
	b.dirty, b.stale = true, true
}

// expire voids the books of a room under partition_policy cap once the data
// centre has been without its lease for so long that none of its sessions can
// be valid: global reclaims the rights a little later, and a new leader of it
// may not know.
func (b *books) expire(now, leaseEnd fleet.Mono, edgeLease time.Duration) {
	if !b.Cap || leaseEnd == 0 || b.held() <= 0 {
		return
	}
	life := max(time.Duration(b.longest(now))*time.Second, wire.RateWindow)
	// Its edges stopped one edge lease after ours ended; two seconds are for
	// the rounding of expiry and for clocks that are wrong as far as they may.
	if now.Sub(leaseEnd) < fleet.Stretch(edgeLease+life+2*time.Second) {
		return
	}
	b.returned, b.rateReturned = b.granted, b.rateGranted
	b.dirty, b.stale = true, true
}
