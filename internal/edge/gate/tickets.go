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

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/ticket/reuse"
)

// reader opens the tickets of requests.
type reader struct {
	engine *engine
	count  *[ticketKinds]prometheus.Counter // by result
}

// best returns the best ticket of a request for a room, or the zero Ticket. Those of the [TicketHeader] count if
// there is no cookie of the name; byHeader reports that. unread reports that the visitor may have a better one
// under a key unknown here: it must not be replaced.
func (rd *reader) best(r *Request, seals *ticket.Scratch, rooms *snapshot, rm *roomState) (best ticket.Ticket, byHeader, unread bool) {
	i := rm.index(r.Secure)
	op := opening{reader: rd, rm: rm, codec: rm.codec[i], seals: seals}
	op.tryAll(r, rm.cookie[i])
	if own := rm.own.codec[i]; own != nil && op.tried == 0 {
		op.codec = own
		op.tryAll(r, rm.own.name[i])
		op.codec = rm.codec[i]
	}
	if r.Tickets != nil && op.tried == 0 {
		byHeader = true
		for _, line := range r.Tickets {
			for pair := range strings.SplitSeq(line, ",") {
				name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
				if name == rm.Name && !op.try(value) {
					break
				}
			}
		}
	}
	if op.tried == 0 {
		rd.count[ticketNone].Inc()
	}
	unread = op.newer && rd.mayLackKeys(rooms, rm.codec[i]) && (op.best.Epoch != rm.Epoch || !op.best.Valid(rd.engine.now()))
	return op.best, byHeader, unread
}

// mayLackKeys reports whether tickets under unknown valid keys may exist: our ring is old, and the store has not
// just confirmed it.
func (rd *reader) mayLackKeys(rooms *snapshot, c *ticket.Codec) bool {
	return (!rd.engine.Told() || c.Behind(rd.engine.now())) && !rooms.keysAreNewest()
}

// opening searches the best ticket of one request.
type opening struct {
	*reader
	rm    *roomState
	codec *ticket.Codec
	seals *ticket.Scratch
	best  ticket.Ticket
	tried int
	newer bool // there is one under a newer key than ours
	now   fleettime.Time
}

// tryAll opens all values of the cookies called name.
func (o *opening) tryAll(r *Request, name string) {
	for _, line := range r.Cookies {
		for value := range ticket.Values(line, name) {
			if !o.try(value) {
				break
			}
		}
	}
}

// try opens one more value. It returns false once the limit is reached.
func (o *opening) try(value string) bool {
	if o.tried++; o.tried > ticket.MaxRead {
		return false
	}
	var t ticket.Ticket
	err := o.codec.Open(&t, value, o.seals)
	o.count[ticketKind(err)].Inc()
	if err != nil {
		o.newer = o.newer || errors.Is(err, ticket.ErrKey)
		return true
	}
	best := &o.best
	if best.ID != 0 && o.now == 0 {
		o.now = o.engine.now()
	}
	// A ticket of an earlier epoch is worthless.
	if current := t.Epoch == o.rm.Epoch; best.ID != 0 && current != (best.Epoch == o.rm.Epoch) {
		if current {
			*best = t
		}
		return true
	}
	if ticket.Better(&t, best, o.now) {
		*best = t
	}
	return true
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

// brings reports whether a request has a cookie of this room.
func (r *Request) brings(rm *roomState) bool {
	i := rm.index(r.Secure)
	return r.hasCookie(rm.cookie[i]) || rm.own.name[i] != "" && r.hasCookie(rm.own.name[i])
}

func (r *Request) hasCookie(name string) bool {
	for _, line := range r.Cookies {
		for range ticket.Values(line, name) {
			return true
		}
	}
	return false
}

// seal stores a ticket for the response, or nothing without a sealing key.
func (o *Outcome) seal(rm *roomState, now fleettime.Time, t ticket.Ticket, byHeader bool) {
	if cookie := o.appendCookie(rm, now, &t); len(cookie) > 0 {
		o.sealed = append(o.sealed, sealed{rm, t, string(cookie), byHeader, o.gate.clock.Now()})
	}
}

// waitingAge is the cookie lifetime of a waiting ticket, in seconds. The place itself lasts for the grace period
// only.
const waitingAge = 24 * 60 * 60

// appendCookie returns the Set-Cookie line of a ticket, valid until the next call, or nothing without a sealing
// key.
func (o *Outcome) appendCookie(rm *roomState, now fleettime.Time, t *ticket.Ticket) []byte {
	i := rm.index(o.Secure)
	dst := append(o.cookie[:0], rm.cookie[i]...)
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
		age = max(1, int64(t.Until)-now.Second())
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

// takeBack deletes the room's cookies in the browser.
func (o *Outcome) takeBack(rm *roomState) {
	i := rm.index(o.Secure)
	domain := ""
	if rm.CookieDomain != "" {
		domain = "; Domain=" + rm.CookieDomain
		o.set("Set-Cookie", rm.own.name[i]+"=; Path=/; Max-Age=0"+rm.attributes[i])
	}
	o.set("Set-Cookie", rm.cookie[i]+"=; Path=/; Max-Age=0"+domain+rm.attributes[i])
}

// headerOf returns the ticket in a Set-Cookie line in the form of [TicketHeader].
func (rm *roomState) headerOf(cookie string, secure bool) string {
	value, _, _ := strings.Cut(cookie[len(rm.cookie[rm.index(secure)])+1:], ";")
	return rm.Name + "=" + value
}

// sealed is a ticket for the response.
type sealed struct {
	room     *roomState
	ticket   ticket.Ticket
	cookie   string // the Set-Cookie line
	byHeader bool   // the client uses TicketHeader

	at fleettime.Mono // time of the decision, after any hold
}

// inFlight is the age after which a response of the site may arrive after newer tickets: half of the assumed flight
// time.
const inFlight = reuse.InFlight * time.Second / 2

// Tickets returns the visitor's tickets as response header lines. They belong into the final response of the site,
// not into an informational one. Those of a slow response get its time: the browser may have presented others until then, see
// package reuse.
func (o *Outcome) Tickets() []Field { return o.appendTickets(nil) }

func (o *Outcome) appendTickets(dst []Field) []Field {
	if o.Kind == Enters && len(o.sealed) > 0 {
		o.sealAgain()
	}
	for i := range o.sealed {
		dst = append(dst, Field{"Set-Cookie", o.sealed[i].cookie})
	}
	for i := range o.sealed {
		if s := &o.sealed[i]; s.byHeader {
			dst = append(dst, Field{TicketHeader, s.room.headerOf(s.cookie, o.Secure)})
		}
	}
	return dst
}

// sealAgain seals session tickets of old decisions with the present time of issue.
func (o *Outcome) sealAgain() {
	present := o.gate.clock.Now()
	for i := range o.sealed {
		s := &o.sealed[i]
		if present.Sub(s.at) <= inFlight || !s.ticket.IsAdmitted() {
			continue
		}
		now := o.gate.now()
		s.ticket.Seen = uint32(now.Second())
		if cookie := o.appendCookie(s.room, now, &s.ticket); len(cookie) > 0 {
			s.cookie = string(cookie)
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
