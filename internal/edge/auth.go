package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/front"
	"vestibule/internal/edge/gate"
	"vestibule/internal/node"
)

// FrontConfig is the decision service: a server in front of the site (nginx, HAProxy,
// Caddy, Envoy) asks the edge about every request and serves the site itself.
type FrontConfig struct {
	Listen   string        `mapstructure:"listen" doc:"host:port at which servers in front of the site ask whether a request may enter, empty for none"`
	Form     string        `mapstructure:"form" doc:"how they ask: headers, accel, prefix or grpc"`
	Prefix   string        `mapstructure:"prefix" doc:"with form prefix: what stands before the visitor's path"`
	Redirect string        `mapstructure:"redirect" doc:"with form accel: X-Accel-Redirect of a request that may enter"`
	Hold     time.Duration `mapstructure:"hold" doc:"how long a question is held for the visitor's turn at most"`
}

// How a front says which request it asks about. A listener speaks one form and falls
// back to no other.
const (
	// formHeaders: X-Forwarded-Method, -Proto, -Host and -Uri name the request;
	// method, path and query of the question mean nothing.
	formHeaders = "headers"

	// formAccel: the question is the visitor's request, without its body. What may
	// enter is told by X-Accel-Redirect, whatever the status.
	formAccel = "accel"

	// formGRPC: the question is a call of Envoy's ext_authz, in which fields name the request.
	formGRPC = "grpc"

	// formPrefix: the same as accel, with a prefix before the path. What may enter is told by
	// the status 200.
	formPrefix = "prefix"
)

// decisionHeader tells a front whether a request enters: admit, or anything else.
const decisionHeader = gate.DecisionHeader

// saysWait is what it tells of whoever does not enter, changed by nobody.
var saysWait = []string{gate.SaysWait}

func (c *FrontConfig) validate(proxies []string) []error {
	if c.Listen == "" {
		return nil
	}
	errs := node.CheckAddr("front_auth.listen", c.Listen)
	if len(proxies) == 0 {
		errs = append(errs, errors.New("trusted_proxies: must name who may ask at front_auth.listen"))
	}
	switch c.Form {
	case formHeaders, formAccel, formPrefix, formGRPC:
	default:
		errs = append(errs, fmt.Errorf("front_auth.form: must be %s, %s, %s or %s, got %q", formHeaders, formAccel, formPrefix, formGRPC, c.Form))
	}
	if p := c.Prefix; !strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/") || strings.HasPrefix(p, "/.well-known") || strings.ContainsAny(p, "?#% ") {
		errs = append(errs, fmt.Errorf("front_auth.prefix: must be a path like /decide, got %q", p))
	}
	if c.Redirect == "" || strings.ContainsFunc(c.Redirect, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		errs = append(errs, fmt.Errorf("front_auth.redirect: must be a named location or a path of nginx, got %q", c.Redirect))
	}
	if c.Hold < time.Millisecond || c.Hold > 25*time.Second {
		errs = append(errs, fmt.Errorf("front_auth.hold: must be 1ms to 25s, got %v", c.Hold))
	}
	return errs
}

// authServer answers what servers in front of the site ask. Only a request that enters is
// answered by 200 (form accel: by X-Accel-Redirect); everything else is for the visitor.
type authServer struct {
	*Server
	admits [2]constant // lines of every answer to a request that enters
}

// constant is a line of a header that is the same in every answer, and changed by nobody.
type constant struct {
	name  string
	lines []string
}

func newAuthServer(s *Server) *authServer {
	a := &authServer{s, [2]constant{{decisionHeader, []string{"admit"}}, {"Cache-Control", []string{"no-store"}}}}
	if s.cfg.Front.Form == formAccel {
		// No Cache-Control: nginx would have it stand in the site's answer.
		a.admits[1] = constant{"X-Accel-Redirect", []string{s.cfg.Front.Redirect}}
	}
	return a
}

func (a *authServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o := a.gate.Begin()
	defer o.End()
	defer a.recovered(w, r, o)
	w.Header()[decisionHeader] = saysWait // until the gate says otherwise
	if a.cfg.Front.Form == formGRPC && r.Method == http.MethodPost && r.RequestURI == checkPath && strings.HasPrefix(r.Header.Get("Content-Type"), grpcType) {
		a.check(w, r, o)
		return
	}
	peer := clientaddr.Peer(r.RemoteAddr)
	a.Authorize(r.Context(), a.request(r, peer, o), o, peer, func(name string) []string { return r.Header[name] })
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

// Authorize implements [front.Authorizer]. q is the question as it was read. An outcome that neither enters nor listens
// holds the answer to the server that asks.
func (a *authServer) Authorize(ctx context.Context, q *gate.Request, o *gate.Outcome, peer netip.Addr, lines func(name string) []string) {
	if err := a.question(q, peer, lines); err != nil {
		a.refuseFront(o, err)
		return
	}
	q.Patience, q.SiteApart = a.cfg.Front.Hold, true
	a.gate.Decide(ctx, q, o)
	o.Close = false // the connection is the front's and not the visitor's
	if o.Kind == gate.Answered && a.cfg.Front.Form != formAccel && !gate.Answers(q.Target) {
		// Most fronts take 2xx for an admission, which the waiting page of many rooms and
		// news for it would be otherwise.
		a.wait(q, o)
		o.Header = firstOfEach(o.Header)
	}
}

// refuseFront is the outcome of what is no question.
func (a *authServer) refuseFront(o *gate.Outcome, err error) {
	status := http.StatusBadRequest
	if errors.Is(err, errUnlisted) {
		status = http.StatusForbidden
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

// AppendPermit implements [front.Authorizer]: the header of what admit tells.
func (a *authServer) AppendPermit(dst []gate.Field, o *gate.Outcome) []gate.Field {
	for _, c := range a.admits {
		dst = append(dst, gate.Field{Name: c.name, Value: c.lines[0]})
	}
	return a.gives(dst, o)
}

// gives appends what a request that enters brings with it: a proof for the front to send to the site,
// and to nobody else, and tickets for the visitor.
func (a *authServer) gives(dst []gate.Field, o *gate.Outcome) []gate.Field {
	if proof := o.Proof(); proof != "" {
		dst = append(dst, gate.Field{Name: gate.ProofHeader, Value: proof})
	}
	tickets := o.Tickets()
	if a.cfg.Front.Form != formAccel {
		tickets = firstOfEach(tickets)
	}
	return append(dst, tickets...)
}

// wait makes an answer one that no front takes for an admission.
func (a *authServer) wait(q *gate.Request, o *gate.Outcome) {
	if o.Status < 300 {
		o.Status = http.StatusTooManyRequests
	}
	if q.Method == http.MethodHead {
		o.Body = o.Body[:0]
	}
}

// firstOfEach returns the fields with the first line of each name. Most fronts hand on one
// Set-Cookie only. A request has two tickets where two rooms gate it, which takes
// an odd spelling of the path; the second is given with the next request, and until then
// its slot counts for nobody's use.
func firstOfEach(fields []gate.Field) []gate.Field {
	out := fields[:0]
	for _, f := range fields {
		if !slices.ContainsFunc(out, func(g gate.Field) bool { return g.Name == f.Name }) {
			out = append(out, f)
		}
	}
	return out
}

var errUnlisted = errors.New("trusted_proxies: must list who asks here")

// question makes of q, what was asked, the visitor's request that it is about. It refuses what
// does not name one request in one way: nothing is guessed.
func (a *authServer) question(q *gate.Request, peer netip.Addr, lines func(name string) []string) error {
	if !a.proxies.Trusts(peer) {
		return errUnlisted
	}
	from, err := onlyLine(lines, "X-Forwarded-For")
	if err != nil {
		return err
	}
	if _, err := netip.ParseAddr(strings.TrimSpace(from[strings.LastIndexByte(from, ',')+1:])); err != nil {
		return errors.New("X-Forwarded-For: must end with the visitor's address")
	}
	proto, err := onlyLine(lines, "X-Forwarded-Proto")
	if err != nil {
		return err
	}
	q.Version = "" // what there is is the front's
	switch strings.ToLower(proto) {
	case "https", "wss":
		q.Secure = true
	case "http", "ws":
		q.Secure = false
	default:
		return errors.New("X-Forwarded-Proto: must be http or https")
	}
	switch form := a.cfg.Front.Form; {
	case form == formAccel || gate.Answers(q.Target):
		// It is the visitor's as it stands, passed on by the front.
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

// onlyLine returns the only line of a header.
func onlyLine(lines func(name string) []string, name string) (string, error) {
	all := lines(name)
	if len(all) == 0 || len(all) > 1 {
		return "", fmt.Errorf("%s: must be given once, got %d lines", name, len(all))
	}
	return all[0], nil
}

// agrees refuses a request that is the visitor's itself and is told otherwise in a
// header: a visitor has sent it, and the front hands it on.
func agrees(lines func(name string) []string, q *gate.Request) error {
	for _, is := range [...]gate.Field{{Name: "X-Forwarded-Method", Value: q.Method}, {Name: "X-Forwarded-Host", Value: q.Host}, {Name: "X-Forwarded-Uri", Value: q.Target}} {
		for _, told := range lines(is.Name) {
			if told != is.Value {
				return fmt.Errorf("%s: contradicts the request", is.Name)
			}
		}
	}
	return nil
}

// FrontURL returns where servers in front of the site ask, empty where none may.
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
