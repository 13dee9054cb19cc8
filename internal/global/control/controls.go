package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

const (
	controlsDocument = "controls"          // node.ControlsDocument
	controlsTarget   = "controls of room " // with the ID of the room and its name, in audit entries
	controlsTries    = 8
	maxUntil         = 400 * 24 * time.Hour
)

// controls are the operators' temporary overrides of rooms, in the document that all nodes read.
type controls struct {
	clock
	auditor
	rooms  *catalog
	shared wire.DocumentStore
	known  func() *room.Controls // those that this node applies, nil for none
}

// current returns the controls: the latest, or if the store does not answer and the request only reads, those that this
// node applies.
func (c *controls) current(ctx context.Context) (doc *room.Controls, err error) {
	if mayBeOld(ctx) == nil {
		doc, _, err = c.read(ctx)
		return doc, err
	}
	err = c.rooms.outage.read(ctx, func(ctx context.Context) error {
		doc, _, err = c.read(ctx)
		return err
	})
	if err == nil {
		return doc, nil
	}
	if doc = c.known(); doc == nil {
		doc = &room.Controls{}
	}
	mayBeOld(ctx).since(c.rooms.store.Seen(), noStore)
	return doc, nil
}

// look returns the current room with an id, and the controls.
func (c *controls) look(ctx context.Context, id string) (*roomstore.Room, *room.Controls, error) {
	r, err := c.rooms.look(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	doc, err := c.current(ctx)
	return r, doc, err
}

// read returns the latest controls and the revision of the stored ones: the stored controls, or those of this node if
// the store was rolled back.
func (c *controls) read(ctx context.Context) (*room.Controls, uint64, error) {
	data, revision, err := c.shared.Get(ctx, controlsDocument)
	if err != nil {
		return nil, 0, err
	}
	doc := &room.Controls{}
	if data != nil {
		if doc, err = room.DecodeControls(data); err != nil {
			return nil, 0, err
		}
	}
	if known := c.known(); known != nil && known.Version > doc.Version {
		doc = known
	}
	return doc, revision, nil
}

// change makes one change to the controls of a room. edit gets a copy, and is called again after a concurrent write.
func (c *controls) change(
	ctx context.Context, state *roomstore.State, id string, edit func(*room.Control) error,
) (_ *room.Controls, err error) {
	target := controlsTarget + id
	if r := c.rooms.find(state, id); r != nil {
		target += " " + r.Name
	}
	var failed func(context.Context) error // of the announced change, nil for none
	var before *room.Control               // the controls that it changes
	defer func() { err = undone(ctx, c.log, target, failed, err) }()
	for range controlsTries {
		have, revision, err := c.read(ctx)
		if err != nil {
			return nil, err
		}
		now := c.fleet()
		version := max(have.Version+1, uint64(max(0, c.now().UnixMilli())))
		next := &room.Controls{Version: version, Rooms: maps.Clone(have.Rooms)}
		if next.Rooms == nil {
			next.Rooms = map[string]*room.Control{}
		}
		edited := room.Control{}
		if before := have.Rooms[id].At(now); before != nil {
			edited = *before
		}
		if err := edit(&edited); err != nil {
			return nil, err
		}
		next.Rooms[id] = &edited
		maps.DeleteFunc(next.Rooms, func(_ string, other *room.Control) bool { return other.At(now) == nil })
		data, err := room.EncodeControls(next)
		if err == nil && (len(next.Rooms) > room.MaxRooms || len(data) > c.shared.Limit()) {
			// Those of a deleted room are kept while there is space, so that it comes back paused.
			maps.DeleteFunc(next.Rooms, func(key string, _ *room.Control) bool { return c.rooms.find(state, key) == nil })
			data, err = room.EncodeControls(next)
		}
		if err == nil && len(data) > c.shared.Limit() {
			err = refusef(http.StatusBadRequest, codeInvalid,
				"the controls of all rooms have %d bytes, and the store takes %d: invalid data", len(data), c.shared.Limit())
		}
		if err != nil {
			return nil, err
		}
		if failed == nil || !reflect.DeepEqual(before, have.Rooms[id]) {
			_ = undone(ctx, c.log, target, failed, wire.ErrChanged) // another writer was first, in this room
			before = have.Rooms[id]
			failed, err = Announce(ctx, c.journal, c.now(), target, before, &edited)
			if err != nil && (edited.Pause == nil && edited.QueueAll == nil || releaseOf(&edited) != releaseOf(before)) {
				return nil, err
			}
			if err != nil { // stopping a rush must not wait for the audit stream
				c.log.Error("control: a room is paused without an entry in the audit stream", slog.String("room", id),
					slog.String("by", roomstore.ByOf(ctx).ID), slog.Any("error", err))
			}
		}
		_, err = c.shared.Put(ctx, controlsDocument, data, revision)
		if err == nil {
			return next, nil
		}
		if err = maybe(err); errors.Is(err, roomstore.ErrUnknown) {
			return nil, err
		}
	}
	return nil, refusef(http.StatusServiceUnavailable, codeNotNow,
		"the controls were changed concurrently: nothing was changed, try again")
}

// notes returns a warning if a room is under controls that were set before it began or came back.
func (c *controls) notes(r *roomstore.Room) []api.Note {
	doc := c.known()
	if doc == nil {
		return nil
	}
	names := controlNames(doc.Rooms[room.PublicID(r.TicketName())].At(c.fleet()))
	if len(names) == 0 {
		return nil
	}
	text := fmt.Sprintf("room %s is under controls from before: %s", r.Name, strings.Join(names, ", "))
	return []api.Note{{Code: codeKept, Message: text}}
}

// controlService serves the controls of rooms.
type controlService struct {
	*catalog
	clock
	controls *controls
	board    func() *draw.Board
}

func (s *controlService) get(ctx context.Context, q *request) (any, error) {
	r, c, err := s.controls.look(ctx, q.room())
	if err != nil {
		return nil, err
	}
	return s.show(r, q.room(), c), nil
}

func (s *controlService) patch(ctx context.Context, q *request) (any, error) {
	state, r, err := s.read(ctx, q.room())
	if err != nil {
		return nil, err
	}
	ctx = because(ctx, q.body)
	by := principal(ctx).Name
	c, err := s.controls.change(ctx, state, q.room(),
		func(control *room.Control) error { return applyControls(control, q.body, by, s.fleet()) })
	if err != nil {
		return nil, err
	}
	var notes []api.Note
	if r.Suspended && c.Rooms[q.room()].At(s.fleet()) != nil {
		text := fmt.Sprintf("room %s is suspended: every visitor passes, its controls have no effect", r.Name)
		notes = append(notes, api.Note{Code: codeKept, Message: text})
	}
	return tagged{s.show(r, q.room(), c), 0, notes}, nil
}

// applyControls applies a body to the controls of a room.
func applyControls(control *room.Control, body json.RawMessage, by string, now int64) error {
	var f faults
	m := f.object("", body, "pause", "queue_all", "message", "limits", "reason")
	reason, _ := f.text("/reason", m["reason"])
	// part reads one control; nil if it is revoked or absent.
	part := func(key string, takeBack func(), keys ...string) (map[string]json.RawMessage, room.Mark) {
		v, given := m[key]
		if !given {
			return nil, room.Mark{}
		}
		if null(v) {
			takeBack()
			return nil, room.Mark{}
		}
		p := f.object("/"+key, v, append(keys, "until")...)
		return p, f.mark("/"+key+"/until", p["until"], room.Mark{Since: now, By: by, Reason: reason})
	}
	if p, mark := part("pause", func() { control.Pause = nil }, "message"); p != nil {
		text, _ := f.text("/pause/message", p["message"])
		next := &room.Pause{Mark: mark, Message: text}
		if control.Pause != nil { // the pause goes on
			next.Release, next.Keys = control.Pause.Release, control.Pause.Keys
		}
		control.Pause = next
	}
	if p, mark := part("queue_all", func() { control.QueueAll = nil }); p != nil {
		control.QueueAll = &mark
	}
	if p, mark := part("message", func() { control.Message = nil }, "text"); p != nil {
		text, _ := f.text("/message/text", p["text"])
		control.Message = &room.Message{Mark: mark, Text: text}
	}
	if p, mark := part("limits", func() { control.Limits = nil }, "total_active_users", "new_users_per_minute"); p != nil {
		total, _ := f.whole("/limits/total_active_users", p["total_active_users"])
		rate, _ := f.whole("/limits/new_users_per_minute", p["new_users_per_minute"])
		control.Limits = &room.Limits{Mark: mark, TotalActiveUsers: total, NewUsersPerMinute: rate}
	}
	if f.n == 0 {
		for _, err := range control.Check() {
			field, _, _ := strings.Cut(err.Error(), " ")
			f.add("/"+strings.ReplaceAll(field, ".", "/"), "%v", err)
		}
		if f.n == 0 && !goodReason(reason) { // of a control that ends
			return badReason()
		}
	}
	return f.err()
}

// mark reads the end of a control, and returns m with it.
func (f *faults) mark(at string, v json.RawMessage, m room.Mark) room.Mark {
	text, ok := f.text(at, v)
	if !ok || text == "" {
		return m
	}
	until, err := time.Parse(time.RFC3339, text)
	m.Until = until.UnixMilli()
	if err != nil || m.Until <= m.Since || m.Until > m.Since+maxUntil.Milliseconds() {
		f.add(at, "%s must be a time to come within 400 days such as 2026-11-22T20:15:00Z, got %q", cmpName(at), short(text))
	}
	return m
}

// controlNames names the controls in force.
func controlNames(in *room.Control) []string {
	out := []string{}
	if in == nil {
		return out
	}
	if in.Pause != nil {
		out = append(out, "pause")
	}
	if in.QueueAll != nil {
		out = append(out, "queue_all")
	}
	if in.Message != nil {
		out = append(out, "message")
	}
	if in.Limits != nil {
		out = append(out, "limits")
	}
	return out
}

func (s *controlService) show(r *roomstore.Room, id string, c *room.Controls) api.Controls {
	now := s.fleet()
	in := c.Rooms[id].At(now)
	out := api.Controls{Room: r.Name, Id: id, Version: int64(c.Version)}
	if in != nil && in.Pause != nil {
		out.Pause = shownMark(&in.Pause.Mark)
		out.Pause.Message = &in.Pause.Message
	}
	if in != nil && in.QueueAll != nil {
		out.QueueAll = shownMark(in.QueueAll)
	}
	if in != nil && in.Message != nil {
		out.Message = shownMark(&in.Message.Mark)
		out.Message.Text = &in.Message.Text
	}
	if in != nil && in.Limits != nil {
		out.Limits = shownMark(&in.Limits.Mark)
		if n := in.Limits.TotalActiveUsers; n > 0 {
			out.Limits.TotalActiveUsers = &n
		}
		if n := in.Limits.NewUsersPerMinute; n > 0 {
			out.Limits.NewUsersPerMinute = &n
		}
	}
	e, f := r.In(r.PlanBy(s.board()).At(now)).Under(in, now), &out.InForce
	f.TotalActiveUsers, f.NewUsersPerMinute = e.TotalActiveUsers, e.NewUsersPerMinute
	f.QueueAll, f.QueueMessage = e.QueueAll, e.QueueMessage
	return out
}

func shownMark(m *room.Mark) *api.Control {
	c := &api.Control{By: m.By, Reason: m.Reason, Since: time.UnixMilli(m.Since).UTC()}
	if m.Until != 0 {
		until := time.UnixMilli(m.Until).UTC()
		c.Until = &until
	}
	return c
}

func releaseOf(c *room.Control) *room.Release {
	if c == nil || c.Pause == nil {
		return nil
	}
	return c.Pause.Release
}
