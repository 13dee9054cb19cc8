package gate

import (
	"net/netip"
	"net/url"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/rules"
	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/origin"
	"vestibule/internal/edge/sse"
	"vestibule/internal/page"
)

const (
	// TicketHeader carries tickets of clients that keep no cookies, in both
	// directions, as name=ticket. A client that sends it without a ticket, with
	// any value, gets one. It never carries what a browser holds in a cookie,
	// which scripts of the site are not to read.
	TicketHeader = "Vestibule-Ticket"

	// PollHeader marks the question of a waiting page for news. It never reaches
	// an origin. With [PollNow] the question is not held for long.
	PollHeader = "Vestibule-Poll"

	// PollNow is the value of [PollHeader] from a page that has nothing right to show: it has just been loaded, or
	// was offline.
	PollNow = "now"
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
	PollNow   bool // and says so

	// Lines are all lines of the header, for rules; nil for none.
	Lines HeaderLines

	// SiteApart says that the site is not asked by this edge: whoever asks about the
	// request serves it.
	SiteApart bool

	// Patience is how long the visitor is held for a right at most; 0 for as long as
	// the engine says.
	Patience time.Duration
}

// ReadHeader reads what the header of a request tells, and the connection: its peer, and whether it has TLS. lines returns
// the lines of a field by its canonical name, nil for none.
func (r *Request) ReadHeader(proxies clientaddr.Proxies, peer netip.Addr, secure bool, lines func(name string) []string) {
	r.Cookies, r.Tickets, r.Proofs, r.Accept, r.Upgrade = lines("Cookie"), lines(TicketHeader), lines(ProofHeader), lines("Accept"), lines("Upgrade")
	r.Encodings = lines("Accept-Encoding")
	r.Languages, r.Origin = first(lines("Accept-Language")), first(lines("Origin"))
	poll := first(lines(PollHeader))
	r.Poll, r.PollNow = poll != "", poll == PollNow
	r.FetchSite, r.FetchDest, r.FetchMode = first(lines("Sec-Fetch-Site")), first(lines("Sec-Fetch-Dest")), first(lines("Sec-Fetch-Mode"))
	r.FetchUser, r.Referer = first(lines("Sec-Fetch-User")), first(lines("Referer"))
	r.CORS = CORS{Method: first(lines("Access-Control-Request-Method")), Headers: first(lines("Access-Control-Request-Headers"))}
	r.Client, r.Secure = proxies.Client(peer, secure, lines("X-Forwarded-For"), lines("X-Forwarded-Proto"))
}

// CORS is what a browser asks before a page of another origin may send a request.
type CORS struct {
	Method  string // Access-Control-Request-Method
	Headers string // Access-Control-Request-Headers
}

// Requests that are no visit of a person: parts of pages, questions of programs,
// files of robots, preflights. What they are is told by the client, who may lie. So it
// makes an answer shorter and a slot harder to get, and opens nothing.

// isPreflight reports whether a request is a preflight. A browser sends it without
// cookies, whoever is inside.
func (r *Request) isPreflight() bool { return r.Method == methodOptions && r.CORS.Method != "" }

// isAside reports whether a request is plainly no navigation.
func (r *Request) isAside() bool {
	if len(r.Upgrade) > 0 || r.Poll {
		return false
	}
	switch r.FetchDest {
	case "document", "iframe", "frame", "fencedframe", "object", "embed":
		return false
	case "":
		return r.isPart()
	}
	return true
}

// isPart reports whether a request is for something that no page can stand for: a
// picture, a script, the file of a robot.
func (r *Request) isPart() bool {
	switch r.FetchDest {
	case "audio", "audioworklet", "font", "image", "manifest", "paintworklet", "script", "serviceworker", "sharedworker", "style", "track", "video",
		"worker", "xslt":
		return true
	case "":
	default:
		return false
	}
	path, _, _ := strings.Cut(r.Target, "?")
	if path == "/robots.txt" || path == "/favicon.ico" {
		return true
	}
	// Browsers send no Sec-Fetch-Dest where the connection is not safe.
	kind, _, _ := strings.Cut(strings.Join(r.Accept, ","), "/")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "image", "audio", "video", "font":
		return !strings.Contains(strings.Join(r.Accept, ","), "text/html")
	}
	return strings.HasPrefix(first(r.Accept), "text/css")
}

// form is how an answer of the edge itself is put.
type form uint8

const (
	asPage form = iota
	asJSON
	asWords // for what no page can stand for
)

// form returns how a request is answered by the edge itself.
func (r *Request) form() form {
	switch {
	case r.wantsJSON():
		return asJSON
	case r.isPart():
		return asWords
	}
	return asPage
}

// wantsJSON reports whether the answer is to be JSON: it is asked for, or a script asks
// and takes anything.
func (r *Request) wantsJSON() bool {
	if page.PrefersJSON(r.Accept) {
		return true
	}
	byScript := r.FetchDest == "empty" || r.FetchDest == "" && (r.FetchMode == "cors" || r.FetchMode == "same-origin")
	return byScript && (len(r.Accept) == 0 || len(r.Accept) == 1 && strings.TrimSpace(r.Accept[0]) == "*/*")
}

// blockedRetry is after how long at least a browser asks again that keeps no cookies: each time it is somebody
// new. Rejected visitors ask again as late.
const blockedRetry = time.Minute

// keepsNoCookies reports whether a page of ours has just loaded itself again, and came
// without the cookie that it was given, or any other.
func (r *Request) keepsNoCookies() bool {
	if len(r.Cookies) > 0 || r.Tickets != nil || r.FetchSite != "same-origin" || r.FetchUser != "" || r.FetchMode != "navigate" {
		return false
	}
	_, from, _ := strings.Cut(r.Referer, "://")
	return from == r.Host+r.Target
}

func first(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}

// sameOrigin reports whether a request comes from a page of the host that it asks
// (browsers say so), or from no page at all.
func (r *Request) sameOrigin() bool {
	if r.FetchSite != "" && r.FetchSite != "same-origin" && r.FetchSite != "none" {
		return false
	}
	if r.Origin == "" {
		return true
	}
	u, err := url.Parse(r.Origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
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
	Guest bool   // Stay is no place in the line: the visitor hears of the room alone

	gate    *Gate
	host    string         // that the visitor named, in canonical form
	inside  []Stay         // the sessions that let the request in
	decided fleettime.Time // when the last of them did
	sealed  []sealed       // tickets that the answer brings
	asked   bool           // rules were, about what
	placed  bool           // has its country
	*tools
}

// tools are what an outcome works with, and keeps for the next request.
type tools struct {
	request Request
	seals   *ticket.Scratch
	cookie  []byte
	packer  page.Packer
	visitor page.Visitor  // whom the page is for
	about   rules.Request // what rules are asked about
	rules   rules.Scratch
}

// Stay is one visitor in one room: a session, or a place in the line.
type Stay struct {
	Room   room.ID
	Ticket ticket.Ticket
}

// Place returns the place of the stay.
func (s *Stay) Place() sse.Place { return sse.Place{Room: s.Room, Ticket: s.Ticket.ID} }

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
	return fleettime.Time(int64(until) * 1000).Sub(o.gate.now()), true
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
