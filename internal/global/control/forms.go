package control

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/page/checkpage"
)

// form is the JSON form of a field where it is not that of the setting's type.
type form struct {
	read func(g *given, f *field, v json.RawMessage) bool // nil for the type's
	show func(v any) any                                  // nil for the type's
}

// forms are the forms of fields by their JSON pointers.
var forms = map[string]form{
	"/additional_routes":          {read: readRoutes},
	"/cookie_attributes/samesite": {read: readWord},
	"/cookie_attributes/secure":   {read: readWord},
	"/custom_page_html":           {read: readPage}, // shown by catalog.shown
	"/enabled_origin_commands":    {readCommands, func(v any) any { return strings.Fields(v.(string)) }},
	"/queueing_method":            {read: readWord},
	"/turnstile_action":           {read: readWord},
	"/turnstile_mode":             {read: readWord},
	"/session_duration":           {readMinutes, func(v any) any { return minutes(v.(time.Duration)) }},
}

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

// readWord reads an enumerated setting, in any letter case.
func readWord(g *given, f *field, v json.RawMessage) bool {
	s, ok := g.faults.text(f.at, v)
	*f.Field(&g.settings).(*string) = strings.ToLower(s)
	return ok
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
	text, ok := g.faults.longText("/custom_page_html", v, room.MaxPageBytes)
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

// shown adds the given fields of s to a room or event of the API.
func (c *catalog) shown(ctx context.Context, out map[string]any, s *room.Settings, of map[string]*field) error {
	for at, f := range of {
		v := f.Value(s)
		switch show := forms[at].show; {
		case f.Key == "waiting_page":
			page, err := c.pageText(ctx, s.WaitingPage)
			if err != nil {
				return err
			}
			v = page
		case show != nil:
			v = show(v)
		default:
			v = plainValue(v)
		}
		put(out, at, v)
	}
	return nil
}

// put sets the value at a JSON pointer.
func put(out map[string]any, at string, v any) {
	object, key, nested := strings.Cut(at[1:], "/")
	if !nested {
		out[object] = v
		return
	}
	in, ok := out[object].(map[string]any)
	if !ok {
		in = map[string]any{}
		out[object] = in
	}
	in[key] = v
}

// pageText returns a stored waiting page, "" for none.
func (c *catalog) pageText(ctx context.Context, hash string) (string, error) {
	if hash == "" {
		return "", nil
	}
	page, err := c.page(ctx, hash)
	return string(page), err
}

// plainValue returns a value of a setting as rooms.yaml and JSON show it.
func plainValue(v any) any {
	list := []any{}
	switch v := v.(type) {
	case time.Duration:
		return v.String()
	case []room.Route:
		for _, r := range v {
			list = append(list, map[string]any{"host": r.Host, "path": r.Path})
		}
	case []room.Event:
		for i := range v {
			list = append(list, plainEvent(&v[i]))
		}
	case []room.Rule:
		for _, r := range v {
			list = append(list, map[string]any{
				"id": r.ID, "expression": r.Expression, "description": r.Description, "enabled": !r.Disabled, "version": r.Version,
			})
		}
	default:
		return v
	}
	return list
}

// plainEvent returns an event by its keys in a rooms file.
func plainEvent(e *room.Event) map[string]any {
	out := map[string]any{
		"id": e.ID, "name": e.Name, "description": e.Description, "suspended": e.Suspended,
		"event_start_time": moment(e.Start), "event_end_time": moment(e.End),
	}
	if e.Prequeue != 0 {
		out["prequeue_start_time"] = moment(e.Prequeue)
	}
	if e.Shuffle {
		out["shuffle_at_event_start"] = true
	}
	for key, v := range e.Overrides {
		out[key] = plainValue(v)
	}
	return out
}

// differ lists the settings that differ between two rooms: none if either is missing.
func differ(before, after *room.Settings) []string {
	out := []string{}
	if before == nil || after == nil {
		return out
	}
	for i := range room.Schema {
		a, b := room.Schema[i].Field(before), room.Schema[i].Field(after)
		if t := &room.Schema[i]; t.IsZero(before) && t.IsZero(after) { // nil and empty lists are equal
			continue
		}
		if !reflect.DeepEqual(a, b) {
			out = append(out, room.Schema[i].Key)
		}
	}
	return out
}

// plain returns settings by their keys.
func plain(s *room.Settings) *map[string]any {
	if s == nil {
		return nil
	}
	out := map[string]any{}
	for i := range room.Schema {
		out[room.Schema[i].Key] = plainValue(room.Schema[i].Value(s))
	}
	return &out
}
