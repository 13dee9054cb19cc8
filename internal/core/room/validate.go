package room

import (
	"fmt"

	"vestibule/internal/core/room/match"
)

// Validate returns all faults of s, in the order in which the fields are documented. s is valid if there are none. The
// zero value of a field with a default is valid. The faults carry no Item; they name fields by their keys.
func (s Settings) Validate() Faults {
	s = s.WithDefaults()
	var fs Faults
	add := func(field, rule string) {
		if rule != "" {
			fs = append(fs, Fault{Field: field, Rule: rule})
		}
	}
	for i := range Schema {
		t := &Schema[i]
		switch {
		case t.Rule != nil:
			add(t.Key, t.Rule(&s))
		case t.Key == "additional_routes":
			checkRoutes(&s, add)
		case t.Key == "rules":
			checkRules(&s, add)
		case t.Key == "events":
			checkEvents(&s, add)
		}
	}
	return fs
}

func checkRoutes(s *Settings, add func(field, rule string)) {
	if n := len(s.AdditionalRoutes); n > MaxRoutes {
		add("additional_routes", fmt.Sprintf("must be at most %d, got %d", MaxRoutes, n))
		return
	}
	for i, r := range s.AdditionalRoutes {
		add(routeField(i+1, "host"), checkHost(r.Host))
		_, rule := match.Key(r.Path)
		add(routeField(i+1, "path"), rule)
	}
}

// routeField names a field of the i-th route of a room; route 0 is the room's own.
func routeField(i int, field string) string {
	if i == 0 {
		return field
	}
	return fmt.Sprintf("additional_routes[%d].%s", i-1, field)
}

// MaxMethods is the maximum number of methods of a room, and the maximum length of each.
const MaxMethods = 32
