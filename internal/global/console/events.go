package console

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/room"
	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// eventsView is the content of the page of a room's events.
type eventsView struct {
	ID           string
	Editor       bool
	Done         string // result of a change, "" for none
	Coming, Past []eventView
}

// eventView is an event with its timeline.
type eventView struct {
	api.Event
	State  state
	Steps  []phaseView
	Limits string // of the event itself, "" for the room's
}

// phaseView is a step of a timeline.
type phaseView struct {
	Name, At, In string
	When         string // past, now, or next
	Time         time.Time
}

// eventDone are the results of changes in words.
var eventDone = map[string]string{
	"added": "The event is created.", "saved": "The event is changed.",
	"deleted": "The event is deleted. To undo this, restore the previous revision under Changes.",
}

// eventsPath returns the path of a room's events in the API.
func eventsPath(id string) string { return roomsPath() + "/" + id + "/events" }

// viewEvent renders an event.
func viewEvent(now time.Time, e *api.Event) eventView {
	v := eventView{Event: *e}
	type moment struct {
		name string
		at   time.Time
	}
	var all []moment
	if e.PrequeueStartTime != nil {
		all = append(all, moment{"Pre-queue opens", *e.PrequeueStartTime})
	}
	if e.ShuffleAtEventStart {
		all = append(all, moment{"Entries to the draw close", e.EventStartTime.Add(-draw.Lead)})
	}
	all = append(all, moment{"Start", e.EventStartTime}, moment{"End", e.EventEndTime})
	for i, m := range all {
		step := phaseView{Name: m.name, At: clock(now, m.at), Time: m.at, When: "next"}
		switch {
		case m.at.After(now):
			step.In = "in " + left(m.at.Sub(now))
		case i+1 < len(all) && all[i+1].at.After(now):
			step.When, step.In = "now", "now"
		default:
			step.When = "past"
		}
		v.Steps = append(v.Steps, step)
	}
	switch {
	case e.Suspended:
		v.State = state{Key: "off", Word: "Suspended"}
	case !e.EventEndTime.After(now):
		v.State = state{Key: "off", Word: "Over"}
	case !e.EventStartTime.After(now):
		v.State = state{Key: "open", Word: "Running"}
	case e.PrequeueStartTime != nil && !e.PrequeueStartTime.After(now):
		v.State = state{Key: "before", Word: "Pre-queue"}
	default:
		v.State = state{Key: "busy", Word: "Planned"}
	}
	if e.TotalActiveUsers != nil && e.NewUsersPerMinute != nil {
		v.Limits = fmt.Sprintf("%s inside, %s let in per minute", count(*e.TotalActiveUsers), count(*e.NewUsersPerMinute))
	}
	return v
}

// serveEvents shows the events of a room.
func serveEvents(q *request) error {
	room, at, err := q.place("events")
	if err != nil {
		return err
	}
	var list []api.Event
	if err := q.get(eventsPath(room.Id)+"?per_page=1000", &list); err != nil {
		return err
	}
	v := &eventsView{ID: room.Id, Editor: q.may(control.Editor), Done: eventDone[q.FormValue("done")]}
	for i := range list {
		e := viewEvent(q.now, &list[i])
		if list[i].EventEndTime.After(q.now) {
			v.Coming = append(v.Coming, e)
		} else {
			v.Past = append(v.Past, e)
		}
	}
	return q.showIn(http.StatusOK, "events", "Events of "+room.Name, at, v)
}

// oneEventView is the content of the page of one event.
type oneEventView struct {
	ID      string
	Event   eventView
	Details *api.EventDetails
	Draw    *api.Draw // nil for none
	Editor  bool
	Form    *formView
	Seen    string // of the event as it is
}

// serveEvent shows an event with its draw, the settings in force during it, and its form.
func serveEvent(q *request) error { return showEvent(q, http.StatusOK, nil) }

func showEvent(q *request, status int, form *formView) error {
	room, at, err := q.place("events")
	if err != nil {
		return err
	}
	var e api.Event
	path := eventsPath(room.Id) + "/" + q.PathValue("event")
	if err := q.get(path, &e); err != nil {
		return err
	}
	v := &oneEventView{
		ID: room.Id, Event: viewEvent(q.now, &e), Details: &api.EventDetails{},
		Editor: q.may(control.Editor), Form: form,
	}
	if err := q.get(path+"/details", v.Details); err != nil {
		return err
	}
	var drawn api.Draw
	err = q.get(ownPath(room.Id)+"/events/"+e.Id+"/draw", &drawn)
	switch {
	case err == nil:
		v.Draw = &drawn
	case control.Status(err) != http.StatusNotFound:
		return err
	}
	own := eventForm(roomPath(room.Id)+"/events/"+e.Id, "Save", &e).editing()
	if v.Seen = own.Seen; v.Form == nil {
		v.Form = own
	}
	return q.showIn(status, "event", e.Name+": event of "+room.Name, at, v)
}

// eventForm returns the form of an event. Times are in UTC.
func eventForm(action, verb string, e *api.Event) *formView {
	at := func(t *time.Time) string {
		if t == nil || t.IsZero() {
			return ""
		}
		return t.UTC().Format(timeForm)
	}
	number := func(n *int) string {
		if n == nil {
			return ""
		}
		return strconv.Itoa(*n)
	}
	renewal, method := "", ""
	if e.DisableSessionRenewal != nil {
		renewal = strconv.FormatBool(*e.DisableSessionRenewal)
	}
	if e.QueueingMethod != nil {
		method = *e.QueueingMethod
	}
	return &formView{Action: action, Verb: verb, Fields: []field{
		{Name: "name", Label: "Name", Value: e.Name, Required: true},
		{Name: "description", Label: "Description", Value: e.Description},
		{
			Name: "prequeue_start_time", Label: "Pre-queue opens (UTC)",
			Hint: "empty for none; at least 5 minutes before the start", Kind: "time", Value: at(e.PrequeueStartTime),
		},
		{Name: "event_start_time", Label: "Start (UTC)", Kind: "time", Value: at(&e.EventStartTime), Required: true},
		{Name: "event_end_time", Label: "End (UTC)", Kind: "time", Value: at(&e.EventEndTime), Required: true},
		{
			Name: "shuffle_at_event_start", Label: "Draw the order of those who come before the start", Kind: "check",
			Value: strconv.FormatBool(e.ShuffleAtEventStart),
		},
		{
			Name: "total_active_users", Label: "Total active users", Hint: "empty: the room's", Kind: "number",
			Value: number(e.TotalActiveUsers),
		},
		{
			Name: "new_users_per_minute", Label: "New users per minute", Hint: "empty: the room's", Kind: "number",
			Value: number(e.NewUsersPerMinute),
		},
		{
			Name: "session_duration", Label: "Session duration in minutes", Hint: "empty: the room's", Kind: "number",
			Value: number(e.SessionDuration),
		},
		{Name: "disable_session_renewal", Label: "Sessions", Kind: "choice", Value: renewal, Choices: []choice{
			{"", "as in the room"}, {"false", "are renewed by requests"}, {"true", "end after the session duration"},
		}},
		{Name: "queueing_method", Label: "Queueing method", Kind: "choice", Value: method, Choices: []choice{
			{"", "as in the room"},
			{room.MethodFIFO, "first in, first out"},
			{room.MethodRandom, "random"},
			{room.MethodPassthrough, "pass through"},
			{room.MethodReject, "reject"},
		}},
		{
			Name: "suspended", Label: "Suspended: the event does not take place", Kind: "check",
			Value: strconv.FormatBool(e.Suspended),
		},
	}}
}

// serveNewEvent shows the form of a new event.
func serveNewEvent(q *request) error {
	if !q.may(control.Editor) {
		return q.forbidden(control.Editor)
	}
	start := q.now.Add(24 * time.Hour).Truncate(time.Hour)
	e := &api.Event{EventStartTime: start, EventEndTime: start.Add(2 * time.Hour)}
	return showNewEvent(q, http.StatusOK, eventForm(roomPath(q.PathValue("id"))+"/events", "Create the event", e))
}

func showNewEvent(q *request, status int, form *formView) error {
	room, at, err := q.place("events")
	if err != nil {
		return err
	}
	form.Cancel = roomPath(room.Id) + "/events"
	return q.showIn(status, "newevent", "New event of "+room.Name, at, form)
}

// addEvent creates an event.
func addEvent(q *request) error {
	id := q.PathValue("id")
	form := eventForm(roomPath(id)+"/events", "Create the event", &api.Event{})
	return q.submit(form, http.MethodPost, eventsPath(id), nil, showNewEvent, roomPath(id)+"/events?done=added")
}

// changeEvent saves or deletes an event, as the field "do" says.
func changeEvent(q *request) error {
	if !q.may(control.Editor) {
		return q.forbidden(control.Editor)
	}
	room, _, err := q.place("events")
	if err != nil {
		return err
	}
	list, path := roomPath(room.Id)+"/events", eventsPath(room.Id)+"/"+q.PathValue("event")
	var e api.Event
	if err := q.get(path, &e); err != nil {
		return err
	}
	q.expects = revisionOf(room)
	form := eventForm(list+"/"+e.Id, "Save", &e).editing()
	if q.FormValue("do") != "delete" {
		return q.submit(form, http.MethodPatch, path, nil, showEvent, list+"?done=saved")
	}
	if form.Seen != q.PostFormValue("seen") {
		form.Fault = changedMeanwhile
		return showEvent(q, http.StatusConflict, form)
	}
	return q.changeAnd(http.MethodDelete, path, nil, list+"?done=deleted")
}
