package gate

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/page"
)

// HTTP methods.
const (
	methodGet  = "GET"
	methodHead = "HEAD"
	methodPost = "POST"

	methodOptions = "OPTIONS"
)

// HTTP statuses of the edge's own answers.
const (
	statusOK                 = 200
	statusNoContent          = 204
	statusSeeOther           = 303
	statusPermanentRedirect  = 308
	statusBadRequest         = 400
	statusForbidden          = 403
	statusGone               = 410
	statusNotFound           = 404
	statusMethodNotAllowed   = 405
	statusMisdirected        = 421
	statusTooManyRequests    = 429
	statusServiceUnavailable = 503
	statusLoopDetected       = 508
)

// Decide fills in o for r. It waits while the visitor is held for a permit, until ctx ends at most. If it panics,
// the visitor must still get [Outcome.Tickets]: a permit may be charged.
func (g *Gate) Decide(ctx context.Context, r *Request, o *Outcome) {
	o.Client, o.Secure, o.issued.secure = r.Client, r.Secure, r.Secure
	if r.Unread != nil {
		g.countUnread(r)
	}
	if to := r.Upgrade; len(to) > 0 && (len(to) > 1 || !strings.EqualFold(to[0], "websocket") || r.Method != methodGet) {
		// The edge's own servers take such offers out. A server in front of the site would pass them on.
		o.Refuse("refused_upgrade", "Only websocket upgrades are served here.", statusBadRequest)
		return
	}
	rooms := g.rooms.Load()
	if !rooms.ready {
		o.set("Retry-After", "2")
		o.Refuse("not_ready", "Starting up. Please try again in a moment.", statusServiceUnavailable)
		return
	}
	if !readsOneWay(r.Target) {
		o.Refuse("refused_path", "The target must be a path, with blanks and control characters encoded.", statusBadRequest)
		return
	}
	path, query, _ := strings.Cut(r.Target, "?")
	if answer := answerOf(path); answer != nil {
		answer(g.own, r, o, rooms, query)
		return
	}
	g.enter(ctx, r, o, rooms, path, query)
}

// readsOneWay reports whether a raw target is a path, and no reader ends it early: many sites end it at the first blank
// or control character, in ASCII, Latin-1 or UTF-8, and would serve another path than the one that was decided.
func readsOneWay(target string) bool {
	if target == "" || target[0] != '/' {
		return false
	}
	for i := 0; i < len(target); {
		c := target[i]
		if c <= ' ' || c == 0x7f {
			return false
		}
		if c < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(target[i:])
		if r == utf8.RuneError && n == 1 {
			r = rune(c) // Latin-1
		}
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return false
		}
		i += n
	}
	return true
}

// enter decides about a request for a site.
func (g *Gate) enter(ctx context.Context, r *Request, o *Outcome, rooms *snapshot, path, query string) {
	m := rooms.set.Match(r.Host, path)
	switch {
	case !servesMethod(r.Method, m.Rooms()):
		o.set("Allow", commonMethods)
		o.Refuse("refused_method", "This method is not served here.", statusMethodNotAllowed)
		return
	case !m.Known:
		o.Refuse("unknown_host", "This host is not served here.", statusMisdirected)
		return
	case r.OwnTLS && !g.covers(r.ServerName, m.Host):
		// A browser sends requests for all names in a certificate over one connection (RFC 9113, 9.1.1). It repeats this
		// one over another connection.
		o.Refuse("uncovered_host", "The certificate of this connection is for other hosts.", statusMisdirected)
		return
	case m.Refuse:
		o.Refuse("refused_path", "This path can be read in more than one way.", statusBadRequest)
		return
	case r.leadsAway(rooms, m.Rooms()):
		o.Refuse("refused_path", "The Destination is in another room.", statusForbidden)
		return
	}
	if o.Origin = rooms.origins[m.Target()]; o.Origin == nil {
		o.Refuse("unknown_host", "No origin serves this host.", statusMisdirected)
		return
	}
	o.host = m.Host
	if !r.SiteApart {
		if o.hops, o.via = o.hop.add(r, m.Host); o.hops > maxHops {
			g.noteLoop(m.Host, o.Origin)
			o.Refuse("loop", "The address of the site leads back to its waiting room.", statusLoopDetected)
			return
		}
	}
	if r.Secure && !r.SiteApart {
		o.HSTS = g.hsts[m.Host]
	}
	if g.toTLS && !r.Secure && !r.SiteApart {
		g.Count("to_tls")
		o.redirect(m.Host, r.Target)
		return
	}
	o.Alone = slices.ContainsFunc(m.Rooms(), func(r *room.Room) bool { return r.OriginReuse == room.ReuseNever })
	in := inForce(m.Rooms())
	if len(in) == 0 {
		g.Count("passed")
	} else if in = g.rulebook.passBy(r, o, rooms, in, path, query); len(in) == 0 {
		g.Count("bypassed")
	}
	if len(in) > 0 && r.isPreflight() {
		g.answers.preflight(r, o, rooms, in)
		return
	}
	var say reply
	poll := r.isPoll()
	for i := 0; i < len(in) && say.what == nothing; i++ {
		say = g.admit(ctx, r, o, rooms, rooms.rooms[in[i].Index], poll)
	}
	if poll && say.what == nothing {
		// The page only asks for its state; next it requests the site itself.
		say = reply{what: news, state: page.Entering.String(), cookies: true}
		if len(in) > 0 {
			say.room = rooms.rooms[in[0].Index]
		}
	}
	if say.what == nothing {
		if o.Kind = Enters; r.Origin != "" || len(o.issued.sealed) > 0 {
			for i := range o.inside {
				g.Asks.Saw(time.Now(), &o.inside[i], r.Client, r.Conn)
			}
		}
		return
	}
	o.Header = o.issued.appendTo(o.Header, false)
	if o.HSTS != "" {
		o.set(HSTSHeader, o.HSTS)
	}
	g.answers.give(r, o, rooms, &say)
}

// inForce returns the rooms that are not suspended.
func inForce(in []*room.Room) []*room.Room {
	if off := func(r *room.Room) bool { return r.Suspended }; slices.ContainsFunc(in, off) {
		return slices.DeleteFunc(slices.Clone(in), off)
	}
	return in
}

// admit decides about a request in one room. For a visitor that is not admitted it returns the response.
func (g *Gate) admit(ctx context.Context, r *Request, o *Outcome, rooms *snapshot, rm *roomState, poll bool) reply {
	from := clientaddr.Prefix(r.Client)
	b := g.tickets.read(r, o, rooms, rm)
	if !b.any() && r.Tickets == nil {
		g.Engine.metrics.ticketCount[ticketNone].Inc()
	}
	if b.unread {
		return reply{what: moment, room: rm, why: "ticket_unread", status: statusServiceUnavailable}
	}
	if poll && b.none() && g.Engine.TimeKnown.Load() && rm.QueueingMethod != room.MethodReject {
		// A page without a ticket would be a new visitor with every poll, and each could be charged an unused
		// permit.
		return reply{what: news, room: rm, state: newsReload, cookies: r.Tickets != nil || b.any()}
	}
	in := rm.network(r.Client, from)
	b.session.Network, b.place.Network = in, in
	if (r.isPrefetch() || r.isPart()) && rm.QueueingMethod != room.MethodPassthrough {
		return g.lookOn(o, rm, b)
	}
	d, now, hurry := g.Engine.arrive(rm.ID, b, from, b.none() && r.isAside())
	if hurry {
		g.Engine.wake()
	}
	if d.Brief {
		d, now = g.Engine.renewed(ctx, rm.ID, b, from, d, now)
	}
	if d.Moving {
		d, now = g.Engine.arrived(ctx, rm.ID, b, from, d, now)
	}
	if d.Verdict == admission.Hold {
		fresh, asks := d.Fresh, r.Poll || r.wantsJSON()
		most := r.Patience
		switch {
		case (r.PollNow || !r.Poll && r.Fetch.byScript()) &&
			(most == 0 || most > glance): // a script has nothing to show yet
			most = glance
		case r.Poll && len(r.Accept) == 0 && (most == 0 || most > relayed):
			most = relayed
		}
		was := b.session
		if b.place.ID != 0 {
			was = b.place
		}
		if d = g.Engine.hold(ctx, rm.ID, was, d, from, most, asks); d.Fresh == admission.Kept {
			d.Fresh = fresh // why the ticket brought was replaced
		}
		now = g.Engine.now()           // the hold may have lasted half a minute
		if d.Fresh == admission.Gone { // its visitor has left in another tab
			if poll {
				return reply{what: news, room: rm, state: newsReload, cookies: true}
			}
			return reply{what: moment, room: rm, status: rm.QueueingStatus}
		}
	}
	rm.counters.count(&d)
	if d.Enters() {
		g.enters(o, rm, now, &d, b)
		return reply{}
	}
	if rm.withholds(r, o.Secure) && b.none() {
		// The visitor may have a session or a place in a cookie that its browser has not sent.
		return reply{what: moment, room: rm, status: rm.QueueingStatus}
	}
	if d.Reseal {
		o.issued.seal(rm, now, &d.Ticket, b, 0)
	}
	status := rm.QueueingStatus
	if d.Reason == admission.Closed {
		status = statusServiceUnavailable
	} else if d.Fresh == admission.Underway {
		return reply{what: moment, room: rm, status: status}
	} else if d.Fresh != admission.Kept && !d.Reseal && d.Reason != admission.Rejected {
		// The engine has no time for a new place: it would not last.
		return reply{what: moment, room: rm, why: "time_unknown", status: statusServiceUnavailable}
	}
	v := &o.visitor
	*v = page.Visitor{Decision: d, Now: now}
	v.Blocked = d.Fresh == admission.Newcomer && r.keepsNoCookies()
	switch {
	case d.Reason == admission.Rejected && d.Fresh == admission.Kept:
		v.Decision.Retry = min(d.Retry, rm.Grace/3) // or the place would be lost
	case v.Blocked || d.Reason == admission.Rejected:
		v.Decision.Retry = blockedRetry + rand.N(blockedRetry/2)
	}
	return reply{what: fullPage, room: rm, status: status}
}

// lookOn decides about a request that nobody may see the answer of, or that is a part of a page elsewhere. A session is
// served; anything else takes no place and no permit, and a visitor that waits keeps its turn.
func (g *Gate) lookOn(o *Outcome, rm *roomState, b *brought) reply {
	d, now, hurry := g.Engine.serve(rm.ID, b.session)
	if hurry {
		g.Engine.wake()
	}
	if d.Enters() {
		rm.counters.count(&d)
		g.enters(o, rm, now, &d, b)
		return reply{}
	}
	return reply{what: moment, room: rm, status: rm.QueueingStatus}
}

// enters records that the visitor of d is inside: it gets the session's cookie if that is new, and that of the place
// goes.
func (g *Gate) enters(o *Outcome, rm *roomState, now fleettime.Time, d *admission.Decision, b *brought) {
	// A session that was brought without TLS goes on with it.
	keep := time.Duration(0)
	if d.Moving {
		keep = rm.SessionDuration // the browser shows the ticket after its expiry too: the session may be here then
		d.Ticket.Seen = uint32(now.Second())
	}
	if d.Reseal || d.Moving || !b.byHeader && b.found[rm.index(o.Secure)][kindSession].ID != d.Ticket.ID {
		o.issued.seal(rm, now, &d.Ticket, b, keep)
	}
	o.issued.takeBack(rm, b, kindPlace)
	if b.push != "" || d.Verdict == admission.Admit {
		g.own.endPush(o, rm, b)
	}
	stay := Stay{rm.ID, d.Ticket}
	if d.Verdict == admission.Admit {
		g.Engine.finish(stay.Place())
		if b.none() {
			o.newcomer = append(o.newcomer, stay)
		}
	}
	o.inside, o.traffic, o.decided = append(o.inside, stay), append(o.traffic, rm.traffic), now
	o.Private = o.Private || rm.Caching == room.CachingPrivate
}

// withholds reports whether a request is a form of another site for which browsers withhold the room's cookies.
func (rm *roomState) withholds(r *Request, secure bool) bool {
	return r.isForm() && r.isForeign() && sameSite[rm.CookieSameSite][rm.index(secure)] != sameSiteNone
}
