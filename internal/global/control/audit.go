package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// as returns a context that attributes changes to the principal and an operation, with a reason.
func (who Principal) as(ctx context.Context, remote, operation, reason string) context.Context {
	return roomstore.By(ctx,
		audit.By{
			ID: who.ID, Name: who.Name, Role: string(who.Role), From: Source(remote), Operation: operation, Reason: reason,
		})
}

// Announce adds an audit entry about anything but a room, before the change. So an entry may name a change that was
// not made, but no change lacks an entry. The returned function adds that the change failed.
func Announce(
	ctx context.Context, j *audit.Journal, now time.Time, target string, before, after any,
) (failed func(context.Context) error, err error) {
	e := audit.Entry{ID: rand.Text()[:16], At: now.UTC(), By: roomstore.ByOf(ctx), Target: target}
	if e.Before, err = raw(before); err != nil {
		return nil, err
	}
	if e.After, err = raw(after); err != nil {
		return nil, err
	}
	if err := j.Add(ctx, e); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		undo := e
		undo.ID, undo.Failed = rand.Text()[:16], e.ID
		undo.Before, undo.After = nil, nil
		return j.Add(ctx, undo)
	}, nil
}

func raw(v any) (json.RawMessage, error) {
	if v == nil || reflect.ValueOf(v).Kind() == reflect.Pointer && reflect.ValueOf(v).IsNil() {
		return nil, nil
	}
	return json.Marshal(v)
}

// revisionService serves earlier settings of rooms, and restores them.
type revisionService struct {
	journal *audit.Journal
	rooms   *roomService
	draws   *drawRules
}

// revision is an entry about one room.
type revision struct {
	audit.Entry
	room audit.Room
}

// settings returns the settings after the revision, nil if the room was deleted.
func (r *revision) settings() (*room.Settings, error) { return alone(r.room.After) }

func alone(data json.RawMessage) (*room.Settings, error) {
	if data == nil {
		return nil, nil
	}
	doc, err := room.DecodeDocument(data)
	if err == nil && len(doc.Rooms) != 1 {
		err = fmt.Errorf("%d rooms", len(doc.Rooms))
	}
	if err != nil {
		return nil, fmt.Errorf("audit: a room in an entry: %w", err)
	}
	s := doc.Rooms[0].WithDefaults()
	return &s, nil
}

// revisions returns the entries about a room, the oldest first.
func (s *revisionService) revisions(ctx context.Context, id string) (out []revision, err error) {
	if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
		return nil, errNotFound // not valid in a subject
	}
	for _, subject := range []string{audit.RoomSubject(id), audit.RoomsSubject} {
		for from := uint64(1); ; {
			some, err := s.journal.Read(ctx, from, 1000, subject)
			if err != nil {
				return nil, err
			}
			if len(some) == 0 {
				break
			}
			for _, stored := range some {
				var e audit.Entry
				if err := json.Unmarshal(stored.Data, &e); err != nil {
					return nil, fmt.Errorf("audit: entry %d: %w", stored.Sequence, err)
				}
				for _, r := range e.Rooms {
					if r.ID == id {
						out = append(out, revision{e, r})
					}
				}
			}
			from = some[len(some)-1].Sequence + 1
		}
	}
	if len(out) == 0 {
		return nil, errNotFound
	}
	slices.SortStableFunc(out, func(a, b revision) int { return cmp.Compare(a.Number, b.Number) })
	return out, nil
}

func (s *revisionService) list(ctx context.Context, q *request) (any, error) {
	all, err := s.revisions(ctx, q.room())
	if err != nil {
		return nil, err
	}
	slices.Reverse(all)
	from, to, info, err := q.page(len(all))
	if err != nil {
		return nil, err
	}
	out := []api.RoomRevision{}
	for i := range all[from:to] {
		r := &all[from+i]
		after, err := r.settings()
		if err != nil {
			return nil, err
		}
		before, err := alone(r.room.Before)
		if err != nil {
			return nil, err
		}
		shown := api.RoomRevision{
			At: r.At, Late: r.Late, Name: r.room.Name, Number: int64(r.Number),
			Revision: int64(r.Version), Changed: differ(before, after), Room: plain(after),
		}
		shown.By.Id, shown.By.Name, shown.By.Role = r.By.ID, r.By.Name, r.By.Role
		shown.By.From, shown.By.Operation = r.By.From, r.By.Operation
		out = append(out, shown)
	}
	return listPage{out, info}, nil
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

func (s *revisionService) restore(ctx context.Context, q *request) (any, error) {
	all, err := s.revisions(ctx, q.room())
	if err == nil {
		err = q.empty()
	}
	if err != nil {
		return nil, err
	}
	version, err := strconv.ParseUint(q.PathValue("revision"), 10, 64)
	at := slices.IndexFunc(all, func(r revision) bool { return r.Version == version })
	if err != nil || at < 0 {
		return nil, errNotFound
	}
	settings, err := all[at].settings()
	if err != nil {
		return nil, err
	}
	if settings == nil {
		return nil, refusef(http.StatusBadRequest, codeInvalid,
			"revision %d is that the room was deleted: choose one before it: invalid data", version)
	}
	var pages [][]byte
	for name := range settings.EachPage {
		page, err := s.rooms.page(ctx, name)
		if err != nil {
			return nil, err
		}
		if page == nil {
			return nil, refusef(http.StatusBadRequest, codeInvalid,
				"a waiting page of revision %d is not kept any more: invalid data", version)
		}
		pages = append(pages, page)
	}
	name := settings.Name
	state, err := s.rooms.store.Change(ctx, func(d *roomstore.Draft) error {
		for _, page := range pages {
			d.AddPage("custom_page_html", page)
		}
		r := s.rooms.find(d.Base(), q.room())
		if other := d.Room(name); other != nil && other != r {
			return refusef(http.StatusBadRequest, codeInvalid, "%s is the name of another room now: invalid data", name)
		}
		if err := s.draws.ofRoom("", settings, settingsOf(r)).Err(); err != nil {
			return err
		}
		if r == nil {
			d.Put(*settings)
			return nil
		}
		if err := q.match(r.Revision, "room "+r.Name); err != nil {
			return err
		}
		return d.Replace(r.Name, *settings)
	})
	return s.rooms.changed(ctx, state, name, err)
}

// announce is the package's announce for a token, without its secret.
func (t *tokens) announce(ctx context.Context, id string, before, after *token) (failed func(), err error) {
	undo, err := Announce(ctx, t.journal, t.now(), "token."+id, before.audited(), after.audited())
	if err != nil {
		return nil, err
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if err := undo(ctx); err != nil {
			t.log.Warn("control: the audit stream has a change of a token that was not made", slog.String("token", id),
				slog.Any("error", err))
		}
	}, nil
}

// auditedToken is the part of a token that an audit entry shows.
type auditedToken struct {
	Name    string    `json:"name"`
	Role    Role      `json:"role"`
	Rooms   []string  `json:"rooms,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
}

func (t *token) audited() *auditedToken {
	if t == nil {
		return nil
	}
	return &auditedToken{t.Name, t.Role, t.Rooms, t.Expires}
}
