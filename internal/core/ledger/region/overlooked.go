package slots

import (
	"fmt"

	"vestibule/internal/fleet"
)

// Overlooked returns what the aggregator would have to tell or to give back and does
// not see, because it looks only at what changed; "" for nothing. It is to be called
// after Grants and, where a report was just made, with reported.
func Overlooked(a *Aggregator, now fleet.Mono, reported bool) string {
	for _, b := range a.rooms.list {
		if n, rate := a.bearings(now).surplus(b); reported && (n > 0 || rate > 0) {
			return fmt.Sprintf("%d and %d rights of room %x are not given back", n, rate, uint64(b.ID))
		}
	}
	for _, e := range a.roster.edges {
		listed := map[*account]bool{}
		for _, acc := range e.open {
			listed[acc] = true
		}
		n := 0
		for id, b := range a.rooms.byID {
			acc := b.of(e)
			if acc == nil {
				continue
			}
			n++
			if acc.open != listed[acc] || acc.edge != e || acc.books != b {
				return fmt.Sprintf("%s, room %x: open %v, listed %v", e.name, uint64(id), acc.open, listed[acc])
			}
			if !acc.open && (acc.unsaid || acc.unshown || acc.changedAt > e.acked || acc.viewAt > e.acked || acc.ends.Len() > 0) {
				return fmt.Sprintf("%s is not told of room %x", e.name, uint64(id))
			}
			if acc.silent && (e.state == alive || e.state == joining) {
				return fmt.Sprintf("%s is heard and presumed silent in room %x", e.name, uint64(id))
			}
		}
	}
	return ""
}

func init() {
	impossible = func(e *edge, to edgeState) {
		panic(fmt.Sprintf("%s %x is %s and cannot become %s", e.name, e.inc, edgeStates[e.state], edgeStates[to]))
	}
}
