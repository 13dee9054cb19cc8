package gate

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/push"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/ticket/reuse"
)

// reader opens the tickets of requests.
type reader struct {
	engine *engine
	count  *[ticketKinds]prometheus.Counter // by result
}

// Kinds of tickets. Each has a cookie of its own.
const (
	kindSession = iota
	kindPlace
	kindPush // no ticket: the visitor is subscribed to notifications, see package push
	kinds
)

func kindOf(t *ticket.Ticket) int {
	if t.IsAdmitted() {
		return kindSession
	}
	return kindPlace
}

// brought are the tickets of one request for a room.
type brought struct {
	session, place ticket.Ticket // the best of each kind; zero for none
	byHeader       bool          // they came in TicketHeader
	unread         bool          // the visitor may have a better session under a key unknown here: it must not be replaced

	push  string                  // value of the kindPush cookie
	found [2][kinds]ticket.Ticket // the best ticket without and with TLS in the cookie's name
	has   [2][kinds]bool          // there are cookies of the name
}

// none reports whether there is no ticket.
func (b *brought) none() bool { return b.session.ID == 0 && b.place.ID == 0 }

// any reports whether there is a cookie of the room, readable or not.
func (b *brought) any() bool { return b.has != [2][kinds]bool{} }

// waiting returns the ticket of a visitor that is expected to wait.
func (b *brought) waiting() *ticket.Ticket {
	if b.place.ID != 0 {
		return &b.place
	}
	return &b.session
}

// read returns the tickets of a request for a room. A place counts under the name of the session's cookie too, where
// earlier releases kept it. Over TLS the names without TLS count where those of TLS have no ticket that stands, or have
// an older version of the same one: a visitor that the site sent on to https keeps its session. The [TicketHeader]
// counts if no cookie opens. The result is valid until the next call for o.
func (rd *reader) read(r *Request, o *Outcome, rooms *snapshot, rm *roomState) *brought {
	b := &o.brought
	*b = brought{}
	i := rm.index(r.Secure)
	op := opening{reader: rd, rm: rm, codec: rm.codec, seals: o.issued.seals, to: b}
	lowest := i
	if rm.CookieSecure == room.CookieAuto {
		lowest = 0
	}
	op.readAll(r, rm.cookie[lowest:i+1], lowest)
	if own := rm.own.codec[i]; own != nil && op.opened == 0 {
		op.codec[i] = own
		op.readAll(r, rm.own.cookie[i:i+1], i)
		op.codec[i] = rm.codec[i]
	}
	if r.Tickets != nil && op.opened == 0 {
		b.byHeader = true
		for _, line := range r.Tickets {
			for pair := range strings.SplitSeq(line, ",") {
				if name, value, _ := strings.Cut(strings.TrimSpace(pair), "="); name == rm.Name {
					op.try(i, value)
				}
			}
		}
	}
	b.session, b.place = op.best(i, kindSession), op.best(i, kindPlace)
	b.place.Kept = b.push != "" && rm.notifies != nil && push.Equal(b.push, rm.notifies.sealer.Proof(rm.ID, b.place.ID))
	b.unread = op.newer && rd.mayLackKeys(rooms, rm.codec[i]) && !op.stands(&b.session)
	return b
}

// mayLackKeys reports whether tickets under unknown valid keys may exist: our ring is old, and the store has not
// just confirmed it.
func (rd *reader) mayLackKeys(rooms *snapshot, c *ticket.Codec) bool {
	return (!rd.engine.TimeKnown.Load() || c.Behind(rd.engine.now())) && !rooms.keysAreNewest()
}

// opening opens the tickets of one request.
type opening struct {
	*reader
	rm     *roomState
	codec  [2]*ticket.Codec
	seals  *ticket.Scratch
	to     *brought
	opened int
	newer  bool // there is one under a newer key than ours
	now    fleettime.Time
}

// readAll opens all values of cookies with these names, the first of which has the given index.
func (o *opening) readAll(r *Request, names []cookieNames, first int) {
	for _, line := range r.Cookies {
		if !strings.Contains(line, ticket.CookieStem) {
			continue
		}
		for name, value := range ticket.Pairs(line) {
			for i := range names {
				for kind := range names[i] {
					if name == names[i][kind] {
						o.to.has[first+i][kind] = true
						if kind == kindPush {
							o.to.push = value
						} else {
							o.try(first+i, value)
						}
					}
				}
			}
		}
	}
}

// try opens one more value of the cookies at index i. Every value is tried: a subdomain may have set others before the
// true one, which only its seal tells apart. The length of a request's header bounds their number.
func (o *opening) try(i int, value string) {
	var t ticket.Ticket
	err := o.codec[i].Open(&t, value, o.seals)
	o.count[ticketKind(err)].Inc()
	if err != nil {
		o.newer = o.newer || errors.Is(err, ticket.ErrKey)
		return
	}
	o.opened++
	if best := &o.to.found[i][kindOf(&t)]; o.better(&t, best) {
		*best = t
	}
}

// best returns the best ticket of a kind.
func (o *opening) best(i, kind int) ticket.Ticket {
	best := &o.to.found[i][kind]
	if i == 0 {
		return *best
	}
	// Only TLS protects a cookie against foreign ones of the name.
	if plain := &o.to.found[0][kind]; plain.ID != 0 && (best.ID == plain.ID || !o.stands(best)) && o.better(plain, best) {
		return *plain
	}
	return *best
}

// better reports whether a serves its visitor better than b. A ticket of an earlier epoch is worthless.
func (o *opening) better(a, b *ticket.Ticket) bool {
	if b.ID == 0 {
		return a.ID != 0
	}
	if stands := o.stands(a); stands != o.stands(b) {
		return stands
	}
	return ticket.Better(a, b, o.time())
}

// stands reports whether a ticket is of the room's epoch and has not expired or lapsed.
func (o *opening) stands(t *ticket.Ticket) bool {
	switch {
	case t.ID == 0 || t.Epoch != o.rm.Epoch:
		return false
	case t.IsAdmitted():
		return t.Valid(o.time())
	}
	return !admission.Lapsed(o.time(), t, o.rm.Grace)
}

// time returns fleet time, the same for all tickets.
func (o *opening) time() fleettime.Time {
	if o.now == 0 {
		o.now = o.engine.now()
	}
	return o.now
}

// network returns the pseudonym of a client's network in the tickets of a room; from is its prefix. All clients
// with an unknown address share one network.
func (rm *roomState) network(client netip.Addr, from netip.Prefix) ticket.Network {
	var in netip.Prefix
	way := ticket.Network(0)
	switch rm.TicketBinding {
	case room.BindingNetwork:
		in = from
	case room.BindingStrict:
		in, way = netip.PrefixFrom(client.WithZone(""), client.BitLen()), 1
	default:
		return 0
	}
	at := in.Addr().As16()
	sum := sha256.Sum256(append(at[:], byte(in.Bits())))
	return ticket.Network(binary.BigEndian.Uint64(sum[:])&^1|2) | way
}

func ticketKind(err error) int {
	switch {
	case err == nil:
		return ticketOK
	case errors.Is(err, ticket.ErrKey):
		return ticketKey
	case errors.Is(err, ticket.ErrOldKey):
		return ticketOldKey
	case errors.Is(err, ticket.ErrSeal):
		return ticketSeal
	}
	return ticketMalformed
}

// issued are the tickets for one response.
type issued struct {
	engine *engine
	secure bool     // the visitor uses TLS
	sealed []sealed // in the response
	gone   []Field  // lines that delete cookies of the visitor
	seals  *ticket.Scratch
	cookie []byte
}

// seal stores a ticket for the response, or nothing without a sealing key. The browser keeps it for keep beyond its
// expiry.
func (o *issued) seal(rm *roomState, now fleettime.Time, t *ticket.Ticket, from *brought, keep time.Duration) {
	i := rm.index(o.secure)
	cookie := o.appendCookie(rm, i, now, t, keep)
	if len(cookie) == 0 {
		return
	}
	s := sealed{room: rm, ticket: *t, keep: keep, cookie: string(cookie), byHeader: from.byHeader, at: o.engine.clock.Now()}
	// A visitor that comes over http and https has one ticket, so that neither is an old version of the other.
	if i == 1 && from.found[0][kindOf(t)].ID == t.ID {
		s.plain = string(o.appendCookie(rm, 0, now, t, keep))
	}
	o.sealed = append(o.sealed, s)
}

// waitingAge is the cookie lifetime of a waiting ticket, in seconds. The place itself lasts for the grace period
// only.
const waitingAge = 24 * 60 * 60

// appendCookie returns the Set-Cookie line of a ticket under the name with index i, valid until the next call, or
// nothing without a sealing key.
func (o *issued) appendCookie(
	rm *roomState, i int, now fleettime.Time, t *ticket.Ticket, keep time.Duration,
) []byte {
	dst := append(o.cookie[:0], rm.cookie[i][kindOf(t)]...)
	dst = append(dst, '=')
	n := len(dst)
	// A first key that begins slightly in the future seals all the same: a visitor with a charged permit needs a
	// ticket.
	dst = rm.codec[i].Seal(dst, max(now, rm.sealFrom), t, o.seals)
	o.cookie = dst
	if len(dst) == n {
		return nil
	}
	age := int64(waitingAge)
	if t.IsAdmitted() {
		age = max(1, int64(t.Until)-now.Second()+int64(keep/time.Second))
		if rm.LongConnections == room.LongRenew {
			age = max(age, waitingAge) // a connection may keep the session for longer than the ticket
		}
	}
	dst = append(dst, "; Path=/; Max-Age="...)
	dst = strconv.AppendInt(dst, age, 10)
	if rm.CookieDomain != "" {
		dst = append(append(dst, "; Domain="...), rm.CookieDomain...)
	}
	dst = append(dst, rm.attributes[i]...)
	o.cookie = dst
	return dst
}

// takeBack deletes cookies of the room that the browser has sent: those of one kind, or all.
func (o *issued) takeBack(rm *roomState, from *brought, which ...int) {
	domain := ""
	if rm.CookieDomain != "" {
		domain = "; Domain=" + rm.CookieDomain
	}
	for i := range from.has {
		for _, kind := range which {
			if !from.has[i][kind] {
				continue
			}
			if name := rm.own.cookie[i][kind]; name != "" {
				o.gone = append(o.gone, Field{"Set-Cookie", name + "=; Path=/; Max-Age=0" + rm.attributes[i]})
			}
			o.gone = append(o.gone, Field{"Set-Cookie", rm.cookie[i][kind] + "=; Path=/; Max-Age=0" + domain + rm.attributes[i]})
		}
	}
}

// headerOf returns the ticket in a Set-Cookie line in the form of [TicketHeader].
func (rm *roomState) headerOf(cookie string) string {
	_, value, _ := strings.Cut(cookie, "=")
	value, _, _ = strings.Cut(value, ";")
	return rm.Name + "=" + value
}

// sealed is a ticket for the response.
type sealed struct {
	room     *roomState
	ticket   ticket.Ticket
	cookie   string        // the Set-Cookie line
	plain    string        // that of the cookie without TLS, if the visitor has one too
	byHeader bool          // the client uses TicketHeader
	keep     time.Duration // see seal

	at fleettime.Mono // time of the decision, after any hold
}

// inFlight is the age after which a response of the site may arrive after newer tickets: half of the assumed flight
// time.
const inFlight = reuse.InFlight * time.Second / 2

// Tickets returns the visitor's tickets as response header lines. They belong into the final response of the site,
// not into an informational one. Those of a slow response get its time: the browser may have presented others until
// then, see package reuse.
func (o *Outcome) Tickets() []Field { return o.issued.appendTo(nil, o.Kind == Enters) }

// appendTo appends the lines of the tickets, with enters for the response of the site. New tickets come first: some
// servers in front pass on one line only, and a cookie that was not deleted is deleted with the next answer.
func (o *issued) appendTo(dst []Field, enters bool) []Field {
	if enters && len(o.sealed) > 0 {
		o.sealAgain()
	}
	for i := range o.sealed {
		dst = append(dst, Field{"Set-Cookie", o.sealed[i].cookie})
	}
	for i := range o.sealed {
		if plain := o.sealed[i].plain; plain != "" {
			dst = append(dst, Field{"Set-Cookie", plain})
		}
	}
	dst = append(dst, o.gone...)
	byHeader := false
	for i := range o.sealed {
		if s := &o.sealed[i]; s.byHeader {
			dst = append(dst, Field{TicketHeader, s.room.headerOf(s.cookie)})
			byHeader = true
		}
	}
	if byHeader && enters {
		// A browser's cache would answer a script with the ticket of an earlier time.
		dst = append(dst, Field{"Cache-Control", "no-store"})
	}
	return dst
}

// sealAgain seals session tickets of old decisions with the present time of issue.
func (o *issued) sealAgain() {
	present := o.engine.clock.Now()
	for i := range o.sealed {
		s := &o.sealed[i]
		if present.Sub(s.at) <= inFlight || !s.ticket.IsAdmitted() {
			continue
		}
		now := o.engine.now()
		s.ticket.Seen = uint32(now.Second())
		if cookie := o.appendCookie(s.room, s.room.index(o.secure), now, &s.ticket, s.keep); len(cookie) > 0 {
			s.cookie = string(cookie)
		}
		if s.plain != "" {
			s.plain = string(o.appendCookie(s.room, 0, now, &s.ticket, s.keep))
		}
	}
}

// index selects the value without or with TLS.
func index(secure bool) int {
	if secure {
		return 1
	}
	return 0
}

// index selects the room's cookie by its Secure setting or the connection.
func (rm *roomState) index(secure bool) int {
	switch rm.CookieSecure {
	case room.CookieAlways:
		return 1
	case room.CookieNever:
		return 0
	}
	return index(secure)
}
