package control

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/room"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// moment returns Unix milliseconds as a time.
func moment(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// unless returns a pointer to v, or nil if v equals nothing.
func unless[T comparable](v, nothing T) *T {
	if v == nothing {
		return nil
	}
	return &v
}

// eventService serves the events of rooms, and their draws.
type eventService struct {
	*catalog
	clock
	board func() *draw.Board // public state of draws, nil for none
	draws *drawRules
}

// showEvent returns an event as the API shows it, with every field.
func (s *eventService) showEvent(ctx context.Context, r *roomstore.Room, e *room.Event) (out api.Event, err error) {
	over := e.Overrides.Over(room.Settings{})
	created, changed := e.Created, e.Changed
	if created == 0 { // of a rooms file
		created, changed = r.Created, r.Changed
	}
	out = api.Event{
		Id: e.ID, CreatedOn: moment(created), ModifiedOn: moment(changed), Name: e.Name, Description: e.Description,
		EventStartTime: moment(e.Start), EventEndTime: moment(e.End), Suspended: e.Suspended, ShuffleAtEventStart: e.Shuffle,
		TotalActiveUsers: unless(over.TotalActiveUsers, 0), NewUsersPerMinute: unless(over.NewUsersPerMinute, 0), SessionDuration: unless(minutes(over.SessionDuration), 0),
		QueueingMethod: unless(over.QueueingMethod, ""),
		Vestibule:      shownOverrides(&over, func(key string) bool { _, said := e.Overrides[key]; return said }),
	}
	if e.Prequeue != 0 {
		at := moment(e.Prequeue)
		out.PrequeueStartTime = &at
	}
	if _, said := e.Overrides["disable_session_renewal"]; said {
		out.DisableSessionRenewal = &over.NoRenewal
	}
	if over.WaitingPage != "" {
		page, err := s.page(ctx, over.WaitingPage)
		if err != nil {
			return out, err
		}
		text := string(page)
		out.CustomPageHtml = &text
	}
	return out, nil
}

// shownOverrides returns the values in s of those of ownOverrides that are to be shown, nil for none.
func shownOverrides(s *room.Settings, shown func(key string) bool) *map[string]any {
	var out map[string]any
	for t := range ownOverrides {
		if !shown(t.Key) {
			continue
		}
		if out == nil {
			out = map[string]any{}
		}
		out[t.Key] = plainValue(t.Value(s))
	}
	if out == nil {
		return nil
	}
	return &out
}

// eventOf finds an event of a room.
func eventOf(r *roomstore.Room, id string) *room.Event {
	if i := slices.IndexFunc(r.Events, func(e room.Event) bool { return e.ID == id }); i >= 0 {
		return &r.Events[i]
	}
	return nil
}

// oneEvent answers with an event of a room.
func (s *eventService) oneEvent(ctx context.Context, r *roomstore.Room, id string) (a api.EventAnswerJSONResponse, err error) {
	e := eventOf(r, id)
	if e == nil {
		return a, errNotFound
	}
	shown, err := s.showEvent(ctx, r, e)
	return api.EventAnswerJSONResponse{Success: true, Errors: []api.Note{}, Messages: []api.Note{}, Result: shown}, err
}

// WaitingRoomListEvents implements [api.StrictServerInterface].
func (s *eventService) WaitingRoomListEvents(ctx context.Context, q api.WaitingRoomListEventsRequestObject) (api.WaitingRoomListEventsResponseObject, error) {
	r, err := s.look(ctx, q.ZoneId, q.WaitingRoomId)
	if err != nil {
		return nil, err
	}
	from, to, info, err := paged(len(r.Events), q.Params.Page, q.Params.PerPage)
	if err != nil {
		return nil, err
	}
	events := slices.SortedFunc(slices.Values(r.Events), func(a, b room.Event) int { return cmp.Compare(a.Start, b.Start) })
	a := api.EventsAnswerJSONResponse{Success: true, Errors: []api.Note{}, Messages: []api.Note{}, Result: []api.Event{}, ResultInfo: info}
	for i := range events[from:to] {
		shown, err := s.showEvent(ctx, r, &events[from+i])
		if err != nil {
			return nil, err
		}
		a.Result = append(a.Result, shown)
	}
	return api.WaitingRoomListEvents200JSONResponse{EventsAnswerJSONResponse: a}, nil
}

// WaitingRoomEventDetails implements [api.StrictServerInterface].
func (s *eventService) WaitingRoomEventDetails(ctx context.Context, q api.WaitingRoomEventDetailsRequestObject) (api.WaitingRoomEventDetailsResponseObject, error) {
	r, err := s.look(ctx, q.ZoneId, q.WaitingRoomId)
	if err != nil {
		return nil, err
	}
	a, err := s.oneEvent(ctx, r, q.EventId)
	return api.WaitingRoomEventDetails200JSONResponse{EventAnswerJSONResponse: a}, err
}

// WaitingRoomPreviewActiveEventDetails implements [api.StrictServerInterface].
func (s *eventService) WaitingRoomPreviewActiveEventDetails(ctx context.Context, q api.WaitingRoomPreviewActiveEventDetailsRequestObject) (api.WaitingRoomPreviewActiveEventDetailsResponseObject, error) {
	r, err := s.look(ctx, q.ZoneId, q.WaitingRoomId)
	if err != nil {
		return nil, err
	}
	e := eventOf(r, q.EventId)
	if e == nil {
		return nil, errNotFound
	}
	shown, err := s.showEvent(ctx, r, e)
	if err != nil {
		return nil, err
	}
	in, page := r.In(room.Phase{Kind: room.Active, Event: e}), ""
	if in.WaitingPage != "" {
		data, err := s.page(ctx, in.WaitingPage)
		if err != nil {
			return nil, err
		}
		page = string(data)
	}
	a := api.EventDetailsAnswerJSONResponse{Success: true, Errors: []api.Note{}, Messages: []api.Note{}, Result: api.EventDetails{
		Id: shown.Id, CreatedOn: shown.CreatedOn, ModifiedOn: shown.ModifiedOn, Name: shown.Name, Description: shown.Description,
		EventStartTime: shown.EventStartTime, EventEndTime: shown.EventEndTime, PrequeueStartTime: shown.PrequeueStartTime, Suspended: shown.Suspended, ShuffleAtEventStart: shown.ShuffleAtEventStart,
		TotalActiveUsers: in.TotalActiveUsers, NewUsersPerMinute: in.NewUsersPerMinute, SessionDuration: minutes(in.SessionDuration),
		DisableSessionRenewal: in.NoRenewal, QueueingMethod: in.QueueingMethod, CustomPageHtml: page,
		Vestibule: shownOverrides(&in, func(string) bool { return true }),
	}}
	return api.WaitingRoomPreviewActiveEventDetails200JSONResponse{EventDetailsAnswerJSONResponse: a}, nil
}

// WaitingRoomCreateEvent implements [api.StrictServerInterface].
func (s *eventService) WaitingRoomCreateEvent(ctx context.Context, q api.WaitingRoomCreateEventRequestObject) (api.WaitingRoomCreateEventResponseObject, error) {
	a, err := s.changeEvent(ctx, q.ZoneId, q.WaitingRoomId, newRuleID(), func(old *room.Event, id string) (*givenEvent, error) {
		return readEvent(*q.Body, room.Event{ID: id}, true), nil
	})
	return api.WaitingRoomCreateEvent200JSONResponse{EventAnswerJSONResponse: a}, err
}

// WaitingRoomUpdateEvent implements [api.StrictServerInterface].
func (s *eventService) WaitingRoomUpdateEvent(ctx context.Context, q api.WaitingRoomUpdateEventRequestObject) (api.WaitingRoomUpdateEventResponseObject, error) {
	a, err := s.changeEvent(ctx, q.ZoneId, q.WaitingRoomId, q.EventId, writeEvent(*q.Body, true))
	return api.WaitingRoomUpdateEvent200JSONResponse{EventAnswerJSONResponse: a}, err
}

// WaitingRoomPatchEvent implements [api.StrictServerInterface].
func (s *eventService) WaitingRoomPatchEvent(ctx context.Context, q api.WaitingRoomPatchEventRequestObject) (api.WaitingRoomPatchEventResponseObject, error) {
	a, err := s.changeEvent(ctx, q.ZoneId, q.WaitingRoomId, q.EventId, writeEvent(*q.Body, false))
	return api.WaitingRoomPatchEvent200JSONResponse{EventAnswerJSONResponse: a}, err
}

// WaitingRoomDeleteEvent implements [api.StrictServerInterface].
func (s *eventService) WaitingRoomDeleteEvent(ctx context.Context, q api.WaitingRoomDeleteEventRequestObject) (api.WaitingRoomDeleteEventResponseObject, error) {
	_, err := s.changeEvent(ctx, q.ZoneId, q.WaitingRoomId, q.EventId, func(old *room.Event, _ string) (*givenEvent, error) {
		if old == nil {
			return nil, errNotFound
		}
		return nil, nil
	})
	return api.WaitingRoomDeleteEvent200JSONResponse{DeletedAnswerJSONResponse: deleted(q.EventId)}, err
}

// writeEvent returns an edit that changes an existing event.
func writeEvent(body json.RawMessage, whole bool) func(*room.Event, string) (*givenEvent, error) {
	return func(old *room.Event, _ string) (*givenEvent, error) {
		if old == nil {
			return nil, errNotFound
		}
		return readEvent(body, *old, whole), nil
	}
}

// changeEvent replaces the event with an id, nil for none, by the result of edit, or deletes it if that is nil. edit
// is called again after a concurrent write.
func (s *eventService) changeEvent(ctx context.Context, zone, id, event string, edit func(old *room.Event, id string) (*givenEvent, error)) (a api.EventAnswerJSONResponse, err error) {
	if err := checkZone(zone); err != nil {
		return a, err
	}
	name, there := "", false
	state, err := s.store.Change(ctx, func(d *roomstore.Draft) error {
		r, err := s.draft(d, id)
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
			if g.event.Created == 0 {
				g.event.Created = s.now().UnixMilli()
			}
			g.event.Changed = s.now().UnixMilli()
			settings.Events = append(settings.Events, g.event)
			g.judge(&settings)
			if s.draws.judge(g, old); len(g.faults) > 0 {
				return invalid(g.faults)
			}
			if len(g.page) > 0 {
				d.AddPage("custom_page_html", g.page)
			}
		}
		return d.Replace(r.Name, settings)
	})
	if err != nil {
		return a, between(err)
	}
	r := state.Room(name)
	if r == nil {
		return a, errNotFound
	}
	if !there {
		return a, nil
	}
	return s.oneEvent(ctx, r, event)
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
