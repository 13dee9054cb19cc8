package control

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// eventService serves the events of rooms, and their draws.
type eventService struct {
	*catalog
	clock
	board func() *draw.Board // public state of draws, nil for none
	draws *drawRules
}

// show returns an event as the API shows it, with every field. Settings that it does not override are null.
func (s *eventService) show(ctx context.Context, r *roomstore.Room, e *room.Event) (map[string]any, error) {
	own, out := map[string]*field{}, s.head(r, e)
	for at, f := range overrides() {
		if _, overridden := e.Overrides[f.Key]; overridden {
			own[at] = f
		} else if !strings.HasPrefix(at, ownPrefix) {
			put(out, at, nil)
		}
	}
	over := e.Overrides.Over(room.Settings{})
	return out, s.shown(ctx, out, &over, own)
}

// head returns an event without its settings.
func (s *eventService) head(r *roomstore.Room, e *room.Event) map[string]any {
	created, changed := e.Created, e.Changed
	if created == 0 { // of a rooms file
		created, changed = r.Created, r.Changed
	}
	out := map[string]any{
		"id": e.ID, "created_on": moment(created), "modified_on": moment(changed),
		"name": e.Name, "description": e.Description, "suspended": e.Suspended, "shuffle_at_event_start": e.Shuffle,
		"event_start_time": moment(e.Start), "event_end_time": moment(e.End), "prequeue_start_time": nil,
	}
	if e.Prequeue != 0 {
		out["prequeue_start_time"] = moment(e.Prequeue)
	}
	return out
}

// eventOf finds an event of a room.
func eventOf(r *roomstore.Room, id string) *room.Event {
	if i := slices.IndexFunc(r.Events, func(e room.Event) bool { return e.ID == id }); i >= 0 {
		return &r.Events[i]
	}
	return nil
}

// find returns a room, and one of its events.
func (s *eventService) find(ctx context.Context, q *request) (*roomstore.Room, *room.Event, error) {
	r, err := s.look(ctx, q.room())
	if err != nil {
		return nil, nil, err
	}
	if e := eventOf(r, q.event()); e != nil {
		return r, e, nil
	}
	return nil, nil, errNotFound
}

func (s *eventService) list(ctx context.Context, q *request) (any, error) {
	r, err := s.look(ctx, q.room())
	if err != nil {
		return nil, err
	}
	events := slices.SortedFunc(slices.Values(r.Events),
		func(a, b room.Event) int { return cmp.Compare(a.Start, b.Start) })
	shown, err := pageOf(q, events, func(e *room.Event) (any, error) { return s.show(ctx, r, e) })
	return tagged{shown, r.Revision, nil}, err
}

func (s *eventService) get(ctx context.Context, q *request) (any, error) {
	r, e, err := s.find(ctx, q)
	if err != nil {
		return nil, err
	}
	shown, err := s.show(ctx, r, e)
	return tagged{shown, r.Revision, nil}, err
}

// details shows an event with all settings in force while it is active.
func (s *eventService) details(ctx context.Context, q *request) (any, error) {
	r, e, err := s.find(ctx, q)
	if err != nil {
		return nil, err
	}
	out, in := s.head(r, e), r.In(room.Phase{Kind: room.Active, Event: e})
	return out, s.shown(ctx, out, &in, overrides())
}

func (s *eventService) create(ctx context.Context, q *request) (any, error) {
	return s.change(ctx, q, newRuleID(), func(_ *room.Event, id string) (*givenEvent, error) {
		return readEvent(q, room.Event{ID: id}, true), nil
	})
}

// update changes an existing event. By PUT, missing fields go back to their defaults.
func (s *eventService) update(ctx context.Context, q *request) (any, error) {
	return s.change(ctx, q, q.event(), func(old *room.Event, _ string) (*givenEvent, error) {
		if old == nil {
			return nil, errNotFound
		}
		return readEvent(q, *old, q.Method == http.MethodPut), nil
	})
}

func (s *eventService) delete(ctx context.Context, q *request) (any, error) {
	_, err := s.change(ctx, q, q.event(), func(old *room.Event, _ string) (*givenEvent, error) {
		if old == nil {
			return nil, errNotFound
		}
		return nil, nil
	})
	return deleted(q.event()), err
}

// change replaces the event with an id, nil for none, by the result of edit, or deletes it if that is nil. edit is
// called again after a concurrent write.
func (s *eventService) change(
	ctx context.Context, q *request, event string, edit func(old *room.Event, id string) (*givenEvent, error),
) (any, error) {
	name, there := "", false
	state, err := s.store.Change(ctx, func(d *roomstore.Draft) error {
		r, err := s.draft(d, q)
		if err != nil {
			return err
		}
		name = r.Name
		old := eventOf(r, event)
		g, err := edit(old, event)
		if err != nil {
			return err
		}
		// Last in the list: a conflict of two events is reported for the later one.
		settings := r.Settings
		settings.Events = slices.DeleteFunc(slices.Clone(r.Events), func(e room.Event) bool { return e.ID == event })
		if there = g != nil; there {
			if old == nil {
				settings.Events = makeRoom(settings.Events, s.now().UnixMilli())
			}
			if g.event.Created == 0 {
				g.event.Created = s.now().UnixMilli()
			}
			g.event.Changed = s.now().UnixMilli()
			settings.Events = append(settings.Events, g.event)
			g.judge(&settings)
			if s.draws.judge(g, old); g.faults.n > 0 {
				return g.faults.err()
			}
			if len(g.page) > 0 {
				d.AddPage("custom_page_html", g.page)
			}
		}
		return d.Replace(r.Name, settings)
	})
	r, err := after(state, name, err)
	if err != nil || !there {
		return nil, err
	}
	e := eventOf(r, event)
	shown, err := s.show(ctx, r, e)
	over := e.Overrides.Over(room.Settings{})
	return tagged{shown, r.Revision, kept(&over)}, err
}

// makeRoom returns the events of a room without the ones that ended first, if there are as many as may be.
func makeRoom(events []room.Event, now int64) []room.Event {
	for len(events) >= room.MaxEvents {
		first := 0
		for i := range events {
			if events[i].End < events[first].End {
				first = i
			}
		}
		if events[first].End > now {
			break
		}
		events = slices.Delete(events, first, first+1)
	}
	return events
}

// draw shows the draw of an event, also of a deleted one.
func (s *eventService) draw(_ context.Context, q *request) (any, error) {
	n := s.board().Latest(q.room(), q.event())
	if n == nil {
		return nil, errNotFound
	}
	return showDraw(n)
}

// showDraw returns the public part of a draw as the API shows it.
func showDraw(n *draw.Notice) (out api.Draw, err error) {
	at := func(t fleettime.Time) *time.Time {
		if t == 0 || t == draw.Never {
			return nil
		}
		m := moment(int64(t))
		return &m
	}
	out = api.Draw{
		RoomId:         n.Room,
		EventId:        n.Event,
		EventStartTime: moment(int64(n.Start)),
		ClosesOn:       moment(int64(n.Closes())),
		CommittedOn:    at(n.Committed),
		Beacon:         n.Beacon,
		Void:           n.Void,
		PublishedOn:    at(n.Published),
		OpensOn:        at(max(n.Start, n.Opens())),
	}
	if n.Committed != 0 {
		out.Commit = hex.EncodeToString(n.Commit[:])
	}
	if n.Drawn() != nil {
		out.Record = &map[string]any{}
		err = json.Unmarshal(n.Record, out.Record)
	}
	return out, err
}
