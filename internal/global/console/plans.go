package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// maxMinutes bounds the duration of a control: 30 days.
const maxMinutes = 30 * 24 * 60

// numberOf reads a whole number of a form. given is false if the field is empty.
func numberOf(form url.Values, name, label string, most int) (n int, given bool, err error) {
	text := strings.NewReplacer(",", "", " ", "").Replace(form.Get(name))
	if text == "" {
		return 0, false, nil
	}
	n, err = strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, true, faultf("%s must be a number from 1 to %s.", label, count(most))
	}
	return n, true, nil
}

// endOf reads the end of a control from the field "minutes"; nil if it is empty.
func endOf(rd *reading, form url.Values) (*time.Time, error) {
	n, given, err := numberOf(form, "minutes", "The number of minutes", maxMinutes)
	if err != nil || !given {
		return nil, err
	}
	end := rd.at.Add(time.Duration(n) * time.Minute).UTC().Truncate(time.Second)
	return &end, nil
}

// waitingIn returns the number of waiting visitors; ok is false if it is unknown.
func (rd *reading) waitingIn() (n int, ok bool) {
	if rd.status == nil {
		return 0, false
	}
	return rd.status.EstimatedQueuedUsers, true
}

// waitingPeople begins a sentence about the waiting visitors.
func (rd *reading) waitingPeople() string {
	if n, ok := rd.waitingIn(); ok {
		return people(n)
	}
	return "All waiting visitors (their number is unknown)"
}

func planPause(_ *request, rd *reading, form url.Values) (*plan, error) {
	end, err := endOf(rd, form)
	if err != nil {
		return nil, err
	}
	message, err := messageOf(form)
	if err != nil {
		return nil, err
	}
	p := &plan{Undo: "Resume the room. Visitors keep their places in the queue."}
	if message == "" {
		p.say("%s will read that the organiser has paused.", rd.waitingPeople())
	} else {
		p.say("%s will read that the organiser has paused, with the message “%s”.", rd.waitingPeople(), message)
	}
	if s := rd.status; s != nil {
		p.say("Nobody is let in. %s inside stay and can go on.", people(s.EstimatedTotalActiveUsers))
	}
	body := map[string]any{"message": message}
	if end == nil {
		p.say("The pause lasts until somebody resumes the room.")
	} else {
		body["until"] = end
		p.say("The pause ends by itself at %s.", until(rd.at, *end))
	}
	p.change = patchControls(rd, "pause", body)
	return p, nil
}

func (p *plan) say(format string, args ...any) {
	p.Consequence = append(p.Consequence, fmt.Sprintf(format, args...))
}

// messageOf reads a text for visitors.
func messageOf(form url.Values) (string, error) {
	text := strings.TrimSpace(form.Get("message"))
	if len(text) > room.MaxMessage {
		return "", faultf("The message must have at most %d bytes; it has %d.", room.MaxMessage, len(text))
	}
	return text, nil
}

func planResume(_ *request, rd *reading, _ url.Values) (*plan, error) {
	if rd.controls.Pause == nil {
		return nil, faultf("The room is not paused.")
	}
	p := &plan{Undo: "Pause the room again. Visitors who are inside by then stay.", change: patchControls(rd, "pause", nil)}
	rate := rd.controls.InForce.NewUsersPerMinute
	p.say("Visitors are let in again, at most %s per minute while there are places.", count(rate))
	if n, ok := rd.waitingIn(); ok && n > 0 && rate > 0 {
		p.say("%s are waiting. The newest would wait about %s.", people(n), minutes(atRate(n, rate)))
	}
	return p, nil
}

// atRate returns the minutes in which n visitors are let in at a rate.
func atRate(n, rate int) int { return max(1, (n+rate-1)/rate) }

func planMessage(_ *request, rd *reading, form url.Values) (*plan, error) {
	text, err := messageOf(form)
	if err != nil {
		return nil, err
	}
	if text == "" {
		return nil, faultf("Write the message.")
	}
	end, err := endOf(rd, form)
	if err != nil {
		return nil, err
	}
	p := &plan{Undo: "Remove the message."}
	p.say("%s will read “%s” on the waiting page within seconds.", rd.waitingPeople(), text)
	if old := rd.controls.Message; old != nil && old.Text != nil {
		p.say("It replaces “%s”.", *old.Text)
	}
	body := map[string]any{"text": text}
	if end != nil {
		body["until"] = end
		p.say("It is removed by itself at %s.", until(rd.at, *end))
	}
	p.change = patchControls(rd, "message", body)
	return p, nil
}

func planEndMessage(_ *request, rd *reading, _ url.Values) (*plan, error) {
	m := rd.controls.Message
	if m == nil || m.Text == nil {
		return nil, faultf("There is no message.")
	}
	p := &plan{Undo: "Show the message again.", change: patchControls(rd, "message", nil)}
	p.say("%s will no longer read “%s”.", rd.waitingPeople(), *m.Text)
	return p, nil
}

func planRelease(_ *request, rd *reading, form url.Values) (*plan, error) {
	if rd.controls.Pause == nil {
		return nil, faultf("Only a paused room lets in a number of visitors. Pause it first.")
	}
	n, given, err := numberOf(form, "people", "The number of visitors", room.MaxRelease)
	if err != nil {
		return nil, err
	}
	if !given {
		return nil, faultf("Say how many visitors to let in.")
	}
	p := &plan{Undo: "There is no way back: visitors who are let in stay."}
	p.say("The next %s of the queue are let in, never more, while the room stays paused.", people(n))
	if waiting, ok := rd.waitingIn(); ok && waiting < n {
		p.say("Only %s are waiting now. The rest of the number stays open for the next ones.", people(waiting))
	}
	force := rd.controls.InForce
	if s := rd.status; s != nil {
		free := max(0, force.TotalActiveUsers-s.EstimatedTotalActiveUsers)
		p.say("Both limits hold: %s free now, and at most %s per minute.", plural(free, "place is", "places are"),
			count(force.NewUsersPerMinute))
	}
	replace := rd.release != nil && (rd.release.State == api.Open || rd.release.State == api.Waiting)
	if replace {
		p.say("It ends the open release of %s.", people(rd.release.People))
	}
	p.change = change{http.MethodPost, ownPath(rd.room.Id) + "/releases", func(reason string) any {
		return map[string]any{"people": n, "reason": reason, "replace": replace}
	}}
	return p, nil
}

// planLimits plans a change of the limits. What the form shows is in force afterwards.
func planLimits(q *request, rd *reading, form url.Values) (*plan, error) {
	total, _, err := numberOf(form, "total", "Total active users", room.MaxRate)
	if err != nil {
		return nil, err
	}
	rate, _, err := numberOf(form, "rate", "New users per minute", room.MaxRate)
	if err != nil {
		return nil, err
	}
	c := rd.limitChange(control.Limits{Total: total, Rate: rate}, control.ForGood)
	if form.Get("for") != "always" {
		end, err := endOf(rd, form)
		if err != nil {
			return nil, err
		}
		if end == nil {
			return nil, faultf("Say for how many minutes the limits are changed.")
		}
		c.For, c.Until = control.Temporarily, *end
	}
	return q.planLimits(rd, c)
}

func planEndLimits(q *request, rd *reading, _ url.Values) (*plan, error) {
	return q.planLimits(rd, rd.limitChange(control.Limits{}, control.Ending))
}

// limitChange returns a change of the limits that the reading has.
func (rd *reading) limitChange(want control.Limits, lasting control.Lasting) *control.LimitChange {
	force := &rd.controls.InForce
	return &control.LimitChange{
		Room: rd.room.Id, Want: want, For: lasting, Revision: revisionOf(&rd.room),
		Seen: control.Limits{Total: force.TotalActiveUsers, Rate: force.NewUsersPerMinute},
	}
}

// planLimits plans a change of limits, and says what it does.
func (q *request) planLimits(rd *reading, c *control.LimitChange) (*plan, error) {
	look := *c
	look.DryRun = true
	e, err := q.c.API.SetLimits(q.Context(), q.who, q.RemoteAddr, look)
	if err != nil {
		return nil, err
	}
	p := &plan{limits: c}
	p.sayLimits(rd, e)
	switch c.For {
	case control.Temporarily:
		p.say("%s apply again at %s: %s.", ownerOf(e.ThenEvent), until(rd.at, c.Until), pair(e.Then))
		p.Undo = "End the temporary limits."
	case control.ForGood:
		p.sayForGood(rd, e)
	case control.Ending:
		p.Undo = "Change the limits again."
		if e.Before == e.After {
			p.say("The limits of the room apply again. They are the same.")
		}
	}
	if n := e.Next; n != nil {
		p.say("In the event “%s”, from %s, others apply: %s.", n.Name, clock(rd.at, n.Start), pair(n.Limits))
	}
	return p, nil
}

// ownerOf begins a sentence about the limits of an event, "" for the room.
func ownerOf(event string) string {
	if event == "" {
		return "The limits of the room"
	}
	return "The limits of the event “" + event + "”"
}

// pair names both limits.
func pair(l control.Limits) string {
	return fmt.Sprintf("%s inside, %s let in per minute", count(l.Total), count(l.Rate))
}

// sayForGood tells what has the limits until somebody changes them.
func (p *plan) sayForGood(rd *reading, e *control.LimitEffect) {
	p.Undo = "Restore the previous revision under Changes."
	if e.Event != "" {
		p.say("The event “%s” has limits of its own. They are changed, and the room keeps its own for the time after "+
			"the event, from %s: %s.", e.Event, until(rd.at, e.EventEnds), pair(e.OwnAfter))
	} else {
		p.say("The room is changed. Its limits stay until somebody changes them.")
	}
	if e.Event == "" && e.Own != e.Before {
		p.say("It has %s from now on, and had %s.", pair(e.OwnAfter), pair(e.Own))
	}
	if e.Ended {
		p.say("The temporary limits end.")
		p.Undo += " The temporary limits do not come back."
	}
}

// sayLimits tells the effect of other limits in force.
func (p *plan) sayLimits(rd *reading, e *control.LimitEffect) {
	if before, total := e.Before.Total, e.After.Total; total != before {
		p.say("At most %s inside at a time instead of %s.", people(total), count(before))
		p.sayInside(rd, before, total, e.After.Rate)
	}
	if before, rate := e.Before.Rate, e.After.Rate; rate != before {
		p.say("At most %s let in per minute instead of %s.", people(rate), count(before))
		p.sayWait(rd, before, rate)
	}
}

// sayInside tells the effect of another limit of sessions on those who are inside or wait.
func (p *plan) sayInside(rd *reading, before, total, rate int) {
	if rd.status == nil {
		return
	}
	inside := rd.status.EstimatedTotalActiveUsers
	waiting := rd.status.EstimatedQueuedUsers
	switch {
	case inside > total:
		p.say("%s are inside and stay. Nobody is let in until %s have left.", people(inside), count(inside-total+1))
	case total > before && waiting > 0 && total > inside:
		p.say("%s of those who wait can enter at once, at most %s per minute.", people(min(waiting, total-inside)),
			count(rate))
	}
}

// sayWait tells the effect of another limit of admissions on those who wait.
func (p *plan) sayWait(rd *reading, before, rate int) {
	if n, ok := rd.waitingIn(); ok && n > 0 && before > 0 {
		now, then := atRate(n, before), atRate(n, rate)
		switch {
		case now == then:
			p.say("The newest visitor would wait about %s, as now.", minutes(now))
		case max(now, then) < 120:
			p.say("The newest visitor would wait about %s instead of %s, if enough places become free.", count(then),
				minutes(now))
		default:
			p.say("The newest visitor would wait about %s instead of %s, if enough places become free.", minutes(then),
				minutes(now))
		}
	}
}

func planEndQueue(_ *request, rd *reading, _ url.Values) (*plan, error) {
	if rd.controls.QueueAll == nil {
		return nil, faultf("No operator made everyone queue.")
	}
	p := &plan{Undo: "Pause the room.", change: patchControls(rd, "queue_all", nil)}
	p.say("Visitors enter while there are places, at most %s per minute.", count(rd.controls.InForce.NewUsersPerMinute))
	return p, nil
}

// noteOf returns a note for operators.
func noteOf(format string, args ...any) []api.Note {
	return []api.Note{{Message: fmt.Sprintf(format, args...)}}
}
