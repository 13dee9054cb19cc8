package control

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
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

// object reads a JSON object.
func (f *faults) object(pointer string, data json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil || m == nil {
		f.add(pointer, "%s must be an object", cmpName(pointer))
		return nil
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

// whole reads an integer; null is 0. Out of range it is the bound.
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
	i, _ := x.Int64()
	return int(max(math.MinInt32, min(i, math.MaxInt32+1))), true
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

// given is the parsed body of a request for a room.
type given struct {
	settings room.Settings
	page     []byte // the waiting page of the body
	origin   bool   // the body names the origin; otherwise the host's is used
	session  bool   // the body names the session length
	faults   faults
	bad      map[string]bool // settings that have a fault already
}

// own are the settings of the object vestibule: those that the hosted product lacks, and the exact session length.
var own = func() (keys []string) {
	for i := range room.Schema {
		switch key := room.Schema[i].Key; key {
		case "name", "host", "path", "additional_routes", "total_active_users", "new_users_per_minute", "queueing_status_code",
			"waiting_page", "default_template_language", "identity", "rules", "events", "description", "queueing_method", "queue_all", "suspended",
			"disable_session_renewal", "cookie_suffix", "cookie_samesite", "cookie_secure", "json_response_enabled", "enabled_origin_commands":
		default:
			keys = append(keys, key)
		}
	}
	return keys
}()

// settingOf returns the schema entry of a setting.
func settingOf(key string) *room.Setting {
	i := slices.IndexFunc(room.Schema, func(t room.Setting) bool { return t.Key == key })
	return &room.Schema[i]
}

// readRoom reads a body over existing settings: blank for a new room.
func readRoom(body json.RawMessage, over room.Settings) *given {
	g := &given{settings: over, bad: map[string]bool{}}
	m := g.faults.object("", body)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if read := fields[key]; read != nil && !read(g, m[key]) {
			g.bad[key] = true
		}
	}
	return g
}

// fields has a reader for each key of a room's body. Other keys are ignored: clients send read-only fields back. A
// reader returns false if it added a fault.
var fields map[string]func(g *given, v json.RawMessage) bool

func init() {
	fields = map[string]func(*given, json.RawMessage) bool{
		"name":                      textField("name", func(s *room.Settings) *string { return &s.Name }),
		"host":                      textField("host", func(s *room.Settings) *string { return &s.Host }),
		"path":                      textField("path", func(s *room.Settings) *string { return &s.Path }),
		"default_template_language": textField("default_template_language", func(s *room.Settings) *string { return &s.DefaultLanguage }),
		"total_active_users":        wholeField("total_active_users", func(s *room.Settings) *int { return &s.TotalActiveUsers }),
		"new_users_per_minute":      wholeField("new_users_per_minute", func(s *room.Settings) *int { return &s.NewUsersPerMinute }),
		"queueing_status_code":      wholeField("queueing_status_code", func(s *room.Settings) *int { return &s.QueueingStatus }),
		"additional_routes":         readRoutes,
		"session_duration":          readMinutes,
		"custom_page_html":          readPage,
		"vestibule":                 readOwn,
		"cookie_attributes":         readCookieAttributes,
		"enabled_origin_commands":   readCommands,
	}
	for key, value := range map[string]string{"turnstile_mode": "invisible", "turnstile_action": "log"} {
		fields[key] = onlyText("/"+key, value)
	}
	for _, key := range []string{"disable_session_renewal", "queue_all", "suspended", "json_response_enabled", "description", "cookie_suffix"} {
		fields[key] = func(g *given, v json.RawMessage) bool { return readSetting(g, settingOf(key), "/"+key, v) }
	}
	fields["queueing_method"] = wordField("queueing_method", "/queueing_method")
}

// wordField reads an enumerated setting, in any letter case.
func wordField(key, pointer string) func(*given, json.RawMessage) bool {
	return func(g *given, v json.RawMessage) bool {
		s, ok := g.faults.text(pointer, v)
		*settingOf(key).Field(&g.settings).(*string) = strings.ToLower(s)
		return ok
	}
}

func textField(key string, field func(*room.Settings) *string) func(*given, json.RawMessage) bool {
	return func(g *given, v json.RawMessage) bool {
		s, ok := g.faults.text("/"+key, v)
		*field(&g.settings) = s
		return ok
	}
}

func wholeField(key string, field func(*room.Settings) *int) func(*given, json.RawMessage) bool {
	return func(g *given, v json.RawMessage) bool {
		n, ok := g.faults.whole("/"+key, v)
		*field(&g.settings) = n
		return ok
	}
}

// onlyText accepts one text only, in any letter case.
func onlyText(pointer, value string) func(*given, json.RawMessage) bool {
	return func(g *given, v json.RawMessage) bool {
		s, ok := g.faults.text(pointer, v)
		if ok && s != "" && !strings.EqualFold(s, value) {
			g.faults.add(pointer, "%s: %s is not served yet, it must be %s", cmpName(pointer), strconv.Quote(short(s)), strconv.Quote(value))
			return false
		}
		return ok
	}
}

// short truncates a text for a message.
func short(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}

func readRoutes(g *given, v json.RawMessage) bool {
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
		m := g.faults.object(at, e)
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

// readMinutes reads the session length in minutes. A number equal to the rounded length keeps an exact length with
// seconds.
func readMinutes(g *given, v json.RawMessage) bool {
	g.session = true
	n, ok := g.faults.whole("/session_duration", v)
	if ok && n != minutes(g.settings.SessionDuration) {
		g.settings.SessionDuration = time.Duration(max(-1, min(n, 1000))) * time.Minute
	}
	return ok
}

// minutes returns d in minutes, rounded up.
func minutes(d time.Duration) int { return int((d + time.Minute - 1) / time.Minute) }

func readPage(g *given, v json.RawMessage) bool {
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

func readCookieAttributes(g *given, v json.RawMessage) bool {
	if null(v) {
		return true
	}
	m := g.faults.object("/cookie_attributes", v)
	good := m != nil
	for _, key := range []string{"samesite", "secure"} {
		if m[key] == nil {
			continue
		}
		good = wordField("cookie_"+key, "/cookie_attributes/"+key)(g, m[key]) && good
	}
	return good
}

func readCommands(g *given, v json.RawMessage) bool {
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

// readOwn reads the object vestibule. Its read-only keys are ignored. Unknown keys are faults, since only a client
// that means them sends them.
func readOwn(g *given, v json.RawMessage) bool {
	if null(v) {
		return true
	}
	m := g.faults.object("/vestibule", v)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		at := "/vestibule/" + key
		switch {
		case key == "revision" || key == "identity":
		case !slices.Contains(own, key):
			g.faults.add(at, "%s: no such setting, there are %s", cmpName(at), strings.Join(own, ", "))
		case !readSetting(g, settingOf(key), at, m[key]):
			g.bad[key] = true
		case key == "origin":
			g.origin = g.settings.Origin != ""
		case key == "session_duration":
			g.session = true
		}
	}
	return true // its faults are recorded under its own keys
}

// readSetting reads a setting of the schema.
func readSetting(g *given, t *room.Setting, at string, v json.RawMessage) (ok bool) {
	switch to := t.Field(&g.settings).(type) {
	case *string:
		*to, ok = g.faults.text(at, v)
	case *int:
		*to, ok = g.faults.whole(at, v)
	case *bool:
		*to, ok = g.faults.flag(at, v)
	case *uint32:
		var n uint32
		if ok = null(v) || json.Unmarshal(v, &n) == nil; !ok {
			g.faults.add(at, "%s must be %s", cmpName(at), t.Bounds)
		}
		*to = n
	case *time.Duration:
		var text string
		if text, ok = g.faults.text(at, v); !ok {
			return false
		}
		if *to = 0; text == "" {
			return true
		}
		d, err := time.ParseDuration(text)
		if *to = d; err != nil {
			g.faults.add(at, "%s must be a duration such as 5m or 90s", cmpName(at))
			return false
		}
	default:
		g.faults.add(at, "%s cannot be set here", cmpName(at))
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
	key, _, _ := strings.Cut(r.Field, "[")
	pointer := "/" + strings.NewReplacer("[", "/", "]", "", ".", "/").Replace(r.Field)
	switch {
	case key == "origin" && !originGiven:
		pointer = "/host"
	case key == "waiting_page":
		pointer = "/custom_page_html"
	case key == "cookie_samesite" || key == "cookie_secure":
		pointer = "/cookie_attributes/" + strings.TrimPrefix(key, "cookie_")
	case slices.Contains(own, key) && key != "session_duration":
		pointer = "/vestibule" + pointer
	}
	f.add(pointer, "%s %s", r.Field, r.Rule)
}
