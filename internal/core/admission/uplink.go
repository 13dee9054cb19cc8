package admission

import (
	"math/rand/v2"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// uplink is the edge's session with the regional.
//
// Invariants: seen never returns to a lower term; a lapsed lease stays lapsed for its epoch; nothing is admitted
// while retired.
type uplink struct {
	past       []uint64 // ended instances before this one, newest last
	instance   uint64   // instance ID of the process, or its replacement after the regional forgot it
	leaseEpoch uint64   // lease epoch within instance, from 1
	seq        uint64   // of the newest report

	seen   wire.Term  // the parent that we promised to follow
	joined bool       // seen has accepted us
	grants wire.Parts // of seen
	acked  uint64     // newest report that seen received completely

	standing  wire.Standing // membership state of the data centre, as reported by seen
	clusterID uint64        // cluster ID of the data centre, for an aggregator that lost its store

	leaseEnd fleettime.Mono // 0 before the first lease of the epoch
	retired  bool           // the lease of the epoch has lapsed
	leaving  bool           // the process is about to exit
	bye      bool           // this is its last report
	alone    fleettime.Mono // since when the missing lease is known, 0 under a lease

	reported fleettime.Mono // time of the newest report
	due      fleettime.Mono // time of the next report
	busy     bool           // the newest report had changes, or a request is held

	twin bool // the regional receives reports of another process with our name

	parent wire.Reader // the regional
}

func (l *uplink) newInstance(rng *rand.Rand) {
	for l.instance = 0; l.instance == 0; {
		l.instance = rng.Uint64()
	}
	l.leaseEpoch, l.seq = 1, 0
	l.joined, l.acked = false, 0
	l.grants = wire.Parts{}
	l.leaseEnd, l.retired = 0, false
	l.twin = false
}

// instances returns the instance IDs, the current one last.
func (l *uplink) instances() []uint64 {
	return fleettime.Newest(append(slices.Clone(l.past), l.instance))
}

// check retires an expired lease, and reports whether the edge may use its permits at now. A lapsed lease stays
// lapsed even if the clock steps back.
func (l *uplink) check(now fleettime.Mono) bool {
	if l.leaseEnd != 0 && now >= l.leaseEnd && !l.retired {
		l.retire(now)
	}
	return l.leaseEnd != 0 && !l.retired
}

// leased reports whether the edge may use its permits at now. Unlike check it has no side effects.
func (l *uplink) leased(now fleettime.Mono) bool {
	return l.leaseEnd != 0 && !l.retired && now < l.leaseEnd
}

// retire ends the lease and its epoch.
func (l *uplink) retire(now fleettime.Mono) {
	l.retired = true
	l.loseLease(now)
}

// extend applies the lease of a grant, which begins when the answered report was sent. It reports whether the edge
// has a lease now.
func (l *uplink) extend(now fleettime.Mono, g *wire.Grant) bool {
	if g.Lease <= 0 || g.Echo == 0 {
		return false
	}
	from := g.Echo
	l.leaseEnd = max(l.leaseEnd, from.Add(fleettime.Shrink(g.Lease)))
	return now < l.leaseEnd
}

// loseLease records that there is no lease from now on. The time of the detection counts, so that a suspended process
// does not count as isolated for the whole time.
func (l *uplink) loseLease(now fleettime.Mono) {
	if l.alone == 0 {
		l.alone = max(now, 1)
	}
}

// reportSoon schedules the next report as soon as the minimum gap allows.
func (l *uplink) reportSoon(now fleettime.Mono, gap time.Duration) {
	l.due = min(l.due, max(now, l.reported.Add(gap)))
}

// follow promises to follow the parent t. It returns false for a parent that must be ignored: one with a lower
// term, or another one with the same term.
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

// demand estimates how many permits visitors will use until the answer to the next report.
type demand struct {
	tries  uint64         // since at
	at     fleettime.Mono // of the last sample
	rate   float64        // per second, decaying
	sample float64        // per second, since the last sample
}

// demandDecay is the time constant of the decay of a burst.
const demandDecay = 2 * time.Second

// sampleAt ends the interval since the last call and returns the number of wanted permits: twice the demand of one
// fast report interval.
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
	if n < 0.05 { // less than one visitor in ten seconds: not worth an idle permit
		return 0
	}
	return uint64(n) + 1
}
