package gate

import (
	"net/netip"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/lineage"
	"vestibule/internal/live"
	"vestibule/internal/origin"
	"vestibule/internal/room"
	"vestibule/internal/rules"
	"vestibule/internal/ticket"
	"vestibule/internal/waiting"
)

const (
	// TicketHeader carries tickets of clients that keep no cookies, in both
	// directions, as name=ticket. A client that sends it without a ticket, with
	// any value, gets one. It never carries what a browser holds in a cookie,
	// which scripts of the site are not to read.
	TicketHeader = "Vestibule-Ticket"

	// PollHeader marks the question of a waiting page for news. It never reaches
	// an origin.
	PollHeader = "Vestibule-Poll"
)

// Request is what a decision goes by. Header fields are given line by line, as they
// came.
type Request struct {
	Host    string // and port, as the visitor named them
	Target  string // path and query as in the request line
	Method  string
	Body    bool   // there is one, or may be
	Version string // as HTTP/1.1; "" where nobody knows the visitor's

	Client netip.Addr // the visitor's; invalid if unknown
	Secure bool       // the visitor came over TLS

	Cookies   []string // Cookie
	Tickets   []string // TicketHeader; nil for none
	Proofs    []string // ProofHeader
	Accept    []string
	Encodings []string // Accept-Encoding
	Upgrade   []string
	Languages string // Accept-Language
	FetchSite string // Sec-Fetch-Site
	FetchDest string // Sec-Fetch-Dest
	FetchMode string // Sec-Fetch-Mode
	FetchUser string // Sec-Fetch-User
	Referer   string
	Origin    string
	CORS      CORS
	Poll      bool // PollHeader is there

	// Lines are all lines of the header, for rules; nil for none.
	Lines HeaderLines

	// SiteApart says that the site is not asked by this edge: whoever asks about the
	// request serves it.
	SiteApart bool

	// Patience is how long the visitor is held for a right at most; 0 for as long as
	// the engine says.
	Patience time.Duration
}

// Kind is what is to be done about a request.
type Kind uint8

// The zero Kind is Answered: a request is not forwarded unless somebody said so.
const (
	Answered   Kind = iota // the visitor is given Status, Header and Body
	Enters                 // the request goes to Origin
	Preflights             // Origin is asked for the CORS headers of its answer, and for nothing else
	Listens                // the visitor is given an event stream
)

// Field is one line of a header.
type Field struct{ Name, Value string }

// Outcome is what is to be done about one request. It is used by one goroutine at a
// time, from [Gate.Begin] to [Outcome.End].
type Outcome struct {
	Kind Kind

	// What the visitor is answered. A body is not sent with a HEAD request.
	Status int
	Header []Field
	Body   []byte
	Close  bool // the connection is to end with the answer

	Origin *origin.Origin // to which the request goes
	Client netip.Addr     // the visitor's, as the request had it
	Secure bool           // as the request had it

	Private bool // no shared cache is to keep the site's answer

	Stay  Stay   // of which the visitor wants to hear
	Epoch uint32 // of its room

	gate    *Gate
	inside  []Stay     // the sessions that let the request in
	decided fleet.Time // when the last of them did
	sealed  []sealed   // tickets that the answer brings
	asked   bool       // rules were, about what
	placed  bool       // has its country
	*tools
}

// tools are what an outcome works with, and keeps for the next request.
type tools struct {
	request Request
	seals   *ticket.Scratch
	cookie  []byte
	packer  waiting.Packer
	visitor waiting.Visitor // whom the page is for
	about   rules.Request   // what rules are asked about
	rules   rules.Scratch
}

// Stay is one visitor in one room: a session, or a place in the line.
type Stay struct {
	Room   room.ID
	Ticket ticket.Ticket
}

// Place returns the place of the stay.
func (s *Stay) Place() live.Place { return live.Place{Room: s.Room, Ticket: s.Ticket.ID} }

// sealed is a ticket that an answer brings.
type sealed struct {
	room     *roomState
	ticket   ticket.Ticket
	cookie   string // as Set-Cookie has it
	byHeader bool   // the client goes by TicketHeader

	at fleet.Mono // when it was decided about: the visitor may have been held before
}

// Begin returns an outcome for one request.
func (g *Gate) Begin() *Outcome {
	return g.pool.Get().(*Outcome)
}

// Request returns a request that is empty, for the front to fill in. It must not be used after End.
func (o *Outcome) Request() *Request { return &o.request }

// End gives back what the outcome used; it must not be used any more.
func (o *Outcome) End() {
	if o.asked {
		o.forgetRules()
	}
	clear(o.Header)
	clear(o.inside)
	clear(o.sealed)
	o.request = Request{}
	*o = Outcome{Header: o.Header[:0], Body: o.Body[:0], gate: o.gate, inside: o.inside[:0], sealed: o.sealed[:0], tools: o.tools}
	o.gate.pool.Put(o)
}

// set adds a line to the header of the answer.
func (o *Outcome) set(name, value string) { o.Header = append(o.Header, Field{name, value}) }

// inFlight is after how long an answer of the site may reach a browser that has gone
// on with newer tickets: half of the time for which answers are reckoned to be under
// way.
const inFlight = lineage.InFlight * time.Second / 2

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

// giveTickets adds the tickets to the header of an answer.
func (o *Outcome) giveTickets() { o.Header = o.appendTickets(o.Header) }

// SessionLeft returns how much is left of the shortest of the sessions that let the
// request in, by the time of the fleet; ok is false where none did.
func (o *Outcome) SessionLeft() (left time.Duration, ok bool) {
	if len(o.inside) == 0 {
		return 0, false
	}
	until := o.inside[0].Ticket.Until
	for i := range o.inside {
		until = min(until, o.inside[i].Ticket.Until)
	}
	return fleet.Time(int64(until) * 1000).Sub(o.gate.now()), true
}

// The headers by which a site's answer puts a visitor out, and what they say then. The second
// is that of the hosted product, and counts in rooms whose enabled_origin_commands say so.
const (
	CommandHeader       = "Vestibule-Command"
	HostedCommandHeader = "Cf-Waiting-Room-Command"
	CommandRevoke       = room.CommandRevoke
)

// Revoke ends the sessions that let the request in, because the site asks for it. own says
// that it does by [CommandHeader].
func (o *Outcome) Revoke(own bool) {
	for i := range o.inside {
		if r := o.gate.Rooms().ByID(o.inside[i].Room); own || r != nil && r.OriginCommands == room.CommandRevoke {
			o.gate.quit(&o.inside[i])
		}
	}
}
