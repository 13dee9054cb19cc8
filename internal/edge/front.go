package edge

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"vestibule/internal/gate"
	"vestibule/internal/mutant"
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

// Lines of headers that are the same in every answer, and changed by nobody.
var saysAdmit, saysWait, nothing, noStore = []string{"admit"}, []string{gate.SaysWait}, []string{"0"}, []string{"no-store"}

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

// front answers what servers in front of the site ask. Only a request that enters is
// answered by 200 (form accel: by X-Accel-Redirect); everything else is for the visitor.
type front struct{ *Server }

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o := f.gate.Begin()
	defer o.End()
	defer f.recovered(w, r, o)
	w.Header()[decisionHeader] = saysWait // until the gate says otherwise
	if f.cfg.Front.Form == formGRPC && r.Method == http.MethodPost && r.RequestURI == checkPath && strings.HasPrefix(first(r.Header["Content-Type"]), grpcType) {
		f.check(w, r, o)
		return
	}
	q, err := f.question(r)
	if err != nil {
		f.refuseFront(o, err)
		f.answer(w, r, o)
		return
	}
	q.Patience, q.SiteApart = f.cfg.Front.Hold, true
	f.gate.Decide(r.Context(), q, o)
	o.Close = false
	switch {
	case o.Kind == gate.Enters:
		f.admit(w, o)
	case o.Kind == gate.Listens:
		f.stream(w, r, o)
	case f.cfg.Front.Form == formAccel || gate.Answers(q.Target):
		f.answer(w, r, o)
	default:
		f.turnAway(w, r, q, o)
	}
}

// refuseFront is the outcome of what is no question.
func (f *front) refuseFront(o *gate.Outcome, err error) {
	status := http.StatusBadRequest
	if errors.Is(err, errUnlisted) {
		status = http.StatusForbidden
	}
	o.Refuse("refused_front", err.Error(), status)
	o.Close = false // the connection is the front's and not the visitor's
}

// admit tells the front that the request enters.
func (f *front) admit(w http.ResponseWriter, o *gate.Outcome) {
	h := w.Header()
	h[decisionHeader], h["Content-Length"] = saysAdmit, nothing
	if f.draining.Load() {
		h.Set("Connection", "close")
	}
	tickets := o.Tickets()
	if f.cfg.Front.Form == formAccel {
		// No Cache-Control: nginx would have it stand in the site's answer.
		h["X-Accel-Redirect"] = []string{f.cfg.Front.Redirect}
	} else {
		h["Cache-Control"] = noStore
		tickets = firstOfEach(tickets)
	}
	if proof := o.Proof(); proof != "" {
		h[gate.ProofHeader] = []string{proof} // for the front to send to the site, and to nobody else
	}
	addFields(h, tickets)
	w.WriteHeader(http.StatusOK)
}

// turnAway answers a visitor through a front that takes 2xx for an admission, which the
// waiting page of many rooms and news for it would be otherwise.
func (f *front) turnAway(w http.ResponseWriter, r *http.Request, q *gate.Request, o *gate.Outcome) {
	f.wait(q, o)
	o.Header = firstOfEach(o.Header)
	f.answer(w, r, o)
}

// wait makes an answer one that no front takes for an admission.
func (f *front) wait(q *gate.Request, o *gate.Outcome) {
	if o.Status < 300 && !mutant.On(mutant.FrontWaitsAsItIs) {
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

// question returns the visitor's request that a front asks about. It refuses what does
// not name one request in one way: nothing is guessed.
func (f *front) question(r *http.Request) (*gate.Request, error) {
	if !f.proxies.Trusts(r.RemoteAddr) {
		return nil, errUnlisted
	}
	from, err := onlyLine(r.Header, "X-Forwarded-For")
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(strings.TrimSpace(from[strings.LastIndexByte(from, ',')+1:])); err != nil {
		return nil, errors.New("X-Forwarded-For: must end with the visitor's address")
	}
	proto, err := onlyLine(r.Header, "X-Forwarded-Proto")
	if err != nil {
		return nil, err
	}
	q := f.request(r)
	q.Version = "" // r's is the front's
	switch strings.ToLower(proto) {
	case "https", "wss":
		q.Secure = true
	case "http", "ws":
		q.Secure = false
	default:
		return nil, errors.New("X-Forwarded-Proto: must be http or https")
	}
	switch form := f.cfg.Front.Form; {
	case form == formAccel || gate.Answers(q.Target):
		// It is the visitor's as it stands, passed on by the front.
		if form == formHeaders && r.Header["X-Forwarded-Uri"] != nil {
			return nil, errors.New("X-Forwarded-Uri: must not be given with a request that is for the edge itself")
		}
		return q, agrees(r, q)
	case form == formGRPC:
		return nil, errors.New("path: must be a call of ext_authz, or the edge's own")
	case form == formPrefix:
		target, ok := strings.CutPrefix(q.Target, f.cfg.Front.Prefix)
		if q.Target = target; !ok || !strings.HasPrefix(target, "/") {
			return nil, errors.New("path: must be that of front_auth.prefix and the visitor's behind it")
		}
		if err := agrees(r, q); err != nil {
			return nil, err
		}
	default:
		if q.Method, err = onlyLine(r.Header, "X-Forwarded-Method"); err != nil {
			return nil, err
		}
		if q.Host, err = onlyLine(r.Header, "X-Forwarded-Host"); err != nil {
			return nil, err
		}
		if q.Target, err = onlyLine(r.Header, "X-Forwarded-Uri"); err != nil {
			return nil, err
		}
		if !strings.HasPrefix(q.Target, "/") {
			return nil, errors.New("X-Forwarded-Uri: must begin with /")
		}
	}
	if gate.Answers(q.Target) {
		return nil, errors.New("path: the front must pass this request on to the edge itself")
	}
	return q, nil
}

// onlyLine returns the only line of a header.
func onlyLine(h http.Header, name string) (string, error) {
	lines := h[name]
	if len(lines) == 0 || len(lines) > 1 && !mutant.On(mutant.FrontTakesFirst) {
		return "", fmt.Errorf("%s: must be given once, got %d lines", name, len(lines))
	}
	return lines[0], nil
}

// agrees refuses a request that is the visitor's itself and is told otherwise in a
// header: a visitor has sent it, and the front hands it on.
func agrees(r *http.Request, q *gate.Request) error {
	for _, is := range [...]gate.Field{{Name: "X-Forwarded-Method", Value: q.Method}, {Name: "X-Forwarded-Host", Value: q.Host}, {Name: "X-Forwarded-Uri", Value: q.Target}} {
		for _, told := range r.Header[is.Name] {
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

var _ http.Handler = (*front)(nil)
