package control

import (
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/room"
)

// field is a setting at its place in a room of the API.
type field struct {
	*room.Setting
	at string // JSON pointer
}

// fields are the settings of a room by their JSON pointers. The identity is read-only, rules and events are resources
// of their own. The session length stands there twice, in minutes and exactly.
var fields = func() map[string]*field {
	all := map[string]*field{}
	for i := range room.Schema {
		t := &room.Schema[i]
		switch t.Key {
		case "identity", "rules", "events":
			continue
		case "session_duration":
			all[ownPrefix+t.Key] = &field{t, ownPrefix + t.Key}
		}
		all[place(t.Key)] = &field{t, place(t.Key)}
	}
	return all
}()

// overrides returns the fields that an event may override. They have the same places in an event of the API.
func overrides() map[string]*field {
	all := map[string]*field{}
	for t := range room.Overridable() {
		all[place(t.Key)] = fields[place(t.Key)]
	}
	return all
}

// moment returns Unix milliseconds as a time.
func moment(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// eventFields returns all fields of an event by their JSON pointers; the setting is nil for those that are no override.
func eventFields() map[string]*field {
	all := overrides()
	for _, key := range []string{
		"name", "description", "event_start_time", "event_end_time", "prequeue_start_time", "suspended",
		"shuffle_at_event_start",
	} {
		all["/"+key] = &field{at: "/" + key}
	}
	return all
}

// other checks a value that is no setting. An unknown key is a fault.
func (f *faults) other(at string, settings map[string]*field) {
	if readOnly[at] || f.full() {
		return
	}
	f.unknown(at, "setting", keysOf(settings))
}

// fieldOf returns the field at a JSON pointer, nil for none. A field is also found by its key in
// rooms.yaml, such as grace for vestibule.grace: other clients may use such a name for a field of the hosted product.
func fieldOf(settings map[string]*field, at string) *field {
	if f := settings[at]; f != nil {
		return f
	}
	f := settings[place(at[1:])]
	if f != nil && f.Setting != nil && f.Key == "waiting_page" { // the file names a page, the API holds it
		return nil
	}
	return f
}

// keysOf returns the keys of settings at their JSON pointers, with dots, in order.
func keysOf(settings map[string]*field) []string {
	keys := make([]string, 0, len(settings))
	for at := range settings {
		keys = append(keys, cmpName(at))
	}
	slices.Sort(keys)
	return keys
}

// rule adds a fault of the room rules.
func (f *faults) rule(r room.Fault, originGiven bool) {
	if f.full() {
		return
	}
	key, rest, _ := strings.Cut(strings.NewReplacer("[", "/", "]", "", ".", "/").Replace(r.Field), "/")
	pointer := strings.TrimSuffix(place(key)+"/"+rest, "/")
	if key == "origin" && !originGiven {
		pointer = "/host"
	}
	f.add(pointer, "%s %s", r.Field, r.Rule)
}
