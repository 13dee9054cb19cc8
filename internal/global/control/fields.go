package control

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"vestibule/internal/core/room"
)

// field is a setting at its place in a room of the API.
type field struct {
	*room.Setting
	at string // JSON pointer
}

// ownPrefix begins the JSON pointers of settings that the hosted product lacks.
const ownPrefix = "/vestibule/"

// place returns the JSON pointer of a setting in a room of the API. The named ones are those of the hosted product.
func place(key string) string {
	switch key {
	case "name", "host", "path", "additional_routes", "total_active_users", "new_users_per_minute", "session_duration",
		"queueing_status_code", "default_template_language", "description", "queueing_method", "queue_all", "suspended",
		"disable_session_renewal", "cookie_suffix", "json_response_enabled", "enabled_origin_commands", "turnstile_mode", "turnstile_action",
		"identity", "rules", "events": // the last three are not among fields
		return "/" + key
	case "cookie_samesite", "cookie_secure":
		return "/cookie_attributes/" + strings.TrimPrefix(key, "cookie_")
	case "waiting_page":
		return "/custom_page_html"
	}
	return ownPrefix + key
}

// fields are the settings of a room by their JSON pointers. The identity is read-only, rules and events are resources
// of their own. The session length stands there twice, in minutes and exactly.
var fields = func() map[string]*field {
	all := map[string]*field{}
	for i := range room.Schema {
		t := &room.Schema[i]
		switch t.Key {
		case "identity", "rules", "events":
			continue
		case "session_duration":
			all[ownPrefix+t.Key] = &field{t, ownPrefix + t.Key}
		}
		all[place(t.Key)] = &field{t, place(t.Key)}
	}
	return all
}()

// overrides returns the fields that an event may override. They have the same places in an event of the API.
func overrides() map[string]*field {
	all := map[string]*field{}
	for t := range room.Overridable() {
		all[place(t.Key)] = fields[place(t.Key)]
	}
	return all
}

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
