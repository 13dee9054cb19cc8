package room

import (
	"fmt"
	"strings"

	"vestibule/internal/core/room/match"
	"vestibule/internal/core/rules"
)

// Bounds of rules.
const (
	MaxRules       = 100 // of one room
	MaxDescription = 500 // bytes of a rule's description
)

// ActionBypass is the only action of rules.
const ActionBypass = "bypass_waiting_room"

// Rule lets requests that match its expression pass the room.
type Rule struct {
	ID          string // 32 hexadecimal digits, in lower case; "" means one derived from the expression
	Expression  string // in the language of package rules
	Description string
	Disabled    bool
	Version     int   // grows with every change; 0 means 1
	Updated     int64 // Unix milliseconds of the last change, 0 if unknown
}

// fill sets the defaults. A second rule with an expression gets an ID of its own.
func (r *Rule) fill(before []Rule) {
	if r.Version == 0 {
		r.Version = 1
	}
	if r.ID != "" {
		return
	}
	r.ID = defaultID("rule", before, r.Expression, func(o *Rule) string { return o.Expression })
}

// same reports whether two rules are equal, apart from their versions and times.
func (r Rule) same(o Rule) bool {
	r.Version, r.Updated, o.Version, o.Updated = 0, 0, 0, 0
	return r == o
}

// checkRules validates the rules, except against the files of an edge.
func checkRules(s *Settings, add func(field, rule string)) {
	if n := len(s.Rules); n > MaxRules {
		add("rules", fmt.Sprintf("must be at most %d, got %d", MaxRules, n))
		return
	}
	seen := make(map[string]int, len(s.Rules))
	for i := range s.Rules {
		r := &s.Rules[i]
		field := func(key string) string { return fmt.Sprintf("rules[%d].%s", i, key) }
		if len(r.ID) != 32 || strings.Trim(r.ID, "0123456789abcdef") != "" {
			add(field("id"), "must be 32 hexadecimal digits in lower case"+got(r.ID))
		} else if j, ok := seen[r.ID]; ok {
			add(field("id"), fmt.Sprintf("is the id of rules[%d] already", j))
		}
		seen[r.ID] = i
		if r.Expression == "" {
			add(field("expression"), "is required")
		} else if _, err := rules.Compile(r.Expression, rules.Sources{Unknown: true}); err != nil {
			add(field("expression"), fmt.Sprintf("is wrong: %v", err))
		}
		if len(r.Description) > MaxDescription || !match.Readable(r.Description) {
			add(field("description"),
				fmt.Sprintf("must be at most %d bytes of UTF-8 without control characters", MaxDescription))
		}
		if r.Version < 1 || r.Updated < 0 {
			add(field("version"), fmt.Sprintf("must be at least 1, got %d", r.Version))
		}
	}
}
