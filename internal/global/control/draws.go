package control

import (
	"fmt"
	"slices"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/room"
)

// leastDraw is the minimum time until an event with a new draw: the commit must be public before entries close.
const leastDraw = draw.Lead + 30*time.Second

const shuffleKey = "shuffle_at_event_start"

// drawRules decides which events may begin with a draw.
type drawRules struct{ clock }

// judge adds the reason, if any, why the given event cannot begin with a draw; see of.
func (d *drawRules) judge(g *givenEvent, old *room.Event) {
	if g.bad[shuffleKey] {
		return
	}
	if rule := d.of(&g.event, old); rule != "" {
		g.faults.add("/"+shuffleKey, "%s %s", shuffleKey, rule)
	}
}

// of returns the rule that forbids e a draw, "" for none; old is the event before, or nil. An announced draw is not
// checked again.
func (d *drawRules) of(e, old *room.Event) string {
	if !e.Shuffle || old != nil && old.Shuffle && old.Start == e.Start && (e.Suspended || !old.Suspended) {
		return ""
	}
	if left := time.Duration(e.Start-d.fleet()) * time.Millisecond; e.Start != 0 && left < leastDraw {
		return fmt.Sprintf("must be false where the event starts in less than %s: entries close %s before the start, and the draw is announced before that",
			leastDraw, draw.Lead)
	}
	return ""
}

// ofRoom returns the faults of new draws in the events of a room; old is the room before, or nil. Past events pass:
// they may come with an import or a restore.
func (d *drawRules) ofRoom(item string, r, old *room.Settings) (faults room.Faults) {
	for i := range r.Events {
		e, before := &r.Events[i], (*room.Event)(nil)
		if e.End <= d.fleet() {
			continue
		}
		if old != nil {
			if j := slices.IndexFunc(old.Events, func(o room.Event) bool { return o.ID == e.ID }); j >= 0 {
				before = &old.Events[j]
			}
		}
		if rule := d.of(e, before); rule != "" {
			faults = append(faults,
				room.Fault{Item: item, Name: r.Name, Field: fmt.Sprintf("events[%d].%s", i, shuffleKey), Rule: rule})
		}
	}
	return faults
}
