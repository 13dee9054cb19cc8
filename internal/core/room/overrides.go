package room

import (
	"iter"
	"maps"
	"reflect"
)

// Overrides are the settings that an event replaces, by key. A value has the type of the setting's field; a zero value
// other than false means that the room's value applies. The map must not be modified once an event has it.
type Overrides map[string]any

// Overridable yields the settings that an event may override, in the order of [Schema].
func Overridable() iter.Seq[*Setting] {
	return func(yield func(*Setting) bool) {
		for i := range Schema {
			if t := &Schema[i]; t.Events && !yield(t) {
				return
			}
		}
	}
}

// Over returns s with the values of o in place of its own.
func (o Overrides) Over(s Settings) Settings {
	for key, v := range o {
		if t, ok := settingByKey(key); ok && t.holds(v) {
			t.set(&s, v)
		}
	}
	return s
}

// Override makes the event override t by its value in s. A zero value other than false removes the override.
func (e *Event) Override(t *Setting, s *Settings) {
	e.Inherit(t)
	if _, truth := t.Field(s).(*bool); !truth && t.IsZero(s) {
		return
	}
	if e.Overrides == nil {
		e.Overrides = Overrides{}
	}
	e.Overrides[t.Key] = t.Value(s)
}

// Inherit removes the override of t.
func (e *Event) Inherit(t *Setting) {
	e.Overrides = maps.Clone(e.Overrides)
	delete(e.Overrides, t.Key)
}

// clone returns a copy of o without zero values other than false, nil for none.
func (o Overrides) clone() Overrides {
	var out Overrides
	for key, v := range o {
		if _, truth := v.(bool); !truth && reflect.ValueOf(v).IsZero() {
			continue
		}
		if out == nil {
			out = Overrides{}
		}
		out[key] = v
	}
	return out
}

// check validates the overrides of an event of room s. The rule of a setting sees all of them.
func (o Overrides) check(s *Settings, add func(key, rule string)) {
	for key, v := range o {
		if t, ok := settingByKey(key); !ok || !t.Events || !t.holds(v) {
			add(key, "is not a setting that an event may override, or not of its type")
		}
	}
	in := o.Over(*s)
	for t := range Overridable() {
		if _, said := o[t.Key]; said && t.Rule != nil {
			add(t.Key, t.Rule(&in))
		}
	}
	_, total := o["total_active_users"]
	_, rate := o["new_users_per_minute"]
	if total != rate {
		key, other := "new_users_per_minute", "total_active_users"
		if rate {
			key, other = other, key
		}
		add(key, "must be given with "+other+": an event overrides both or neither")
	}
}
