package console

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// action is something that an operator does to a room.
type action struct {
	Name  string // in addresses
	Title string
	Verb  string // of the button that confirms it
	needs control.Role
	plan  func(*request, *reading, url.Values) (*plan, error)
}

// plan is the effect of an action with its form.
type plan struct {
	Consequence []string // in words
	Undo        string
	limits      *control.LimitChange // nil for another change
	change      change
}

// carryOut makes a planned change.
func (q *request) carryOut(p *plan, reason string) error {
	if c := p.limits; c != nil {
		c.Reason = reason
		_, err := q.c.API.SetLimits(q.Context(), q.who, q.RemoteAddr, *c)
		return err
	}
	return q.change(p.change.method, p.change.path, p.change.body(reason), nil)
}

// change is an operation of the API. body gets the reason.
type change struct {
	method, path string
	body         func(reason string) any
}

// formError is a fault in the form of an action.
type formError struct{ message string }

func (e *formError) Error() string { return e.message }

func faultf(format string, args ...any) error { return &formError{fmt.Sprintf(format, args...)} }

// patchControls returns the change of one control; nil ends it.
func patchControls(rd *reading, name string, value any) change {
	return change{http.MethodPatch, ownPath(rd.room.Id) + "/controls", func(reason string) any {
		return map[string]any{name: value, "reason": reason}
	}}
}

// actions are all actions, by their names.
var actions = func() map[string]*action {
	all := map[string]*action{}
	for _, a := range []action{
		{"pause", "Pause the room", "Pause the room", control.Operator, planPause},
		{"resume", "Resume the room", "Resume the room", control.Operator, planResume},
		{"message", "Show a message", "Show the message", control.Operator, planMessage},
		{"end-message", "Remove the message", "Remove the message", control.Operator, planEndMessage},
		{"release", "Let in the next visitors", "Let them in", control.Operator, planRelease},
		{"limits", "Change the limits", "Change the limits", control.Operator, planLimits},
		{"end-limits", "End the temporary limits", "End the temporary limits", control.Operator, planEndLimits},
		{"end-queue", "Let visitors enter again", "Let visitors enter again", control.Operator, planEndQueue},
	} {
		all[a.Name] = &a
	}
	return all
}()

// seen returns a digest of the state before an action, as an operator sees it: the limits, the controls and the
// release.
func (rd *reading) seen() string {
	c := rd.controls
	c.Version = 0 // of all rooms
	var id int64
	if rd.release != nil {
		id = rd.release.Id
	}
	return seenOf(c, id, rd.room.Vestibule["revision"])
}

// confirmView is the content of the page that confirms an action.
type confirmView struct {
	Action   *action
	ID, Name string // of the room
	Plan     *plan  // nil if the form has a fault
	Fault    string
	Form     url.Values // sent again with the confirmation
	Forms    *forms
	Seen     string
	Reason   string
	MaxText  int
}

// fixedFields are those that a confirmation adds to a form.
var fixedFields = []string{"reason", "seen", "once"}

// serveConfirm shows the consequence of an action.
func serveConfirm(q *request) error {
	a, rd, err := q.action()
	if err != nil {
		return err
	}
	return showConfirm(q, http.StatusOK, a, rd, "")
}

// action returns the action and the room in the path, if the operator may act.
func (q *request) action() (*action, *reading, error) {
	a := actions[q.PathValue("name")]
	if a == nil {
		return nil, nil, notFoundError{}
	}
	if err := q.ParseForm(); err != nil {
		return nil, nil, faultf("the form cannot be read: %v", err)
	}
	if !q.may(a.needs) {
		return nil, nil, q.forbidden(a.needs)
	}
	q.exact = true // a consequence is not of old numbers
	rd, err := q.c.readRoom(q.call, q.PathValue("id"))
	return a, rd, err
}

// showConfirm shows the page that confirms an action, with a fault that kept it from being made, "" for none.
func showConfirm(q *request, status int, a *action, rd *reading, fault string) error {
	v := &confirmView{
		Action: a, ID: rd.room.Id, Name: rd.room.Name, Fault: fault, Form: url.Values{}, Seen: rd.seen(),
		Reason: q.FormValue("reason"),
		Forms:  formsOf(rd, q.may(control.Editor)), MaxText: room.MaxReason,
	}
	maps.Copy(v.Form, q.Form)
	for _, name := range fixedFields {
		v.Form.Del(name)
	}
	v.Forms.fill(v.Form)
	p, err := a.plan(q, rd, q.Form)
	if err != nil {
		f := failureOf(err)
		v.Fault, status = strings.Join(f.Notes, " "), f.Status
	} else {
		v.Plan = p
	}
	return q.showIn(status, "confirm", a.Title+": "+rd.room.Name, rd.place("live"), v)
}

// act makes a confirmed change.
func act(q *request) error {
	a, rd, err := q.action()
	if err != nil {
		return err
	}
	p, err := a.plan(q, rd, q.PostForm)
	if err != nil {
		return showConfirm(q, http.StatusUnprocessableEntity, a, rd, "")
	}
	reason := strings.TrimSpace(q.PostForm.Get("reason"))
	switch {
	case q.PostForm.Get("seen") != rd.seen():
		return showConfirm(q, http.StatusConflict, a, rd,
			"Somebody changed this room after you opened this page. Nothing was changed now. Look at the consequence again.")
	case reason == "":
		return showConfirm(q, http.StatusUnprocessableEntity, a, rd, "Say why, in a few words. The audit log keeps it.")
	case len(reason) > room.MaxReason || !utf8.ValidString(reason):
		return showConfirm(q, http.StatusUnprocessableEntity, a, rd, fmt.Sprintf("The reason must have at most %d bytes.",
			room.MaxReason))
	}
	if err := q.carryOut(p, reason); err != nil {
		f := failureOf(err)
		if rd, err = q.c.readRoom(q.call, rd.room.Id); err != nil {
			return err
		}
		return showConfirm(q, f.Status, a, rd, "This was not done: "+strings.Join(f.Notes, " "))
	}
	return q.to(roomPath(rd.room.Id) + "?done=" + a.Name)
}

// forbidden is the refusal of something that needs another role.
func (q *request) forbidden(needs control.Role) error {
	return &control.RefusalError{
		Status: http.StatusForbidden,
		Notes:  noteOf("This needs the role %s. You have the role %s.", needs, q.who.Role),
	}
}

// done is the result of an action in one line, with the action that undoes it.
type done struct {
	What string
	Undo *action // nil for none
}

// releaseWords says how far a release is.
func releaseWords(r *api.Release) string {
	n := plural(r.People, "visitor", "visitors")
	switch {
	case r.State == api.Done:
		return "The next " + n + " are let in."
	case r.State == api.Interrupted:
		return "The release of " + n + " was interrupted by a change of the leading global. Release the rest again."
	case r.LetIn != nil && *r.LetIn > 0:
		return fmt.Sprintf("%s of the next %s are let in. The rest follows.", count(*r.LetIn), n)
	}
	return "The next " + n + " will be let in."
}

// doneOf describes the state after an action.
func doneOf(rd *reading, name string) *done {
	c := &rd.controls
	switch {
	case name == "pause" && c.Pause != nil:
		return &done{"The room is paused. The waiting page shows it.", actions["resume"]}
	case name == "resume" && c.Pause == nil:
		return &done{"The room lets visitors in again.", actions["pause"]}
	case name == "message" && c.Message != nil:
		return &done{"Waiting visitors see the message.", actions["end-message"]}
	case name == "end-message" && c.Message == nil:
		return &done{"The message is removed.", nil}
	case name == "release" && rd.release != nil:
		return &done{releaseWords(rd.release) + " This cannot be undone.", nil}
	case name == "limits" && c.Limits != nil:
		return &done{"The limits are changed until " + until(rd.at, *c.Limits.Until) + ".", actions["end-limits"]}
	case name == "limits":
		return &done{"The limits of the room are changed. To undo this, restore the previous revision under Changes.", nil}
	case name == "end-limits" && c.Limits == nil:
		return &done{"The limits of the room apply again.", nil}
	case name == "end-queue" && c.QueueAll == nil:
		return &done{"The room lets visitors in again.", actions["pause"]}
	}
	return nil
}
