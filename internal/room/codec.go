package room

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// MaxDocumentBytes bounds the encoded form of a document.
const MaxDocumentBytes = 16 << 20

// EncodeDocument returns doc as JSON, in the order of doc; equal documents
// give equal bytes. It neither validates doc nor fills in defaults. It fails
// when a text is not UTF-8 and when the result would exceed MaxDocumentBytes.
//
// Every setting of version 1 is written always, so that nodes with other defaults read
// the same. A newer one is written where it differs from its default: nodes with an
// older table read a document that does not use it. One that does says which version it
// was written by, and which one its readers need.
func EncodeDocument(doc Document) ([]byte, error) {
	e := encoder{}
	version, needs := doc.schema()
	e.raw("{")
	if version > 1 {
		e.raw(`"version":` + strconv.Itoa(version) + `,"needs":` + strconv.Itoa(needs) + ",")
	}
	e.raw(`"rooms":[`)
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

// schema returns the newest version of the table that doc uses, and the newest without
// which it is not understood.
func (d Document) schema() (version, needs int) {
	version, needs = 1, 1
	for i := range Schema {
		t := &Schema[i]
		if t.Since == 1 || !slices.ContainsFunc(d.Rooms, func(s Settings) bool { return !t.IsDefault(&s) }) {
			continue
		}
		version = max(version, t.Since)
		if !t.Soft {
			needs = max(needs, t.Since)
		}
	}
	return version, needs
}

// encoder writes a document.
type encoder struct {
	out []byte
	at  string // what is written, for errors
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
		if t.Since > 1 && t.IsDefault(s) {
			continue
		}
		e.comma(n)
		n++
		e.raw(`"` + t.Key + `":`)
		switch f := t.Field(s).(type) {
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
			e.routes(*f)
		case *[]Rule:
			e.rules(*f)
		case *[]Event:
			e.events(*f)
		}
	}
	e.raw("}")
}

func (e *encoder) routes(all []Route) {
	room := e.at
	e.raw("[")
	for i, r := range all {
		e.comma(i)
		e.at = fmt.Sprintf("%s: additional_routes[%d]", room, i)
		e.raw(`{"host":`)
		e.text(r.Host)
		e.raw(`,"path":`)
		e.text(r.Path)
		e.raw("}")
	}
	e.raw("]")
	e.at = room
}

func (e *encoder) rules(all []Rule) {
	room := e.at
	e.raw("[")
	for i := range all {
		r := &all[i]
		e.comma(i)
		e.at = fmt.Sprintf("%s: rules[%d]", room, i)
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
	e.raw("]")
	e.at = room
}

func (e *encoder) events(all []Event) {
	room := e.at
	e.raw("[")
	for i := range all {
		v := &all[i]
		e.comma(i)
		e.at = fmt.Sprintf("%s: events[%d]", room, i)
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
		for _, n := range []struct {
			key string
			n   int
		}{{"total_active_users", v.Total}, {"new_users_per_minute", v.Rate}, {"disable_session_renewal", int(v.NoRenewal)}} {
			e.out = strconv.AppendInt(append(e.out, `,"`+n.key+`":`...), int64(n.n), 10)
		}
		e.raw(`,"session_duration":`)
		e.text(v.Session.String())
		e.raw("}")
	}
	e.raw("]")
	e.at = room
}

// keyed is a field of an event as documents name it.
type keyed[T any] struct {
	key string
	to  *T
}

func (v *Event) texts() []keyed[string] {
	return []keyed[string]{{"name", &v.Name}, {"description", &v.Description}, {"queueing_method", &v.Method}, {"waiting_page", &v.Page}}
}

func (v *Event) numbers() []keyed[int64] {
	return []keyed[int64]{{"prequeue", &v.Prequeue}, {"start", &v.Start}, {"end", &v.End}, {"created", &v.Created}, {"changed", &v.Changed}}
}

// DecodeDocument reads what EncodeDocument wrote. It is strict where
// encoding/json is lenient: unknown and duplicate fields, names in another
// letter case, null, numbers that are not plain integers in range and trailing
// data are errors that name the field, such as "rooms[2].epoch". The field
// rooms is required; other absent fields are left zero. Settings that it does not know
// are left out of a document that was written by a newer table and does not need it;
// one that needs a newer table is refused. The document is not
// validated but for the length of its lists: [NewSet] does that.
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
	hasRooms := false
	err = r.object("", func(at, key string) (bool, error) {
		switch key {
		case "version":
			return true, r.whole(at, &r.version)
		case "needs":
			needs := 0
			if err := r.whole(at, &needs); err != nil {
				return true, err
			}
			if needs > SchemaVersion {
				return true, fmt.Errorf("%s: the rooms use settings of version %d, this node knows version %d: update it", at, needs, SchemaVersion)
			}
			return true, nil
		case "rooms":
			hasRooms = true
			return true, r.array(at, MaxRooms, func(at string) error {
				s, err := r.settings(at)
				doc.Rooms = append(doc.Rooms, s)
				return err
			})
		case "hosts":
			return true, r.array(at, MaxRooms, func(at string) error {
				h, err := r.host(at)
				doc.Hosts = append(doc.Hosts, h)
				return err
			})
		}
		return false, nil
	})
	if err != nil {
		return doc, err
	}
	if !hasRooms {
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
	version int // of the table that wrote the document, 0 before it is told
}

func (r *reader) settings(at string) (s Settings, err error) {
	err = r.object(at, func(at, key string) (bool, error) {
		t, ok := settingByKey(key)
		if !ok {
			if r.version <= SchemaVersion {
				return false, nil
			}
			return true, r.skip(at)
		}
		switch f := t.Field(&s).(type) {
		case *string:
			return true, r.text(at, f)
		case *int:
			return true, r.whole(at, f)
		case *uint32:
			return true, r.epoch(at, f)
		case *bool:
			return true, r.flag(at, f)
		case *time.Duration:
			return true, r.duration(at, f)
		case *[]Route:
			return true, r.array(at, MaxRoutes, func(at string) error {
				route, err := r.route(at)
				*f = append(*f, route)
				return err
			})
		case *[]Rule:
			return true, r.array(at, MaxRules, func(at string) error {
				rule, err := r.rule(at)
				*f = append(*f, rule)
				return err
			})
		case *[]Event:
			return true, r.array(at, MaxEvents, func(at string) error {
				v, err := r.event(at)
				*f = append(*f, v)
				return err
			})
		default:
			panic(fmt.Sprintf("room: a setting of type %T", f))
		}
	})
	return s, err
}

func (r *reader) rule(at string) (rule Rule, err error) {
	err = r.object(at, func(at, key string) (bool, error) {
		switch key {
		case "id":
			return true, r.text(at, &rule.ID)
		case "action": // whatever else it is must not let anybody past
			action := ""
			if err := r.text(at, &action); err != nil {
				return true, err
			}
			if action != ActionBypass {
				return true, mismatch(at, ActionBypass)
			}
			return true, nil
		case "expression":
			return true, r.text(at, &rule.Expression)
		case "description":
			return true, r.text(at, &rule.Description)
		case "enabled":
			enabled := false
			err := r.flag(at, &enabled)
			rule.Disabled = !enabled
			return true, err
		case "version":
			return true, r.whole(at, &rule.Version)
		case "updated":
			updated := 0
			err := r.whole(at, &updated)
			rule.Updated = int64(updated)
			return true, err
		}
		return false, nil
	})
	return rule, err
}

func (r *reader) event(at string) (v Event, err error) {
	err = r.object(at, func(at, key string) (bool, error) {
		for _, f := range v.texts() {
			if f.key == key {
				return true, r.text(at, f.to)
			}
		}
		for _, f := range v.numbers() {
			if f.key == key {
				n, err := r.integer(at, math.MinInt64, math.MaxInt64)
				*f.to = n
				return true, err
			}
		}
		switch key {
		case "id":
			return true, r.text(at, &v.ID)
		case "suspended":
			return true, r.flag(at, &v.Suspended)
		case "shuffle":
			return true, r.flag(at, &v.Shuffle)
		case "total_active_users":
			return true, r.whole(at, &v.Total)
		case "new_users_per_minute":
			return true, r.whole(at, &v.Rate)
		case "disable_session_renewal":
			n, err := r.integer(at, 0, int64(overrides)-1)
			v.NoRenewal = Override(n)
			return true, err
		case "session_duration":
			return true, r.duration(at, &v.Session)
		}
		return false, nil
	})
	return v, err
}

func (r *reader) route(at string) (route Route, err error) {
	err = r.object(at, func(at, key string) (bool, error) {
		switch key {
		case "host":
			return true, r.text(at, &route.Host)
		case "path":
			return true, r.text(at, &route.Path)
		}
		return false, nil
	})
	return route, err
}

func (r *reader) host(at string) (h Host, err error) {
	err = r.object(at, func(at, key string) (bool, error) {
		switch key {
		case "name":
			return true, r.text(at, &h.Name)
		case "origin":
			return true, r.text(at, &h.Origin)
		}
		return false, nil
	})
	return h, err
}

// object reads an object. It calls field with each key, which must read the
// value or say that it does not know the key.
func (r *reader) object(at string, field func(at, key string) (known bool, err error)) error {
	if err := r.open(at, '{', "an object"); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for r.dec.More() {
		tok, err := r.dec.Token()
		if err != nil {
			return fail(at, err)
		}
		key, _ := tok.(string) // the decoder takes nothing else for a key
		here := clip(key)
		if at != "" {
			here = at + "." + here
		}
		if seen[key] {
			return errors.New(here + ": duplicate field")
		}
		seen[key] = true
		known, err := field(here, key)
		if err != nil {
			return err
		}
		if !known {
			return errors.New(here + ": unknown field")
		}
	}
	_, err := r.dec.Token()
	return fail(at, err)
}

// array reads a list of at most most elements.
func (r *reader) array(at string, most int, element func(at string) error) error {
	if err := r.open(at, '[', "a list"); err != nil {
		return err
	}
	for i := 0; r.dec.More(); i++ {
		if i == most {
			return mismatch(at, fmt.Sprintf("a list of at most %d", most))
		}
		if err := element(at + "[" + strconv.Itoa(i) + "]"); err != nil {
			return err
		}
	}
	_, err := r.dec.Token()
	return fail(at, err)
}

func (r *reader) open(at string, want json.Delim, what string) error {
	tok, err := r.dec.Token()
	if err != nil {
		return fail(at, err)
	}
	if tok != want {
		return mismatch(at, what)
	}
	return nil
}

func (r *reader) text(at string, to *string) error {
	tok, err := r.dec.Token()
	if err != nil {
		return fail(at, err)
	}
	s, ok := tok.(string)
	if !ok {
		return mismatch(at, "a text")
	}
	*to = s
	return nil
}

func (r *reader) integer(at string, low, high int64) (int64, error) {
	tok, err := r.dec.Token()
	if err != nil {
		return 0, fail(at, err)
	}
	n, ok := tok.(json.Number)
	if !ok {
		return 0, mismatch(at, "a whole number")
	}
	v, err := strconv.ParseInt(n.String(), 10, 64)
	if err != nil || v < low || v > high {
		return 0, mismatch(at, fmt.Sprintf("a whole number of %d to %d", low, high))
	}
	return v, nil
}

func (r *reader) whole(at string, to *int) error {
	v, err := r.integer(at, math.MinInt, math.MaxInt)
	*to = int(v)
	return err
}

func (r *reader) epoch(at string, to *uint32) error {
	v, err := r.integer(at, 0, math.MaxUint32)
	*to = uint32(v)
	return err
}

func (r *reader) flag(at string, to *bool) error {
	tok, err := r.dec.Token()
	if err != nil {
		return fail(at, err)
	}
	v, ok := tok.(bool)
	if !ok {
		return mismatch(at, "true or false")
	}
	*to = v
	return nil
}

// skip reads over a value of whatever kind.
func (r *reader) skip(at string) error {
	var v json.RawMessage
	return fail(at, r.dec.Decode(&v))
}

func (r *reader) duration(at string, to *time.Duration) error {
	var s string
	if err := r.text(at, &s); err != nil {
		return err
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return mismatch(at, `a duration such as "5m0s"`)
	}
	*to = d
	return nil
}

func mismatch(at, what string) error {
	if at == "" {
		at = "document"
	}
	return errors.New(at + ": must be " + what)
}

// fail adds to an error of the decoder where it came up.
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
