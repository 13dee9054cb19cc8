package region

import (
	"errors"
	"fmt"
	"time"

	"vestibule/internal/core/fleettime"
)

// The reasons for which an edge cannot be forgotten.
var (
	ErrReporting    = errors.New("it is heard, so it has not ended")
	ErrUnknown = errors.New("no silent process of that name is known")
	ErrReplaced = errors.New("this aggregator does not lead any more: ask again in some seconds")
	ErrTimeless = errors.New("this aggregator does not know the time yet: ask again in some seconds")
)

// Forgotten is the result of declaring edges ended.
type Forgotten struct {
	Instances []uint64      // instances that were declared ended
	Sessions  int64         // still counted, in all rooms
	Within    time.Duration // after which none of them counts any more
}

// Forget declares on an operator's word that an edge has ended: the instance instance, or with
// 0 all silent instances of the name, or with an empty name every edge that is not heard, also
// edges that nothing stored knows. Tickets that it stamped under partition_policy serve may be
// valid for as long as if they had been renewed a moment ago, and count until then. If the edge is
// alive after all, its sessions beyond that are reported as overcommit until it is heard. An edge that
// a new aggregator still waits for is waited for no less, but no longer than one that has ended.
// It returns one of the errors above where nothing can be forgotten: an edge that is heard has not
// ended.
func (a *Aggregator) Forget(now fleettime.Mono, name string, instance uint64) (Forgotten, error) {
	var out Forgotten
	if !a.leads(now) {
		return out, fmt.Errorf("forget %s: %w", name, ErrReplaced)
	}
	a.advance(now)
	heard := false
	if !a.clock.synced(now) {
		return out, fmt.Errorf("forget %s: %w", name, ErrTimeless)
	}
	for _, e := range a.roster.edges {
		if (name != "" && e.name != name) || (instance != 0 && e.instance != instance) {
			continue
		}
		switch {
		case e.reporting():
			heard = true
			continue
		case e.state == left:
			continue // it has ended as far as we are concerned
		}
		e.declaredEnded = true
		a.roster.markEnded(e, a.lifecycle.latest(now))
		if e.ended == 0 && e.missing() {
			a.lifecycle.endedNow(now, e)
		}
		out.Instances = append(out.Instances, e.instance)
		for b, acc := range a.rooms.accounts(e) {
			out.Sessions += acc.reserved.count(&b.counts)
		}
	}
	switch {
	case len(out.Instances) > 0 || name == "":
	case heard:
		return out, fmt.Errorf("forget %s: %w", name, ErrReporting)
	default:
		return out, fmt.Errorf("forget %s: %w", name, ErrUnknown)
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
