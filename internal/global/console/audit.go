package console

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
)

// auditView is the content of the page of the audit log.
type auditView struct {
	Room, By string // the filter, "" for all
	Entries  []entryView
	Older    string // address of the older entries, "" for none
}

// entryView is an audit entry in words.
type entryView struct {
	Number          int64
	At              time.Time
	When            string
	Who, Role, From string
	What, Reason    string
	Objects         []objectView
	Failed          string // ID of an entry: its change was not made
}

// objectView is an object that an entry changed.
type objectView struct {
	Name, Link, Change string
	Differences        []difference
}

const auditPerPage = 50

// serveAudit shows the newest entries of the audit log: all of them, or those about a room or by somebody.
func serveAudit(q *request) error {
	v := &auditView{Room: q.FormValue("room"), By: q.FormValue("by")}
	query := url.Values{"per_page": {strconv.Itoa(auditPerPage)}}
	for _, name := range []string{"room", "by", "before"} {
		if value := q.FormValue(name); value != "" {
			query.Set(name, value)
		}
	}
	var list []api.AuditEntry
	if err := q.get("/vestibule/audit?"+query.Encode(), &list); err != nil {
		return err
	}
	names, err := namesFor(q, list)
	if err != nil {
		return err
	}
	for i := range list {
		e, err := viewEntry(q.now, &list[i], names)
		if err != nil {
			return fmt.Errorf("audit entry %d: %w", list[i].Sequence, err)
		}
		v.Entries = append(v.Entries, e)
	}
	if n := len(list); n == auditPerPage {
		older := url.Values{"before": {strconv.FormatInt(list[n-1].Sequence, 10)}, "room": {v.Room}, "by": {v.By}}
		v.Older = "/console/audit?" + older.Encode()
	}
	return q.show(http.StatusOK, "audit", &frame{Title: "Audit", Current: "audit", Main: v})
}

// namesFor returns the names of rooms by their IDs, if an entry has a list of rooms.
func namesFor(q *request, list []api.AuditEntry) (map[string]string, error) {
	for _, e := range list {
		for _, c := range e.Changes {
			if slices.ContainsFunc(c.Settings, isRooms) {
				return roomNames(q)
			}
		}
	}
	return nil, nil
}

// isRooms reports whether a setting is a list of rooms.
func isRooms(s api.AppliedSetting) bool { return s.Key == "rooms" }

func viewEntry(now time.Time, shown *api.AuditEntry, names map[string]string) (entryView, error) {
	var e audit.Entry
	if err := json.Unmarshal(shown.Entry, &e); err != nil {
		return entryView{}, err
	}
	v := entryView{
		Number: shown.Number, At: shown.At, When: ago(now, shown.At), Who: shown.By, Role: e.By.Role, From: e.By.From,
		What: shown.Text, Reason: shown.Reason, Failed: e.Failed,
	}
	for i := range shown.Changes {
		c := &shown.Changes[i]
		o := objectView{Name: string(c.Kind) + " " + c.Name}
		switch c.Kind {
		case api.AppliedChangeKindRoom:
			if i < len(e.Rooms) {
				o.Link = roomPath(e.Rooms[i].ID) + "/changes"
			}
		case api.AppliedChangeKindControls:
			o.Name = "controls of room " + c.Name
		case api.AppliedChangeKindToken, api.AppliedChangeKindWebhook:
			o.Name = string(c.Kind) + " " + cmp.Or(c.GivenName(), c.Name)
		case api.AppliedChangeKindOther:
			o.Name = c.Name
		default: // hosts and tokens have no page
		}
		if c.Change != api.Changed {
			o.Change = map[api.AppliedChangeChange]string{api.Made: "new", api.Deleted: "deleted"}[c.Change]
		}
		for i, s := range c.Settings {
			if i+1 < len(c.Settings) && strings.HasPrefix(c.Settings[i+1].Key, s.Key+".") {
				continue // its details follow
			}
			key := s.Key
			if strings.HasPrefix(key, "rules[") {
				key = "rule" // its ID says nothing
			}
			before, after := leaf(s.Before), leaf(s.After)
			if isRooms(s) {
				before, after = namesOf(names, idsIn(s.Before)), namesOf(names, idsIn(s.After))
			}
			o.Differences = append(o.Differences, difference{key, before, after})
		}
		v.Objects = append(v.Objects, o)
	}
	return v, nil
}

// idsIn returns the members of a list.
func idsIn(v any) (ids []string) {
	list, _ := v.([]any)
	for _, x := range list {
		ids = append(ids, fmt.Sprint(x))
	}
	return ids
}
