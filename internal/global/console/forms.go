package console

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// formFor is how long a form can be sent: as long as a session lasts.
const formFor = 12 * time.Hour

// newForm returns the name of a form that is shown now.
func newForm() string { return strconv.FormatInt(time.Now().Unix(), 36) + "." + rand.Text() }

// takeForm reads the form of a request that changes something, and uses it up: a form is sent once.
func (q *request) takeForm() error {
	if q.Method == http.MethodGet || q.Method == http.MethodHead {
		return nil
	}
	if !q.may(control.Operator) { // each form that is taken is kept, and viewers change nothing
		return q.forbidden(control.Operator)
	}
	if err := q.ParseMultipartForm(maxForm); err != nil && !errors.Is(err, http.ErrNotMultipart) {
		return faultf("the form cannot be read: %v", err)
	}
	form := q.PostFormValue("once")
	at, _, _ := strings.Cut(form, ".")
	shown, err := strconv.ParseInt(at, 36, 64)
	age := q.now.Sub(time.Unix(shown, 0))
	once := err == nil && age < formFor && age > -time.Minute
	if once {
		if once, err = q.c.Once(q.Context(), form); err != nil {
			q.c.Log.Warn("console: a form is refused: the store cannot be used", slog.Any("error", err))
			return &control.RefusalError{
				Status: http.StatusServiceUnavailable,
				Notes:  noteOf("The store does not answer. Nothing was changed. Try again in a moment."),
			}
		}
	}
	if !once {
		return &control.RefusalError{Status: http.StatusConflict, Notes: noteOf(
			"This form was sent before, or is older than 12 hours. Nothing was changed now. Open the page again.")}
	}
	return nil
}

// seenOf returns a digest of what a page shows. A form sends it, so that nothing else is overwritten.
func seenOf(shown ...any) string {
	data, err := json.Marshal(shown)
	if err != nil {
		panic(err) // plain values
	}
	sum := sha256.Sum256(data)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

const changedMeanwhile = "Somebody changed this after you opened the page. Nothing was changed now."

// revisionOf returns the revision of a room.
func revisionOf(r *api.Room) uint64 {
	revision, _ := r.Vestibule["revision"].(float64)
	return uint64(revision)
}

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
	Own         string // the room's limits, if others are in force

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
	own := control.Limits{Total: rd.room.TotalActiveUsers, Rate: rd.room.NewUsersPerMinute}
	if own != (control.Limits{Total: c.InForce.TotalActiveUsers, Rate: c.InForce.NewUsersPerMinute}) {
		f.Own = pair(own)
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
