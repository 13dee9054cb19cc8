package gate

import (
	"math/rand/v2"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"vestibule/internal/core/push"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/page"
)

// Paths that the edge serves itself on every host, all with ?room=NAME if the host has several rooms.
const (
	// LeavePath gives up a session or a place: POST.
	LeavePath = "/.well-known/vestibule/leave"

	// AwayPath reports that a waiting page goes away: POST, with answer=N from the page. The visitor keeps the
	// place, and is not counted until the next request.
	AwayPath = "/.well-known/vestibule/away"

	// EventsPath is the event stream of a waiting page: GET.
	EventsPath = "/.well-known/vestibule/events"

	// DrawPath returns the record of a room's newest draw, for checking receipts: GET.
	DrawPath = "/.well-known/vestibule/draw"

	// LanguagePath lists the languages of a room's page. With to=CODE it stores the choice in a cookie and
	// redirects back: GET.
	LanguagePath = "/.well-known/vestibule/language"

	// CheckDrawPath is a page that repeats the draw in a browser: GET.
	CheckDrawPath = "/.well-known/vestibule/check-draw"
)

// ownHandler answers a request for one of those paths.
type ownHandler func(p *ownPages, r *Request, o *Outcome, rooms *snapshot, query string)

var ownPaths = map[string]ownHandler{
	ClientPath:    (*ownPages).client,
	WordsPath:     (*ownPages).words,
	LeavePath:     ofSite(methodPost, (*ownPages).leave),
	AwayPath:      ofSite(methodPost, (*ownPages).away),
	EventsPath:    ofSite(methodGet, (*ownPages).listen),
	KeysPath:      (*ownPages).publishKeys,
	VerifyPath:    (*ownPages).verify,
	DrawPath:      (*ownPages).serveDraw,
	CheckDrawPath: (*ownPages).checkDraw,
	LanguagePath:  ofSite(methodGet, (*ownPages).languages),
	PushPath:      ofSite(methodPost, (*ownPages).push),
	PushPagePath:  ofSite(methodGet, (*ownPages).pushPage),
	PushWorkPath:  (*ownPages).pushWorker,
}

// IsOwn reports whether a path is below the edge's own. Servers in front pass all of them on to the edge.
func IsOwn(target string) bool { return strings.HasPrefix(target, "/.well-known/vestibule/") }

// Answers reports whether the edge serves this path and query itself, whatever the room or site.
func Answers(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	return answerOf(path) != nil
}

// answerOf returns the handler of a path, or nil. Most paths are not looked up.
func answerOf(path string) ownHandler {
	if !strings.HasPrefix(path, "/.well-known/") {
		return nil
	}
	if page.IsScript(path) {
		return (*ownPages).script
	}
	return ownPaths[path]
}

// ownPages serves the edge's own paths.
type ownPages struct {
	engine    *engine
	reader    *reader
	answers   *answers
	services  push.Services // that visitors may subscribe with
	storePush func(id room.ID, visitor uint64, from netip.Prefix, record []byte) bool
}

// ofSite returns the handler of a path that only this site's own pages may request, with a method.
func ofSite(method string, do func(*ownPages, *Request, *Outcome, *snapshot, url.Values)) ownHandler {
	return func(p *ownPages, r *Request, o *Outcome, rooms *snapshot, query string) {
		if values, ok := p.ownPage(r, o, rooms, query, method); ok {
			do(p, r, o, rooms, values)
		}
	}
}

// leave ends the stays of the visitor's tickets and deletes the cookies. It is idempotent. Other sites cannot
// trigger it.
func (p *ownPages) leave(r *Request, o *Outcome, rooms *snapshot, values url.Values) {
	named := values.Get("room")
	var left, unread *roomState // the first room that was left or named, and the first with an unreadable ticket
	for _, rm := range rooms.rooms {
		if named != "" && rm.Name != named {
			continue
		}
		b := p.reader.read(r, o, rooms, rm)
		if left == nil && (b.any() || named != "") {
			left = rm
		}
		if b.unread {
			if unread == nil {
				unread = rm
			}
			continue
		}
		for _, t := range []*ticket.Ticket{&b.session, &b.place} {
			if t.ID != 0 {
				p.engine.quit(&Stay{rm.ID, *t})
			}
		}
		o.issued.takeBack(rm, b, kindSession, kindPlace)
		p.endPush(o, rm, b)
	}
	o.Header = append(o.Header, o.issued.gone...)
	if unread != nil {
		p.answers.give(r, o, rooms, &reply{what: moment, room: unread, why: "ticket_unread", status: statusServiceUnavailable})
		return
	}
	p.engine.metrics.count("left")
	if left != nil && wantsWords(r.Accept) {
		p.answers.show(r, o, left, statusOK, &page.Visitor{Left: true, Now: p.engine.now()})
		return
	}
	o.answerNothing()
}

// wantsWords reports whether a reader expects a body: a person with the page's form, or an app with JSON. A beacon
// does not.
func wantsWords(accept []string) bool {
	return slices.ContainsFunc(accept, func(a string) bool {
		return strings.Contains(a, "text/html") || strings.Contains(a, "application/json")
	})
}

// ownPage rejects requests other than the given method from this site's own page, and returns the parameters. A
// named room exists.
func (p *ownPages) ownPage(r *Request, o *Outcome, rooms *snapshot, query, method string) (values url.Values, ok bool) {
	takes, says := "Leaving takes a POST.", "say that somebody leaves"
	if method == methodGet {
		takes, says = "Method not allowed: use GET without a body.", "ask for this"
	}
	m := rooms.set.Match(r.Host, "/")
	o.host = m.Host
	switch {
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

// away stops counting a visitor whose page went away until its next request.
func (p *ownPages) away(r *Request, o *Outcome, rooms *snapshot, values url.Values) {
	answer, err := strconv.ParseUint(values.Get("answer"), 10, 8)
	if err != nil && values.Has("answer") {
		o.Refuse("refused_away", "answer: must be 0 to 255.", statusBadRequest)
		return
	}
	result := "away_stale"
	named := values.Get("room")
	for _, rm := range rooms.rooms {
		if named != "" && rm.Name != named {
			continue
		}
		b := p.reader.read(r, o, rooms, rm)
		t := b.waiting()
		page := uint8(answer)
		if !values.Has("answer") { // optional with a single page
			page = t.Answer
		}
		if t.ID != 0 && p.engine.goAway(rm.ID, t, page) {
			// Another page of this visitor should report itself.
			st := Stay{rm.ID, *t}
			p.engine.finish(st.Place())
			result = "away"
		}
	}
	p.engine.metrics.count(result)
	o.answerNothing()
}

// listen starts the event stream of a waiting visitor. 204 stops a browser's reconnects.
func (p *ownPages) listen(r *Request, o *Outcome, rooms *snapshot, values url.Values) {
	rm := rooms.named(values.Get("room"))
	b := p.reader.read(r, o, rooms, rm)
	if b.unread {
		o.set("Retry-After", "2")
		o.Refuse("ticket_unread", "The ticket cannot be read at the moment. Please poll.", statusServiceUnavailable)
		return
	}
	st := Stay{rm.ID, *b.waiting()}
	if b.none() && rm.State() == room.Rejecting {
		// A rejected visitor is notified when the room opens. The hub identifies streams by ticket.
		o.Kind, o.Stay, o.Epoch, o.Guest = Listens, Stay{rm.ID, ticket.Ticket{ID: rand.Uint64()}}, rm.Epoch, true
		return
	}
	if !p.engine.Waits(&st) {
		p.engine.metrics.count("stream_nobody")
		o.answerNothing()
		return
	}
	o.Kind, o.Stay, o.Epoch = Listens, st, rm.Epoch
}

// serveDraw returns the record of a room's newest draw, readable by every origin.
func (p *ownPages) serveDraw(r *Request, o *Outcome, rooms *snapshot, query string) {
	if !r.reads(o) {
		return
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		values = nil
	}
	rm := rooms.set.ByName(values.Get("room"))
	if rm == nil || rm.Drawn.Drawn() == nil {
		o.Refuse("no_draw", "No room of that name (?room=NAME) has a draw whose entries have closed.", statusNotFound)
		return
	}
	p.engine.metrics.count("draw")
	o.says(statusOK, "application/json", "public, max-age=5")
	o.set("Access-Control-Allow-Origin", "*")
	o.Body = append(append(o.Body[:0], rm.Drawn.Record...), '\n')
}

// checkDraw answers with the page that repeats a draw, in the language of the visitor or the room.
func (p *ownPages) checkDraw(r *Request, o *Outcome, rooms *snapshot, query string) {
	if !r.reads(o) {
		return
	}
	p.engine.metrics.count("draw")
	lang := page.English
	if values, err := url.ParseQuery(query); err == nil {
		if rm := rooms.named(values.Get("room")); rm != nil {
			lang = rm.lang
		}
	}
	lang = p.answers.language(r, lang)
	o.says(statusOK, "text/html; charset=utf-8", "public, max-age=60")
	o.set("Vary", "Accept-Language, Cookie")
	o.set("Content-Language", lang.Code())
	o.set("Content-Security-Policy", page.CheckDrawPolicy)
	o.Body = append(o.Body[:0], page.CheckDraw(lang)...)
}

// languageCookie holds the visitor's choice of language, a code of [room.Languages].
const languageCookie = "vestibule_language"

// languages answers with the list of languages, or stores the choice and redirects back.
func (p *ownPages) languages(r *Request, o *Outcome, rooms *snapshot, values url.Values) {
	p.engine.metrics.count("language")
	rm := rooms.named(values.Get("room"))
	back := values.Get("back")
	if back == "" {
		back = r.refererPath()
	}
	if !isPath(back) || IsOwn(back) { // the page after leaving answers a POST alone
		back = rejoin(rm.Room, o.host)
	}
	to, ok := page.LangNamed(values.Get("to"))
	if !ok {
		shown := rm.page
		if shown.IsCustom() {
			shown = page.Builtin()
		}
		lang := p.answers.language(r, rm.lang)
		o.set("Content-Language", lang.Code())
		o.set("Content-Security-Policy", page.FramedBy(shown.LanguagesPolicy(), rm.FrameAncestors))
		o.Body = shown.AppendLanguages(o.Body[:0], lang, rm.Name, back)
		o.answer(statusOK, "text/html; charset=utf-8", sameOrigin)
		return
	}
	cookie := languageCookie + "=" + to.Code() + "; Path=/; Max-Age=31536000" + rm.attributes[rm.index(o.Secure)]
	o.set("Set-Cookie", cookie)
	o.set("Location", back)
	o.Kind, o.Status = Answered, statusSeeOther
	o.set("Cache-Control", "no-store")
}

// refererPath returns path and query of the page of this host that led here, or "".
func (r *Request) refererPath() string {
	u, err := url.Parse(r.Referer)
	if err != nil || !strings.EqualFold(u.Host, r.Host) || !isPath(u.RequestURI()) {
		return ""
	}
	return u.RequestURI()
}

// isPath reports whether a text is a path on this host, and no reference to another.
func isPath(s string) bool {
	if len(s) > 2048 || !strings.HasPrefix(s, "/") || len(s) > 1 && (s[1] == '/' || s[1] == '\\') {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
