package region

import (
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// clock is fleet time at an aggregator, from global or from its edges.
type clock struct {
	fleettime.Clock
	started fleettime.Mono // of the term
	guessed bool           // global guessed it: it may differ much from the time before
	guess   int64          // Unix second of the guess
	probes  []ledger.Probe // grants sent before the time was known
	trips   ledger.Trips   // of their answers
}

// restore restores the time that the process knows, unless its uncertainty exceeds the one that every node allows
// for. Edges and global know it better then.
func (c *clock) restore(now fleettime.Mono, k fleettime.Known) {
	if k.Bound <= fleettime.MaxError {
		c.Restore(now, k)
	}
}

// past reports whether a second of fleet time is certainly over.
func (c *clock) past(now fleettime.Mono, second int64) bool {
	ft, synced := c.earliest(now)
	return synced && ft.Second() > second
}

// recordProbe records the number of a grant while fleet time is unknown: its answer may tell it.
func (c *clock) recordProbe(now fleettime.Mono, seq uint64) {
	if !c.synced(now) {
		c.probes = ledger.Remember(c.probes, ledger.Probe{Seq: seq, At: now})
	}
}

// synced reports whether fleet time is known.
func (c *clock) synced(now fleettime.Mono) bool { return c.Bound(now) != fleettime.Unsynced }

// syncFromGrant applies the time in a grant of global. It reports whether that corrected a guess.
func (c *clock) syncFromGrant(now fleettime.Mono, g *wire.Grant) (corrected bool) {
	was, unknown := c.guessed, !c.synced(now)
	if !c.Sync(now, g.Echo, g.Dwell, g.At, g.AtBound) {
		return false
	}
	c.guessed = g.Guess && (unknown || was)
	return was && !c.guessed
}

// estimateWritten learns fleet time from a report that arrives now, if needed. It returns the earliest time at which
// the report can have been written: long ago if either side does not know the time.
func (c *clock) estimateWritten(now fleettime.Mono, m *report) (wrote fleettime.Mono) {
	c.syncFromReport(now, m)
	ft, bound := c.Read(now)
	if bound == fleettime.Unsynced || !m.timed {
		return math.MinInt64 / 2
	}
	return now.Add(-max(0, ft.Add(max(bound, fleettime.MaxError)).Sub(m.earliest.Add(-fleettime.MaxError))))
}

// writtenBy returns the latest time at which a report was written: its arrival or, of the last report of a killed edge,
// that of the snapshot.
func (c *clock) writtenBy(now fleettime.Mono, m *report) fleettime.Mono {
	ft, ok := c.earliest(now)
	if !m.Settles || !m.timed || !ok || c.guessed {
		return now
	}
	return now.Add(-max(0, ft.Sub(m.latest.Add(fleettime.MaxError-wire.SnapshotLife))))
}

// syncFromReport learns fleet time from the edges until global has sent it, as a new leader of global does (see
// root.Allocator.SetTime).
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

// earliest returns the lower bound of fleet time; ok is false if it is unknown.
func (c *clock) earliest(now fleettime.Mono) (t fleettime.Time, ok bool) {
	t, bound := c.Read(now)
	if bound == fleettime.Unsynced {
		return 0, false
	}
	return t.Add(-bound), true
}

// prefersEdges reports whether a new aggregator should still wait for fleet time from its edges, for at most a lease,
// in which every live edge reports. The edges know it from before. A new leader of global may have no report yet and
// guess, and a guess ahead of fleet time would end valid sessions.
func (c *clock) prefersEdges(now fleettime.Mono, lease time.Duration, edges []*edge) bool {
	return !c.synced(now) && now.Sub(c.started) < lease &&
		slices.ContainsFunc(edges, func(e *edge) bool { return e.state == awaiting || (e.recovered && e.timed) })
}
