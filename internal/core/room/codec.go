package room

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// MaxDocumentBytes bounds the encoded form of a document.
const MaxDocumentBytes = 16 << 20

// ErrUnknownField means that a document has a field that this build does not know.
var ErrUnknownField = errors.New("unknown field, written by a newer build")

// member is a field of an object in a document.
type member struct {
	key  string
	to   any  // as of [Setting.Field], or *int64, *denied, constant, override, or a list of objects
	omit bool // it is not written
}

type (
	denied   bool   // is written as its opposite
	constant string // has no other value
	override struct {
		of *Event
		t  *Setting
	}
)

// appendMembers appends the fields of an object, in the order in which they are written.
func appendMembers(out []member, object any) []member {
	add := func(key string, to any) { out = append(out, member{key: key, to: to}) }
	switch v := object.(type) {
	case *Document:
		add("rooms", &v.Rooms)
		add("hosts", &v.Hosts)
	case *Settings:
		for i := range Schema {
			t := &Schema[i]
			out = append(out, member{t.Key, t.Field(v), t.IsDefault(v)})
		}
	case *Host:
		add("name", &v.Name)
		add("origin", &v.Origin)
	case *Route:
		add("host", &v.Host)
		add("path", &v.Path)
	case *Rule:
		add("id", &v.ID)
		add("action", constant(ActionBypass)) // an unknown action must not let visitors pass
		add("expression", &v.Expression)
		add("description", &v.Description)
		add("enabled", (*denied)(&v.Disabled))
		add("version", &v.Version)
		add("updated", &v.Updated)
	case *Event:
		add("id", &v.ID)
		add("name", &v.Name)
		add("description", &v.Description)
		add("prequeue", &v.Prequeue)
		add("start", &v.Start)
		add("end", &v.End)
		add("created", &v.Created)
		add("changed", &v.Changed)
		add("suspended", &v.Suspended)
		out = append(out, member{"shuffle", &v.Shuffle, !v.Shuffle})
		for t := range Overridable() {
			_, overridden := v.Overrides[t.Key]
			out = append(out, member{t.Key, override{v, t}, !overridden})
		}
	default:
		panic(fmt.Sprintf("room: an object of type %T", v))
	}
	return out
}

// The encoding of boolean overrides.
const (
	overrideFalse = 1
	overrideTrue  = 2
)

// EncodeDocument returns doc as JSON, in the order of doc; equal documents give equal bytes. It neither validates doc
// nor fills in defaults. It fails if a string is not UTF-8, or if the result would exceed MaxDocumentBytes.
//
// Defaults are left out, so that a node that does not know a setting can read a document that does not use it.
func EncodeDocument(doc Document) ([]byte, error) {
	e := encoder{}
	e.object("", &doc)
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
	out     []byte
	err     error
	members []member // of the open objects
}

func (e *encoder) raw(s string) { e.out = append(e.out, s...) }

func (e *encoder) comma(i int) {
	if i > 0 {
		e.raw(",")
	}
}

func (e *encoder) object(at string, v any) {
	e.raw("{")
	first, n := len(e.members), 0
	e.members = appendMembers(e.members, v)
	for _, m := range e.members[first:] {
		if !m.omit {
			e.comma(n)
			n++
			e.raw(`"` + m.key + `":`)
			e.value(at, m.key, m.to)
		}
	}
	e.members = e.members[:first]
	e.raw("}")
}

// value writes a field of the object at a position, which errors name.
func (e *encoder) value(at, key string, field any) {
	switch f := field.(type) {
	case *string:
		e.text(at, *f)
	case constant:
		e.text(at, string(f))
	case *int:
		e.out = strconv.AppendInt(e.out, int64(*f), 10)
	case *int64:
		e.out = strconv.AppendInt(e.out, *f, 10)
	case *uint32:
		e.out = strconv.AppendUint(e.out, uint64(*f), 10)
	case *bool:
		e.out = strconv.AppendBool(e.out, *f)
	case *denied:
		e.out = strconv.AppendBool(e.out, !bool(*f))
	case *time.Duration:
		e.text(at, f.String())
	case override:
		over := f.of.Overrides.Over(Settings{})
		field := f.t.Field(&over)
		if truth, ok := field.(*bool); ok {
			n := overrideFalse
			if *truth {
				n = overrideTrue
			}
			field = &n
		}
		e.value(at, key, field)
	default:
		e.list(at, key, reflect.ValueOf(f).Elem())
	}
}

func (e *encoder) list(at, key string, list reflect.Value) {
	if at != "" {
		key = at + ": " + key
	}
	e.raw("[")
	for i := range list.Len() {
		e.comma(i)
		e.object(key+"["+strconv.Itoa(i)+"]", list.Index(i).Addr().Interface())
	}
	e.raw("]")
}

func (e *encoder) text(at, s string) {
	data, err := json.Marshal(s)
	if !utf8.ValidString(s) {
		err = errors.New(at + ": not UTF-8")
	}
	if e.err == nil {
		e.err = err
	}
	e.out = append(e.out, data...)
}

// DecodeDocument decodes the output of EncodeDocument. It is stricter than encoding/json: duplicate fields, names in
// another letter case, null, numbers that are not plain integers in range and trailing data are errors that name the
// field, such as "rooms[2].epoch". An unknown field is an [ErrUnknownField]: a newer build wrote the document. The
// field rooms is required; other absent fields are zero. Only the length of lists is validated; [NewSet] does the
// rest.
func DecodeDocument(data []byte) (Document, error) {
	doc, err := decodeDocument(data)
	if err != nil {
		return Document{}, fmt.Errorf("decode rooms: %w", err)
	}
	return doc, nil
}

func decodeDocument(data []byte) (doc Document, err error) {
	if len(data) > MaxDocumentBytes {
		return doc, fmt.Errorf("%d bytes, at most %d allowed", len(data), MaxDocumentBytes)
	}
	if !utf8.Valid(data) {
		return doc, errors.New("not UTF-8") // encoding/json would replace the bytes silently
	}
	r := &reader{dec: json.NewDecoder(bytes.NewReader(data))}
	r.dec.UseNumber()
	present, err := r.object("", &doc)
	if err != nil {
		return doc, err
	}
	if !present["rooms"] {
		return doc, errors.New("rooms: is required") // an empty store is not an empty document
	}
	if _, err := r.dec.Token(); !errors.Is(err, io.EOF) {
		return doc, errors.New("trailing data after the document")
	}
	return doc, nil
}

// reader reads a document token by token.
type reader struct {
	dec     *json.Decoder
	members []member // of the open objects
}

// object reads an object into v, and returns the fields present.
func (r *reader) object(at string, v any) (present map[string]bool, err error) {
	if err := r.open(at, '{', "an object"); err != nil {
		return nil, err
	}
	present = make(map[string]bool)
	first := len(r.members)
	r.members = appendMembers(r.members, v)
	for all := r.members[first:]; r.dec.More(); {
		key, err := token[string](r, at, "a text") // the decoder accepts only string keys
		if err != nil {
			return nil, err
		}
		here := clip(key)
		if at != "" {
			here = at + "." + here
		}
		if present[key] {
			return nil, errors.New(here + ": duplicate field")
		}
		present[key] = true
		i := slices.IndexFunc(all, func(m member) bool { return m.key == key })
		if i < 0 {
			return nil, fmt.Errorf("%s: %w", here, ErrUnknownField)
		}
		if err := r.value(here, all[i].to); err != nil {
			return nil, err
		}
	}
	r.members = r.members[:first]
	_, err = r.dec.Token()
	return present, fail(at, err)
}

// value reads a field of an object.
func (r *reader) value(at string, field any) (err error) {
	switch f := field.(type) {
	case *string:
		*f, err = token[string](r, at, "a text")
	case constant:
		got, err := token[string](r, at, "a text")
		if err == nil && got != string(f) {
			err = mismatch(at, string(f))
		}
		return err
	case *int:
		n, err := r.integer(at, math.MinInt, math.MaxInt)
		*f = int(n)
		return err
	case *int64:
		*f, err = r.integer(at, math.MinInt64, math.MaxInt64)
	case *uint32:
		n, err := r.integer(at, 0, math.MaxUint32)
		*f = uint32(n)
		return err
	case *bool:
		*f, err = token[bool](r, at, "true or false")
	case *denied:
		on, err := token[bool](r, at, "true or false")
		*f = denied(!on)
		return err
	case *time.Duration:
		text, err := token[string](r, at, "a text")
		if err != nil {
			return err
		}
		if *f, err = time.ParseDuration(text); err != nil {
			return mismatch(at, `a duration such as "5m0s"`)
		}
	case override:
		return r.override(at, f)
	case *[]Settings:
		return readList(r, at, MaxRooms, f)
	case *[]Host:
		return readList(r, at, MaxRooms, f)
	case *[]Route:
		return readList(r, at, MaxRoutes, f)
	case *[]Rule:
		return readList(r, at, MaxRules, f)
	case *[]Event:
		return readList(r, at, MaxEvents, f)
	default:
		panic(fmt.Sprintf("room: a setting of type %T", f))
	}
	return err
}

// override reads an override of an event: 0, "" and "0s" mean the room's value.
func (r *reader) override(at string, o override) error {
	var s Settings
	field := o.t.Field(&s)
	truth, ok := field.(*bool)
	if !ok {
		err := r.value(at, field)
		o.of.Override(o.t, &s)
		return err
	}
	n, err := r.integer(at, 0, overrideTrue)
	if n != 0 {
		*truth = n == overrideTrue
		o.of.Override(o.t, &s)
	}
	return err
}

// readList reads a list of at most most objects.
func readList[T any](r *reader, at string, most int, to *[]T) error {
	if err := r.open(at, '[', "a list"); err != nil {
		return err
	}
	for i := 0; r.dec.More(); i++ {
		if i == most {
			return mismatch(at, fmt.Sprintf("a list of at most %d", most))
		}
		*to = append(*to, *new(T))
		if _, err := r.object(at+"["+strconv.Itoa(i)+"]", &(*to)[i]); err != nil {
			return err
		}
	}
	_, err := r.dec.Token()
	return fail(at, err)
}

func (r *reader) open(at string, want json.Delim, what string) error {
	got, err := token[json.Delim](r, at, what)
	if err == nil && got != want {
		err = mismatch(at, what)
	}
	return err
}

func (r *reader) integer(at string, low, high int64) (int64, error) {
	n, err := token[json.Number](r, at, "a whole number")
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseInt(n.String(), 10, 64)
	if err != nil || v < low || v > high {
		return 0, mismatch(at, fmt.Sprintf("a whole number of %d to %d", low, high))
	}
	return v, nil
}

// token reads a token of one type.
func token[T any](r *reader, at, what string) (v T, err error) {
	tok, err := r.dec.Token()
	if err != nil {
		return v, fail(at, err)
	}
	v, ok := tok.(T)
	if !ok {
		return v, mismatch(at, what)
	}
	return v, nil
}

func mismatch(at, what string) error {
	if at == "" {
		at = "document"
	}
	return errors.New(at + ": must be " + what)
}

// fail adds the position to an error of the decoder.
func fail(at string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	if at == "" {
		at = "document"
	}
	return fmt.Errorf("%s: %w", at, err)
}
