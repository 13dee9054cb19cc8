package room

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

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

// ErrUnknownField means that a document has a field that this build does not know.
var ErrUnknownField = errors.New("unknown field, written by a newer build")

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
	dec *json.Decoder
}

func (r *reader) settings(at string) (s Settings, err error) {
	err = r.object(at, func(at, key string) (bool, error) {
		t, ok := settingByKey(key)
		if !ok {
			return false, nil
		}
		return true, r.value(at, t.Field(&s))
	})
	return s, err
}

// value reads a field of a room.
func (r *reader) value(at string, field any) error {
	switch f := field.(type) {
	case *string:
		return r.text(at, f)
	case *int:
		return r.whole(at, f)
	case *uint32:
		return r.epoch(at, f)
	case *bool:
		return r.flag(at, f)
	case *time.Duration:
		return r.duration(at, f)
	case *[]Route:
		return r.array(at, MaxRoutes, func(at string) error {
			route, err := r.route(at)
			*f = append(*f, route)
			return err
		})
	case *[]Rule:
		return r.array(at, MaxRules, func(at string) error {
			rule, err := r.rule(at)
			*f = append(*f, rule)
			return err
		})
	case *[]Event:
		return r.array(at, MaxEvents, func(at string) error {
			v, err := r.event(at)
			*f = append(*f, v)
			return err
		})
	default:
		panic(fmt.Sprintf("room: a setting of type %T", f))
	}
}

func (r *reader) rule(at string) (rule Rule, err error) {
	err = r.object(at, func(at, key string) (bool, error) {
		switch key {
		case "id":
			return true, r.text(at, &rule.ID)
		case "action": // an unknown action must not let visitors pass
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
		}
		t, ok := settingByKey(key)
		if !ok || !t.Events {
			return false, nil
		}
		return true, r.override(at, t, &v)
	})
	return v, err
}

// override reads an override of an event: 0, "" and "0s" mean the room's value.
func (r *reader) override(at string, t *Setting, v *Event) error {
	var s Settings
	truth, ok := t.Field(&s).(*bool)
	if !ok {
		err := r.value(at, t.Field(&s))
		v.Override(t, &s)
		return err
	}
	n, err := r.integer(at, 0, overrideTrue)
	if n != 0 {
		*truth = n == overrideTrue
		v.Override(t, &s)
	}
	return err
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

// object reads an object. It calls field with each key. field must read the value or return false for an unknown key.
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
		key, _ := tok.(string) // the decoder accepts only string keys
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
			return fmt.Errorf("%s: %w", here, ErrUnknownField)
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
