package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
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

// maybe returns the error of a write: after any error but [wire.ErrChanged] the store may have made the change.
func maybe(err error) error {
	if err == nil || errors.Is(err, wire.ErrChanged) {
		return err
	}
	return fmt.Errorf("%w: %w", roomstore.ErrUnknown, err)
}

// undone adds to the audit stream that an announced change was not made because of err, and returns err. A change that
// may have been made stays as announced. The entry is written even if the client has disconnected.
func undone(
	ctx context.Context, log *slog.Logger, target string, failed func(context.Context) error, err error,
) error {
	if err == nil || failed == nil || errors.Is(err, roomstore.ErrUnknown) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if e := failed(ctx); e != nil {
		log.Warn("control: the audit stream has a change that was not made", slog.String("target", target),
			slog.Any("error", e))
	}
	return err
}

func raw(v any) (json.RawMessage, error) {
	if v == nil || reflect.ValueOf(v).Kind() == reflect.Pointer && reflect.ValueOf(v).IsNil() {
		return nil, nil
	}
	return json.Marshal(v)
}

// revisionService serves earlier settings of rooms, and restores them.
type revisionService struct {
	log   *auditService
	rooms *roomService
	draws *drawRules
}

// room returns the ID of the room of a request. A room may be named by its ID or its name, also after its deletion.
func (s *revisionService) room(ctx context.Context, q *request) (string, error) {
	text := q.room()
	if len(text) == len(Zone) && strings.Trim(text, "0123456789abcdef") == "" {
		return text, nil
	}
	state, err := s.rooms.current(ctx)
	if err != nil {
		return "", err
	}
	if r := state.Room(text); r != nil {
		return room.PublicID(r.Known()), nil
	}
	first, last, err := s.log.journal.Bounds(ctx)
	if err != nil {
		return "", err
	}
	found, err := s.log.search(ctx, auditFilter{room: text}, first, last+1, 1)
	if err != nil {
		return "", err
	}
	for _, stored := range found {
		var e audit.Entry
		if err := json.Unmarshal(stored.Data, &e); err != nil {
			return "", err
		}
		for _, r := range e.Rooms {
			if r.Name == text {
				return r.ID, nil
			}
		}
	}
	return "", refusef(http.StatusNotFound, codeNotFound, "no room %q, and no entry of the audit log names one", short(text))
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

// revisions returns the ID of the room of a request and the entries about it, the oldest first.
func (s *revisionService) revisions(ctx context.Context, q *request) (id string, out []revision, err error) {
	if id, err = s.room(ctx, q); err != nil {
		return "", nil, err
	}
	for _, subject := range []string{audit.RoomSubject(id), audit.RoomsSubject} {
		for from := uint64(1); ; {
			some, err := s.log.journal.Read(ctx, from, 1000, subject)
			if err != nil {
				return "", nil, err
			}
			if len(some) == 0 {
				break
			}
			for _, stored := range some {
				var e audit.Entry
				if err := json.Unmarshal(stored.Data, &e); err != nil {
					return "", nil, fmt.Errorf("audit: entry %d: %w", stored.Sequence, err)
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
		return "", nil, errNotFound
	}
	slices.SortStableFunc(out, func(a, b revision) int { return cmp.Compare(a.Number, b.Number) })
	return id, out, nil
}

func (s *revisionService) list(ctx context.Context, q *request) (any, error) {
	_, all, err := s.revisions(ctx, q)
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
	id, all, err := s.revisions(ctx, q)
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
		r := s.rooms.find(d.Base(), id)
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
