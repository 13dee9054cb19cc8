package control

import (
	"encoding/json"
	"maps"
	"slices"
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
	at := "events[" + strconv.Itoa(len(s.Events)-1) + "]."
	for _, f := range s.Validate() {
		key, ok := strings.CutPrefix(f.Field, at)
		switch {
		case f.Field == "events":
			g.faults.add("", "%s %s", f.Field, f.Rule)
		case ok && key == "waiting_page":
			g.faults.add("/custom_page_html", "custom_page_html %s", f.Rule)
		case ok && ownOverride(key) != nil && !g.bad[key]:
			g.faults.add("/vestibule/"+key, "%s %s", key, f.Rule)
		case ok && !g.bad[key]:
			g.faults.add("/"+key, "%s %s", key, f.Rule)
		}
	}
}

// readEvent reads a body over an event. With whole set, missing fields take their defaults.
func readEvent(body json.RawMessage, over room.Event, whole bool) *givenEvent {
	g := &givenEvent{event: over, bad: map[string]bool{}}
	e := &g.event
	if whole {
		g.event = room.Event{ID: over.ID, Created: over.Created}
	}
	m := g.faults.object("", body)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		v, at, ok := m[key], "/"+key, true
		switch key { // read-only and unknown keys are ignored: clients send them back
		case "name":
			e.Name, ok = g.faults.text(at, v)
		case "description":
			e.Description, ok = g.faults.text(at, v)
		case "event_start_time":
			e.Start, ok = g.faults.moment(at, v)
		case "event_end_time":
			e.End, ok = g.faults.moment(at, v)
		case "prequeue_start_time":
			e.Prequeue, ok = g.faults.moment(at, v)
		case "suspended":
			e.Suspended, ok = g.faults.flag(at, v)
		case "shuffle_at_event_start":
			e.Shuffle, ok = g.faults.flag(at, v)
		case "vestibule":
			g.readOwn(v)
		case "turnstile_mode":
			ok = onlyText(at, "invisible")(&given{}, v) || g.unserved(at, "invisible")
		case "turnstile_action":
			ok = onlyText(at, "log")(&given{}, v) || g.unserved(at, "log")
		default:
			if t := overrideOf(key); t != nil {
				ok = g.override(t, v, fields[key])
			}
		}
		g.bad[key] = g.bad[key] || !ok
	}
	return g
}

// overrideOf returns the setting that a key of the hosted product's events overrides, nil for none.
func overrideOf(key string) *room.Setting {
	name := key
	if key == "custom_page_html" {
		name = "waiting_page"
	}
	for t := range room.Overridable() {
		if t.Key == name && fields[key] != nil {
			return t
		}
	}
	return nil
}

// ownOverrides yields the settings that events override in their object vestibule: those
// that the events of the hosted product lack.
func ownOverrides(yield func(*room.Setting) bool) {
	for t := range room.Overridable() {
		if t.Key != "waiting_page" && fields[t.Key] == nil && !yield(t) {
			return
		}
	}
}

// ownOverride returns the setting that a key of the object vestibule overrides, nil for none.
func ownOverride(key string) *room.Setting {
	for t := range ownOverrides {
		if t.Key == key {
			return t
		}
	}
	return nil
}

// override reads an override with the reader of the room's setting; null means the room's value.
func (g *givenEvent) override(t *room.Setting, v json.RawMessage, read func(*given, json.RawMessage) bool) bool {
	in := given{settings: g.event.Overrides.Over(room.Settings{}), page: g.page, faults: g.faults}
	ok := read(&in, v)
	if g.page, g.faults = in.page, in.faults; null(v) {
		g.event.Inherit(t)
	} else {
		g.event.Override(t, &in.settings)
	}
	return ok
}

// readOwn reads the object vestibule.
func (g *givenEvent) readOwn(v json.RawMessage) {
	if null(v) {
		return
	}
	m := g.faults.object("/vestibule", v)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		at, t := "/vestibule/"+key, ownOverride(key)
		if t == nil {
			g.faults.add(at, "%s: no setting that an event overrides here", cmpName(at))
		} else if !g.override(t, m[key], func(in *given, v json.RawMessage) bool { return readSetting(in, t, at, v) }) {
			g.bad[key] = true
		}
	}
}

// unserved accepts one text only, and adds a fault for any other.
func (g *givenEvent) unserved(at, value string) bool {
	g.faults.add(at, "%s must be %q or null: nothing else is served yet", cmpName(at), value)
	return false
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
