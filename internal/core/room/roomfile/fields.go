package roomfile

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"vestibule/internal/core/room"
)

// field is a key of a mapping.
type field struct {
	key  string
	to   any  // *string, *bool, *moment, *denied, setting, override, or a list of mappings
	omit bool // it is not written
}

type (
	moment  int64 // Unix milliseconds
	denied  bool  // is written as its opposite
	setting struct {
		of *room.Settings
		t  *room.Setting
	}
	override struct {
		of *room.Event
		t  *room.Setting
	}
)

// fields returns the fields of a mapping, in the order in which they are written.
func fields(object any) (out []field) {
	switch v := object.(type) {
	case *room.Document:
		return []field{{key: "rooms", to: &v.Rooms}, {"hosts", &v.Hosts, len(v.Hosts) == 0}}
	case *room.Settings:
		for i := range room.Schema {
			t := &room.Schema[i]
			out = append(out, field{t.Key, setting{v, t}, t.IsDefault(v)})
		}
		return out
	case *room.Host:
		return []field{{key: "name", to: &v.Name}, {key: "origin", to: &v.Origin}}
	case *room.Route:
		return []field{{key: "host", to: &v.Host}, {key: "path", to: &v.Path}}
	case *room.Rule:
		return []field{
			{key: "expression", to: &v.Expression},
			{"description", &v.Description, v.Description == ""},
			{"enabled", (*denied)(&v.Disabled), !v.Disabled},
			{key: "id", to: &v.ID},
		}
	case *room.Event:
		out = []field{
			{key: "name", to: &v.Name},
			{"description", &v.Description, v.Description == ""},
			{"prequeue_start_time", (*moment)(&v.Prequeue), v.Prequeue == 0},
			{key: "event_start_time", to: (*moment)(&v.Start)},
			{key: "event_end_time", to: (*moment)(&v.End)},
			{"shuffle_at_event_start", &v.Shuffle, !v.Shuffle},
			{"suspended", &v.Suspended, !v.Suspended},
		}
		for t := range room.Overridable() {
			_, overridden := v.Overrides[t.Key]
			out = append(out, field{t.Key, override{v, t}, !overridden})
		}
		return append(out, field{key: "id", to: &v.ID})
	default:
		panic(fmt.Sprintf("roomfile: a mapping of type %T", v))
	}
}

// shapeOf describes a mapping, for a fault.
func shapeOf(object any) string {
	switch object.(type) {
	case *room.Settings:
		return "a mapping"
	case *room.Event:
		return "a mapping with the keys of an event"
	case *room.Rule:
		return "a mapping with the keys expression, description, enabled and id"
	}
	all := fields(object)
	return "a mapping with the keys " + all[0].key + " and " + all[1].key
}

func (p *parser) document(root *yaml.Node) (doc room.Document) {
	top := place{}
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		p.fault(1, top.key("rooms"), emptyRule)
		return doc
	}
	present := p.mapping(root, top, &doc)
	if present != nil && !present["rooms"] && !p.bad[top.key("rooms")] {
		p.fault(root.Line, top.key("rooms"), emptyRule)
	}
	return doc
}

// required adds a fault for each absent number that a room must have: package room could only report "got 0".
func (p *parser) required(n *yaml.Node, at place, s *room.Settings, present map[string]bool) {
	for i := range room.Schema {
		t := &room.Schema[i]
		if _, number := t.Field(s).(*int); !number || !t.Required() {
			continue
		}
		if here := at.key(t.Key); present != nil && !present[t.Key] && !p.bad[here] && !p.bad[at] {
			p.fault(n.Line, here, "is required")
		}
	}
}

// read reads the value of a field.
func (p *parser) read(v *yaml.Node, at place, field any) {
	switch to := field.(type) {
	case *string:
		p.text(v, at, to)
	case *int:
		if n, ok := p.integer(v, at); ok {
			// On 32-bit machines the clamp keeps the value out of range.
			*to = int(max(math.MinInt, min(math.MaxInt, n)))
		}
	case *uint32:
		p.epoch(v, at, to)
	case *bool:
		p.flag(v, at, to)
	case *denied:
		on := !bool(*to)
		p.flag(v, at, &on)
		*to = denied(!on)
	case *time.Duration:
		p.duration(v, at, to)
	case *moment:
		p.moment(v, at, to)
	case setting:
		p.setting(v, at, to)
	case override:
		p.override(v, at, to)
	case *[]room.Settings:
		if v.ShortTag() == "!!null" {
			p.fault(v.Line, at, emptyRule)
			return
		}
		readList(p, v, at, room.MaxRooms, to)
	case *[]room.Host:
		readList(p, v, at, room.MaxRooms, to)
	case *[]room.Route:
		readList(p, v, at, room.MaxRoutes, to)
	case *[]room.Rule:
		readList(p, v, at, room.MaxRules, to)
	case *[]room.Event:
		readList(p, v, at, room.MaxEvents, to)
	default:
		panic(fmt.Sprintf("roomfile: a setting of type %T", to))
	}
}

// readList reads a list of at most most mappings.
func readList[T any](p *parser, n *yaml.Node, at place, most int, to *[]T) {
	if n.Kind != yaml.SequenceNode {
		p.fault(n.Line, at, "must be a list, got "+kindOf(n))
		return
	}
	if len(n.Content) > most {
		p.fault(n.Line, at, fmt.Sprintf("must be at most %d, got %d", most, len(n.Content)))
		return
	}
	for i, v := range n.Content {
		*to = append(*to, *new(T))
		item, here := &(*to)[i], at.index(i)
		if at.item == "" { // a room or a host
			here = place{item: here.field}
			p.names[here.item] = nameOf(v)
		}
		present := p.mapping(v, here, item)
		if s, ok := any(item).(*room.Settings); ok {
			p.required(v, here, s, present)
		}
	}
}

// setting reads a setting of a room.
func (p *parser) setting(v *yaml.Node, at place, to setting) {
	field := to.t.Field(to.of)
	p.read(v, at, field)
	switch field.(type) {
	case *int, *time.Duration:
		if to.t.Default != nil && !p.bad[at] && to.t.IsZero(to.of) {
			p.fault(v.Line, at, to.t.Rule(to.of)) // package room treats zero as "not set"
		}
	}
}

// override reads an override of an event.
func (p *parser) override(v *yaml.Node, at place, to override) {
	var s room.Settings
	p.setting(v, at, setting{&s, to.t})
	if _, truth := to.t.Field(&s).(*bool); !truth && to.t.IsZero(&s) && !p.bad[at] {
		p.fault(v.Line, at, "must be 1 or more: leave the key out to have the room's")
	}
	if !p.bad[at] {
		to.of.Override(to.t, &s)
	}
}

// moment reads a time with its offset from UTC.
func (p *parser) moment(v *yaml.Node, at place, to *moment) {
	t, err := time.Parse(time.RFC3339, v.Value)
	if v.Kind != yaml.ScalarNode || err != nil {
		p.fault(v.Line, at, "must be a time such as 2026-11-22T20:15:00Z, got "+kindOf(v))
		return
	}
	*to = moment(t.UnixMilli())
}

// nameOf returns the name of a room or host before it is parsed, for its first faults.
func nameOf(n *yaml.Node) string {
	if n.Kind != yaml.MappingNode {
		return ""
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k, v := n.Content[i], n.Content[i+1]; k.Value == "name" && v.Kind == yaml.ScalarNode {
			return clip(v.Value)
		}
	}
	return ""
}

func (p *parser) text(v *yaml.Node, at place, to *string) {
	switch {
	case v.Kind != yaml.ScalarNode:
		p.fault(v.Line, at, "must be a text, got "+kindOf(v))
	case v.ShortTag() == "!!null", v.ShortTag() == "!!str" && v.Value == "":
		p.fault(v.Line, at, "is empty: give a value or leave the key out")
	case v.ShortTag() != "!!str":
		p.fault(v.Line, at, "must be a text, got "+kindOf(v)+": put it in quotes")
	default:
		*to = v.Value
	}
}

// integer parses a whole number in plain digits. YAML would also accept 0x10, 0o17, 1_000 and, by version, 010 for
// ten or eight: such spellings are probably mistakes.
func (p *parser) integer(v *yaml.Node, at place) (int64, bool) {
	if v.Kind != yaml.ScalarNode || v.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 || !plainDigits(v.Value) {
		p.fault(v.Line, at, "must be a whole number in plain digits, got "+kindOf(v))
		return 0, false
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil {
		p.fault(v.Line, at, "is out of range, got "+kindOf(v))
		return 0, false
	}
	return n, true
}

func plainDigits(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return s != "" && strings.Trim(s, "0123456789") == "" && (s == "0" || s[0] != '0')
}

func (p *parser) epoch(v *yaml.Node, at place, to *uint32) {
	n, ok := p.integer(v, at)
	switch {
	case !ok:
	case n < 0 || n > math.MaxUint32:
		p.fault(v.Line, at, fmt.Sprintf("must be 0 to %d, got %d", uint32(math.MaxUint32), n))
	default:
		*to = uint32(n)
	}
}

func (p *parser) flag(v *yaml.Node, at place, to *bool) {
	if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!bool" || (v.Value != "true" && v.Value != "false") {
		p.fault(v.Line, at, "must be true or false, got "+kindOf(v))
		return
	}
	*to = v.Value == "true"
}

func (p *parser) duration(v *yaml.Node, at place, to *time.Duration) {
	if v.Kind == yaml.ScalarNode && plainDigits(v.Value) {
		p.fault(v.Line, at, fmt.Sprintf("must have a unit: write %ss or %sm", clip(v.Value), clip(v.Value)))
		return
	}
	if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!str" {
		p.fault(v.Line, at, "must be a duration such as 5m or 90s, got "+kindOf(v))
		return
	}
	d, err := time.ParseDuration(v.Value)
	if err != nil {
		p.fault(v.Line, at, "must be a duration such as 5m or 90s, got "+kindOf(v))
		return
	}
	*to = d
}
