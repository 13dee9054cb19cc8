package gate

import (
	crand "crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strconv"

	"vestibule/internal/fleet"
	"vestibule/internal/room"
	"vestibule/internal/waiting"
)

// DecisionHeader marks what is answered by a waiting room in place of the site, with
// [SaysWait]. Fronts are told by it, and by other values, what to do with a request.
const (
	DecisionHeader = "Vestibule-Decision"
	SaysWait       = "wait"
)

// newsReload tells a page to ask for itself: it has no ticket.
const newsReload = "reload"

// Refuse makes of o an answer in plain words to a request that no room decides. why is
// one of those that the metric knows.
func (o *Outcome) Refuse(why, text string, status int) {
	o.gate.Count(why)
	o.says(status, "text/plain; charset=utf-8", "no-store")
	o.Close = status == statusMethodNotAllowed || status == statusBadRequest
	o.Body = append(append(o.Body[:0], text...), '\n')
}

// Count counts a request that no room decides. why is one of those that the metric knows.
func (g *Gate) Count(why string) { g.metrics.requests[why].Inc() }

// says makes of o an answer whose Body is there, or follows.
func (o *Outcome) says(status int, contentType, cacheControl string) {
	o.Kind, o.Status = Answered, status
	o.set("Content-Type", contentType)
	o.set("Cache-Control", cacheControl)
	o.set("X-Content-Type-Options", "nosniff")
}

// answerNothing answers that it is done.
func (o *Outcome) answerNothing() {
	o.Kind, o.Status = Answered, statusNoContent
	o.set("Cache-Control", "no-store")
}

// answer makes of o what the edge itself has to say to a visitor; Body is there.
func (o *Outcome) answer(status int, contentType string) {
	o.says(status, contentType, "private, no-store")
	o.set("Vary", "Accept, Accept-Encoding, Accept-Language")
	o.set("Referrer-Policy", "same-origin")
}

// show answers with the waiting page, or with the same as JSON.
func (g *Gate) show(r *Request, o *Outcome, rm *roomState, status int, v *waiting.Visitor) {
	v.Room, v.Message, v.QueueAll = rm.Name, rm.QueueMessage, rm.QueueAll
	if !rm.QueueAll { // it overrides every method
		v.Method = rm.QueueingMethod
		v.Event = eventOf(rm.Room, v.Now)
	}
	page := rm.page
	if !v.Moment {
		v.Grace = rm.Grace
	}
	if (v.Moment || v.Blocked) && page.IsCustom() { // it knows no state but that of people with a place
		page = waiting.Builtin()
	}
	v.Lang = g.langs.Pick(r.Languages, rm.lang)
	v.Back = rejoin(rm.Room, r.Host)
	retry := ""
	if n := v.Retry(); n > 0 {
		retry = strconv.FormatInt(n, 10)
		o.set("Retry-After", retry)
	}
	o.allow(r, rm)
	o.set(DecisionHeader, SaysWait)
	if r.wantsJSON() {
		o.Body = waiting.AppendJSON(o.Body[:0], v)
		o.answer(status, "application/json")
		return
	}
	if r.isPart() {
		if status < 300 {
			status = statusServiceUnavailable
		}
		o.Body = append(o.Body[:0], "A waiting room is in front of this. Open the page itself to join the line.\n"...)
		o.answer(status, "text/plain; charset=utf-8")
		return
	}
	if page.IsCustom() {
		v.Nonce = nonce()
		if retry != "" {
			o.set("Refresh", retry) // the built-in page knows by itself
		}
	}
	o.set("Content-Language", v.Lang.Code())
	o.set("Content-Security-Policy", page.Policy(v.Nonce, rm.PageSources))
	if !r.SiteApart && waiting.TakesGzip(r.Encodings) { // not all servers in front pass a body on byte by byte
		o.set("Content-Encoding", "gzip")
		o.Body = page.RenderGzip(o.Body[:0], v, &o.packer)
	} else {
		o.Body = page.Render(o.Body[:0], v)
	}
	o.answer(status, "text/html; charset=utf-8")
}

// eventOf returns what a visitor is told at now of an event of the room: one that is on, or for which people gather.
func eventOf(r *room.Room, now fleet.Time) waiting.Event {
	if len(r.Plan) <= 1 {
		return waiting.Event{}
	}
	p := r.Plan.At(int64(now))
	if p.Event == nil {
		return waiting.Event{}
	}
	e := waiting.Event{Start: fleet.Time(p.Event.Start), End: fleet.Time(p.Event.End), Prequeue: p.Kind == room.Prequeue, Shuffle: p.Event.Shuffle}
	if n := r.Draw; n != nil && n.Void == "" && n.Event == p.Event.ID && n.Start == e.Start {
		e.Draw = waiting.Draw{Commit: hex.EncodeToString(n.Commit[:]), Closes: n.Closes(), Drawn: n.Drawn() != nil}
	}
	return e
}

// tellDraw answers with the record of the newest draw of a room, which anybody may read anywhere.
func (g *Gate) tellDraw(r *Request, o *Outcome, rooms *snapshot, query string) {
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
	g.Count("draw")
	o.says(statusOK, "application/json", "public, max-age=5")
	o.set("Access-Control-Allow-Origin", "*")
	o.Body = append(append(o.Body[:0], rm.Drawn.Record...), '\n')
}

// checkDraw answers with the page that repeats the draw of a record.
func (g *Gate) checkDraw(r *Request, o *Outcome, _ *snapshot, _ string) {
	if !r.reads(o) {
		return
	}
	g.Count("draw")
	o.says(statusOK, "text/html; charset=utf-8", "public, max-age=60")
	o.set("Content-Security-Policy", waiting.CheckDrawPolicy)
	o.Body = append(o.Body[:0], waiting.CheckDraw...)
}

// reads reports whether a request does no more than read. Another one is answered.
func (r *Request) reads(o *Outcome) bool {
	if r.Method == methodGet || r.Method == methodHead {
		return true
	}
	o.set("Allow", "GET, HEAD")
	o.Refuse("refused_method", "This takes a GET.", statusMethodNotAllowed)
	return false
}

// showMoment asks a visitor to come back in a moment, because this edge cannot tell
// which place the visitor has, or give one that is kept. Nothing is counted, and no
// ticket is given or taken back.
func (g *Gate) showMoment(r *Request, o *Outcome, rm *roomState, why string) {
	g.Count(why)
	v := &waiting.Visitor{Moment: true, Now: g.now()}
	v.Decision.Retry = g.soon()
	g.show(r, o, rm, statusServiceUnavailable, v)
}

// showNews answers a waiting page to which there is no more to tell than what to do.
func (o *Outcome) showNews(state string, cookies bool) {
	o.set(DecisionHeader, SaysWait)
	o.Body = waiting.AppendNews(o.Body[:0], state, cookies)
	o.answer(statusOK, "application/json")
}

// nonce returns a word that nobody can guess, for one answer.
func nonce() string {
	var b [16]byte
	if _, err := crand.Read(b[:]); err != nil {
		panic(err) // documented never to happen
	}
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// rejoin returns the path under which a room is reached on a host.
func rejoin(r *room.Room, rawHost string) string {
	if len(r.AdditionalRoutes) == 0 {
		return r.Path
	}
	if host, ok := room.CanonicalHost(rawHost); ok && host != r.Host {
		for _, route := range r.AdditionalRoutes {
			if route.Host == host {
				return route.Path
			}
		}
	}
	return r.Path
}
