package slots

import (
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/wire"
)

// clock is fleet time at an aggregator: from global, or as its edges tell it.
type clock struct {
	fleet.Clock
	started fleet.Mono // of the term
	guessed bool       // it is a guess of global's: it may be far from what it was
	guess   int64      // Unix second of it at which it was guessed
	probes  []probe    // grants sent before the time was known
	trips   trips      // of their answers
}

// learn learns fleet time from the edges where global has not told it yet,
// in the same way as a new leader of global does (see rootClock.learn).
func (c *clock) learn(now fleet.Mono, m *wire.Report) {
	if c.Bound(now) != fleet.Unsynced {
		c.probes = nil
		return
	}
	trip, ok := answered(c.probes, now, m)
	since := now.Sub(c.started)
	ok = ok && c.trips.usable(trip)
	if ok && (max(trip, m.AsOfBound) <= fleet.MaxError || (isSynced(m) && since > time.Second)) {
		c.Set(now, m.AsOf.Add(trip/2), trip/2+m.AsOfBound)
	}
}

// earliest returns what fleet time is at least, by a clock that may be wrong as
// far as it knows; ok is false for one that does not know at all.
func (c *clock) earliest(now fleet.Mono) (t fleet.Time, ok bool) {
	t, bound := c.Read(now)
	if bound == fleet.Unsynced {
		return 0, false
	}
	return t.Add(-bound), true
}

// past reports whether a second of fleet time is certainly over.
func (c *clock) past(now fleet.Mono, second int64) bool {
	ft, synced := c.earliest(now)
	return synced && ft.Second() > second
}

// ask remembers a grant where its answer may tell fleet time.
func (c *clock) ask(now fleet.Mono, seq uint64) {
	if !c.synced(now) {
		c.probes = remember(c.probes, probe{seq: seq, at: now})
	}
}

// synced reports whether fleet time is known.
func (c *clock) synced(now fleet.Mono) bool { return c.Bound(now) != fleet.Unsynced }

// hear takes the time that global tells. It reports whether that corrected a guess.
func (c *clock) hear(now fleet.Mono, g *wire.Grant) (corrected bool) {
	was, unknown := c.guessed, !c.synced(now)
	if !c.Sync(now, g.Echo, g.Dwell, g.At, g.AtBound) {
		return false
	}
	c.guessed = g.Guess && (unknown || was)
	return was && !c.guessed
}
