package region

import (
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// clock is fleet time at an aggregator: from global, or as its edges tell it.
type clock struct {
	fleettime.Clock
	started fleettime.Mono // of the term
	guessed bool           // it is a guess of global's, which may differ much from the time before
	guess   int64          // Unix second of it at which it was guessed
	probes  []ledger.Probe // grants sent before the time was known
	trips   ledger.Trips   // of their answers
}

// restore restores the time that the process knows, where its uncertainty is no more than every node
// allows for. Else nodes that lived on know better: edges and global.
func (c *clock) restore(now fleettime.Mono, k fleettime.Known) {
	if k.Bound <= fleettime.MaxError {
		c.Restore(now, k)
	}
}

// Known returns fleet time for the data folder of the process; the zero value where it is not known, or
// is a guess for which nobody would wait after a restart.
func (a *Aggregator) Known(now fleettime.Mono) fleettime.Known {
	if a.clock.guessed && (a.clock.guess == 0 || a.stored.saved < a.stored.holdNeeds) {
		return fleettime.Known{}
	}
	return a.clock.Known(now)
}

// past reports whether a second of fleet time is certainly over.
func (c *clock) past(now fleettime.Mono, second int64) bool {
	ft, synced := c.earliest(now)
	return synced && ft.Second() > second
}

// recordProbe remembers a grant where its answer may tell fleet time.
func (c *clock) recordProbe(now fleettime.Mono, seq uint64) {
	if !c.synced(now) {
		c.probes = ledger.Remember(c.probes, ledger.Probe{Seq: seq, At: now})
	}
}

// synced reports whether fleet time is known.
func (c *clock) synced(now fleettime.Mono) bool { return c.Bound(now) != fleettime.Unsynced }

// syncFromGrant takes the time that global tells. It reports whether that corrected a guess.
func (c *clock) syncFromGrant(now fleettime.Mono, g *wire.Grant) (corrected bool) {
	was, unknown := c.guessed, !c.synced(now)
	if !c.Sync(now, g.Echo, g.Dwell, g.At, g.AtBound) {
		return false
	}
	c.guessed = g.Guess && (unknown || was)
	return was && !c.guessed
}

// estimateWritten learns fleet time from a report that comes now, where it is not known. It returns the earliest
// time at which the report can have been written: long ago where either side does not know the time.
func (c *clock) estimateWritten(now fleettime.Mono, m *report) (wrote fleettime.Mono) {
	c.syncFromReport(now, m)
	ft, bound := c.Read(now)
	if bound == fleettime.Unsynced || !m.timed {
		return math.MinInt64 / 2
	}
	return now.Add(-max(0, ft.Add(max(bound, fleettime.MaxError)).Sub(m.earliest.Add(-fleettime.MaxError))))
}

// syncFromReport learns fleet time from the edges where global has not told it yet,
// in the same way as a new leader of global does (see root.Allocator.SetTime).
func (c *clock) syncFromReport(now fleettime.Mono, m *report) {
	if c.Bound(now) != fleettime.Unsynced {
		c.probes = nil
		return
	}
	trip, ok := ledger.Answered(c.probes, now, m.Report)
	since := now.Sub(c.started)
	ok = ok && c.trips.Usable(trip)
	if ok && (max(trip, m.AsOfBound) <= fleettime.MaxError || (m.timed && since > time.Second)) {
		c.Set(now, m.AsOf.Add(trip/2), trip/2+m.AsOfBound)
	}
}

// earliest returns the earliest time that fleet time can be, by the clock's own uncertainty; ok is
// false for a clock that does not know the time.
func (c *clock) earliest(now fleettime.Mono) (t fleettime.Time, ok bool) {
	t, bound := c.Read(now)
	if bound == fleettime.Unsynced {
		return 0, false
	}
	return t.Add(-bound), true
}

// prefersEdges reports whether a new aggregator should still learn fleet time from its edges, for at most a lease, the
// time that a running edge may take to report. The edges know it from before, while a new leader of global may have
// heard nobody yet and only guess: a guess ahead of fleet time would end valid sessions.
func (c *clock) prefersEdges(now fleettime.Mono, lease time.Duration, edges []*edge) bool {
	return !c.synced(now) && now.Sub(c.started) < lease &&
		slices.ContainsFunc(edges, func(e *edge) bool { return e.state == awaiting || (e.recovered && e.timed) })
}
