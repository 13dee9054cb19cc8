package control

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// roomService serves the rooms themselves.
type roomService struct {
	*catalog
	clock
	controls *controls
}

func (s *roomService) list(ctx context.Context, q *request) (any, error) {
	state, err := s.current(ctx)
	if err != nil {
		return nil, err
	}
	rooms := principal(q.Context()).only(state.Rooms)
	return pageOf(q, rooms, func(r **roomstore.Room) (any, error) { return s.show(ctx, *r) })
}

func (s *roomService) get(ctx context.Context, q *request) (any, error) {
	r, err := s.look(ctx, q.room())
	if err != nil {
		return nil, err
	}
	return s.tagged(ctx, r)
}

// tagged returns a room as the API shows it, at its revision.
func (s *roomService) tagged(ctx context.Context, r *roomstore.Room) (any, error) {
	shown, err := s.show(ctx, r)
	return tagged{shown, r.Revision, nil}, err
}

func (s *roomService) create(ctx context.Context, q *request) (any, error) {
	spare, name := "room-"+strings.ToLower(rand.Text()), ""
	state, err := s.store.Change(ctx, func(d *roomstore.Draft) error {
		g := readRoom(q, room.Settings{})
		if d.Room(g.settings.Name) != nil && !g.bad["name"] {
			g.faults.add("/name", "name is the name of another room already")
			g.bad["name"] = true
		}
		// A renamed room may still have this id.
		if s.find(d.Base(), room.PublicID(g.settings.Name)) != nil && !g.bad["name"] {
			g.settings.Identity = spare
		}
		settings, err := s.settle(d, g)
		if name = settings.Name; err != nil {
			return err
		}
		d.Put(settings)
		return nil
	})
	return s.begun(ctx, state, name, err)
}

// begun returns the result of the creation or the return of the room called name.
func (s *roomService) begun(ctx context.Context, state *roomstore.State, name string, err error) (any, error) {
	out, err := s.changed(ctx, state, name, err)
	if t, ok := out.(tagged); ok {
		t.notes = append(t.notes, s.controls.notes(state.Room(name))...)
		return t, err
	}
	return out, err
}

// changed returns the result of a change of the room called name.
func (s *roomService) changed(ctx context.Context, state *roomstore.State, name string, err error) (any, error) {
	r, err := after(state, name, err)
	if err != nil {
		return nil, err
	}
	shown, err := s.show(ctx, r)
	return tagged{shown, r.Revision, kept(&r.Settings)}, err
}

// kept returns the warnings about settings that are kept and have no effect.
func kept(s *room.Settings) (notes []api.Note) {
	if m := s.TurnstileMode; m != "" && m != "off" && m != room.DefaultTurnstile {
		notes = append(notes, ineffective("/turnstile_mode", m))
	}
	if a := s.TurnstileAction; a != "" && a != room.DefaultTurnstileAction {
		notes = append(notes, ineffective("/turnstile_action", a))
	}
	return notes
}

func ineffective(pointer string, v any) api.Note {
	return noteAt(pointer, codeKept, fmt.Sprintf("%s %v is kept and has no effect yet", cmpName(pointer), v))
}

// update changes a room. By PUT, missing fields go back to their defaults.
func (s *roomService) update(ctx context.Context, q *request) (any, error) {
	name, whole := "", q.Method == http.MethodPut
	state, err := s.store.Change(ctx, func(d *roomstore.Draft) error {
		r, err := s.draft(d, q)
		if err != nil {
			return err
		}
		over := r.Settings
		if whole { // all settings of the hosted product go back to their defaults
			for at, f := range fields {
				if !strings.HasPrefix(at, ownPrefix) && f.Key != "session_duration" {
					reflect.ValueOf(f.Field(&over)).Elem().SetZero()
				}
			}
		}
		g := readRoom(q, over)
		if whole && !g.session {
			g.settings.SessionDuration = 0
		}
		if !g.origin && g.settings.Host != r.Host {
			if site := s.siteOf(d.Base(), g.settings.WithDefaults().Host); site != "" {
				g.settings.Origin = site
			}
		}
		settings, err := s.settle(d, g)
		if name = settings.Name; err != nil {
			return err
		}
		if name != r.Name && d.Room(name) != nil {
			var f faults
			f.add("/name", "name is the name of another room already")
			return f.err()
		}
		return d.Replace(r.Name, settings)
	})
	return s.changed(ctx, state, name, err)
}

func (s *roomService) delete(ctx context.Context, q *request) (any, error) {
	_, err := s.store.Change(ctx, func(d *roomstore.Draft) error {
		r, err := s.draft(d, q)
		if err != nil {
			return err
		}
		return d.Delete(r.Name)
	})
	return deleted(q.room()), err
}

// deleted is the result of an operation that deletes something.
func deleted(id string) any { return map[string]string{"id": id} }

// settle returns the given settings with the origin of their host, or all of their faults.
func (s *roomService) settle(d *roomstore.Draft, g *given) (room.Settings, error) {
	r := g.settings.WithDefaults()
	if r.Origin == "" && !g.bad["origin"] {
		r.Origin = s.siteOf(d.Base(), r.Host)
		g.bad["origin"] = r.Origin == ""
		if r.Origin == "" && !g.bad["host"] {
			g.faults.add("/host",
				"host: %q has no origin: set one with vestibule rooms site HOST URL (PUT %s/vestibule/hosts/HOST), or in vestibule.origin",
				short(r.Host), Prefix)
		}
	}
	if g.settings = r; len(g.page) > 0 {
		d.AddPage("custom_page_html", g.page)
	}
	g.judge()
	return r, g.faults.err()
}

// show returns a room as the API shows it, with every field.
func (s *roomService) show(ctx context.Context, r *roomstore.Room) (map[string]any, error) {
	gather, start := nextEvent(&r.Settings, s.fleet())
	out := map[string]any{
		"id": room.PublicID(r.TicketName()), "created_on": moment(r.Created), "modified_on": moment(r.Changed),
		"next_event_prequeue_start_time": gather, "next_event_start_time": start,
		"vestibule": map[string]any{"revision": r.Revision, "identity": r.TicketName()},
	}
	return out, s.shown(ctx, out, &r.Settings, fields)
}

// nextEvent returns the gathering and start times of the next event of a room; nil for none.
func nextEvent(s *room.Settings, now int64) (gather, start *string) {
	var next *room.Event
	for i := range s.Events {
		if e := &s.Events[i]; !e.Suspended && e.Start > now && (next == nil || e.Start < next.Start) {
			next = e
		}
	}
	if next == nil {
		return nil, nil
	}
	at := moment(next.Start).Format(time.RFC3339Nano)
	if start = &at; next.Prequeue != 0 {
		before := moment(next.Prequeue).Format(time.RFC3339Nano)
		gather = &before
	}
	return gather, start
}
