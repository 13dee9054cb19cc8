package control

import (
	"encoding/json"
	"path"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/room"
)

// givenEvent is the parsed body of a request for an event.
type givenEvent struct {
	event  room.Event
	page   []byte // the waiting page of the body
	faults faults
	bad    map[string]bool // keys that have a fault already
}

// judge adds the rule violations of the last event of a room, except those of fields that have a fault already.
func (g *givenEvent) judge(s *room.Settings) {
	event, may := "events["+strconv.Itoa(len(s.Events)-1)+"].", overrides()
	for _, f := range s.Validate() {
		if f.Field == "events" {
			g.faults.add("", "%s %s", f.Field, f.Rule)
		}
		key, ok := strings.CutPrefix(f.Field, event)
		if !ok || g.bad[key] {
			continue
		}
		at := "/" + key
		if may[place(key)] != nil {
			at = place(key)
		}
		g.faults.add(at, "%s %s", path.Base(at), f.Rule)
	}
}

// readEvent reads the body of a request over an event. With whole set, missing fields take their defaults.
func readEvent(q *request, over room.Event, whole bool) *givenEvent {
	g := &givenEvent{event: over, bad: map[string]bool{}}
	e, may, names := &g.event, overrides(), givenNames{}
	if whole {
		g.event = room.Event{ID: over.ID, Created: over.Created}
	}
	g.faults.each("", q.body, func(at string, v json.RawMessage) {
		ok, key := true, at[1:]
		switch at {
		case "/name":
			e.Name, ok = g.faults.text(at, v)
		case "/description":
			e.Description, ok = g.faults.text(at, v)
		case "/event_start_time":
			e.Start, ok = g.faults.moment(at, v)
		case "/event_end_time":
			e.End, ok = g.faults.moment(at, v)
		case "/prequeue_start_time":
			e.Prequeue, ok = g.faults.moment(at, v)
		case "/suspended":
			e.Suspended, ok = g.faults.flag(at, v)
		case "/shuffle_at_event_start":
			e.Shuffle, ok = g.faults.flag(at, v)
		default:
			if f := fieldOf(may, at); f != nil {
				key, ok = f.Key, names.first(&g.faults, at, f.at) && g.override(f, v)
			} else {
				g.faults.other(at, eventFields())
			}
		}
		g.bad[key] = g.bad[key] || !ok
	})
	return g
}

// override reads an override as the room's setting is read; null means the room's value.
func (g *givenEvent) override(f *field, v json.RawMessage) bool {
	in := given{settings: g.event.Overrides.Over(room.Settings{}), page: g.page, faults: g.faults}
	ok := f.read(&in, v)
	if g.page, g.faults = in.page, in.faults; null(v) {
		g.event.Inherit(f.Setting)
	} else {
		g.event.Override(f.Setting, &in.settings)
	}
	return ok
}

// moment reads a time with its offset from UTC; null is 0.
func (f *faults) moment(pointer string, v json.RawMessage) (ms int64, ok bool) {
	text, ok := f.text(pointer, v)
	if !ok || text == "" {
		return 0, ok
	}
	t, err := time.Parse(time.RFC3339, text)
	if ms = t.UnixMilli(); err != nil || ms == 0 {
		f.add(pointer, "%s must be a time such as 2026-11-22T20:15:00Z, got %q", cmpName(pointer), short(text))
		return 0, false
	}
	return ms, true
}
