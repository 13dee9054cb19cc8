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

// MaxDocumentBytes bounds the encoded form of a document.
const MaxDocumentBytes = 16 << 20

// documentJSON and its parts are the published form of a document. Every field
// is written always, so that nodes with other defaults read the same.
type documentJSON struct {
	Rooms []settingsJSON `json:"rooms"`
	Hosts []hostJSON     `json:"hosts"`
}

type hostJSON struct {
	Name   string `json:"name"`
	Origin string `json:"origin"`
}

type routeJSON struct {
	Host string `json:"host"`
	Path string `json:"path"`
}

type settingsJSON struct {
	Name              string      `json:"name"`
	Host              string      `json:"host"`
	Path              string      `json:"path"`
	AdditionalRoutes  []routeJSON `json:"additional_routes"`
	TotalActiveUsers  int         `json:"total_active_users"`
	NewUsersPerMinute int         `json:"new_users_per_minute"`
	SessionDuration   string      `json:"session_duration"`
	Probation         string      `json:"probation"`
	Grace             string      `json:"grace"`
	PartitionPolicy   string      `json:"partition_policy"`
	LostAfter         string      `json:"lost_after"`
	OnIsolation       string      `json:"on_isolation"`
	IsolationLimit    int         `json:"isolation_limit"`
	Origin            string      `json:"origin"`
	QueueingStatus    int         `json:"queueing_status_code"`
	WaitingPage       string      `json:"waiting_page"`
	DefaultLanguage   string      `json:"default_template_language"`
	QueueMessage      string      `json:"queue_message"`
	Epoch             uint32      `json:"epoch"`
}

// EncodeDocument returns doc as JSON, in the order of doc; equal documents
// give equal bytes. It neither validates doc nor fills in defaults. It fails
// when a text is not UTF-8 and when the result would exceed MaxDocumentBytes.
func EncodeDocument(doc Document) ([]byte, error) {
	out := documentJSON{Rooms: make([]settingsJSON, len(doc.Rooms)), Hosts: make([]hostJSON, len(doc.Hosts))}
	for i, s := range doc.Rooms {
		routes := make([]routeJSON, len(s.AdditionalRoutes))
		for j, r := range s.AdditionalRoutes {
			routes[j] = routeJSON(r)
			if !utf8.ValidString(r.Host + r.Path) {
				return nil, fmt.Errorf("encode rooms: %s: additional_routes[%d]: not UTF-8", item(i), j)
			}
		}
		if !utf8.ValidString(s.Name + s.Host + s.Path + s.Origin + s.WaitingPage + s.DefaultLanguage + s.QueueMessage + s.PartitionPolicy + s.OnIsolation) {
			return nil, fmt.Errorf("encode rooms: %s: not UTF-8", item(i))
		}
		out.Rooms[i] = settingsJSON{
			Name:              s.Name,
			Host:              s.Host,
			Path:              s.Path,
			AdditionalRoutes:  routes,
			TotalActiveUsers:  s.TotalActiveUsers,
			NewUsersPerMinute: s.NewUsersPerMinute,
			SessionDuration:   s.SessionDuration.String(),
			Probation:         s.Probation.String(),
			Grace:             s.Grace.String(),
			PartitionPolicy:   s.PartitionPolicy,
			LostAfter:         s.LostAfter.String(),
			OnIsolation:       s.OnIsolation,
			IsolationLimit:    s.IsolationLimit,
			Origin:            s.Origin,
			QueueingStatus:    s.QueueingStatus,
			WaitingPage:       s.WaitingPage,
			DefaultLanguage:   s.DefaultLanguage,
			QueueMessage:      s.QueueMessage,
			Epoch:             s.Epoch,
		}
	}
	for i, h := range doc.Hosts {
		if !utf8.ValidString(h.Name + h.Origin) {
			return nil, fmt.Errorf("encode rooms: hosts[%d]: not UTF-8", i)
		}
		out.Hosts[i] = hostJSON(h)
	}
	data, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode rooms: %w", err)
	}
	if len(data) > MaxDocumentBytes {
		return nil, fmt.Errorf("encode rooms: %d bytes, at most %d allowed", len(data), MaxDocumentBytes)
	}
	return data, nil
}

// DecodeDocument reads what EncodeDocument wrote. It is strict where
// encoding/json is lenient: unknown and duplicate fields, names in another
// letter case, null, numbers that are not plain integers in range and trailing
// data are errors that name the field, such as "rooms[2].epoch". The field
// rooms is required; other absent fields are left zero. The document is not
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
	r := reader{json.NewDecoder(bytes.NewReader(data))}
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

func (r reader) settings(at string) (s Settings, err error) {
	err = r.object(at, func(at, key string) (bool, error) {
		switch key {
		case "name":
			return true, r.text(at, &s.Name)
		case "host":
			return true, r.text(at, &s.Host)
		case "path":
			return true, r.text(at, &s.Path)
		case "additional_routes":
			return true, r.array(at, MaxRoutes, func(at string) error {
				route, err := r.route(at)
				s.AdditionalRoutes = append(s.AdditionalRoutes, route)
				return err
			})
		case "total_active_users":
			return true, r.whole(at, &s.TotalActiveUsers)
		case "new_users_per_minute":
			return true, r.whole(at, &s.NewUsersPerMinute)
		case "session_duration":
			return true, r.duration(at, &s.SessionDuration)
		case "probation":
			return true, r.duration(at, &s.Probation)
		case "grace":
			return true, r.duration(at, &s.Grace)
		case "partition_policy":
			return true, r.text(at, &s.PartitionPolicy)
		case "lost_after":
			return true, r.duration(at, &s.LostAfter)
		case "on_isolation":
			return true, r.text(at, &s.OnIsolation)
		case "isolation_limit":
			return true, r.whole(at, &s.IsolationLimit)
		case "origin":
			return true, r.text(at, &s.Origin)
		case "queueing_status_code":
			return true, r.whole(at, &s.QueueingStatus)
		case "waiting_page":
			return true, r.text(at, &s.WaitingPage)
		case "default_template_language":
			return true, r.text(at, &s.DefaultLanguage)
		case "queue_message":
			return true, r.text(at, &s.QueueMessage)
		case "epoch":
			return true, r.epoch(at, &s.Epoch)
		}
		return false, nil
	})
	return s, err
}

func (r reader) route(at string) (route Route, err error) {
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

func (r reader) host(at string) (h Host, err error) {
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
func (r reader) object(at string, field func(at, key string) (known bool, err error)) error {
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
func (r reader) array(at string, most int, element func(at string) error) error {
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

func (r reader) open(at string, want json.Delim, what string) error {
	tok, err := r.dec.Token()
	if err != nil {
		return fail(at, err)
	}
	if tok != want {
		return mismatch(at, what)
	}
	return nil
}

func (r reader) text(at string, to *string) error {
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

func (r reader) integer(at string, low, high int64) (int64, error) {
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

func (r reader) whole(at string, to *int) error {
	v, err := r.integer(at, math.MinInt, math.MaxInt)
	*to = int(v)
	return err
}

func (r reader) epoch(at string, to *uint32) error {
	v, err := r.integer(at, 0, math.MaxUint32)
	*to = uint32(v)
	return err
}

func (r reader) duration(at string, to *time.Duration) error {
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
