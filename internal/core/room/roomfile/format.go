package roomfile

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"vestibule/internal/core/room"
)

// Format returns a file that Parse reads as doc. It omits defaults. The error reports a file larger than
// [MaxBytes].
func Format(doc room.Document) ([]byte, error) {
	doc = doc.WithDefaults()
	rooms := &yaml.Node{Kind: yaml.SequenceNode}
	if len(doc.Rooms) == 0 {
		rooms.Style = yaml.FlowStyle
	}
	for i := range doc.Rooms {
		n := &yaml.Node{Kind: yaml.MappingNode}
		for k := range room.Schema {
			t := &room.Schema[k]
			if t.IsDefault(&doc.Rooms[i]) {
				continue
			}
			n.Content = append(n.Content, word(t.Key), valueOf(t.Field(&doc.Rooms[i])))
		}
		rooms.Content = append(rooms.Content, n)
	}
	root := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{word("rooms"), rooms}}
	if len(doc.Hosts) > 0 {
		hosts := &yaml.Node{Kind: yaml.SequenceNode}
		for _, h := range doc.Hosts {
			hosts.Content = append(hosts.Content, &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
				word("name"), text(h.Name), word("origin"), text(h.Origin),
			}})
		}
		root.Content = append(root.Content, word("hosts"), hosts)
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return nil, err
	}
	if b.Len() > MaxBytes {
		return nil, fmt.Errorf("the file would have %d bytes, at most %d can be read", b.Len(), MaxBytes)
	}
	return b.Bytes(), nil
}

// word is a scalar that needs no quotes.
func word(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }

// text is a string scalar, quoted if needed.
func text(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: yaml.DoubleQuotedStyle}
}

func valueOf(field any) *yaml.Node {
	switch v := field.(type) {
	case *string:
		return text(*v)
	case *int:
		return word(strconv.Itoa(*v))
	case *uint32:
		return word(strconv.FormatUint(uint64(*v), 10))
	case *bool:
		return word(strconv.FormatBool(*v))
	case *time.Duration:
		return word(v.String())
	case *[]room.Route:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, r := range *v {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
				word("host"), text(r.Host), word("path"), text(r.Path),
			}})
		}
		return n
	case *[]room.Event:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range *v {
			n.Content = append(n.Content, eventOf(&(*v)[i]))
		}
		return n
	case *[]room.Rule:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for _, r := range *v {
			m := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{word("expression"), text(r.Expression)}}
			if r.Description != "" {
				m.Content = append(m.Content, word("description"), text(r.Description))
			}
			if r.Disabled {
				m.Content = append(m.Content, word("enabled"), word("false"))
			}
			m.Content = append(m.Content, word("id"), text(r.ID))
			n.Content = append(n.Content, m)
		}
		return n
	default:
		panic(fmt.Sprintf("roomfile: a setting of type %T", v))
	}
}

// eventOf returns an event without unset fields.
func eventOf(e *room.Event) *yaml.Node {
	m := &yaml.Node{Kind: yaml.MappingNode}
	add := func(key string, said bool, v *yaml.Node) {
		if said {
			m.Content = append(m.Content, word(key), v)
		}
	}
	moment := func(ms int64) *yaml.Node { return text(time.UnixMilli(ms).UTC().Format(time.RFC3339Nano)) }
	add("name", true, text(e.Name))
	add("description", e.Description != "", text(e.Description))
	add("prequeue_start_time", e.Prequeue != 0, moment(e.Prequeue))
	add("event_start_time", true, moment(e.Start))
	add("event_end_time", true, moment(e.End))
	add("shuffle_at_event_start", e.Shuffle, word("true"))
	add("suspended", e.Suspended, word("true"))
	over := e.Overrides.Over(room.Settings{})
	for t := range room.Overridable() {
		_, said := e.Overrides[t.Key]
		add(t.Key, said, valueOf(t.Field(&over)))
	}
	add("id", true, text(e.ID))
	return m
}
