package roomfile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"vestibule/internal/core/room"
)

// place is a position in the document, in the terms of room.Fault.
type place struct {
	item  string // "rooms[2]", "hosts[0]", "" at the top
	field string // "" for the item itself
}

func (at place) key(name string) place {
	if at.field != "" {
		name = at.field + "." + name
	}
	return place{at.item, name}
}

func (at place) index(i int) place {
	return place{at.item, fmt.Sprintf("%s[%d]", at.field, i)}
}

// parser collects the document and the faults of its shape.
type parser struct {
	faults room.Faults
	lines  map[place]int     // lines of values, for the faults of package room
	bad    map[place]bool    // has a fault already; further ones of package room are noise
	names  map[string]string // item -> its name as written, valid or not
	more   int               // faults beyond maxFaults
	meant  int               // suggestions
}

// Bounds of what is said about a file.
const (
	maxFaults = 1000
	maxMeant  = 10 // suggestions: each compares a key with all others
)

// full counts a fault that is not listed. It returns false if there is space to list it.
func (p *parser) full() bool {
	if len(p.faults) < maxFaults {
		return false
	}
	p.more++
	return true
}

func (p *parser) fault(line int, at place, rule string) {
	p.bad[at] = true
	if p.full() {
		return
	}
	p.faults = append(p.faults, room.Fault{Line: line, Item: at.item, Name: p.names[at.item], Field: at.field, Rule: rule})
}

// rule adds a fault of package room with its line, unless the same place already has a fault.
func (p *parser) rule(f room.Fault) {
	at := place{f.Item, f.Field}
	for {
		if p.bad[at] {
			return
		}
		if f.Line == 0 {
			f.Line = p.lines[at]
		}
		up, ok := at.parent()
		if !ok {
			break
		}
		at = up
	}
	if p.full() {
		return
	}
	if f.Line == 0 {
		f.Line = 1
	}
	if f.Name == "" {
		f.Name = p.names[f.Item]
	}
	p.faults = append(p.faults, f)
}

// parent returns the containing place: "a[1]" for "a[1].b", then "a", then the item.
func (at place) parent() (place, bool) {
	if at.field == "" {
		return place{}, false
	}
	return place{at.item, at.field[:max(0, strings.LastIndexAny(at.field, ".["))]}, true
}

// mapping parses a mapping with the keys of object and no others, each at most once. It returns the keys present.
func (p *parser) mapping(n *yaml.Node, at place, object any) map[string]bool {
	p.lines[at] = n.Line
	if n.Kind != yaml.MappingNode {
		p.fault(n.Line, at, "must be "+shapeOf(object)+", got "+kindOf(n))
		return nil
	}
	fields := fields(object)
	seen := make(map[string]int)
	present := make(map[string]bool)
	var meant []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case k.Kind == yaml.ScalarNode && k.ShortTag() == "!!merge":
			p.fault(k.Line, at, "merge keys (<<) are not supported: write the values out")
			continue
		case k.Kind != yaml.ScalarNode:
			p.fault(k.Line, at, "must have plain keys, got "+kindOf(k))
			continue
		}
		here := at.key(clip(k.Value))
		if line, ok := seen[k.Value]; ok {
			p.fault(k.Line, here, fmt.Sprintf("is written twice, first on line %d", line))
			continue
		}
		seen[k.Value] = k.Line
		f := slices.IndexFunc(fields, func(f field) bool { return f.key == k.Value })
		if f < 0 {
			rule := "unknown key"
			if p.meant++; p.meant <= maxMeant {
				if s := room.Suggest(k.Value, keysOf(fields)); s != "" {
					rule += fmt.Sprintf(", did you mean %q?", s)
					meant = append(meant, s)
				}
			}
			p.fault(k.Line, here, rule)
			continue
		}
		p.lines[here] = k.Line
		present[k.Value] = true
		p.read(p.value(v), here, fields[f].to)
	}
	for _, key := range meant {
		// One mistake, one fault: the missing key is already reported.
		if !present[key] {
			p.bad[at.key(key)] = true
		}
	}
	return present
}

// value resolves an alias to a scalar. Other aliases are rejected: they can make a small file arbitrarily large.
func (p *parser) value(v *yaml.Node) *yaml.Node {
	if v.Kind != yaml.AliasNode || v.Alias == nil || v.Alias.Kind != yaml.ScalarNode {
		return v
	}
	resolved := *v.Alias
	resolved.Line = v.Line // faults are reported at the use of the value
	return &resolved
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i := range fields {
		keys[i] = fields[i].key
	}
	return keys
}

// kindOf describes a node, for the end of a message.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias (*): write the value out"
	case yaml.DocumentNode:
		return "a document"
	default: // a scalar: described by its tag
	}
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return "nothing"
	case "!!str":
		return fmt.Sprintf("the text %q", clip(n.Value))
	case "!!int", "!!float":
		return "the number " + clip(n.Value)
	case "!!bool":
		return "the truth value " + clip(n.Value)
	case "!!timestamp":
		return "the date " + clip(n.Value)
	default:
		return fmt.Sprintf("a value with the tag %s", clip(tag))
	}
}

// clip shortens s for a message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
