package gate

import (
	"crypto/tls"
	"net/netip"
	"net/url"
	"slices"
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

// Decisive are the header fields of a visitor that decide, in alphabetical order. A server in front of the site passes
// them on with its question: the lists of deploy/fronts and of docs/INTEGRATIONS.md are made of this one. Rules may
// read others too.
var Decisive = []string{
	"Accept", "Accept-Encoding", "Accept-Language", "Access-Control-Request-Headers", "Access-Control-Request-Method",
	"Cookie", "Destination", "Hx-Boosted", "Hx-Current-Url", "Hx-Request", "Origin", "Purpose", "Range", "Referer",
	"Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User", "Sec-Purpose", "Turbo-Frame", "Upgrade",
	userAgent, PollHeader, ProofHeader, TicketHeader, "X-Inertia", "X-Livewire", "X-Livewire-Navigate", "X-Moz",
	"X-Purpose", "X-Turbo-Request-Id",
}

// userAgent is the field that rules read most.
const userAgent = "User-Agent"

// Request is the input of a decision. Header fields are given line by line, as received.
type Request struct {
	Host    string // and port, as received
	Target  string // path and query of the request line
	Method  string
	Body    bool   // there is a body, or may be
	Version string // such as HTTP/1.1; "" if the visitor's is unknown

	Client netip.Addr     // the visitor's address; invalid if unknown
	Conn   netip.AddrPort // the visitor's end of the connection; invalid if visitors share it, or if unknown
	Secure bool           // the visitor used TLS
	Unread []string       // X-Forwarded-For of a trusted proxy, if it holds no address for Client

	// OwnTLS means that this edge has shown the visitor a certificate, for ServerName ("" for no name).
	OwnTLS     bool
	ServerName string

	Cookies   []string // Cookie
	Tickets   []string // TicketHeader; nil for none
	Proofs    []string // ProofHeader
	Accept    Accept
	Encodings []string // Accept-Encoding
	Upgrade   []string // websocket; nil for any other offer, unless SiteApart

	Destination []string // of COPY and MOVE

	Languages string // Accept-Language
	Fetch     Fetch
	Purpose   string // Sec-Purpose, or an older header of that meaning
	Range     bool   // there is a Range
	Referer   string
	Origin    string
	Via       []string
	Hops      string // HopsHeader
	CORS      CORS
	Poll      bool // PollHeader is present
	PollNow   bool // with the value PollNow

	// Lines are all header lines, for rules; nil for none.
	Lines HeaderLines

	// SiteApart means that this edge does not forward to the site: the asking proxy does.
	SiteApart bool

	// Patience bounds the hold for a permit; 0 for the engine's limit.
	Patience time.Duration

	from sender // of a request that waits
}

// ReadHeader reads what the header of a request tells, and the connection: its peer and TLS, nil without. lines returns
// the lines of a field by its canonical name, nil for none.
func (r *Request) ReadHeader(
	proxies clientaddr.Proxies, conn netip.AddrPort, secure *tls.ConnectionState, lines func(name string) []string,
) {
	peer := conn.Addr()
	r.Cookies, r.Tickets, r.Proofs = lines("Cookie"), lines(TicketHeader), lines(ProofHeader)
	r.Accept, r.Upgrade, r.Encodings = lines("Accept"), lines("Upgrade"), lines("Accept-Encoding")
	if r.Method == "COPY" || r.Method == "MOVE" || !registered[r.Method] {
		r.Destination = lines("Destination")
	}
	r.Languages, r.Origin = first(lines("Accept-Language")), first(lines("Origin"))
	poll := first(lines(PollHeader))
	r.Poll, r.PollNow = poll != "", poll == PollNow
	r.Fetch = Fetch{
		Site: first(lines("Sec-Fetch-Site")), Dest: first(lines("Sec-Fetch-Dest")), Mode: first(lines("Sec-Fetch-Mode")),
		User: first(lines("Sec-Fetch-User")),
	}
	r.Referer = first(lines("Referer"))
	r.Range = lines("Range") != nil
	r.Via, r.Hops = lines("Via"), first(lines(HopsHeader))
	for _, name := range [...]string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"} {
		if r.Purpose = first(lines(name)); r.Purpose != "" {
			break
		}
	}
	r.CORS = CORS{
		Method: first(lines("Access-Control-Request-Method")), Headers: first(lines("Access-Control-Request-Headers")),
	}
	forwarded := lines("X-Forwarded-For")
	unread := false
	r.Client, r.Secure, unread = proxies.Client(peer, secure != nil, forwarded, lines("X-Forwarded-Proto"))
	if r.Unread = nil; unread {
		r.Unread = forwarded
	}
	if r.Conn = conn; proxies.Trusts(peer) {
		r.Conn = netip.AddrPort{}
	}
	if r.OwnTLS = secure != nil && !proxies.Trusts(peer); r.OwnTLS {
		r.ServerName = secure.ServerName
	}
}

// CORS is the content of a CORS preflight.
type CORS struct {
	Method  string // Access-Control-Request-Method
	Headers string // Access-Control-Request-Headers
}

// Accept are the lines of the header field Accept.
type Accept []string

// html reports whether HTML is named.
func (a Accept) html() bool {
	return slices.ContainsFunc(a, func(line string) bool { return strings.Contains(strings.ToLower(line), "text/html") })
}

// all reports whether every type is accepted.
func (a Accept) all() bool { return len(a) == 0 || len(a) == 1 && strings.TrimSpace(a[0]) == "*/*" }

// Fetch is what a browser says about a request, in Sec-Fetch-Site and so on. Over insecure connections it says nothing.
type Fetch struct{ Site, Dest, Mode, User string }

// navigates reports whether a browser loads a page. by reports that it says so; otherwise, as over insecure
// connections, only Accept can tell.
func (f *Fetch) navigates() (yes, by bool) {
	if f.Mode != "" {
		return f.Mode == modeNavigate && (f.Dest == "" || framed[f.Dest]), true // else a download
	}
	return framed[f.Dest], f.Dest != ""
}

// byScript reports whether a script of a page sent the request.
func (f *Fetch) byScript() bool { return f.Mode != "" && f.Mode != modeNavigate }

// Requests that are no page visit: subresources, API calls, robots.txt, preflights. The client declares this and
// may lie, so it only makes an answer shorter and an admission harder.

// isPreflight reports whether a request is a preflight. Browsers send it without cookies, also within a session.
func (r *Request) isPreflight() bool { return r.Method == methodOptions && r.CORS.Method != "" }

// isSafe reports whether the method only reads.
func (r *Request) isSafe() bool { return r.Method == methodGet || r.Method == methodHead }

// isPoll reports whether a waiting page asks for its state.
func (r *Request) isPoll() bool { return r.Poll && r.isSafe() }

// isPrefetch reports whether a browser loads a page that nobody may ever look at.
func (r *Request) isPrefetch() bool {
	purpose := strings.ToLower(r.Purpose)
	return strings.Contains(purpose, "prefetch") || strings.Contains(purpose, "prerender") ||
		strings.Contains(purpose, "preview")
}

// isAside reports whether a request is clearly no navigation.
func (r *Request) isAside() bool {
	if len(r.Upgrade) > 0 || r.Poll {
		return false
	}
	if r.Fetch.Dest == "" {
		return r.isPart()
	}
	return !framed[r.Fetch.Dest]
}

// framed are the values of Sec-Fetch-Dest of page loads.
var framed = map[string]bool{
	"document": true, "iframe": true, "frame": true, "fencedframe": true, "object": true, "embed": true,
}

// isPart reports whether a request is for a subresource or a robot's file, for which no page can be the answer.
func (r *Request) isPart() bool {
	if r.Poll {
		return false
	}
	switch r.Fetch.Dest {
	case "audio", "audioworklet", "font", "image", "manifest", "paintworklet", "script", "serviceworker", "sharedworker",
		"style", "track", "video",
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
		return !r.Accept.html()
	}
	return strings.HasPrefix(first(r.Accept), "text/css")
}

// isDownload reports whether a browser saves the answer as a file, so that no person would see a page. Over insecure
// connections this is a guess: browsers name text/html when they load a page, and their language in a download too, which
// a balancer that checks a page does not. A name of a file counts as well.
func (r *Request) isDownload() bool {
	if r.Fetch.Mode != "" {
		return r.Fetch.Mode == modeNavigate && r.Fetch.Dest == "empty"
	}
	return r.Fetch.Dest == "" && r.Accept.all() && (r.Languages != "" || namesFile(r.Target))
}

// namesFile reports whether a target ends with the name of a file that is no page.
func namesFile(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	name := path[strings.LastIndexByte(path, '/')+1:]
	ext := strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
	return len(ext) < len(name) && len(ext) >= 2 && len(ext) <= 5 && !slices.Contains(pageEndings, ext)
}

// pageEndings end the names of pages.
var pageEndings = []string{
	"action", "asp", "aspx", "cfm", "cgi", "do", "htm", "html", "jsp", "jspx", "php", "phtml", "shtml", "xhtml",
}

// isForm reports whether a browser navigates with a method that is not safe: it sends a form.
func (r *Request) isForm() bool {
	yes, by := r.Fetch.navigates()
	return !r.isSafe() && (yes || !by && r.Accept.html())
}

// isForeign reports whether a page of another site sent the request, so that browsers withhold SameSite=Lax cookies.
func (r *Request) isForeign() bool {
	if r.Fetch.Site != "" {
		return r.Fetch.Site == "cross-site"
	}
	return r.Origin != "" && !r.fromOwnOrigin()
}

// modeNavigate is the Sec-Fetch-Mode of a page load.
const modeNavigate = "navigate"

// kind is the kind of a request that waits. It decides how the answer tells that the site has not got the request.
type kind uint8

const (
	asksPage     kind = iota // a page load, or a balancer's check of one
	asksState                // a poll of the waiting page
	asksTicket               // a program with [TicketHeader]
	asksJSON                 // a program of a room with json_response_enabled
	asksForm                 // a browser that sends a form
	asksPrefetch             // a page that is loaded in advance
	asksPart                 // a subresource of a page, or a robot's file
	asksScript               // fetch of a script or a service worker
	asksRange                // a part of a file
	asksDownload             // a file to save
	asksChange               // a method that is not safe, of a program
	asksOther                // other types: feeds, programs
	numKinds
)

var kindNames = [numKinds]string{
	"page", "poll", "ticket", "json", "form", "prefetch", "subresource", "script", "range", "download", "unsafe", "other",
}

// kind returns the kind of a request to a room. json means that the room answers programs with JSON.
func (r *Request) kind(json bool) kind {
	navigates, by := r.Fetch.navigates()
	switch {
	case r.isPrefetch():
		return asksPrefetch
	case r.isPoll():
		return asksState
	case r.Tickets != nil:
		return asksTicket
	case r.from.library != noLibrary && r.isSafe():
		return asksScript
	case r.from.library != noLibrary:
		return asksChange
	case r.isForm():
		return asksForm
	case !r.isSafe():
		return asksChange
	case r.Range:
		return asksRange
	case r.isPart():
		return asksPart
	case r.isDownload():
		return asksDownload
	case navigates:
		return asksPage
	case json && page.PrefersJSON(r.Accept):
		return asksJSON
	case by:
		return asksScript
	case r.Accept.all() || r.Accept.html():
		return asksPage
	}
	return asksOther
}

// understands reports whether the client tells a waiting answer from the site's by more than the status, or is a
// person.
func (k kind) understands() bool { return k <= asksJSON }

// status returns the status of a waiting answer in a room with a queueing status. Clients that could take the answer
// for the site's get no success: with 503, balancers and meshes would count this edge as failed.
func (k kind) status(queueing int) int {
	if queueing >= 300 || k.understands() {
		return queueing
	}
	return statusTooManyRequests
}

// form is the format of the edge's own answers.
type form uint8

const (
	asPage form = iota
	asJSON
	asWords // for clients that show no page
)

// form returns the format of the edge's own answer.
func (r *Request) form() form {
	if f, ok := r.from.form(r.isSafe()); ok {
		return f
	}
	switch k := r.kind(false); {
	case k == asksPrefetch || k == asksPart:
		return asWords
	case r.wantsJSON():
		return asJSON
	case k >= asksRange && !r.Accept.html():
		return asWords
	}
	return asPage
}

// wantsJSON reports whether to answer with JSON: a poll, requested explicitly, or by a script that accepts anything.
func (r *Request) wantsJSON() bool {
	if r.Poll || page.PrefersJSON(r.Accept) { // servers in front may take Accept away
		return true
	}
	byScript := r.Fetch.Dest == "empty" && r.Fetch.Mode != modeNavigate || r.Fetch.Dest == "" && (r.Fetch.Mode == "cors" || r.Fetch.Mode == "same-origin")
	return byScript && r.Accept.all()
}

// blockedRetry is the minimum retry time of a browser that blocks cookies: each request is a new visitor. Rejected
// visitors use it too.
const blockedRetry = time.Minute

// keepsNoCookies reports whether our page has just reloaded itself without the cookie that it was given, or any
// other.
func (r *Request) keepsNoCookies() bool {
	if len(r.Cookies) > 0 || r.Tickets != nil || r.Fetch.Site != "same-origin" || r.Fetch.User != "" ||
		r.Fetch.Mode != "navigate" {
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
// page. Sec-Fetch-Site is the browser's own comparison, right also where a server in front has changed Host.
func (r *Request) sameOrigin() bool {
	if r.Fetch.Site != "" {
		return r.Fetch.Site == "same-origin" || r.Fetch.Site == "none"
	}
	return r.Origin == "" || r.fromOwnOrigin()
}

// fromOwnOrigin reports whether Origin is that of the request's host, with or without the default port.
func (r *Request) fromOwnOrigin() bool {
	u, err := url.Parse(r.Origin)
	if err != nil {
		return false
	}
	port := ":80"
	if u.Scheme == "https" {
		port = ":443"
	}
	return strings.EqualFold(strings.TrimSuffix(u.Host, port), strings.TrimSuffix(r.Host, port))
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

	Alone   bool // the connection to Origin serves this request only
	Private bool // shared caches must not store the site's response

	Stay Stay   // of the event stream
	Asks Asker  // of a preflight for the site
	HSTS string // Strict-Transport-Security of the answer, in place of the site's; empty for none

	Epoch uint32 // of its room
	Guest bool   // Stay is no place: the visitor only gets the room's state

	gate     *Gate
	host     string         // as named by the visitor, in canonical form
	via      string         // Via of the request for the site
	hops     int            // its HopsHeader
	inside   []Stay         // the sessions that admit the request
	newcomer []Stay         // those of them that begin with it, of visitors that had no place
	traffic  []*traffic     // of their rooms
	decided  fleettime.Time // when the last of them was checked
	issued   issued         // tickets for the response
	*tools
}

// tools are the reusable buffers of an outcome.
type tools struct {
	request Request
	brought brought        // of the visitor to the room that decides
	lines   []rules.Header // of the request, where a script may have sent it
	hop     lastHop
	packer  page.Packer
	visitor page.Visitor // data of the page
	rules   ruleInput
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
	o.rules.forget()
	clear(o.Header)
	clear(o.inside)
	clear(o.newcomer)
	clear(o.issued.sealed)
	clear(o.issued.gone)
	o.issued.sealed, o.issued.gone = o.issued.sealed[:0], o.issued.gone[:0]
	clear(o.lines)
	o.request = Request{}
	*o = Outcome{
		Header: o.Header[:0], Body: o.Body[:0], gate: o.gate, inside: o.inside[:0], newcomer: o.newcomer[:0], traffic: o.traffic[:0],
		issued: o.issued, tools: o.tools,
	}
	o.gate.pool.Put(o)
}

// Session returns the ID of a valid session that admits the request, 0 for none.
func (o *Outcome) Session() uint64 {
	if len(o.inside) == 0 {
		return 0
	}
	return o.inside[0].Ticket.ID
}
