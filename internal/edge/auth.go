package edge

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/front"
	"vestibule/internal/edge/gate"
)

// Header fields for a front.
const (
	decisionHeader = gate.DecisionHeader

	// cachingHeader is the Cache-Control of the site's answer, if other visitors must not get it.
	cachingHeader = "Vestibule-Caching"

	// statusHeader is the status for the visitor, if it is one that most fronts take for an admission.
	statusHeader = "Vestibule-Status"
)

// saysAnswer is the decision of an answer that the gate does not make. It is read-only.
var saysAnswer = []string{gate.SaysAnswer}

// authServer answers authorization requests of servers in front of the site. Only an admitted request gets 200 (form
// accel: X-Accel-Redirect). Every other answer goes to the visitor.
type authServer struct {
	*Server
	admits [2]constant // header lines of every admission
}

// constant is a read-only header line that is the same in every answer.
type constant struct {
	name  string
	lines []string
}

func newAuthServer(s *Server) *authServer {
	a := &authServer{s, [2]constant{{decisionHeader, []string{gate.SaysAdmit}}, {"Cache-Control", []string{"no-store"}}}}
	if s.cfg.Front.Form == formAccel {
		// No Cache-Control: nginx would add it to the site's answer.
		a.admits[1] = constant{"X-Accel-Redirect", []string{s.cfg.Front.Redirect}}
	}
	return a
}

func (a *authServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o := a.gate.Begin()
	defer o.End()
	defer a.recovered(w, r, o)
	w.Header()[decisionHeader] = saysAnswer // until the gate decides otherwise
	if a.cfg.Front.Form == formGRPC && r.Method == http.MethodPost && r.RequestURI == checkPath &&
		strings.HasPrefix(r.Header.Get("Content-Type"), grpcType) {
		a.check(w, r, o)
		return
	}
	peer := clientaddr.Conn(r.RemoteAddr)
	if !a.Authorize(r.Context(), a.request(r, peer, o), o, peer.Addr(), func(name string) []string { return r.Header[name] }) {
		panic(http.ErrAbortHandler)
	}
	switch o.Kind {
	case gate.Enters:
		a.admit(w, o)
	case gate.Listens:
		if !a.streams.open(w, r, o) {
			a.answer(w, r, o)
		}
	default:
		a.answer(w, r, o)
	}
}

// Authorize implements [front.Authorizer]. q is the question as read. An outcome that neither enters nor listens
// holds the answer for the server that asks. There is none before the edge can decide.
func (a *authServer) Authorize(
	ctx context.Context, q *gate.Request, o *gate.Outcome, peer netip.Addr, lines func(name string) []string,
) bool {
	if err := a.question(q, peer, lines); err != nil {
		a.refuseFront(o, err)
		return true
	}
	if !a.gate.Decides() {
		a.gate.Count("not_ready")
		return false
	}
	q.Patience, q.SiteApart = a.cfg.Front.Hold, true
	a.gate.Decide(ctx, q, o)
	o.Close = false // the connection is the front's, not the visitor's
	if o.Kind == gate.Answered && a.cfg.Front.Form != formAccel && !gate.Answers(q.Target) {
		// Most fronts take 2xx for an admission, and many rooms' waiting pages and polls have such a status. A front that
		// goes by the decision gives the visitor that of statusHeader.
		a.wait(q, o)
		o.Header = firstOfEach(o.Header)
	}
	return true
}

// refuseFront sets the outcome of an invalid authorization request.
func (a *authServer) refuseFront(o *gate.Outcome, err error) {
	status := http.StatusBadRequest
	switch {
	case errors.Is(err, errUnlisted):
		status = http.StatusForbidden
	case errors.Is(err, errNoPage):
		status = http.StatusNotFound
	}
	o.Refuse("refused_front", err.Error(), status)
	o.Close = false
}

// admit tells the front that the request enters.
func (a *authServer) admit(w http.ResponseWriter, o *gate.Outcome) {
	h := w.Header()
	for _, c := range a.admits {
		h[c.name] = c.lines
	}
	addFields(h, a.gives(nil, o))
	if a.draining.Load() {
		h.Set("Connection", "close")
	}
	w.WriteHeader(http.StatusOK) // of nothing
}

// AppendPermit implements [front.Authorizer]: it appends the header fields of an admission.
func (a *authServer) AppendPermit(dst []gate.Field, o *gate.Outcome) []gate.Field {
	for _, c := range a.admits {
		dst = append(dst, gate.Field{Name: c.name, Value: c.lines[0]})
	}
	return a.gives(dst, o)
}

// gives appends the fields of an admitted request: a proof that the front sends only to the site, and tickets for the
// visitor.
func (a *authServer) gives(dst []gate.Field, o *gate.Outcome) []gate.Field {
	if proof := o.Proof(); proof != "" {
		dst = append(dst, gate.Field{Name: gate.ProofHeader, Value: proof})
	}
	tickets, caching := siteCaching(o)
	if caching != "" {
		dst = append(dst, gate.Field{Name: cachingHeader, Value: caching})
	}
	if a.cfg.Front.Form != formAccel {
		tickets = firstOfEach(tickets)
	}
	return append(dst, tickets...)
}

// siteCaching returns the tickets of an admission, and the Cache-Control that the site's answer needs, "" for its own.
func siteCaching(o *gate.Outcome) (tickets []gate.Field, caching string) {
	tickets = o.Tickets()
	if o.Private || len(tickets) > 0 {
		caching = "private"
	}
	return slices.DeleteFunc(tickets, func(f gate.Field) bool {
		isCaching := f.Name == "Cache-Control"
		if isCaching {
			caching = f.Value
		}
		return isCaching
	}), caching
}

// wait makes sure that no front takes the answer for an admission.
func (a *authServer) wait(q *gate.Request, o *gate.Outcome) {
	if o.Status < 300 {
		if a.cfg.Front.Form == formHeaders {
			o.Header = append(o.Header, gate.Field{Name: statusHeader, Value: strconv.Itoa(o.Status)})
		}
		o.Status = http.StatusTooManyRequests
	}
	if q.Method == http.MethodHead {
		o.Body = o.Body[:0]
	}
}

// firstOfEach returns the first field of each name. Most fronts forward only one Set-Cookie. A request has two
// tickets if two rooms gate it, which takes an unusual spelling of the path. The second ticket is sent with the next
// request; until then its session permit stays unused.
func firstOfEach(fields []gate.Field) []gate.Field {
	out := fields[:0]
	for _, f := range fields {
		if !slices.ContainsFunc(out, func(g gate.Field) bool { return g.Name == f.Name }) {
			out = append(out, f)
		}
	}
	return out
}

var (
	errUnlisted = errors.New("trusted_proxies: must list the clients of this listener")
	errNoPage   = errors.New("nothing is here")
)

// question turns the authorization request q into the visitor's request that it describes. It refuses an ambiguous
// description rather than guess.
func (a *authServer) question(q *gate.Request, peer netip.Addr, lines func(name string) []string) error {
	if !a.proxies.Trusts(peer) {
		return errUnlisted
	}
	from, err := onlyLine(lines, "X-Forwarded-For")
	if err != nil {
		return err
	}
	if _, ok := clientaddr.Forwarded(from[strings.LastIndexByte(from, ',')+1:]); !ok {
		return errors.New("X-Forwarded-For: must end with the visitor's address")
	}
	proto, err := onlyLine(lines, "X-Forwarded-Proto")
	if err != nil {
		return err
	}
	q.Version = "" // the front's version is not the visitor's
	overTLS, ok := clientaddr.ForwardedProto([]string{proto})
	if !ok {
		return errors.New("X-Forwarded-Proto: must be http or https")
	}
	q.Secure = overTLS
	switch form := a.cfg.Front.Form; {
	case form != formAccel && gate.IsOwn(q.Target) && !gate.Answers(q.Target):
		return errNoPage
	case form == formAccel || gate.Answers(q.Target):
		// The visitor's own request, forwarded by the front.
		if form == formHeaders && lines("X-Forwarded-Uri") != nil {
			return errors.New("X-Forwarded-Uri: must not be given with a request that is for the edge itself")
		}
		return agrees(lines, q)
	case form == formGRPC:
		return errors.New("path: must be a call of ext_authz, or the edge's own")
	case form == formPrefix:
		target, ok := strings.CutPrefix(q.Target, a.cfg.Front.Prefix)
		if q.Target = target; !ok || !strings.HasPrefix(target, "/") {
			return errors.New("path: must be that of front_auth.prefix and the visitor's behind it")
		}
		if err := agrees(lines, q); err != nil {
			return err
		}
	default:
		if q.Method, err = onlyLine(lines, "X-Forwarded-Method"); err != nil {
			return err
		}
		if q.Host, err = onlyLine(lines, "X-Forwarded-Host"); err != nil {
			return err
		}
		if q.Target, err = onlyLine(lines, "X-Forwarded-Uri"); err != nil {
			return err
		}
		if !strings.HasPrefix(q.Target, "/") {
			return errors.New("X-Forwarded-Uri: must begin with /")
		}
	}
	if gate.Answers(q.Target) {
		return errors.New("path: the front must pass this request on to the edge itself")
	}
	return nil
}

// onlyLine returns the value of a header with exactly one line.
func onlyLine(lines func(name string) []string, name string) (string, error) {
	all := lines(name)
	if len(all) == 0 || len(all) > 1 {
		return "", fmt.Errorf("%s: must be given once, got %d lines", name, len(all))
	}
	return all[0], nil
}

// agrees refuses a visitor's own request if a header describes a different one: the visitor sent that header and the
// front forwarded it.
func agrees(lines func(name string) []string, q *gate.Request) error {
	for _, is := range [...]gate.Field{
		{Name: "X-Forwarded-Method", Value: q.Method},
		{Name: "X-Forwarded-Host", Value: q.Host},
		{Name: "X-Forwarded-Uri", Value: q.Target},
	} {
		for _, value := range lines(is.Name) {
			if value != is.Value {
				return fmt.Errorf("%s: contradicts the request", is.Name)
			}
		}
	}
	return nil
}

// check answers one authorization request. An invalid call ends with a gRPC code, which Envoy counts as a failure; so
// Envoy needs failure_mode_allow: false.
func (a *authServer) check(w http.ResponseWriter, r *http.Request, o *gate.Outcome) {
	h := w.Header()
	h["Content-Type"], h["Trailer"] = []string{grpcType}, []string{"Grpc-Status", "Grpc-Message"}
	fail := func(code int, err error) {
		h.Set("Grpc-Status", strconv.Itoa(code))
		h.Set("Grpc-Message", err.Error())
	}
	message, err := readMessage(r.Body)
	if err != nil {
		code := grpcInvalidArgument
		if errors.Is(err, errTooLong) {
			code = grpcExhausted
		}
		fail(code, err)
		return
	}
	var asked checked
	if err := asked.read(message); err != nil {
		fail(grpcInvalidArgument, err)
		return
	}
	q, err := a.checkedQuestion(r, &asked, o)
	if err != nil {
		a.refuseFront(o, err)
	} else {
		q.Patience, q.SiteApart = min(a.cfg.Front.Hold, patienceOf(r.Header)), true
		a.gate.Decide(r.Context(), q, o)
	}
	var answer []byte
	switch {
	case err != nil:
		answer = denied(o)
	case o.Kind == gate.Enters:
		answer = allowed(o, asked.header)
	default:
		a.wait(q, o)
		answer = denied(o)
	}
	if a.draining.Load() {
		h.Set("Connection", "close") // GOAWAY in HTTP/2
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(answer))) //nolint:gosec // a waiting page
	if _, err := w.Write(append(frame, answer...)); err != nil {
		a.log.Debug("answer to a front not written", slog.Any("error", err))
	}
	h.Set("Grpc-Status", strconv.Itoa(grpcOK))
}

// patienceOf returns half of the caller's timeout, so that the answer comes in time.
func patienceOf(h http.Header) time.Duration {
	text := h.Get("Grpc-Timeout")
	units := map[byte]time.Duration{
		'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond,
		'n': time.Nanosecond,
	}
	if text == "" || len(text) > 9 || units[text[len(text)-1]] == 0 {
		return time.Hour
	}
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	if err != nil || n > uint64(time.Hour/units[text[len(text)-1]]) {
		return time.Hour
	}
	return max(time.Millisecond, time.Duration(n)*units[text[len(text)-1]]/2) //nolint:gosec // an hour at most
}

// checkedQuestion returns the visitor's request that Envoy asks about. As in the other forms nothing is guessed:
// Envoy's fields name the request, and no header of the visitor may name another.
func (a *authServer) checkedQuestion(r *http.Request, c *checked, o *gate.Outcome) (*gate.Request, error) {
	if !a.proxies.Trusts(clientaddr.Peer(r.RemoteAddr)) {
		return nil, errUnlisted
	}
	client, err := netip.ParseAddr(c.source)
	if err != nil {
		return nil, errors.New("source.address: must be the visitor's address")
	}
	if !strings.HasPrefix(c.path, "/") {
		return nil, errors.New("request.http.path: must begin with /")
	}
	visitors := http.Request{
		Method: c.method, Host: c.host, RequestURI: c.path, Header: c.header, ContentLength: c.size, Body: r.Body,
	}
	q := a.request(&visitors, netip.AddrPort{}, o) // without a version
	q.Client = client.Unmap().WithZone("")
	q.Encodings = nil // the body of an answer is text
	switch c.scheme {
	case "https":
		q.Secure = true
	case "http":
		q.Secure = false
	default:
		return nil, errors.New("request.http.scheme: must be http or https")
	}
	for name, is := range map[string]string{":path": c.path, ":authority": c.host, ":method": c.method} {
		for _, value := range c.header[name] {
			if value != is {
				return nil, fmt.Errorf("%s: contradicts the request", name)
			}
		}
	}
	if gate.Answers(q.Target) {
		return nil, errors.New("path: the front must pass this request on to the edge itself")
	}
	return q, agrees(func(name string) []string { return c.header[name] }, q)
}

// FrontURL returns the URL of authorization requests, empty without one.
func (s *Server) FrontURL() string {
	if s.cfg.Front.Listen == "" {
		return ""
	}
	return "http://" + s.listeners[len(s.listeners)-1].Addr().String()
}

var (
	_ http.Handler     = (*authServer)(nil)
	_ front.Authorizer = (*authServer)(nil)
)
