package room

import (
	"iter"
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
		if _, overridden := o[t.Key]; overridden && t.Rule != nil {
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
