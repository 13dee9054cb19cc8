package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"time"

	"vestibule/internal/control/api"
	"vestibule/internal/room"
	"vestibule/internal/roomstore"
	"vestibule/internal/wire"
)

// Shared are the documents that all nodes read.
type Shared interface {
	Get(ctx context.Context, key string) ([]byte, uint64, error)
	Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error)
	Limit() int
}

const (
	controlsDocument = "controls" // node.ControlsDocument
	controlsTries    = 8
	maxUntil         = 400 * 24 * time.Hour
)

// readControls returns the controls that are in force or will be, and the revision of what is stored: the stored ones, or
// those that this node knows where the store came back older.
func (s *Server) readControls(ctx context.Context) (*room.Controls, uint64, error) {
	data, revision, err := s.Shared.Get(ctx, controlsDocument)
	if err != nil {
		return nil, 0, err
	}
	c := &room.Controls{}
	if data != nil {
		if c, err = room.DecodeControls(data); err != nil {
			return nil, 0, err
		}
	}
	if known := s.Controls(); known != nil && known.Version > c.Version {
		c = known
	}
	return c, revision, nil
}

// changeControls makes one change of what is said of a room. edit gets a copy, and may be called again where
// somebody else wrote meanwhile.
func (s *Server) changeControls(ctx context.Context, state *roomstore.State, id string, edit func(*room.Control) error) (_ *room.Controls, err error) {
	var undo func(context.Context) error // of the entry in the audit stream
	defer func() {
		if err != nil && undo != nil && !errors.Is(err, roomstore.ErrUnknown) {
			err = errors.Join(err, undo(ctx))
		}
	}()
	for try := range controlsTries {
		have, revision, err := s.readControls(ctx)
		if err != nil {
			return nil, err
		}
		now := int64(s.Time())
		next := &room.Controls{Version: max(have.Version+1, uint64(max(0, s.now().UnixMilli()))), Rooms: maps.Clone(have.Rooms)}
		if next.Rooms == nil {
			next.Rooms = map[string]*room.Control{}
		}
		said := room.Control{}
		if before := have.Rooms[id].At(now); before != nil {
			said = *before
		}
		if err := edit(&said); err != nil {
			return nil, err
		}
		next.Rooms[id] = &said
		for key, c := range next.Rooms { // of rooms that are gone, and what has ended
			if s.index.find(state, key) == nil || c.At(now) == nil {
				delete(next.Rooms, key)
			}
		}
		data, err := room.EncodeControls(next)
		if err == nil && len(data) > s.Shared.Limit() {
			err = refusef(http.StatusBadRequest, codeInvalid, "what is said of all rooms has %d bytes, and the store takes %d: invalid data", len(data), s.Shared.Limit())
		}
		if err != nil {
			return nil, err
		}
		if try == 0 {
			undo, err = announce(ctx, s.Audit, s.now(), "controls of room "+id, have.Rooms[id], &said)
			if err != nil && (said.Pause == nil && said.QueueAll == nil || releaseOf(&said) != releaseOf(have.Rooms[id])) {
				return nil, err
			}
			if err != nil { // who stops a rush need not wait for the stream
				s.Log.Error("control: a room is paused without an entry in the audit stream", slog.String("room", id), slog.String("by", roomstore.ByOf(ctx).ID), slog.Any("error", err))
			}
		}
		switch _, err := s.Shared.Put(ctx, controlsDocument, data, revision); {
		case err == nil:
			return next, nil
		case !errors.Is(err, wire.ErrChanged):
			return nil, fmt.Errorf("%w: %w", roomstore.ErrUnknown, err)
		}
	}
	return nil, refusef(http.StatusServiceUnavailable, codeNotNow, "others write controls all the time: nothing was changed")
}

// GetControls implements [api.StrictServerInterface].
func (s *Server) GetControls(ctx context.Context, q api.GetControlsRequestObject) (api.GetControlsResponseObject, error) {
	_, r, err := s.read(ctx, q.WaitingRoomId)
	if err != nil {
		return nil, err
	}
	c, _, err := s.readControls(ctx)
	if err != nil {
		return nil, err
	}
	return api.GetControls200JSONResponse{ControlsAnswerJSONResponse: s.showControls(r, q.WaitingRoomId, c)}, nil
}

// PatchControls implements [api.StrictServerInterface].
func (s *Server) PatchControls(ctx context.Context, q api.PatchControlsRequestObject) (api.PatchControlsResponseObject, error) {
	state, r, err := s.read(ctx, q.WaitingRoomId)
	if err != nil {
		return nil, err
	}
	by := principal(ctx).Name
	c, err := s.changeControls(ctx, state, q.WaitingRoomId, func(said *room.Control) error { return s.say(said, *q.Body, by) })
	if err != nil {
		return nil, err
	}
	return api.PatchControls200JSONResponse{ControlsAnswerJSONResponse: s.showControls(r, q.WaitingRoomId, c)}, nil
}

// say changes what is said as a body names it.
func (s *Server) say(said *room.Control, body json.RawMessage, by string) error {
	var f faults
	m := f.object("", body)
	reason, _ := f.text("/reason", m["reason"])
	for key := range m {
		switch key {
		case "pause", "queue_all", "message", "limits", "reason":
		default: // a word that is wrong must not pass for a pause
			f.add("/"+key, "%s: no such control, there are pause, queue_all, message, limits and reason", short(key))
		}
	}
	// part reads what is said of one thing; nil where it is taken back, or nothing is said.
	part := func(key string, takeBack func()) (map[string]json.RawMessage, room.Mark) {
		v, given := m[key]
		if !given {
			return nil, room.Mark{}
		}
		if null(v) {
			takeBack()
			return nil, room.Mark{}
		}
		p := f.object("/"+key, v)
		return p, s.mark(&f, "/"+key+"/until", p["until"], by, reason)
	}
	if p, mark := part("pause", func() { said.Pause = nil }); p != nil {
		text, _ := f.text("/pause/message", p["message"])
		next := &room.Pause{Mark: mark, Message: text}
		if said.Pause != nil { // the pause goes on
			next.Release, next.Keys = said.Pause.Release, said.Pause.Keys
		}
		said.Pause = next
	}
	if p, mark := part("queue_all", func() { said.QueueAll = nil }); p != nil {
		said.QueueAll = &mark
	}
	if p, mark := part("message", func() { said.Message = nil }); p != nil {
		text, _ := f.text("/message/text", p["text"])
		said.Message = &room.Message{Mark: mark, Text: text}
	}
	if p, mark := part("limits", func() { said.Limits = nil }); p != nil {
		total, _ := f.whole("/limits/total_active_users", p["total_active_users"])
		rate, _ := f.whole("/limits/new_users_per_minute", p["new_users_per_minute"])
		said.Limits = &room.Limits{Mark: mark, TotalActiveUsers: total, NewUsersPerMinute: rate}
	}
	if len(f) == 0 {
		for _, err := range said.Check() {
			field, _, _ := strings.Cut(err.Error(), " ")
			f.add("/"+strings.ReplaceAll(field, ".", "/"), "%v", err)
		}
	}
	if len(f) > 0 {
		return invalid(f)
	}
	return nil
}

// mark is that of something said now, until a moment that a body names.
func (s *Server) mark(f *faults, at string, v json.RawMessage, by, reason string) room.Mark {
	m := room.Mark{Since: int64(s.Time()), By: by, Reason: reason}
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

// sayings names what is in force.
func sayings(in *room.Control) []string {
	out := []string{}
	if in == nil {
		return out
	}
	for _, p := range []struct {
		name string
		said bool
	}{{"pause", in.Pause != nil}, {"queue_all", in.QueueAll != nil}, {"message", in.Message != nil}, {"limits", in.Limits != nil}} {
		if p.said {
			out = append(out, p.name)
		}
	}
	return out
}

func (s *Server) showControls(r *roomstore.Room, id string, c *room.Controls) api.ControlsAnswerJSONResponse {
	now := int64(s.Time())
	in := c.Rooms[id].At(now)
	a := api.ControlsAnswerJSONResponse{Success: true, Errors: []api.Note{}, Messages: []api.Note{}}
	a.Result = api.Controls{Room: r.Name, Id: id, Version: int64(c.Version)}
	if in != nil && in.Pause != nil {
		a.Result.Pause = shownMark(&in.Pause.Mark)
		a.Result.Pause.Message = &in.Pause.Message
	}
	if in != nil && in.QueueAll != nil {
		a.Result.QueueAll = shownMark(in.QueueAll)
	}
	if in != nil && in.Message != nil {
		a.Result.Message = shownMark(&in.Message.Mark)
		a.Result.Message.Text = &in.Message.Text
	}
	if in != nil && in.Limits != nil {
		l := shownMark(&in.Limits.Mark)
		if n := in.Limits.TotalActiveUsers; n > 0 {
			l.TotalActiveUsers = &n
		}
		if n := in.Limits.NewUsersPerMinute; n > 0 {
			l.NewUsersPerMinute = &n
		}
		a.Result.Limits = l
	}
	e, f := r.In(r.PlanBy(s.Board()).At(now)).Under(in, now), &a.Result.InForce
	f.TotalActiveUsers, f.NewUsersPerMinute, f.QueueAll, f.QueueMessage = e.TotalActiveUsers, e.NewUsersPerMinute, e.QueueAll, e.QueueMessage
	return a
}

func shownMark(m *room.Mark) *api.Control {
	c := &api.Control{By: m.By, Reason: m.Reason, Since: time.UnixMilli(m.Since).UTC()}
	if m.Until != 0 {
		until := time.UnixMilli(m.Until).UTC()
		c.Until = &until
	}
	return c
}
