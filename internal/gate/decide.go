package gate

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"vestibule/internal/admission"
	"vestibule/internal/clientaddr"
	"vestibule/internal/fleet"
	"vestibule/internal/room"
	"vestibule/internal/ticket"
	"vestibule/internal/waiting"
)

// Methods of requests, as HTTP spells them.
const (
	methodGet  = "GET"
	methodHead = "HEAD"
	methodPost = "POST"

	methodOptions = "OPTIONS"
)

// methods that are served. Others are refused before anything is decided:
// CONNECT would tunnel past every decision.
var methods = map[string]bool{
	methodGet: true, methodHead: true, methodPost: true, "PUT": true, "PATCH": true, "DELETE": true, methodOptions: true,
}

// What answers of the edge itself say, as HTTP numbers it.
const (
	statusOK                 = 200
	statusNoContent          = 204
	statusBadRequest         = 400
	statusForbidden          = 403
	statusNotFound           = 404
	statusMethodNotAllowed   = 405
	statusMisdirected        = 421
	statusServiceUnavailable = 503
)

// Paths that the edge answers itself, on every host, all with ?room=NAME where the
// host has several rooms.
const (
	// LeavePath is where a visitor gives up a session or a place in the line: POST.
	LeavePath = "/.well-known/vestibule/leave"

	// AwayPath is where a waiting page says that it goes away: POST, with answer=N
	// as the page was told. The visitor keeps the place, and is counted no more until
	// the next question.
	AwayPath = "/.well-known/vestibule/away"

	// EventsPath is where a waiting page hears of its place: GET.
	EventsPath = "/.well-known/vestibule/events"

	// DrawPath is where anybody gets the record of a room's newest draw, by which receipts are checked: GET.
	DrawPath = "/.well-known/vestibule/draw"

	// CheckDrawPath is a page that repeats the draw of that record in a browser: GET.
	CheckDrawPath = "/.well-known/vestibule/check-draw"
)

// ownPaths are those paths, and what answers there.
var ownPaths = map[string]func(g *Gate, r *Request, o *Outcome, rooms *snapshot, query string){
	LeavePath:     (*Gate).leave,
	AwayPath:      (*Gate).away,
	EventsPath:    (*Gate).listen,
	KeysPath:      (*Gate).publishKeys,
	VerifyPath:    (*Gate).verify,
	DrawPath:      (*Gate).tellDraw,
	CheckDrawPath: (*Gate).checkDraw,
}

// Answers reports whether the edge answers a request for this path and query itself,
// whichever room or site is meant.
func Answers(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	return answerOf(path) != nil
}

// answerOf returns what answers at a path, nil for nothing. Most paths are not looked up.
func answerOf(path string) func(g *Gate, r *Request, o *Outcome, rooms *snapshot, query string) {
	if !strings.HasPrefix(path, "/.well-known/") {
		return nil
	}
	return ownPaths[path]
}

// Decide fills o with what is to be done about r. It waits where a visitor is held for a
// right, until ctx ends at most. If it panics, [Outcome.Tickets] are to be given to
// the visitor all the same: a slot may have been charged.
func (g *Gate) Decide(ctx context.Context, r *Request, o *Outcome) {
	o.Client, o.Secure = r.Client, r.Secure
	if !methods[r.Method] {
		o.Refuse("refused_method", "This method is not served here.", statusMethodNotAllowed)
		return
	}
	if up := r.Upgrade; len(up) > 0 && (len(up) > 1 || !strings.EqualFold(up[0], "websocket") || r.Method != methodGet) {
		o.Refuse("refused_upgrade", "Only websocket upgrades are served here.", statusBadRequest)
		return
	}
	rooms := g.rooms.Load()
	if !rooms.ready {
		o.set("Retry-After", "2")
		o.Refuse("not_ready", "Starting up. Please try again in a moment.", statusServiceUnavailable)
		return
	}
	path, query, _ := strings.Cut(r.Target, "?")
	if answer := answerOf(path); answer != nil {
		answer(g, r, o, rooms, query)
		return
	}
	g.enter(ctx, r, o, rooms, path, query)
}

// enter decides about a request for a site.
func (g *Gate) enter(ctx context.Context, r *Request, o *Outcome, rooms *snapshot, path, query string) {
	m := rooms.set.Match(r.Host, path)
	switch {
	case !m.Known:
		o.Refuse("unknown_host", "This host is not served here.", statusMisdirected)
		return
	case m.Refuse:
		o.Refuse("refused_path", "This path can be read in more than one way.", statusBadRequest)
		return
	}
	if o.Origin = rooms.origins[m.Target()]; o.Origin == nil {
		o.Refuse("unknown_host", "No origin serves this host.", statusMisdirected)
		return
	}
	in := inForce(m.Rooms())
	if len(in) == 0 {
		g.Count("passed")
	} else {
		if in = g.passBy(r, o, rooms, in, path, query); len(in) == 0 {
			g.Count("bypassed")
		}
	}
	if len(in) > 0 && r.isPreflight() {
		g.preflight(r, o, rooms, in)
		return
	}
	poll := r.Poll && (r.Method == methodGet || r.Method == methodHead)
	for _, rm := range in {
		if !g.admit(ctx, r, o, rooms, rooms.rooms[rm.Index], poll) {
			return
		}
	}
	if poll {
		// The page only wanted to know; it asks for the site itself next.
		if len(in) > 0 {
			o.allow(r, rooms.rooms[in[0].Index])
		}
		o.giveTickets()
		o.showNews(waiting.Entering.String(), true)
		return
	}
	o.Kind = Enters
}

// inForce returns those of the rooms that are not suspended.
func inForce(in []*room.Room) []*room.Room {
	if off := func(r *room.Room) bool { return r.Suspended }; slices.ContainsFunc(in, off) {
		return slices.DeleteFunc(slices.Clone(in), off)
	}
	return in
}

// admit decides about a request in one room. Where the visitor may not enter, o says
// what to answer.
func (g *Gate) admit(ctx context.Context, r *Request, o *Outcome, rooms *snapshot, rm *roomState, poll bool) bool {
	t, byHeader, unread := g.openBest(r, o, rooms, rm)
	if unread {
		o.giveTickets()
		g.showMoment(r, o, rm, "ticket_unread")
		return false
	}
	if poll && t.ID == 0 && g.told.Load() && rm.QueueingMethod != room.MethodReject {
		// A page without a ticket would be somebody new with every question, and
		// each might be charged a slot that nobody uses.
		o.allow(r, rm)
		o.showNews(newsReload, r.Tickets != nil || r.brings(rm))
		return false
	}
	d, now, hurry := g.arrive(rm, r, t)
	if hurry {
		g.wake()
	}
	if d.Verdict == admission.Hold {
		fresh := d.Fresh
		if d = g.hold(ctx, rm, r, t, d); d.Fresh == admission.Kept {
			d.Fresh = fresh // what became of the ticket that was brought
		}
		now = g.now() // it may have been half a minute
	}
	rm.counters.count(&d)
	if d.Reseal {
		o.seal(rm, now, d.Ticket, byHeader)
	}
	stay := Stay{rm.ID, d.Ticket}
	if d.Verdict == admission.Admit {
		g.finish(stay.Place())
	}
	if d.Enters() {
		o.inside, o.decided = append(o.inside, stay), now
		o.Private = o.Private || rm.Caching == room.CachingPrivate
		return true
	}
	o.giveTickets()
	status := rm.QueueingStatus
	if d.Reason == admission.Closed {
		status = statusServiceUnavailable
	} else if d.Fresh != admission.Kept && !d.Reseal && d.Reason != admission.Rejected {
		// The engine has no time to stamp a place with: it would not be kept.
		g.showMoment(r, o, rm, "time_unknown")
		return false
	}
	v := &o.visitor
	*v = waiting.Visitor{Decision: d, Now: now}
	if v.Blocked = d.Fresh == admission.Newcomer && r.keepsNoCookies(); v.Blocked {
		v.Decision.Retry = blockedRetry + rand.N(blockedRetry/2)
	}
	g.show(r, o, rm, status, v)
	return false
}

// arrive asks the engine about one request. The lock is given up even where the
// engine panics: one broken request must not hold up all others.
func (g *Gate) arrive(rm *roomState, r *Request, t ticket.Ticket) (d admission.Decision, now fleet.Time, hurry bool) {
	client := r.Client
	t.Network = rm.network(client)
	m := g.lock()
	defer g.mu.Unlock()
	if t.ID == 0 && r.isAside() {
		return g.eng.Join(m, rm.ID, t.Network), g.eng.Time(m), g.eng.Due() <= m
	}
	if t.ID == 0 || t.IsAdmitted() {
		d = g.eng.Arrive(m, rm.ID, t)
		return d, g.eng.Time(m), g.eng.Due() <= m
	}
	minute, prefix := int64(m)/int64(time.Minute), clientaddr.Prefix(client)
	t.Uncounted = g.waiting.Full(minute, prefix)
	d = g.eng.Arrive(m, rm.ID, t)
	if d.Ticket.Uncounted = false; d.Counted {
		g.waiting.Add(minute, prefix)
	}
	return d, g.eng.Time(m), g.eng.Due() <= m
}

// navigation is for how long at most the load of a page is held: a browser shows nothing
// meanwhile, and the page that it gets asks by itself.
const navigation = 900 * time.Millisecond

// hold keeps the request open until a right comes, the engine's patience or the
// request's ends, or the visitor leaves.
func (g *Gate) hold(ctx context.Context, rm *roomState, r *Request, brought ticket.Ticket, d admission.Decision) admission.Decision {
	patience, asks := d.Retry, r.Poll || r.wantsJSON()
	if r.Patience > 0 {
		patience = min(patience, r.Patience)
	}
	if !asks {
		patience = min(patience, navigation)
	}
	prefix := clientaddr.Prefix(r.Client)
	if !g.held.Take(prefix) {
		// Retry told how long to hold; a poll is what is asked for now.
		d.Verdict, d.Reason, d.Retry = admission.Queue, admission.Crowded, g.soon()
		return d
	}
	defer g.held.Give(prefix)
	done := make(chan struct{})
	v := &admission.Visit{Room: rm.ID, Ticket: d.Ticket, Brought: brought, Data: done}
	start := g.startHold(v)
	g.wake()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	outcome, end := knockQueued, (*admission.Engine).GiveUp
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
		outcome, end = knockLeft, (*admission.Engine).Abandon
	}
	now, gaveUp := g.endHold(v, end)
	if !gaveUp {
		<-done // Release has taken it; the channel is closed or about to be
		if v.Decision.Enters() {
			outcome = knockAdmitted
		}
	} else if !asks && v.Decision.Retry < g.params.Nearest {
		// Who is held asks again at once; a browser without the page's script would load
		// the page every second for as long as its visitor is next.
		v.Decision.Retry = g.soon()
	}
	g.metrics.knocks[outcome].Inc()
	g.metrics.holds.Observe(now.Sub(start).Seconds())
	return v.Decision
}

// soon returns when somebody is to ask again who need not wait for long: not everybody
// in the same moment.
func (g *Gate) soon() time.Duration {
	return g.params.Nearest + rand.N(g.params.Nearest)
}

// startHold hands a visit to the engine, and answers those that may enter by it.
func (g *Gate) startHold(v *admission.Visit) fleet.Mono {
	now := g.lock()
	defer g.mu.Unlock()
	g.eng.Hold(now, v)
	g.release(now)
	return now
}

// endHold takes a visit back from the engine.
func (g *Gate) endHold(v *admission.Visit, end func(*admission.Engine, fleet.Mono, *admission.Visit) bool) (fleet.Mono, bool) {
	now := g.lock()
	defer g.mu.Unlock()
	return now, end(g.eng, now, v)
}
