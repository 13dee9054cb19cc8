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

func (p *parser) document(root *yaml.Node) (doc room.Document) {
	top := place{}
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		p.fault(1, top.key("rooms"), emptyRule)
		return doc
	}
	present := p.mapping(root, top, "a mapping with the keys rooms and hosts", []field{
		{"rooms", func(v *yaml.Node, at place) {
			if v.ShortTag() == "!!null" {
				p.fault(v.Line, at, emptyRule)
				return
			}
			p.list(v, at, room.MaxRooms, func(v *yaml.Node, i int) {
				doc.Rooms = append(doc.Rooms, p.room(v, place{item: fmt.Sprintf("rooms[%d]", i)}))
			})
		}},
		{"hosts", func(v *yaml.Node, at place) {
			p.list(v, at, room.MaxRooms, func(v *yaml.Node, i int) {
				doc.Hosts = append(doc.Hosts, p.host(v, place{item: fmt.Sprintf("hosts[%d]", i)}))
			})
		}},
	})
	if present != nil && !present["rooms"] && !p.bad[top.key("rooms")] {
		p.fault(root.Line, top.key("rooms"), emptyRule)
	}
	return doc
}

func (p *parser) room(n *yaml.Node, at place) (s room.Settings) {
	p.names[at.item] = nameOf(n)
	fields := make([]field, len(room.Schema))
	for i := range room.Schema {
		fields[i] = field{room.Schema[i].Key, p.setting(&room.Schema[i], &s)}
	}
	present := p.mapping(n, at, "a mapping", fields)
	for i := range room.Schema {
		t := &room.Schema[i]
		if _, number := t.Field(&s).(*int); !number || !t.Required() {
			continue
		}
		if here := at.key(t.Key); present != nil && !present[t.Key] && !p.bad[here] && !p.bad[at] {
			p.fault(n.Line, here, "is required") // package room could only report "got 0"
		}
	}
	return s
}

// setting returns the reader of one setting of a room.
func (p *parser) setting(t *room.Setting, s *room.Settings) reader {
	var read reader
	switch to := t.Field(s).(type) {
	case *string:
		return p.text(to)
	case *int:
		read = p.whole(to)
	case *uint32:
		return p.epoch(to)
	case *bool:
		return p.flag(to)
	case *time.Duration:
		read = p.duration(to)
	case *[]room.Route:
		return func(v *yaml.Node, at place) {
			p.list(v, at, room.MaxRoutes, func(v *yaml.Node, i int) { *to = append(*to, p.route(v, at.index(i))) })
		}
	case *[]room.Event:
		return func(v *yaml.Node, at place) {
			p.list(v, at, room.MaxEvents, func(v *yaml.Node, i int) { *to = append(*to, p.event(v, at.index(i))) })
		}
	case *[]room.Rule:
		return func(v *yaml.Node, at place) {
			p.list(v, at, room.MaxRules, func(v *yaml.Node, i int) { *to = append(*to, p.bypass(v, at.index(i))) })
		}
	default:
		panic(fmt.Sprintf("roomfile: a setting of type %T", to))
	}
	return func(v *yaml.Node, at place) {
		read(v, at)
		if t.Default != nil && !p.bad[at] && t.IsZero(s) {
			p.fault(v.Line, at, t.Rule(s)) // package room treats zero as "not set"
		}
	}
}

func (p *parser) route(n *yaml.Node, at place) (r room.Route) {
	p.mapping(n, at, "a mapping with the keys host and path", []field{
		{"host", p.text(&r.Host)},
		{"path", p.text(&r.Path)},
	})
	return r
}

// bypass reads a rule of a room.
func (p *parser) bypass(n *yaml.Node, at place) (r room.Rule) {
	enabled := true
	p.mapping(n, at, "a mapping with the keys expression, description, enabled and id", []field{
		{"expression", p.text(&r.Expression)},
		{"description", p.text(&r.Description)},
		{"enabled", p.flag(&enabled)},
		{"id", p.text(&r.ID)},
	})
	r.Disabled = !enabled
	return r
}

// event reads an event of a room.
func (p *parser) event(n *yaml.Node, at place) (e room.Event) {
	fields := []field{
		{"name", p.text(&e.Name)},
		{"description", p.text(&e.Description)},
		{"prequeue_start_time", p.moment(&e.Prequeue)},
		{"event_start_time", p.moment(&e.Start)},
		{"event_end_time", p.moment(&e.End)},
		{"shuffle_at_event_start", p.flag(&e.Shuffle)},
		{"suspended", p.flag(&e.Suspended)},
		{"id", p.text(&e.ID)},
	}
	for t := range room.Overridable() {
		fields = append(fields, field{t.Key, p.override(t, &e)})
	}
	p.mapping(n, at, "a mapping with the keys of an event", fields)
	return e
}

// override returns the reader of an override of an event.
func (p *parser) override(t *room.Setting, e *room.Event) reader {
	return func(v *yaml.Node, at place) {
		var s room.Settings
		p.setting(t, &s)(v, at)
		if _, truth := t.Field(&s).(*bool); !truth && t.IsZero(&s) && !p.bad[at] {
			p.fault(v.Line, at, "must be 1 or more: leave the key out to have the room's")
		}
		if !p.bad[at] {
			e.Override(t, &s)
		}
	}
}

// moment reads a time with its offset from UTC.
func (p *parser) moment(to *int64) reader {
	return func(v *yaml.Node, at place) {
		t, err := time.Parse(time.RFC3339, v.Value)
		if v.Kind != yaml.ScalarNode || err != nil {
			p.fault(v.Line, at, "must be a time such as 2026-11-22T20:15:00Z, got "+kindOf(v))
			return
		}
		*to = t.UnixMilli()
	}
}

func (p *parser) host(n *yaml.Node, at place) (h room.Host) {
	p.names[at.item] = nameOf(n)
	p.mapping(n, at, "a mapping with the keys name and origin", []field{
		{"name", p.text(&h.Name)},
		{"origin", p.text(&h.Origin)},
	})
	return h
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

func (p *parser) text(to *string) reader {
	return func(v *yaml.Node, at place) {
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

func (p *parser) whole(to *int) reader {
	return func(v *yaml.Node, at place) {
		if n, ok := p.integer(v, at); ok {
			// On 32-bit machines the clamp keeps the value out of range.
			*to = int(max(math.MinInt, min(math.MaxInt, n)))
		}
	}
}

func (p *parser) epoch(to *uint32) reader {
	return func(v *yaml.Node, at place) {
		n, ok := p.integer(v, at)
		switch {
		case !ok:
		case n < 0 || n > math.MaxUint32:
			p.fault(v.Line, at, fmt.Sprintf("must be 0 to %d, got %d", uint32(math.MaxUint32), n))
		default:
			*to = uint32(n)
		}
	}
}

func (p *parser) flag(to *bool) reader {
	return func(v *yaml.Node, at place) {
		if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!bool" || (v.Value != "true" && v.Value != "false") {
			p.fault(v.Line, at, "must be true or false, got "+kindOf(v))
			return
		}
		*to = v.Value == "true"
	}
}

func (p *parser) duration(to *time.Duration) reader {
	return func(v *yaml.Node, at place) {
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
}
