package console

import (
	"fmt"
	"maps"
	"math"
	"net/http"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// roomView is the content of the page of one room.
type roomView struct {
	ID, Name, Where string
	Values          values
	Done            *done // result of an action, nil for none
	Operator        bool
	Role            control.Role
	Forms           *forms
	InForce         []inForce
	Charts          *chartsView // nil without a history
	Why             []why
}

// inForce is one control in force, or a release.
type inForce struct{ What, Why, Who, When, Until string }

// viewRoom renders a reading. The values are the fields of the stream.
func viewRoom(rd *reading) values {
	force, f := rd.controls.InForce, rd.facts()
	st := stateOf(f)
	v := numbersOf(rd.at, st, rd.status, force.TotalActiveUsers, force.NewUsersPerMinute)
	maps.Copy(v, values{
		"at": rd.at.UTC().Format("15:04:05 UTC"), "meaning": st.Meaning, "partial": "", "beyond": "", "notified": "",
		"admitted": unknown, "arrived": rd.last.count("arrived"),
		"gave": rd.last.count("gave_up"), "returned": rd.last.count("returning"), "admitted.bar": "0",
		"page": rd.seen(),
	})
	v.addWhy(rd.at, f.stops())
	v["waited"], v["waited.unit"] = rd.last.minutes("waited_p50")
	v["most"], v["most.unit"] = rd.last.minutes("waited_p90")
	s := rd.status
	if s == nil {
		return v
	}
	admitted := int(math.Round(s.Vestibule.AdmittedPerMinute))
	v["admitted"], v["admitted.bar"] = count(admitted), share(admitted, force.NewUsersPerMinute)
	if !s.Vestibule.Complete {
		v["partial"] = "Some data centres do not report. Their visitors are missing in these numbers."
	}
	if n := s.Vestibule.Subscribed; n > 0 {
		v["notified"] = people(n) +
			" in line will be notified. Those that have closed the page count as waiting by the share that comes."
	}
	if n := s.Vestibule.BeyondLimit; n > 0 {
		v["beyond"] = fmt.Sprintf("%s more than the limit: they entered before it was lowered.", people(n))
	}
	return v
}

// inForceOf lists the controls in force and the newest release, with their authors.
func inForceOf(rd *reading) (out []inForce) {
	add := func(what string, c *api.Control) {
		if c == nil {
			return
		}
		s := inForce{What: what, Why: c.Reason, Who: c.By, When: ago(rd.at, c.Since)}
		if c.Until != nil {
			s.Until = until(rd.at, *c.Until)
		}
		out = append(out, s)
	}
	c := &rd.controls
	add("paused the room", c.Pause)
	if r := rd.release; r != nil {
		what := "released the next " + plural(r.People, "visitor", "visitors")
		if r.LetIn != nil {
			what += fmt.Sprintf(", %s let in so far", count(*r.LetIn))
		}
		out = append(out, inForce{What: what, Why: r.Reason, Who: r.By, When: ago(rd.at, r.At)})
	}
	add("made everyone queue", c.QueueAll)
	if c.Message != nil && c.Message.Text != nil {
		add("set the message “"+*c.Message.Text+"”", c.Message)
	}
	if l := c.Limits; l != nil {
		add("set "+limitWords(l.TotalActiveUsers, l.NewUsersPerMinute), l)
	}
	return out
}

// limitWords names limits; nil for one that stays.
func limitWords(total, rate *int) string {
	switch {
	case total == nil && rate == nil:
		return "no limit"
	case total == nil:
		return fmt.Sprintf("new users per minute to %s", count(*rate))
	case rate == nil:
		return fmt.Sprintf("total active users to %s", count(*total))
	default:
		return fmt.Sprintf("total active users to %s and new users per minute to %s", count(*total), count(*rate))
	}
}

// place returns the room of a page.
func (rd *reading) place(tab string) *place {
	return &place{ID: rd.room.Id, Name: rd.room.Name, Tab: tab}
}

// serveRoom shows a room with its numbers and actions.
func serveRoom(q *request) error {
	rd, err := q.c.readRoom(q.call, q.PathValue("id"))
	if err != nil {
		return err
	}
	v := &roomView{
		ID: rd.room.Id, Name: rd.room.Name, Where: rd.room.Host + rd.room.Path, Values: viewRoom(rd), Done: doneOf(rd,
			q.FormValue("done")),
		Operator: q.may(control.Operator), Role: q.who.Role, Forms: formsOf(rd, q.may(control.Editor)), InForce: inForceOf(rd),
		Why: whyFields[:],
	}
	if v.Charts, err = liveCharts(q, rd.room.Id); err != nil {
		return err
	}
	return q.show(http.StatusOK, "room", &frame{
		Charts: v.Charts != nil, Title: rd.room.Name, Current: "rooms", Room: rd.place("live"),
		Stream: roomPath(rd.room.Id) + "/stream", Main: v,
	})
}

// roomPath returns the address of the page of a room.
func roomPath(id string) string { return "/console/rooms/" + id }
