package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/http1"
	"vestibule/internal/edge/origin"
)

// proxy forwards requests to origins. It keeps the bytes of the path and removes headers that would let a visitor
// speak for the edge.
type proxy struct {
	transport origin.Transport
	trip      http.RoundTripper // transport, for visitors' requests
	alone     http.RoundTripper // the same, with a connection for each request
	proxies   clientaddr.Proxies
	headers   *origin.HeaderRules
	monitor   *origin.Monitor
	buffers   *origin.Buffers
	quiet     *log.Logger
}

// upstreamRequest is one request on its way to its origin and back.
type upstreamRequest struct {
	*proxy
	outcome *gate.Outcome
	client  *http.Request // as received
	body    *patientBody  // nil without a body
	asked   time.Time     // when the request was sent
}

// serve forwards an admitted request.
func (p *proxy) serve(w http.ResponseWriter, r *http.Request, o *gate.Outcome) {
	o.MustGo(gate.Enters, rawTarget(r))
	x := upstreamRequest{proxy: p, outcome: o, client: r, asked: time.Now()}
	x.body, _ = r.Body.(*patientBody)
	way, err := p.way(r, o.Alone)
	if err != nil {
		x.failed(w, r, err)
		return
	}
	rp := httputil.ReverseProxy{
		Transport: way, Rewrite: x.rewrite, ModifyResponse: x.answered, ErrorHandler: x.failed, BufferPool: p.buffers,
		ErrorLog: p.quiet,
	}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) { // the answer broke off
			http.NewResponseController(w).Flush() // the visitor gets what came before the fault
		}
		panic(p)
	}()
	rp.ServeHTTP(w, r)
}

// siteBody is the body of a site's answer, of which it records a fault.
type siteBody struct {
	io.ReadCloser
	of    upstreamRequest
	asked *http.Request
}

func (b *siteBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && b.asked.Context().Err() == nil {
		b.of.monitor.BrokeOff(b.of.outcome.Origin, b.asked.Host, err)
	}
	return n, err
}

// answered turns the origin's answer into the visitor's. After an error ReverseProxy closes the connection to the
// origin; by itself it would keep that of an upgrade that nobody asked for.
func (x upstreamRequest) answered(r *http.Response) error {
	switch {
	case r.StatusCode < 100 || r.StatusCode > 599: // net/http reads any three digits
		return fmt.Errorf("%w: status %03d", http1.ErrAnswer, r.StatusCode)
	case r.StatusCode == http.StatusSwitchingProtocols &&
		!strings.EqualFold(r.Header.Get("Upgrade"), r.Request.Header.Get("Upgrade")):
		return fmt.Errorf("%w: an upgrade to %q, asked for %q", http1.ErrAnswer, r.Header.Get("Upgrade"),
			r.Request.Header.Get("Upgrade"))
	}
	if err := x.bindOffered(x.client, r); err != nil {
		return err
	}
	if r.StatusCode == http.StatusSwitchingProtocols {
		upgraded(r.Request)
		if c, ok := progressOf(r.Request).(*visitorConn); ok {
			c.tunnels()
		}
	}
	x.monitor.Answered(x.outcome.Origin)
	x.outcome.Forwarded(r.StatusCode, time.Since(x.asked))
	var commands gate.SiteCommands
	for _, name := range [...]string{gate.CommandHeader, gate.HostedCommandHeader, gate.ClearHeader} {
		for _, value := range r.Header[name] {
			commands.Read(name, value)
		}
	}
	// Not before: an informational answer (103) would have taken them, and left none for the final one.
	tickets, private := x.outcome.ForVisitor()
	origin.StripAnswer(r.Header, private)
	if x.outcome.HSTS != "" {
		r.Header.Set(gate.HSTSHeader, x.outcome.HSTS)
	}
	if commands.KeepsTickets() {
		addFields(r.Header, tickets)
	}
	x.outcome.Obey(&commands)
	if r.StatusCode != http.StatusSwitchingProtocols && r.Body != http.NoBody {
		r.Body = &siteBody{r.Body, x, r.Request}
	}
	return nil
}

// failed answers for an origin that failed.
func (x upstreamRequest) failed(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) || (x.body != nil && x.body.broken.Load()) {
		w.WriteHeader(499) // the visitor left or sent half of a body; nobody reads this
		return
	}
	x.outcome.Forwarded(0, 0)
	f := x.monitor.Failed(x.outcome.Origin, r.Host, err)
	addFields(w.Header(), x.outcome.FailureHeader(r.Method, &f))
	w.WriteHeader(f.Status)
	fmt.Fprint(w, f.Text)
}

// rewrite turns the visitor's request into the origin's. ReverseProxy has already removed hop-by-hop headers, those
// that Connection named, and X-Forwarded-For, -Host and -Proto.
func (x upstreamRequest) rewrite(p *httputil.ProxyRequest) {
	out, to := p.Out, x.outcome.Origin.URL
	out.URL.Scheme, out.URL.Host = to.Scheme, to.Host
	// As received, not as parsed: origins may tell spellings apart.
	path, query, _ := strings.Cut(rawTarget(p.In), "?")
	out.URL.RawQuery = query
	setPath(out.URL, path)
	out.Host = p.In.Host
	// Some origins read trailers as headers, and no site asks its visitors for any.
	out.Trailer = nil
	delete(out.Header, "Te")
	delete(out.Header, "Http2-Settings")
	x.headers.Strip(out.Header)
	for _, f := range x.outcome.AppendForSite(nil, clientaddr.Text(x.outcome.Client), p.In.Host) {
		out.Header[f.Name] = []string{f.Value}
	}
}

// setPath sets a path of u in its original spelling.
func setPath(u *url.URL, path string) {
	if !strings.HasPrefix(path, "//") {
		u.Opaque = path // sent unchanged
	} else if decoded, err := url.PathUnescape(path); err == nil {
		// Opaque would be taken for host and path here.
		u.Opaque, u.Path, u.RawPath = "", decoded, path
	}
}
