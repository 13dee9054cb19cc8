package gate

import (
	crand "crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/page"
)

// DecisionHeader marks responses of a waiting room instead of the site, with [SaysWait]. With other values it tells
// servers in front of the site how to handle a request.
const (
	DecisionHeader = "Vestibule-Decision"
	SaysAdmit      = "admit"
	SaysWait       = "wait"
	SaysAnswer     = "answer" // the edge's own answer, of no room
)

// newsReload tells a page without a ticket to reload itself.
const newsReload = "reload"

// answers renders the responses that visitors get instead of the site.
type answers struct {
	engine *engine
	langs  page.Picker
}

// reply is the response for a visitor that is not admitted. The zero reply is for an admitted one.
type reply struct {
	what    what
	room    *roomState // nil for news without a room
	why     string     // reason for a moment, "" for none
	state   string     // for news
	cookies bool       // for news: the visitor's browser accepts cookies
	status  int        // of the page, which uses Outcome.visitor
}

type what uint8

const (
	nothing  what = iota
	moment        // retry soon: this edge cannot determine the visitor's place, or give one that lasts
	news          // the next action of a waiting page
	fullPage      // the visitor's position
)

// give renders say into o.
func (a *answers) give(r *Request, o *Outcome, rooms *snapshot, say *reply) {
	switch say.what {
	case news:
		if say.room != nil {
			o.allow(r, say.room)
		}
		o.set(DecisionHeader, SaysWait)
		o.Body = page.AppendNews(o.Body[:0], say.state, say.cookies)
		o.answer(statusOK, "application/json", sameOrigin)
		return
	case moment:
		if say.why != "" {
			a.engine.metrics.count(say.why)
		}
		o.visitor = page.Visitor{Moment: true, Now: a.engine.now()}
		o.visitor.Decision.Retry = a.engine.soon()
	case fullPage, nothing:
	}
	r.from = senderOf(r, &o.lines)
	k := r.kind(say.room.JSONResponse)
	a.engine.metrics.waiting[k].Inc()
	status := k.status(say.status)
	if r.from.library != noLibrary {
		status = a.leave(r, o, rooms, say, status)
	}
	a.show(r, o, say.room, status, &o.visitor)
}

// Refuse sets a plain text answer for a request that no room decides. why is a label of the metric.
func (o *Outcome) Refuse(why, text string, status int) {
	o.gate.Count(why)
	o.says(status, "text/plain; charset=utf-8", "no-store")
	o.Close = status == statusMethodNotAllowed || status == statusBadRequest
	o.Body = append(append(o.Body[:0], text...), '\n')
}

// set adds a header line to the answer.
func (o *Outcome) set(name, value string) { o.Header = append(o.Header, Field{name, value}) }

// says sets an answer whose Body is set already or later.
func (o *Outcome) says(status int, contentType, cacheControl string) {
	o.Kind, o.Status = Answered, status
	o.set("Content-Type", contentType)
	o.set("Cache-Control", cacheControl)
	o.set("X-Content-Type-Options", "nosniff")
}

// redirect sends the visitor on to the same address with TLS. Nothing keeps the answer, so the setting can be undone.
func (o *Outcome) redirect(host, target string) {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	o.Kind, o.Status = Answered, statusPermanentRedirect
	o.set("Location", "https://"+host+target)
	o.set("Cache-Control", "no-store")
}

// answerNothing sets an empty success.
func (o *Outcome) answerNothing() {
	o.Kind, o.Status = Answered, statusNoContent
	o.set("Cache-Control", "no-store")
}

// sameOrigin is the Referrer-Policy of answers.
const sameOrigin = "same-origin"

// answerCaching keeps an answer from caches, and from servers in front that change scripts.
const answerCaching = "private, no-store, no-transform"

// answer sets an answer of the edge itself, with the Body already set.
func (o *Outcome) answer(status int, contentType, referrer string) {
	o.says(status, contentType, answerCaching)
	o.set("Vary", "*") // also in the way of a service worker's cache, which ignores Cache-Control
	o.set("Referrer-Policy", referrer)
}

// show answers with the waiting page or its JSON form.
func (a *answers) show(r *Request, o *Outcome, rm *roomState, status int, v *page.Visitor) {
	v.Room, v.Message, v.QueueAll = rm.Name, rm.QueueMessage, rm.QueueAll
	if !rm.QueueAll { // it overrides every method
		v.Method = rm.QueueingMethod
		v.Event = eventOf(rm.Room, v.Now)
	}
	shown := rm.page
	switch {
	case v.Moment:
	case v.Decision.Ticket.Kept:
		v.Grace = rm.Claim
	default:
		v.Grace = rm.Grace
	}
	if (v.Moment || v.Blocked) && shown.IsCustom() { // it supports only states of visitors with a place
		shown = page.Builtin()
	}
	v.Back = rejoin(rm.Room, o.host)
	if v.Form = r.isForm() && !v.Left; v.Form {
		v.FormPage = r.refererPath()
	}
	retry := ""
	if n := v.Retry(); n > 0 {
		retry = strconv.FormatInt(n, 10)
		o.set("Retry-After", retry)
	}
	o.allow(r, rm)
	o.set(DecisionHeader, SaysWait)
	form, contentType := r.form(), "application/json"
	v.Lang = a.language(r, rm.lang)
	gzip := form == asPage && page.TakesGzip(r.Encodings)
	switch form {
	case asJSON:
		o.Body = page.AppendJSON(o.Body[:0], v)
	case asWords:
		contentType = "text/plain; charset=utf-8"
		o.Body = append(o.Body[:0],
			"The site has not got this request: a waiting room is in front. Open the page to join the line.\n"...)
	case asPage:
		contentType = "text/html; charset=utf-8"
		v.Again = page.Again(r.Target)
		if shown.IsCustom() {
			v.Nonce = nonce()
			if retry != "" {
				if v.Again != "" {
					retry += "; url=" + v.Again
				}
				o.set("Refresh", retry) // the built-in page has it within
			}
		}
		o.set("Content-Language", v.Lang.Code())
		policy := page.FramedBy(shown.Policy(v.Nonce, rm.PageSources), rm.FrameAncestors)
		if v.Notifies = rm.notifies != nil; v.Notifies {
			policy = page.WithPush(policy)
		}
		o.set("Content-Security-Policy", policy)
		if gzip {
			o.set("Content-Encoding", "gzip")
			o.Body = shown.RenderGzip(o.Body[:0], v, &o.packer)
		} else {
			o.Body = shown.Render(o.Body[:0], v)
		}
	}
	referrer := sameOrigin
	if v.Decision.Reason == admission.Rejected {
		referrer = "no-referrer" // no ticket was given, so a reload without one proves nothing, see keepsNoCookies
	}
	o.answer(status, contentType, referrer)
}

// language returns the language of the answer: the visitor's choice, the browser's preference, or otherwise.
func (a *answers) language(r *Request, otherwise page.Lang) page.Lang {
	for _, line := range r.Cookies {
		if !strings.Contains(line, languageCookie) {
			continue
		}
		for name, code := range ticket.Pairs(line) {
			if lang, ok := page.LangNamed(code); ok && name == languageCookie {
				return lang
			}
		}
	}
	return a.langs.Pick(r.Languages, otherwise)
}

// eventOf returns the room's event on the page at now: an active one, or one with gathering visitors.
func eventOf(r *room.Room, now fleettime.Time) page.Event {
	if len(r.Plan) <= 1 {
		return page.Event{}
	}
	p := r.Plan.At(int64(now))
	if p.Event == nil {
		return page.Event{}
	}
	e := page.Event{
		Start: fleettime.Time(p.Event.Start), End: fleettime.Time(p.Event.End), Prequeue: p.Kind == room.Prequeue,
		Shuffle: p.Event.Shuffle,
	}
	if n := r.Draw; n != nil && n.Void == "" && n.Event == p.Event.ID && n.Start == e.Start {
		e.Draw = page.Draw{Commit: hex.EncodeToString(n.Commit[:]), Closes: n.Closes()}
		if record := n.Drawn(); record != nil {
			e.Draw.Drawn, e.Draw.Entrants, e.Draw.Counted = true, record.Entrants, n.Counted()
		}
	}
	return e
}

// reads reports whether the method is GET or HEAD. Otherwise it answers 405.
func (r *Request) reads(o *Outcome) bool {
	if r.Method == methodGet || r.Method == methodHead {
		return true
	}
	o.set("Allow", "GET, HEAD")
	o.Refuse("refused_method", "Method not allowed: use GET.", statusMethodNotAllowed)
	return false
}

// nonce returns an unpredictable value for one answer.
func nonce() string {
	var b [16]byte
	if _, err := crand.Read(b[:]); err != nil {
		panic(err) // documented never to happen
	}
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// rejoin returns the room's path on a host, for joining again.
func rejoin(r *room.Room, host string) string {
	if host != r.Host {
		for _, route := range r.AdditionalRoutes {
			if route.Host == host {
				return route.Path
			}
		}
	}
	return r.Path
}

// readers are the origins with read access to the edge's answers.
type readers struct {
	all   bool
	named map[string]bool
}

func newReaders(list string) readers {
	if list == "*" {
		return readers{all: true}
	}
	rd := readers{}
	for o := range strings.FieldsSeq(list) {
		if rd.named == nil {
			rd.named = map[string]bool{}
		}
		rd.named[o] = true
	}
	return rd
}

func (rd *readers) has(origin string) bool { return origin != "" && (rd.all || rd.named[origin]) }

// allow sets the CORS headers of the answer according to the room.
func (o *Outcome) allow(r *Request, rm *roomState) {
	rd := &rm.readers
	if !rd.has(r.Origin) {
		return
	}
	if rd.all {
		o.set("Access-Control-Allow-Origin", "*")
	} else {
		o.set("Access-Control-Allow-Origin", r.Origin)
		o.set("Access-Control-Allow-Credentials", "true")
	}
	o.set("Access-Control-Expose-Headers", "Retry-After, "+DecisionHeader+", "+TicketHeader)
}

// preflight answers CORS preflights for requests that rooms gate. It charges nothing and gives no ticket: a
// preflight has no cookies, so visitors cannot be distinguished. Pages of cors_origins are allowed; for others the
// site is asked, or nobody. The following request is decided as usual.
//
// Invariant: of a request that is not admitted, only the path, the origin and the requested method and headers
// reach the site, and only CORS headers come back (decision 62).
func (a *answers) preflight(r *Request, o *Outcome, rooms *snapshot, in []*room.Room) {
	ours, ask := true, !r.SiteApart
	who := Asker{Room: in[0].ID, Client: r.Client, Conn: r.Conn, Free: true}
	for _, m := range in {
		rm := rooms.rooms[m.Index]
		ours = ours && rm.readers.has(r.Origin)
		ask = ask && rm.Preflights == room.PreflightsSite
		who.PerMinute, who.PerSession = max(who.PerMinute, rm.PreflightRate), max(who.PerSession, rm.PreflightsEach)
	}
	switch {
	case ours:
		a.engine.metrics.count("preflight")
		o.set("Vary", "Origin")
		o.allow(r, rooms.rooms[in[0].Index])
		allowed := commonMethods
		if m := r.CORS.Method; !slices.Contains(strings.Split(commonMethods, ", "), m) && servesMethod(m, in) {
			allowed += ", " + m
		}
		o.set("Access-Control-Allow-Methods", allowed)
		if h := r.CORS.Headers; h != "" {
			o.set("Access-Control-Allow-Headers", h)
		}
		o.set("Access-Control-Max-Age", "600")
		o.answerNothing()
	case ask:
		a.engine.metrics.count("preflight_site")
		a.engine.With(func(now fleettime.Mono, eng *admission.Engine) {
			for _, m := range in {
				who.Free = who.Free && eng.Rooms.Space(now, m.ID)
			}
		})
		o.Kind, o.Asks = Preflights, who
	default:
		o.Refuse("preflight_refused", "Pages of this origin may not ask here.", statusForbidden)
	}
}
