package gate

import (
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"net/url"
	"strings"
	"time"

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

const (
	// pushesPerPrefix are the subscriptions per address prefix and minute.
	pushesPerPrefix = 60

	// At most half of a room's line, and pushesFree beyond, may be subscribed, as counted by one edge.
	pushesFree = 1000
)

// pushSubscribed is the value of the cookie before the browser has answered a message; then it is the proof.
const pushSubscribed = "1"

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
		p.endPush(o, rm, b)
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
	sub.Room = rm.Name
	now := p.engine.now()
	minute, prefix := int64(now)/time.Minute.Milliseconds(), clientaddr.Prefix(r.Client)
	if p.subscribed.Full(minute, prefix) || !p.mayKeep(rm) {
		o.set("Retry-After", "60")
		o.Refuse("push_refused", "Too many visitors are notified already.", statusTooManyRequests)
		return
	}
	sealed, err := rm.notifies.sealer.Seal(rm.ID, t.ID, sub)
	var data []byte
	if err == nil {
		data, err = (&push.Record{Place: t.Place(), Sealed: sealed}).Encode()
	}
	if err != nil || p.storePush == nil || !p.storePush(rm.ID, t.ID, data) {
		o.set("Retry-After", "5")
		o.Refuse("push_refused", "Notifications are not available at the moment.", statusServiceUnavailable)
		return
	}
	p.subscribed.Add(minute, prefix)
	rm.counters.pushes.Add(1)
	p.engine.metrics.count("push")
	o.Header = append(o.Header, o.issued.pushLine(rm, pushSubscribed))
	o.answerNothing()
}

// mayKeep reports whether one more visitor of a room may subscribe.
func (p *ownPages) mayKeep(rm *roomState) bool {
	var waiting float64
	p.engine.With(func(now fleettime.Mono, eng *admission.Engine) {
		if v := eng.Ledger(now, rm.ID).View; v != nil {
			waiting = v.Line.Total()
		}
	})
	return float64(rm.counters.pushes.Load()) < pushesFree+waiting/2
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

// endPush ends the subscription of a visitor that has left, is inside, or wants no notifications any more. A visitor
// without the cookie has none.
func (p *ownPages) endPush(o *Outcome, rm *roomState, b *brought) {
	if b.push == "" {
		return
	}
	o.issued.takeBack(rm, b, kindPush)
	id := b.waiting().ID
	if id == 0 || p.storePush == nil {
		return
	}
	if p.storePush(rm.ID, id, nil) {
		p.engine.metrics.count("push_ended")
	}
	if rm.counters.pushes.Add(-1) < 0 { // it began at another edge
		rm.counters.pushes.Store(0)
	}
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
