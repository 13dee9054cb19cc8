package control

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
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
		return fmt.Sprintf("must be false where the event starts in less than %s: entries close %s before the start, and the draw is announced before that", leastDraw, draw.Lead)
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

// draw shows the draw of an event, also of a deleted one.
func (s *eventService) draw(_ context.Context, q *request) (any, error) {
	n := s.board().Latest(q.room(), q.event())
	if n == nil {
		return nil, errNotFound
	}
	return showDraw(n)
}

// showDraw returns the public part of a draw as the API shows it.
func showDraw(n *draw.Notice) (out api.Draw, err error) {
	at := func(t fleettime.Time) *time.Time {
		if t == 0 || t == draw.Never {
			return nil
		}
		m := moment(int64(t))
		return &m
	}
	out = api.Draw{
		RoomId:         n.Room,
		EventId:        n.Event,
		EventStartTime: moment(int64(n.Start)),
		ClosesOn:       moment(int64(n.Closes())),
		CommittedOn:    at(n.Committed),
		Beacon:         n.Beacon,
		Void:           n.Void,
		PublishedOn:    at(n.Published),
		OpensOn:        at(max(n.Start, n.Opens())),
	}
	if n.Committed != 0 {
		out.Commit = hex.EncodeToString(n.Commit[:])
	}
	if n.Drawn() != nil {
		out.Record = &map[string]any{}
		err = json.Unmarshal(n.Record, out.Record)
	}
	return out, err
}
