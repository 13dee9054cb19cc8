package gate

import (
	"net/url"
	"strconv"
	"strings"

	"vestibule/internal/admission"
	"vestibule/internal/fleet"
	"vestibule/internal/ticket"
	"vestibule/internal/waiting"
)

// leave ends what the visitor's tickets hold and takes them back. Saying it
// again changes nothing. Another site cannot make a visitor say it.
func (g *Gate) leave(r *Request, o *Outcome, rooms *snapshot, query string) {
	values, ok := g.ownPage(r, o, rooms, query, methodPost)
	if !ok {
		return
	}
	named := values.Get("room")
	var left, unread *roomState // of the rooms that were left or named, and that could not be, the first
	for _, rm := range rooms.rooms {
		if named != "" && rm.Name != named {
			continue
		}
		cookie := r.brings(rm)
		if left == nil && (cookie || named != "") {
			left = rm
		}
		if !cookie && r.Tickets == nil {
			continue
		}
		t, _, keep := g.openBest(r, o, rooms, rm)
		if keep {
			if unread == nil {
				unread = rm
			}
			continue
		}
		if t.ID != 0 {
			g.quit(&Stay{rm.ID, t})
		}
		if cookie {
			o.takeBack(rm)
		}
	}
	if unread != nil {
		g.showMoment(r, o, unread, "ticket_unread")
		return
	}
	g.Count("left")
	if left != nil && wantsWords(r.Accept) {
		g.show(r, o, left, statusOK, &waiting.Visitor{Left: true, Now: g.now()})
		return
	}
	o.answerNothing()
}

// wantsWords reports whether somebody reads what becomes of a request: a person
// who sent the page's form, or an app that asks for JSON. A beacon does not.
func wantsWords(accept []string) bool {
	for _, a := range accept {
		if strings.Contains(a, "text/html") || strings.Contains(a, "application/json") {
			return true
		}
	}
	return false
}

// ownPage refuses what is not a word of this site's own page to the edge itself, by
// the given method, and returns what it says. A room that it names is there.
func (g *Gate) ownPage(r *Request, o *Outcome, rooms *snapshot, query, method string) (values url.Values, ok bool) {
	takes, says := "Leaving takes a POST.", "say that somebody leaves"
	if method == methodGet {
		takes, says = "Events take a GET without a body.", "listen"
	}
	switch m := rooms.set.Match(r.Host, "/"); {
	case !m.Known:
		o.Refuse("unknown_host", "This host is not served here.", statusMisdirected)
		return nil, false
	case r.Method != method || (method == methodGet && r.Body):
		o.set("Allow", method)
		o.Refuse("refused_method", takes, statusMethodNotAllowed)
		return nil, false
	case !r.sameOrigin():
		o.Refuse("refused_origin", "Only this site's own pages may "+says+".", statusForbidden)
		return nil, false
	}
	values, err := url.ParseQuery(query)
	name := values.Get("room")
	if err != nil || ((name != "" || method == methodGet) && rooms.set.ByName(name) == nil) {
		o.Refuse("unknown_room", "room: must name a room.", statusNotFound)
		return nil, false
	}
	return values, true
}

// sameOrigin reports whether a request comes from a page of the host that it asks
// (browsers say so), or from no page at all.
func (r *Request) sameOrigin() bool {
	if r.FetchSite != "" && r.FetchSite != "same-origin" && r.FetchSite != "none" {
		return false
	}
	if r.Origin == "" {
		return true
	}
	u, err := url.Parse(r.Origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

// quit ends one stay.
func (g *Gate) quit(st *Stay) {
	ended, hurry := g.end(st)
	g.finish(st.Place())
	if ended {
		g.metrics.quits.Inc()
		if hurry {
			g.wake()
		}
	}
}

func (g *Gate) end(st *Stay) (ended, hurry bool) {
	now := g.lock()
	defer g.mu.Unlock()
	return g.eng.Quit(now, st.Room, st.Ticket), g.eng.Due() <= now
}

// away counts a visitor whose page went away no more, until the next question.
func (g *Gate) away(r *Request, o *Outcome, rooms *snapshot, query string) {
	values, ok := g.ownPage(r, o, rooms, query, methodPost)
	if !ok {
		return
	}
	answer, err := strconv.ParseUint(values.Get("answer"), 10, 8)
	if err != nil && values.Has("answer") {
		o.Refuse("refused_away", "answer: must be 0 to 255.", statusBadRequest)
		return
	}
	result := "away_stale"
	named := values.Get("room")
	for _, rm := range rooms.rooms {
		if (named != "" && rm.Name != named) || (!r.brings(rm) && r.Tickets == nil) {
			continue
		}
		t, _, _ := g.openBest(r, o, rooms, rm)
		page := uint8(answer)
		if !values.Has("answer") { // who has one page only need not say which
			page = t.Answer
		}
		if g.goAway(rm, &t, page) {
			// Another page of this visitor is to say that it is still there.
			st := Stay{rm.ID, t}
			g.finish(st.Place())
			result = "away"
		}
	}
	g.Count(result)
	o.answerNothing()
}

// goAway tells the engine, and has the regional hear of it soon.
func (g *Gate) goAway(rm *roomState, t *ticket.Ticket, answer uint8) (gone bool) {
	hurry := false
	g.With(func(now fleet.Mono, eng *admission.Engine) {
		gone = eng.Away(now, rm.ID, *t, answer)
		hurry = eng.Due() <= now
	})
	if gone && hurry {
		g.wake()
	}
	return gone
}

// listen lets a visitor who waits hear of the place. 204 tells a browser that there is
// nothing to wait for.
func (g *Gate) listen(r *Request, o *Outcome, rooms *snapshot, query string) {
	values, ok := g.ownPage(r, o, rooms, query, methodGet)
	if !ok {
		return
	}
	rm := rooms.rooms[rooms.set.ByName(values.Get("room")).Index]
	t, _, unread := g.openBest(r, o, rooms, rm)
	if unread {
		o.set("Retry-After", "2")
		o.Refuse("ticket_unread", "The ticket cannot be read at the moment. Please poll.", statusServiceUnavailable)
		return
	}
	st := Stay{rm.ID, t}
	if !g.Waits(&st) {
		g.Count("stream_nobody")
		o.answerNothing()
		return
	}
	o.Kind, o.Stay, o.Epoch = Listens, st, rm.Epoch
}

// Waits reports whether the engine knows of a stay as a place in the line.
func (g *Gate) Waits(st *Stay) (waits bool) {
	g.With(func(now fleet.Mono, eng *admission.Engine) { waits = eng.Waits(now, st.Room, st.Ticket) })
	return waits
}
