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
	// TicketHeader carries the tickets of clients without cookies, in both directions, as name=ticket. A client
	// that sends it without a ticket, with any value, gets one. It never repeats a ticket of a cookie, which
	// scripts must not read.
	TicketHeader = "Vestibule-Ticket"

	// PollHeader marks the poll of a waiting page. It never reaches an origin. With [PollNow] the poll is not held
	// for long.
	PollHeader = "Vestibule-Poll"

	// PollNow is the value of [PollHeader] from a page without a current state: just loaded, or back online.
	PollNow = "now"
)

// Request is the input of a decision. Header fields are given line by line, as received.
type Request struct {
	Host    string // and port, as received
	Target  string // path and query of the request line
	Method  string
	Body    bool   // there is a body, or may be
	Version string // such as HTTP/1.1; "" if the visitor's is unknown

	Client netip.Addr // the visitor's address; invalid if unknown
	Secure bool       // the visitor used TLS

	Cookies   []string // Cookie
	Tickets   []string // TicketHeader; nil for none
	Proofs    []string // ProofHeader
	Accept    []string
	Encodings []string // Accept-Encoding
	Upgrade   []string // websocket; nil for any other offer, unless SiteApart

	Destination []string // of COPY and MOVE

	Languages string // Accept-Language
	FetchSite string // Sec-Fetch-Site
	FetchDest string // Sec-Fetch-Dest
	FetchMode string // Sec-Fetch-Mode
	FetchUser string // Sec-Fetch-User
	Referer   string
	Origin    string
	CORS      CORS
	Poll      bool // PollHeader is present
	PollNow   bool // with the value PollNow

	// Lines are all header lines, for rules; nil for none.
	Lines HeaderLines

	// SiteApart means that this edge does not forward to the site: the asking proxy does.
	SiteApart bool

	// Patience bounds the hold for a permit; 0 for the engine's limit.
	Patience time.Duration
}

// ReadHeader reads what the header of a request tells, and the connection: its peer, and whether it has TLS. lines returns
// the lines of a field by its canonical name, nil for none.
func (r *Request) ReadHeader(proxies clientaddr.Proxies, peer netip.Addr, secure bool, lines func(name string) []string) {
	r.Cookies, r.Tickets, r.Proofs, r.Accept, r.Upgrade = lines("Cookie"), lines(TicketHeader), lines(ProofHeader), lines("Accept"), lines("Upgrade")
	r.Encodings = lines("Accept-Encoding")
	if r.Method == "COPY" || r.Method == "MOVE" || !registered[r.Method] {
		r.Destination = lines("Destination")
	}
	r.Languages, r.Origin = first(lines("Accept-Language")), first(lines("Origin"))
	poll := first(lines(PollHeader))
	r.Poll, r.PollNow = poll != "", poll == PollNow
	r.FetchSite, r.FetchDest, r.FetchMode = first(lines("Sec-Fetch-Site")), first(lines("Sec-Fetch-Dest")), first(lines("Sec-Fetch-Mode"))
	r.FetchUser, r.Referer = first(lines("Sec-Fetch-User")), first(lines("Referer"))
	r.CORS = CORS{Method: first(lines("Access-Control-Request-Method")), Headers: first(lines("Access-Control-Request-Headers"))}
	r.Client, r.Secure = proxies.Client(peer, secure, lines("X-Forwarded-For"), lines("X-Forwarded-Proto"))
}

// CORS is the content of a CORS preflight.
type CORS struct {
	Method  string // Access-Control-Request-Method
	Headers string // Access-Control-Request-Headers
}

// Requests that are no page visit: subresources, API calls, robots.txt, preflights. The client declares this and
// may lie, so it only makes an answer shorter and an admission harder.

// isPreflight reports whether a request is a preflight. Browsers send it without cookies, also within a session.
func (r *Request) isPreflight() bool { return r.Method == methodOptions && r.CORS.Method != "" }

// isAside reports whether a request is clearly no navigation.
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

// isPart reports whether a request is for a subresource or a robot's file, for which no page can be the answer.
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
	// Browsers omit Sec-Fetch-Dest on insecure connections.
	kind, _, _ := strings.Cut(strings.Join(r.Accept, ","), "/")
	switch strings.ToLower(strings.TrimSpace(kind)) {
	case "image", "audio", "video", "font":
		return !strings.Contains(strings.Join(r.Accept, ","), "text/html")
	}
	return strings.HasPrefix(first(r.Accept), "text/css")
}

// form is the format of the edge's own answers.
type form uint8

const (
	asPage form = iota
	asJSON
	asWords // for subresources
)

// form returns the format of the edge's own answer.
func (r *Request) form() form {
	switch {
	case r.wantsJSON():
		return asJSON
	case r.isPart():
		return asWords
	}
	return asPage
}

// wantsJSON reports whether to answer with JSON: requested explicitly, or by a script that accepts anything.
func (r *Request) wantsJSON() bool {
	if page.PrefersJSON(r.Accept) {
		return true
	}
	byScript := r.FetchDest == "empty" || r.FetchDest == "" && (r.FetchMode == "cors" || r.FetchMode == "same-origin")
	return byScript && (len(r.Accept) == 0 || len(r.Accept) == 1 && strings.TrimSpace(r.Accept[0]) == "*/*")
}

// blockedRetry is the minimum retry time of a browser that blocks cookies: each request is a new visitor. Rejected
// visitors use it too.
const blockedRetry = time.Minute

// keepsNoCookies reports whether our page has just reloaded itself without the cookie that it was given, or any
// other.
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

// sameOrigin reports whether a request comes from a page of its own host, by the browser's headers, or from no
// page.
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

// Kind is the action for a request.
type Kind uint8

// The zero Kind is Answered: forwarding needs an explicit decision.
const (
	Answered   Kind = iota // respond with Status, Header and Body
	Enters                 // forward the request to Origin
	Preflights             // ask Origin for the CORS headers of its response only
	Listens                // start an event stream
)

// Field is one header line.
type Field struct{ Name, Value string }

// Outcome is the decision about one request. One goroutine at a time uses it, from [Gate.Begin] to [Outcome.End].
type Outcome struct {
	Kind Kind

	// The response. A body is omitted for HEAD.
	Status int
	Header []Field
	Body   []byte
	Close  bool // close the connection after the response

	Origin *origin.Origin // destination of the request
	Client netip.Addr     // the visitor's, from the request
	Secure bool           // from the request

	Private bool // shared caches must not store the site's response

	Stay  Stay   // of the event stream
	Epoch uint32 // of its room
	Guest bool   // Stay is no place: the visitor only gets the room's state

	gate    *Gate
	host    string         // as named by the visitor, in canonical form
	inside  []Stay         // the sessions that admit the request
	traffic []*traffic     // of their rooms
	decided fleettime.Time // when the last of them was checked
	sealed  []sealed       // tickets for the response
	asked   bool           // rules were evaluated with about
	placed  bool           // about has the country
	*tools
}

// tools are the reusable buffers of an outcome.
type tools struct {
	request Request
	seals   *ticket.Scratch
	cookie  []byte
	packer  page.Packer
	visitor page.Visitor  // data of the page
	about   rules.Request // input of the rules
	rules   rules.Scratch
}

// Stay is one visitor in one room: a session or a place.
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

// Request returns an empty request to fill in. It must not be used after End.
func (o *Outcome) Request() *Request { return &o.request }

// End recycles the outcome, which must not be used afterwards.
func (o *Outcome) End() {
	if o.asked {
		o.forgetRules()
	}
	clear(o.Header)
	clear(o.inside)
	clear(o.sealed)
	o.request = Request{}
	*o = Outcome{Header: o.Header[:0], Body: o.Body[:0], gate: o.gate, inside: o.inside[:0], traffic: o.traffic[:0], sealed: o.sealed[:0], tools: o.tools}
	o.gate.pool.Put(o)
}

// SessionLeft returns the rest of the shortest session that admits the request, in fleet time; ok is false without
// a session.
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
