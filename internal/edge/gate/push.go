package gate

import (
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/push"
	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/page"
)

const (
	// PushPath subscribes a waiting visitor to notifications: POST, with [PushHeader]; with code=C from a message
	// confirms it, or says that it has ended; with end=1 ends it.
	PushPath = "/.well-known/vestibule/push"

	// PushPagePath is the script of the waiting page for it: GET.
	PushPagePath = "/.well-known/vestibule/push.js"

	// PushWorkPath is the script of its service worker: GET.
	PushWorkPath = "/.well-known/vestibule/push-worker.js"

	// PushHeader has endpoint, key and authentication secret of the browser, in base64url, and the language, with blanks
	// between. A query would be in the logs of servers in front.
	PushHeader = "Vestibule-Push"
)

// At most half of a room's line, and pushesFree beyond, may be subscribed, as counted by one edge.
const pushesFree = 1000

// notifies is what an edge needs for notifications. It is immutable.
type notifies struct {
	secret ticket.Secret
	sealer *push.Sealer
	key    string // of pages
}

// of returns the same for a secret, nil for none.
func (n *notifies) of(secret ticket.Secret, log *slog.Logger) *notifies {
	switch {
	case secret == (ticket.Secret{}):
		return nil
	case n != nil && n.secret == secret:
		return n
	}
	sealer, err := push.NewSealer(secret)
	var id *push.Identity
	if err == nil {
		id, err = push.NewIdentity(secret)
	}
	if err != nil {
		log.Error("no notifications", slog.Any("error", err))
		return nil
	}
	return &notifies{secret, sealer, id.Public()}
}

// push begins, confirms or ends the subscription of a waiting visitor.
func (p *ownPages) push(r *Request, o *Outcome, rooms *snapshot, values url.Values) {
	rm := rooms.named(values.Get("room"))
	if rm == nil || rm.notifies == nil {
		o.Refuse("push_refused", "room: must name a room with web_push.", statusNotFound)
		return
	}
	b := p.reader.read(r, o, rooms, rm)
	switch id := b.place.ID; {
	case values.Has("end"):
		if p.subscribed(rm, b) && !p.endPush(o, rm, b) {
			o.busyPush()
			return
		}
		o.Header = append(o.Header, o.issued.gone...)
		o.answerNothing()
	case values.Has("code") && (b.push == "" || id == 0 || b.session.Valid(p.engine.now())): // a late message
		o.Refuse("push_refused", "The subscription has ended.", statusGone)
	case id == 0 || b.session.Valid(p.engine.now()) || drawAhead(rm, p.engine.now()):
		o.Refuse("push_refused", "Only visitors in line are notified, after any draw.", statusForbidden)
	case values.Has("code"):
		if !push.Equal(values.Get("code"), rm.notifies.sealer.Code(rm.ID, id)) {
			o.Refuse("push_refused", "code: must be that of the message.", statusForbidden)
			return
		}
		if !b.place.Kept {
			p.engine.metrics.count("push_confirmed")
			rm.counters.subscribers.confirm(id)
		}
		o.Header = append(o.Header, o.issued.pushLine(rm, rm.notifies.sealer.Proof(rm.ID, id)))
		o.answerNothing()
	default:
		p.subscribe(r, o, rm, &b.place)
	}
}

// drawAhead reports whether a draw will change all places.
func drawAhead(rm *roomState, now fleettime.Time) bool {
	e := eventOf(rm.Room, now)
	return e.Prequeue && e.Shuffle
}

// subscribe stores a subscription. The browser's first message confirms it.
func (p *ownPages) subscribe(r *Request, o *Outcome, rm *roomState, t *ticket.Ticket) {
	sub, why := readSubscription(r)
	if why != "" {
		o.Refuse("push_refused", why, statusBadRequest)
		return
	}
	if !p.services.Has(sub.Endpoint) {
		o.Refuse("push_refused", "endpoint: must be at a push service of the setting push_services.", statusBadRequest)
		return
	}
	sub.Room = rm.Name
	sealed, err := rm.notifies.sealer.Seal(rm.ID, t.ID, sub)
	var data []byte
	if err == nil {
		data, err = (&push.Record{Place: t.Place(), Sealed: sealed}).Encode()
	}
	if err != nil || p.storePush == nil {
		o.busyPush()
		return
	}
	prefix := clientaddr.Prefix(o.Client)
	if !p.place(rm, t, prefix) {
		o.set("Retry-After", "60")
		o.Refuse("push_refused", "Too many visitors are notified already.", statusTooManyRequests)
		return
	}
	if !p.storePush(rm.ID, t.ID, prefix, data) {
		rm.counters.subscribers.drop(t.ID)
		o.busyPush()
		return
	}
	p.engine.metrics.count("push")
	o.Header = append(o.Header, o.issued.pushLine(rm, rm.notifies.sealer.Begun(rm.ID, t.ID)))
	o.answerNothing()
}

// busyPush refuses a change of a subscription that cannot be stored now.
func (o *Outcome) busyPush() {
	o.set("Retry-After", "5")
	o.Refuse("push_refused", "Notifications are not available at the moment.", statusServiceUnavailable)
}

// place takes one of the room's places for subscriptions, and ends the one that gives way for it. It reports whether
// there was one.
func (p *ownPages) place(rm *roomState, t *ticket.Ticket, from netip.Prefix) (ok bool) {
	var gone *subscriber
	p.engine.With(func(now fleettime.Mono, eng *admission.Engine) {
		most := pushesFree
		if v := eng.Ledger(now, rm.ID).View; v != nil {
			most += int(v.Line.Total() / 2)
		}
		waits := func(t *ticket.Ticket) bool { return eng.Waits(now, rm.ID, *t) }
		gone, ok = rm.counters.subscribers.take(eng.Clock.Time(now), t, from, most, waits)
	})
	if gone != nil {
		p.storePush(rm.ID, gone.ticket.ID, gone.prefix, nil)
		p.engine.metrics.count("push_crowded_out")
	}
	return ok
}

// readSubscription reads the subscription of a request, or returns what is wrong with it.
func readSubscription(r *Request) (*push.Subscription, string) {
	parts := strings.Fields(first(valuesOf(r.Lines, PushHeader)))
	if len(parts) != 4 {
		return nil, PushHeader + ": must be an endpoint, two keys and a language."
	}
	sub := &push.Subscription{Endpoint: parts[0], Language: parts[3], Page: r.refererPath()}
	if sub.Page == "" {
		sub.Page = "/"
	}
	var err error
	if sub.Public, err = base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "=")); err != nil {
		return nil, "public: must be in base64url."
	}
	if sub.Auth, err = base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[2], "=")); err != nil {
		return nil, "auth: must be in base64url."
	}
	return sub, sub.Check()
}

// subscribed reports whether a visitor has the cookie of a subscription of its ticket.
func (p *ownPages) subscribed(rm *roomState, b *brought) bool {
	id := b.waiting().ID
	return b.push != "" && id != 0 && rm.notifies != nil && rm.notifies.sealer.Has(rm.ID, id, b.push)
}

// endPush ends the subscription of a visitor that has left, is inside, or wants no notifications any more. Only this
// edge's own subscribers and visitors with the cookie have one. It returns false if that cannot be stored now.
func (p *ownPages) endPush(o *Outcome, rm *roomState, b *brought) bool {
	id := b.waiting().ID
	here := id != 0 && rm.counters.subscribers.drop(id)
	known := p.subscribed(rm, b)
	if b.push != "" {
		o.issued.takeBack(rm, b, kindPush)
	}
	if p.storePush == nil || !here && !known {
		return true
	}
	if !p.storePush(rm.ID, id, clientaddr.Prefix(o.Client), nil) {
		return false
	}
	p.engine.metrics.count("push_ended")
	return true
}

// pushAge is how long a subscription lasts, in seconds.
const pushAge = "86400"

// pushLine returns the Set-Cookie line of a subscription.
func (o *issued) pushLine(rm *roomState, value string) Field {
	i := rm.index(o.secure)
	line := rm.cookie[i][kindPush] + "=" + value + "; Path=/; Max-Age=" + pushAge
	if rm.CookieDomain != "" {
		line += "; Domain=" + rm.CookieDomain
	}
	return Field{"Set-Cookie", line + rm.attributes[i]}
}

// pushPage answers with the script for subscribing in a room, in a language.
func (p *ownPages) pushPage(r *Request, o *Outcome, rooms *snapshot, values url.Values) {
	rm := rooms.named(values.Get("room"))
	if rm.notifies == nil {
		o.Refuse("push_refused", "room: must name a room with web_push.", statusNotFound)
		return
	}
	p.engine.metrics.count("client")
	o.says(statusOK, "text/javascript; charset=utf-8", "private, max-age=60")
	o.Body = page.AppendPush(o.Body[:0], page.LangOf(values.Get("lang")), rm.Name, rm.notifies.key)
}

// pushWorker answers with the service worker, which is the same for all rooms.
func (p *ownPages) pushWorker(r *Request, o *Outcome, _ *snapshot, _ string) {
	if !r.reads(o) {
		return
	}
	p.engine.metrics.count("client")
	sum := sha256.Sum256([]byte(page.PushWorker))
	o.says(statusOK, "text/javascript; charset=utf-8", "no-cache")
	o.set("ETag", `"`+base64.RawURLEncoding.EncodeToString(sum[:12])+`"`)
	o.set("Content-Security-Policy", "default-src 'none'; connect-src 'self'")
	o.Body = append(o.Body[:0], page.PushWorker...)
}
