package control

import (
	"encoding/json"
	"strings"

	"vestibule/internal/core/room"
)

// RoomKeys returns the keys of a room's settings, with dots for nested ones.
func RoomKeys() []string { return keysOf(fields) }

// EventKeys returns the keys of an event, with dots for nested ones.
func EventKeys() []string { return keysOf(eventFields()) }

// givenNames are the names by which a body gives its fields, by their JSON pointers.
type givenNames map[string]string

// first reports whether the field at the pointer has no value yet, and adds a fault if it has.
func (n givenNames) first(f *faults, name, at string) bool {
	if other := n[at]; other != "" {
		f.add(name, "%s and %s are the same setting: give one of them", cmpName(name), cmpName(other))
		return false
	}
	n[at] = name
	return true
}

// readRoom reads the body of a request over existing settings.
func readRoom(q *request, over room.Settings) *given {
	g := &given{settings: over, bad: map[string]bool{}, names: givenNames{}}
	g.faults.each("", q.body, func(at string, v json.RawMessage) {
		f := fieldOf(fields, at)
		if f == nil {
			g.faults.other(at, fields)
			return
		}
		if !g.names.first(&g.faults, at, f.at) || !f.read(g, v) {
			g.bad[f.Key] = true
		}
		g.session = g.session || f.Key == "session_duration"
		g.origin = g.origin || f.Key == "origin" && g.settings.Origin != ""
	})
	return g
}

// judge adds the faults of the validated settings, except those of fields that have one already.
func (g *given) judge() {
	for _, f := range g.settings.Validate() {
		if key, _, _ := strings.Cut(f.Field, "["); !g.bad[f.Field] && !g.bad[key] {
			g.faults.rule(f, g.origin)
		}
	}
}
