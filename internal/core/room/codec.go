package room

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// MaxDocumentBytes bounds the encoded form of a document.
const MaxDocumentBytes = 16 << 20

// EncodeDocument returns doc as JSON, in the order of doc; equal documents give equal bytes. It neither validates doc
// nor fills in defaults. It fails if a string is not UTF-8, or if the result would exceed MaxDocumentBytes.
//
// Defaults are left out, so that a node that does not know a setting can read a document that does not use it.
func EncodeDocument(doc Document) ([]byte, error) {
	e := encoder{}
	e.raw(`{"rooms":[`)
	for i := range doc.Rooms {
		e.comma(i)
		e.at = item(i)
		e.settings(&doc.Rooms[i])
	}
	e.raw(`],"hosts":[`)
	for i, h := range doc.Hosts {
		e.comma(i)
		e.at = fmt.Sprintf("hosts[%d]", i)
		e.raw(`{"name":`)
		e.text(h.Name)
		e.raw(`,"origin":`)
		e.text(h.Origin)
		e.raw("}")
	}
	e.raw("]}")
	switch {
	case e.err != nil:
		return nil, fmt.Errorf("encode rooms: %w", e.err)
	case len(e.out) > MaxDocumentBytes:
		return nil, fmt.Errorf("encode rooms: %d bytes, at most %d allowed", len(e.out), MaxDocumentBytes)
	}
	return e.out, nil
}

// encoder writes a document.
type encoder struct {
	out []byte
	at  string // current position, for errors
	err error
}

func (e *encoder) raw(s string) { e.out = append(e.out, s...) }

func (e *encoder) comma(i int) {
	if i > 0 {
		e.raw(",")
	}
}

func (e *encoder) text(s string) {
	if !utf8.ValidString(s) && e.err == nil {
		e.err = errors.New(e.at + ": not UTF-8")
	}
	data, err := json.Marshal(s)
	if err != nil && e.err == nil {
		e.err = err
	}
	e.out = append(e.out, data...)
}

func (e *encoder) settings(s *Settings) {
	e.raw("{")
	n := 0
	for i := range Schema {
		t := &Schema[i]
		if t.IsDefault(s) {
			continue
		}
		e.comma(n)
		n++
		e.raw(`"` + t.Key + `":`)
		e.value(t.Field(s))
	}
	e.raw("}")
}

// value writes a field of a room.
func (e *encoder) value(field any) {
	switch f := field.(type) {
	case *string:
		e.text(*f)
	case *int:
		e.out = strconv.AppendInt(e.out, int64(*f), 10)
	case *uint32:
		e.out = strconv.AppendUint(e.out, uint64(*f), 10)
	case *bool:
		e.out = strconv.AppendBool(e.out, *f)
	case *time.Duration:
		e.text(f.String())
	case *[]Route:
		e.list("additional_routes", len(*f), func(i int) { e.route(&(*f)[i]) })
	case *[]Rule:
		e.list("rules", len(*f), func(i int) { e.rule(&(*f)[i]) })
	case *[]Event:
		e.list("events", len(*f), func(i int) { e.event(&(*f)[i]) })
	}
}

// list writes n values of a room's field; faults name the field and the number.
func (e *encoder) list(field string, n int, value func(i int)) {
	room := e.at
	e.raw("[")
	for i := range n {
		e.comma(i)
		e.at = fmt.Sprintf("%s: %s[%d]", room, field, i)
		value(i)
	}
	e.raw("]")
	e.at = room
}

func (e *encoder) route(r *Route) {
	e.raw(`{"host":`)
	e.text(r.Host)
	e.raw(`,"path":`)
	e.text(r.Path)
	e.raw("}")
}

func (e *encoder) rule(r *Rule) {
	e.raw(`{"id":`)
	e.text(r.ID)
	e.raw(`,"action":"` + ActionBypass + `","expression":`)
	e.text(r.Expression)
	e.raw(`,"description":`)
	e.text(r.Description)
	e.out = strconv.AppendBool(append(e.out, `,"enabled":`...), !r.Disabled)
	e.out = strconv.AppendInt(append(e.out, `,"version":`...), int64(r.Version), 10)
	e.out = strconv.AppendInt(append(e.out, `,"updated":`...), r.Updated, 10)
	e.raw("}")
}

func (e *encoder) event(v *Event) {
	e.raw(`{"id":`)
	e.text(v.ID)
	for _, f := range v.texts() {
		e.raw(`,"` + f.key + `":`)
		e.text(*f.to)
	}
	for _, f := range v.numbers() {
		e.out = strconv.AppendInt(append(e.out, `,"`+f.key+`":`...), *f.to, 10)
	}
	e.out = strconv.AppendBool(append(e.out, `,"suspended":`...), v.Suspended)
	if v.Shuffle {
		e.raw(`,"shuffle":true`)
	}
	e.overrides(v.Overrides)
	e.raw("}")
}

// The encoding of boolean overrides.
const (
	overrideFalse = 1
	overrideTrue  = 2
)

func (e *encoder) overrides(o Overrides) {
	over := o.Over(Settings{})
	for t := range Overridable() {
		if _, said := o[t.Key]; !said {
			continue
		}
		e.raw(`,"` + t.Key + `":`)
		field := t.Field(&over)
		if truth, ok := field.(*bool); ok {
			n := overrideFalse
			if *truth {
				n = overrideTrue
			}
			field = &n
		}
		e.value(field)
	}
}

// keyed is a field of an event with its key in documents.
type keyed[T any] struct {
	key string
	to  *T
}

func (v *Event) texts() []keyed[string] {
	return []keyed[string]{{"name", &v.Name}, {"description", &v.Description}}
}

func (v *Event) numbers() []keyed[int64] {
	return []keyed[int64]{
		{"prequeue", &v.Prequeue},
		{"start", &v.Start},
		{"end", &v.End},
		{"created", &v.Created},
		{"changed", &v.Changed},
	}
}
