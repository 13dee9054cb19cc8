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

// reader reads the tickets that requests bring.
type reader struct {
	engine *engine
	count  *[ticketKinds]prometheus.Counter // by what became of them
}

// best reads the tickets that a request brings for a room and returns the
// best, the zero Ticket for none. Those of the [TicketHeader] count where there is
// no cookie of the name; byHeader tells that the client goes by that header. unread
// tells that the visitor may have a better one, under a key that this node does not
// know: it must not be replaced.
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

// mayLackKeys reports whether there may be tickets under keys that this node has not
// heard of: its ring is old enough, and the store has not just confirmed it.
func (rd *reader) mayLackKeys(rooms *snapshot, c *ticket.Codec) bool {
	return (!rd.engine.Told() || c.Behind(rd.engine.now())) && !rooms.keysAreNewest()
}

// opening looks for the best ticket of one request.
type opening struct {
	*reader
	rm    *roomState
	codec *ticket.Codec
	seals *ticket.Scratch
	best  ticket.Ticket
	tried int
	newer bool // there is one under a key newer than ours
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

// try opens one more value. It reports false where enough were tried.
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
	// One of an earlier epoch is worth nothing, whatever it holds.
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

// network returns what stands for where a client is in the tickets of a room; from is its neighbourhood. All
// clients whose address is not known are in one network.
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

// seal keeps a ticket for the answer; nothing where the node has no key to seal with.
func (o *Outcome) seal(rm *roomState, now fleettime.Time, t ticket.Ticket, byHeader bool) {
	if cookie := o.appendCookie(rm, now, &t); len(cookie) > 0 {
		o.sealed = append(o.sealed, sealed{rm, t, string(cookie), byHeader, o.gate.clock.Now()})
	}
}

// waitingAge is how long a browser keeps a waiting ticket, in seconds; the place
// itself is kept for the grace only.
const waitingAge = 24 * 60 * 60

// appendCookie returns the Set-Cookie line of a ticket, valid until the next call;
// nothing where the node has no key to seal with.
func (o *Outcome) appendCookie(rm *roomState, now fleettime.Time, t *ticket.Ticket) []byte {
	i := rm.index(o.Secure)
	dst := append(o.cookie[:0], rm.cookie[i]...)
	dst = append(dst, '=')
	n := len(dst)
	// A first key that is stamped a little ahead of our clock seals all the same:
	// a visitor whose slot is charged must not go without a ticket.
	dst = rm.codec[i].Seal(dst, max(now, rm.sealFrom), t, o.seals)
	o.cookie = dst
	if len(dst) == n {
		return nil
	}
	age := int64(waitingAge)
	if t.IsAdmitted() {
		age = max(1, int64(t.Until)-now.Second())
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

// takeBack has the browser forget the room's tickets.
func (o *Outcome) takeBack(rm *roomState) {
	i := rm.index(o.Secure)
	domain := ""
	if rm.CookieDomain != "" {
		domain = "; Domain=" + rm.CookieDomain
		o.set("Set-Cookie", rm.own.name[i]+"=; Path=/; Max-Age=0"+rm.attributes[i])
	}
	o.set("Set-Cookie", rm.cookie[i]+"=; Path=/; Max-Age=0"+domain+rm.attributes[i])
}

// headerOf returns the ticket in a Set-Cookie line as [TicketHeader] has it.
func (rm *roomState) headerOf(cookie string, secure bool) string {
	value, _, _ := strings.Cut(cookie[len(rm.cookie[rm.index(secure)])+1:], ";")
	return rm.Name + "=" + value
}

// sealed is a ticket that an answer brings.
type sealed struct {
	room     *roomState
	ticket   ticket.Ticket
	cookie   string // as Set-Cookie has it
	byHeader bool   // the client goes by TicketHeader

	at fleettime.Mono // when it was decided about: the visitor may have been held before
}

// inFlight is after how long an answer of the site may reach a browser that has gone
// on with newer tickets: half of the time for which answers are reckoned to be under
// way.
const inFlight = reuse.InFlight * time.Second / 2

// Tickets returns the visitor's tickets as lines of the answer's header. They are for
// the final answer of the site and not for an informational one. Those of an answer
// that took the site long are sealed as such.
func (o *Outcome) Tickets() []Field { return o.appendTickets(nil) }

func (o *Outcome) appendTickets(dst []Field) []Field {
	if o.Kind == Enters && len(o.sealed) > 0 {
		o.sealLate()
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

// sealLate seals those tickets anew that were decided about long ago.
func (o *Outcome) sealLate() {
	present := o.gate.clock.Now()
	for i := range o.sealed {
		s := &o.sealed[i]
		if present.Sub(s.at) <= inFlight {
			continue
		}
		s.ticket.Late()
		if cookie := o.appendCookie(s.room, o.gate.now(), &s.ticket); len(cookie) > 0 {
			s.cookie = string(cookie)
		}
	}
}

// index picks between what is used without and with TLS.
func index(secure bool) int {
	if secure {
		return 1
	}
	return 0
}

// index picks between the room's cookies: what it says of Secure, or the connection.
func (rm *roomState) index(secure bool) int {
	switch rm.CookieSecure {
	case room.CookieAlways:
		return 1
	case room.CookieNever:
		return 0
	}
	return index(secure)
}
