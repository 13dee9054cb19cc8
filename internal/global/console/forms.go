package console

import (
	"net/url"
	"strconv"

	"vestibule/internal/core/room"
)

// forms are the forms of the actions of a room, with the values that they begin with.
type forms struct {
	ID                  string
	Paused, QueueAll    bool
	Limited, HasMessage bool
	Editor              bool // may change the room itself

	Message     string // for the message form
	PauseText   string
	Minutes     string
	People      string
	Total, Rate string
	Always      bool

	MaxMessage, MaxRelease, MaxMinutes, MaxLimit int
}

// formsOf returns the forms of a room.
func formsOf(rd *reading, editor bool) *forms {
	c := &rd.controls
	f := &forms{
		ID: rd.room.Id, Paused: c.Pause != nil, QueueAll: c.QueueAll != nil, Limited: c.Limits != nil,
		HasMessage: c.Message != nil,
		Editor:     editor, Total: strconv.Itoa(c.InForce.TotalActiveUsers), Rate: strconv.Itoa(c.InForce.NewUsersPerMinute),
		MaxMessage: room.MaxMessage, MaxRelease: room.MaxRelease, MaxMinutes: maxMinutes, MaxLimit: room.MaxRate,
	}
	if c.Message != nil && c.Message.Text != nil {
		f.Message = *c.Message.Text
	}
	return f
}

// fill replaces the values by those of a form that was sent.
func (f *forms) fill(form url.Values) {
	for name, to := range map[string][]*string{
		"message": {&f.Message, &f.PauseText}, "minutes": {&f.Minutes}, "people": {&f.People}, "total": {&f.Total},
		"rate": {&f.Rate},
	} {
		if !form.Has(name) {
			continue
		}
		for _, t := range to {
			*t = form.Get(name)
		}
	}
	f.Always = form.Get("for") == "always"
}
