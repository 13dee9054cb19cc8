package admission

import (
	"math/rand/v2"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// uplink is the edge's side of its bond with the regional.
//
// Invariants: seen never goes back to a lower term; a lease that lapsed stays
// lapsed for its tenure; nothing is admitted while retired.
type uplink struct {
	inc    uint64 // this life of the process, or of what replaced it when it was forgotten
	tenure uint64 // of the lease within inc, from 1
	seq    uint64 // of the newest report

	seen   wire.Term  // the parent promised to
	joined bool       // seen has adopted us
	grants wire.Parts // of seen
	acked  uint64     // newest report that seen took whole

	standing wire.Standing // of the data centre in the fleet, as seen told
	site     uint64        // of the data centre, for an aggregator that lost its store
	copied   bool          // it may be a copy: sessions of its home are another's

	leaseEnd fleettime.Mono // 0 before the first lease of the tenure
	retired  bool           // the tenure's lease has lapsed
	leaving  bool           // the process was told to end
	alone    fleettime.Mono // since when it is known that there is no lease, 0 under one

	reported fleettime.Mono // when the newest report was made
	due      fleettime.Mono // when the next one is
	busy     bool           // something happened since the newest report

	twin bool // the regional hears another process that bears our name
}

func (l *uplink) born(rng *rand.Rand) {
	for l.inc = 0; l.inc == 0; {
		l.inc = rng.Uint64()
	}
	l.tenure, l.seq = 1, 0
	l.joined, l.acked = false, 0
	l.grants = wire.Parts{}
	l.leaseEnd, l.retired = 0, false
	l.twin = false
}

// check retires a lease that has ended, and reports whether the edge may act on its
// rights at now. A lease that has lapsed is never believed again, not even by a clock
// that went back.
func (l *uplink) check(now fleettime.Mono) bool {
	if l.leaseEnd != 0 && now >= l.leaseEnd && !l.retired {
		l.retire(now)
	}
	return l.leaseEnd != 0 && !l.retired
}

// leased reports whether the edge may act on its rights at now. It is for those
// who look on: unlike check it changes nothing.
func (l *uplink) leased(now fleettime.Mono) bool {
	return l.leaseEnd != 0 && !l.retired && now < l.leaseEnd
}

// retire ends the lease, and with it the tenure.
func (l *uplink) retire(now fleettime.Mono) {
	l.retired = true
	l.left(now)
}

// extend takes a lease that a grant gives, counted from the sending of the report that
// it answers. It reports whether the edge has a lease by it.
func (l *uplink) extend(now fleettime.Mono, g *wire.Grant) bool {
	if g.Lease <= 0 || g.Echo == 0 {
		return false
	}
	from := g.Echo
	l.leaseEnd = max(l.leaseEnd, from.Add(fleettime.Shrink(g.Lease)))
	return now < l.leaseEnd
}

// left notes that there is no lease from now on. The moment counts at which that
// is noticed, so that a process that stood still is not taken for one that was
// cut off all the while.
func (l *uplink) left(now fleettime.Mono) {
	if l.alone == 0 {
		l.alone = max(now, 1)
	}
}

// hurry makes the next report due as soon as the least gap allows.
func (l *uplink) hurry(now fleettime.Mono, gap time.Duration) {
	l.due = min(l.due, max(now, l.reported.Add(gap)))
}

// follow promises the parent t. It reports false for a parent that must not be
// listened to: one with a lower term, or another one with the same.
func (l *uplink) follow(t wire.Term) bool {
	if l.seen.Fences(t) {
		return false
	}
	if t != l.seen {
		l.seen = t
		l.joined, l.acked = false, 0
		l.grants = wire.Parts{}
	}
	return true
}

// demand estimates how many rights visitors will ask for until the next
// report can have been answered.
type demand struct {
	tries  uint64         // since at
	at     fleettime.Mono // of the last sample
	rate   float64        // per second, decaying
	sample float64        // per second, since the last sample
}

// demandDecay is how long a burst is remembered.
const demandDecay = 2 * time.Second

// sampleAt closes the interval since the last call and returns how many rights
// to ask for: twice what the demand of one fast report interval would use.
func (d *demand) sampleAt(now fleettime.Mono, interval time.Duration) uint64 {
	dt := now.Sub(d.at).Seconds()
	if dt <= 0 {
		return d.want(interval)
	}
	d.sample = float64(d.tries) / max(dt, interval.Seconds())
	keep := 1 / (1 + dt/demandDecay.Seconds())
	d.rate = d.rate*keep + float64(d.tries)/dt*(1-keep)
	d.tries, d.at = 0, now
	return d.want(interval)
}

func (d *demand) want(interval time.Duration) uint64 {
	n := 2 * max(d.rate, d.sample) * interval.Seconds()
	if n < 0.05 { // less than one visitor in ten seconds: not worth a right lying idle
		return 0
	}
	return uint64(n) + 1
}
