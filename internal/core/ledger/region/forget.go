package region

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
)

// The reasons for which an edge cannot be declared ended.
var (
	ErrReporting = errors.New("it reports, so it has not ended")
	ErrHeard     = errors.New("it may have been heard within its lease, by this aggregator or the one before")
	ErrUnknown   = errors.New("no silent process has this name")
	ErrReplaced  = errors.New("this aggregator has lost leadership: try again in a few seconds")
	ErrTimeless  = errors.New("this aggregator does not know fleet time yet: try again in a few seconds")
)

// Forgotten is the result of declaring edges ended.
type Forgotten struct {
	Instances []uint64      // instances that were declared ended
	Sessions  int64         // sessions that still count, in all rooms
	Within    time.Duration // time until none of them counts
}

// silentNames returns the names of silent edges for an error, "" for none.
func (r *roster) silentNames() string {
	var names []string
	for _, e := range r.edges {
		if e.state != left && !e.reporting() && !slices.Contains(names, e.name) && len(names) < 8 {
			names = append(names, e.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; silent are: " + strings.Join(names, ", ")
}

// Forget declares, on an operator's word, that an edge has ended: the given instance; all silent instances of the
// name if instance is 0; or every edge that does not report if the name is empty, also unknown edges.
//
// Tickets that the edge stamped under partition_policy serve may have been renewed a moment ago, and count until they
// would expire then; with over, those of edges of a predecessor count no more. So does overcommit of the edge. If the
// edge is alive after all, its later sessions come on top of the limit, and count once it reports. An edge of a
// predecessor is waited for no less than before, but no longer than an ended one. Forget returns one of the errors above
// if no edge can be declared ended.
func (a *Aggregator) Forget(now fleettime.Mono, name string, instance uint64, over bool) (Forgotten, error) {
	var out Forgotten
	if !a.leads(now) {
		return out, fmt.Errorf("forget %s: %w", name, ErrReplaced)
	}
	a.advance(now)
	heard := false
	if !a.clock.synced(now) {
		return out, fmt.Errorf("forget %s: %w", name, ErrTimeless)
	}
	latest := a.lifecycle.latest(now)
	for _, e := range a.roster.edges {
		if (name != "" && e.name != name) || (instance != 0 && e.instance != instance) {
			continue
		}
		switch recently := now.Sub(e.receivedAt) <= a.lifecycle.lapseAfter(); {
		case e.state == left:
			continue // it has ended already
		case recently && e.reporting():
			heard = true
			continue
		case recently:
			wait := a.lifecycle.lapseAfter() - now.Sub(e.receivedAt)
			return out, fmt.Errorf("forget %s: %w: try again in %v", name, ErrHeard, wait.Round(time.Second)+time.Second)
		}
		e.declaredEnded, e.contradicted, e.endedAtGrant = true, false, 0 // its reports contradict earlier words alone
		a.roster.markEnded(e, latest)
		switch {
		case over && e.missing():
			for _, acc := range e.accounts {
				acc.reserved = reserved{}
				acc.ledger.dirty, acc.ledger.stale = true, true
			}
			a.lifecycle.silence.holdUntil, e.reservedLost, e.ceilings = 0, false, nil
			e.become(left)
			a.lifecycle.storeEnded(e)
		case e.ended == 0 && e.missing():
			a.lifecycle.endedNow(now, e)
		}
		out.Instances = append(out.Instances, e.instance)
		for _, acc := range e.accounts {
			out.Sessions += acc.reserved.count(&acc.ledger.counts)
		}
	}
	for _, instance := range a.rooms.endOvercommit(now, &a.roster, name, instance, latest) {
		if !slices.Contains(out.Instances, instance) {
			out.Instances = append(out.Instances, instance)
		}
	}
	switch {
	case len(out.Instances) > 0 || name == "":
	case heard:
		return out, fmt.Errorf("forget %s: %w", name, ErrReporting)
	default:
		return out, fmt.Errorf("forget %s: %w%s", name, ErrUnknown, a.roster.silentNames())
	}
	a.advance(now)
	out.Within = a.rooms.longestLife(now) + 3*time.Second
	for _, w := range a.Waits(now) {
		if w.Closed && w.Until > 0 {
			out.Within = max(out.Within, w.Until.Sub(a.clock.Now(now)))
		}
	}
	a.rooms.markAllStale()
	a.due = now
	return out, nil
}
