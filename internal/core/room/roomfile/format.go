package roomfile

import (
	"bytes"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"vestibule/internal/core/room"
)

// Format returns a file that Parse reads as doc. It omits defaults. The error reports a file larger than
// [MaxBytes].
func Format(doc room.Document) ([]byte, error) {
	doc = doc.WithDefaults()
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(nodeOf(&doc)); err != nil {
		return nil, err
	}
	if n := marks(b.Bytes()); n > maxMarks {
		return nil, fmt.Errorf("the file would have %d lines, commas and opening brackets, at most %d can be read", n, maxMarks)
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

// nodeOf returns an object as a mapping.
func nodeOf(object any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fields(object) {
		if !f.omit {
			n.Content = append(n.Content, word(f.key), valueOf(f.to))
		}
	}
	return n
}

// listOf returns a list of mappings.
func listOf(list reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	if list.Len() == 0 {
		n.Style = yaml.FlowStyle
	}
	for i := range list.Len() {
		n.Content = append(n.Content, nodeOf(list.Index(i).Addr().Interface()))
	}
	return n
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
	case *denied:
		return word(strconv.FormatBool(!bool(*v)))
	case *time.Duration:
		return word(v.String())
	case *moment:
		return text(time.UnixMilli(int64(*v)).UTC().Format(time.RFC3339Nano))
	case setting:
		return valueOf(v.t.Field(v.of))
	case override:
		over := v.of.Overrides.Over(room.Settings{})
		return valueOf(v.t.Field(&over))
	default:
		return listOf(reflect.ValueOf(v).Elem())
	}
}
