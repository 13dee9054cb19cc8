package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/strictjson"
	"vestibule/internal/global/control/api"
)

// faults counts the faults of a body, and names the first ones with their JSON pointers.
type faults struct {
	n      int // of all
	notes  []api.Note
	listed bool // a fault lists the known keys
}

// Bounds of what an answer says.
const (
	maxNamed   = 10   // faults
	maxPointer = 200  // bytes
	maxMessage = 4096 // bytes: the keys of a room take 2,000
)

// full counts a fault that is not named. It returns false if there is space to name it.
func (f *faults) full() bool {
	if len(f.notes) < maxNamed {
		return false
	}
	f.n++
	return true
}

func (f *faults) add(pointer, format string, args ...any) {
	if f.full() {
		return
	}
	f.n++
	text := cut(fmt.Sprintf(format, args...), maxMessage) + ": invalid data"
	f.notes = append(f.notes, noteAt(cut(pointer, maxPointer), codeInvalid, text))
}

// err returns the refusal of a request with these faults, nil for none.
func (f *faults) err() error {
	if f.n == 0 {
		return nil
	}
	notes := slices.Clip(f.notes)
	if f.n > len(notes) {
		text := fmt.Sprintf("there are %d faults, the first %d are named: invalid data", f.n, len(notes))
		notes = append(notes, api.Note{Code: codeInvalid, Message: text})
	}
	return &RefusalError{http.StatusBadRequest, notes}
}

// noteAt returns a note about the place in a body that a JSON pointer names.
func noteAt(pointer string, code int, text string) api.Note {
	n := api.Note{Code: code, Message: text}
	n.Source = &struct {
		Pointer string `json:"pointer"`
	}{pointer}
	return n
}

// object reads a JSON object that has no keys but the given ones. An unknown key is a fault: a mistyped limit must not
// pass for no limit.
func (f *faults) object(pointer string, data json.RawMessage, keys ...string) map[string]json.RawMessage {
	m := f.members(pointer, data)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if slices.Contains(keys, key) || f.full() {
			continue
		}
		known := make([]string, len(keys))
		for i, k := range keys {
			known[i] = cmpName(pointer + "/" + k)
		}
		f.unknown(pointer+"/"+key, "field", known)
	}
	return m
}

// members reads a JSON object with any keys. A key that is given twice is a fault.
func (f *faults) members(pointer string, data json.RawMessage) map[string]json.RawMessage {
	all, ok := strictjson.Members(data)
	if !ok {
		f.add(pointer, "%s must be an object", cmpName(pointer))
		return nil
	}
	m := map[string]json.RawMessage{}
	for key, v := range all {
		if _, twice := m[key]; twice && !f.full() {
			f.add(pointer+"/"+key, "%s is given twice", short(cmpName(pointer+"/"+key)))
		}
		m[key] = v
	}
	return m
}

// cmpName returns the name of a pointer in messages.
func cmpName(pointer string) string {
	if pointer == "" {
		return "the body"
	}
	return strings.ReplaceAll(pointer[1:], "/", ".")
}

func null(v json.RawMessage) bool { return len(v) == 0 || string(v) == "null" }

// maxText bounds a text, except waiting pages and rooms files: an expression of the longest characters fits.
const maxText = 16 << 10

// text reads a string; null is "".
func (f *faults) text(pointer string, v json.RawMessage) (s string, ok bool) {
	return f.longText(pointer, v, maxText)
}

// longText reads a string of at most so many bytes; null is "".
func (f *faults) longText(pointer string, v json.RawMessage, most int) (s string, ok bool) {
	if null(v) {
		return "", true
	}
	if err := json.Unmarshal(v, &s); err != nil {
		f.add(pointer, "%s must be a string", cmpName(pointer))
		return "", false
	}
	if len(s) > most {
		f.add(pointer, "%s must be at most %d bytes, got %d", cmpName(pointer), most, len(s))
		return "", false
	}
	return s, true
}

// whole reads an integer; null is 0.
func (f *faults) whole(pointer string, v json.RawMessage) (n int, ok bool) {
	if null(v) {
		return 0, true
	}
	x, ok := new(big.Float), len(v) <= 40
	if ok {
		x, ok = x.SetString(string(v)) // a string has quotes
	}
	if !ok || !x.IsInt() {
		f.add(pointer, "%s must be a whole number", cmpName(pointer))
		return 0, false
	}
	i, exact := x.Int64()
	if n = int(i); exact != big.Exact || int64(n) != i {
		f.add(pointer, "%s must be a whole number in the range of its field, got %s", cmpName(pointer), v)
		return 0, false
	}
	return n, true
}

// duration reads a duration; null and "" are 0.
func (f *faults) duration(pointer string, v json.RawMessage) (d time.Duration, ok bool) {
	text, ok := "", null(v) || v[0] == '"'
	if ok {
		text, ok = f.text(pointer, v)
	}
	if ok && text == "" {
		return 0, true
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		f.add(pointer, "%s must be a duration such as 5m or 90s, got %s", cmpName(pointer), short(string(v)))
		return 0, false
	}
	return d, true
}

func (f *faults) flag(pointer string, v json.RawMessage) (b, ok bool) {
	if null(v) {
		return false, true
	}
	if err := json.Unmarshal(v, &b); err != nil {
		f.add(pointer, "%s must be true or false", cmpName(pointer))
		return false, false
	}
	return b, true
}

// each calls read for each value of a body, with its JSON pointer. It descends into the objects that hold settings.
func (f *faults) each(pointer string, body json.RawMessage, read func(at string, v json.RawMessage)) {
	m := f.members(pointer, body)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		switch at := pointer + "/" + key; {
		case at != "/vestibule" && at != "/cookie_attributes":
			read(at, m[key])
		case !null(m[key]):
			f.each(at, m[key], read)
		}
	}
}

// readOnly are the fields of answers that are no settings, and the parts of the path that the hosted product's npm
// client repeats in bodies. They are ignored: its clients also send the rooms and events that they have read.
var readOnly = map[string]bool{
	"/id": true, "/created_on": true, "/modified_on": true, "/next_event_prequeue_start_time": true,
	"/next_event_start_time": true, "/zone_id": true, "/account_id": true, "/waiting_room_id": true, "/event_id": true,
	"/rule_id": true, ownPrefix + "revision": true, ownPrefix + "identity": true,
}

// unknown adds the fault of a key that does not exist, with the one that was probably meant, or once with all.
func (f *faults) unknown(at, kind string, keys []string) {
	if f.full() {
		return
	}
	name := cmpName(at)
	if meant := meantKeys(name, keys); len(meant) > 0 {
		f.add(at, "%s: no such %s, did you mean %s?", short(name), kind, strings.Join(meant, " or "))
		return
	}
	if len(keys) == 0 {
		f.add(at, "%s: no such %s: this request takes none", short(name), kind)
		return
	}
	if f.listed {
		f.add(at, "%s: no such %s", short(name), kind)
		return
	}
	f.listed = true
	f.add(at, "%s: no such %s, there are %s", short(name), kind, strings.Join(keys, ", "))
}

// meantKeys returns the keys that an unknown one probably means: that of which it is a misspelling, also by another
// name of it, or else the few that contain all of its words.
func meantKeys(name string, keys []string) []string {
	names := map[string]string{} // keys by their last part, and by their name in rooms.yaml
	for _, key := range keys {
		names[key[strings.LastIndexByte(key, '.')+1:]] = key
	}
	for i := range room.Schema {
		if at := cmpName(place(room.Schema[i].Key)); slices.Contains(keys, at) {
			names[room.Schema[i].Key] = at
		}
	}
	if meant := room.Suggest(name[strings.LastIndexByte(name, '.')+1:], slices.Sorted(maps.Keys(names))); meant != "" {
		return []string{names[meant]}
	}
	if meant := room.Suggest(name, keys); meant != "" {
		return []string{meant}
	}
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '_' || r == '.' || r == '-' })
	meant := slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return len(w) < 3 || !strings.Contains(key, w) })
	})
	if len(words) == 0 || len(meant) > 3 {
		return nil
	}
	return meant
}

// short truncates a text for a message.
func short(s string) string { return cut(s, 60) }

// cut truncates a text to at most so many bytes.
func cut(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
