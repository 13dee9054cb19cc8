package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/global/control/api"
	"vestibule/internal/page/checkpage"
)

// faults collects all faults of a body, each with its JSON pointer.
type faults []api.Note

func (f *faults) add(pointer, format string, args ...any) {
	n := api.Note{Code: codeInvalid, Message: fmt.Sprintf(format, args...) + ": invalid data"}
	n.Source = &struct {
		Pointer string `json:"pointer"`
	}{pointer}
	*f = append(*f, n)
}

// object reads a JSON object that has no keys but the given ones. An unknown key is a fault: a mistyped limit must not
// pass for no limit.
func (f *faults) object(pointer string, data json.RawMessage, keys ...string) map[string]json.RawMessage {
	m := f.members(pointer, data)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if slices.Contains(keys, key) {
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
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		f.add(pointer, "%s must be an object", cmpName(pointer))
		return nil
	}
	m := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		key, _ := t.(string)
		var v json.RawMessage
		if err == nil {
			err = d.Decode(&v)
		}
		if err != nil { // not of a valid document
			f.add(pointer, "%s must be an object", cmpName(pointer))
			return nil
		}
		if _, twice := m[key]; twice {
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

// text reads a string; null is "".
func (f *faults) text(pointer string, v json.RawMessage) (s string, ok bool) {
	if null(v) {
		return "", true
	}
	if err := json.Unmarshal(v, &s); err != nil {
		f.add(pointer, "%s must be a string", cmpName(pointer))
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
	"/id": true, "/created_on": true, "/modified_on": true, "/next_event_prequeue_start_time": true, "/next_event_start_time": true,
	"/zone_id": true, "/account_id": true, "/waiting_room_id": true, "/event_id": true, "/rule_id": true,
	ownPrefix + "revision": true, ownPrefix + "identity": true,
}

// other checks a value that is no setting. An unknown key is a fault.
func (f *faults) other(at string, settings map[string]*field) {
	if readOnly[at] {
		return
	}
	f.unknown(at, "setting", keysOf(settings))
}

// fieldOf returns the field at a JSON pointer, nil for none. A field is also found by its key in
// rooms.yaml, such as grace for vestibule.grace: other clients may use such a name for a field of the hosted product.
func fieldOf(settings map[string]*field, at string) *field {
	if f := settings[at]; f != nil {
		return f
	}
	f := settings[place(at[1:])]
	if f != nil && f.Setting != nil && f.Key == "waiting_page" { // the file names a page, the API holds it
		return nil
	}
	return f
}

// unknown adds the fault of a key that does not exist, with the one that was probably meant, or with all.
func (f *faults) unknown(at, kind string, keys []string) {
	name := cmpName(at)
	if meant := meantKeys(name, keys); len(meant) > 0 {
		f.add(at, "%s: no such %s, did you mean %s?", short(name), kind, strings.Join(meant, " or "))
		return
	}
	if len(keys) == 0 {
		f.add(at, "%s: no such %s: this request takes none", short(name), kind)
		return
	}
	f.add(at, "%s: no such %s, there are %s", short(name), kind, strings.Join(keys, ", "))
}

// meantKeys returns the keys that an unknown one probably means: that of which it is a misspelling, also by another name
// of it, or else the few that contain all of its words.
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

// keysOf returns the keys of settings at their JSON pointers, with dots, in order.
func keysOf(settings map[string]*field) []string {
	keys := make([]string, 0, len(settings))
	for at := range settings {
		keys = append(keys, cmpName(at))
	}
	slices.Sort(keys)
	return keys
}

// RoomKeys returns the keys of a room's settings, with dots for nested ones.
func RoomKeys() []string { return keysOf(fields) }

// EventKeys returns the keys of an event, with dots for nested ones.
func EventKeys() []string { return keysOf(eventFields()) }

// given is the parsed body of a request for a room.
type given struct {
	settings room.Settings
	page     []byte // the waiting page of the body
	origin   bool   // the body names the origin; otherwise the host's is used
	session  bool   // the body names the session length
	faults   faults
	bad      map[string]bool // settings that have a fault already
	names    givenNames
}

// givenNames are the names by which a body gives its fields, by their JSON pointers.
type givenNames map[string]string

// first reports whether the field at the pointer has no value yet, and adds a fault if it has.
func (n givenNames) first(f *faults, name, at string) bool {
	if other := n[at]; other != "" {
		f.add(name, "%s and %s are the same setting: give one of them", cmpName(name), cmpName(other))
		return false
	}
	n[at] = name
	return true
}

// readRoom reads the body of a request over existing settings.
func readRoom(q *request, over room.Settings) *given {
	g := &given{settings: over, bad: map[string]bool{}, names: givenNames{}}
	g.faults.each("", q.body, func(at string, v json.RawMessage) {
		f := fieldOf(fields, at)
		if f == nil {
			g.faults.other(at, fields)
			return
		}
		if !g.names.first(&g.faults, at, f.at) || !f.read(g, v) {
			g.bad[f.Key] = true
		}
		g.session = g.session || f.Key == "session_duration"
		g.origin = g.origin || f.Key == "origin" && g.settings.Origin != ""
	})
	return g
}

// readWord reads an enumerated setting, in any letter case.
func readWord(g *given, f *field, v json.RawMessage) bool {
	s, ok := g.faults.text(f.at, v)
	*f.Field(&g.settings).(*string) = strings.ToLower(s)
	return ok
}

// short truncates a text for a message.
func short(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}

func readRoutes(g *given, _ *field, v json.RawMessage) bool {
	g.settings.AdditionalRoutes = nil
	if null(v) {
		return true
	}
	var list []json.RawMessage
	if err := json.Unmarshal(v, &list); err != nil {
		g.faults.add("/additional_routes", "additional_routes must be a list")
		return false
	}
	good := true
	for i, e := range list {
		at := fmt.Sprintf("/additional_routes/%d", i)
		m := g.faults.object(at, e, "host", "path")
		host, ok := g.faults.text(at+"/host", m["host"])
		path, ok2 := g.faults.text(at+"/path", m["path"])
		good = good && m != nil && ok && ok2
		g.settings.AdditionalRoutes = append(g.settings.AdditionalRoutes, room.Route{Host: host, Path: path})
		if i > room.MaxRoutes {
			break // one fault about their number is enough
		}
	}
	return good
}

// readMinutes reads the session length in minutes, or as a duration such as 90s. A number equal to the rounded length
// keeps an exact length with seconds.
func readMinutes(g *given, f *field, v json.RawMessage) bool {
	if len(v) > 0 && v[0] == '"' {
		d, ok := g.faults.duration(f.at, v)
		g.settings.SessionDuration = d
		return ok
	}
	n, ok := g.faults.whole("/session_duration", v)
	if ok && n != minutes(g.settings.SessionDuration) {
		g.settings.SessionDuration = time.Duration(max(-1, min(n, 1000))) * time.Minute
	}
	return ok
}

// minutes returns d in minutes, rounded up.
func minutes(d time.Duration) int { return int((d + time.Minute - 1) / time.Minute) }

func readPage(g *given, _ *field, v json.RawMessage) bool {
	text, ok := g.faults.text("/custom_page_html", v)
	if !ok || text == "" {
		g.settings.WaitingPage = ""
		return ok
	}
	if _, err := checkpage.Check([]byte(text)); err != nil {
		g.faults.add("/custom_page_html", "custom_page_html: %v", err)
		return false
	}
	g.page, g.settings.WaitingPage = []byte(text), roomdoc.Hash([]byte(text))
	return true
}

func readCommands(g *given, _ *field, v json.RawMessage) bool {
	const at = "/enabled_origin_commands"
	g.settings.OriginCommands = ""
	var list []json.RawMessage
	if err := json.Unmarshal(v, &list); err != nil {
		g.faults.add(at, "enabled_origin_commands must be a list")
		return false
	}
	for i, e := range list {
		s, ok := g.faults.text(fmt.Sprintf("%s/%d", at, i), e)
		if ok && !strings.EqualFold(s, room.CommandRevoke) || i > 0 {
			g.faults.add(at, "enabled_origin_commands must hold nothing but one %q", room.CommandRevoke)
			return false
		}
		if !ok {
			return false
		}
		g.settings.OriginCommands = room.CommandRevoke
	}
	return true
}

// read reads the setting. It returns false if it added a fault.
func (f *field) read(g *given, v json.RawMessage) (ok bool) {
	if form := forms[f.at]; form.read != nil {
		return form.read(g, f, v)
	}
	switch to := f.Field(&g.settings).(type) {
	case *string:
		*to, ok = g.faults.text(f.at, v)
	case *int:
		*to, ok = g.faults.whole(f.at, v)
	case *bool:
		*to, ok = g.faults.flag(f.at, v)
	case *uint32:
		var n uint32
		if ok = null(v) || json.Unmarshal(v, &n) == nil; !ok {
			g.faults.add(f.at, "%s must be %s", cmpName(f.at), f.Bounds)
		}
		*to = n
	case *time.Duration:
		*to, ok = g.faults.duration(f.at, v)
	default:
		g.faults.add(f.at, "%s cannot be set here", cmpName(f.at))
	}
	return ok
}

// judge adds the faults of the validated settings, except those of fields that have one already.
func (g *given) judge() {
	for _, f := range g.settings.Validate() {
		if key, _, _ := strings.Cut(f.Field, "["); !g.bad[f.Field] && !g.bad[key] {
			g.faults.rule(f, g.origin)
		}
	}
}

// rule adds a fault of the room rules.
func (f *faults) rule(r room.Fault, originGiven bool) {
	key, rest, _ := strings.Cut(strings.NewReplacer("[", "/", "]", "", ".", "/").Replace(r.Field), "/")
	pointer := strings.TrimSuffix(place(key)+"/"+rest, "/")
	if key == "origin" && !originGiven {
		pointer = "/host"
	}
	f.add(pointer, "%s %s", r.Field, r.Rule)
}
