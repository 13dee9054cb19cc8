package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/origin"
)

// proxy hands requests to origins. Bytes of the path are passed on as they
// came; headers by which a visitor could speak for the edge are not.
type proxy struct {
	transport transport
	trip      http.RoundTripper // transport, by which visitors' requests go
	headers   *origin.HeaderRules
	monitor   *origin.Monitor
	buffers   *buffers

	preflights chan struct{} // those that sites are asked about now

	metrics *metrics
	log     *slog.Logger
	quiet   *log.Logger
}

// How long TLS with an origin may take, and a connection to one is kept that is idle.
const (
	originHandshake = 5 * time.Second
	originIdle      = 90 * time.Second
)

// newDials returns what opens connections to origins, at most so many at a time.
func newDials(t TimeoutConfig, conns int, m *metrics) *originDials {
	dialer := &net.Dialer{Timeout: t.Dial, KeepAlive: 30 * time.Second, Control: refuseAddr}
	return newOriginDials(conns, t.Dial, m, dialer.DialContext)
}

// transport is net/http's way to origins. An [http.Transport] keeps a connection for the next
// request before it has looked whether anything lies behind the last answer, so that a request
// which is quick enough gets what a broken or hostile site put there. This one gives a kept
// connection a request only when its reader waits for more.
type transport struct{ *http.Transport }

// RoundTrip is [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	trace := &httptrace.ClientTrace{GotConn: awaitReader}
	return t.Transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

// awaitReader waits until the reader of a kept connection has read all that was there, or
// has given the connection up: it does one or the other at once.
func awaitReader(got httptrace.GotConnInfo) {
	conn := got.Conn
	if c, ok := conn.(*tls.Conn); ok {
		if c.ConnectionState().NegotiatedProtocol == "h2" {
			return // its answers bear numbers
		}
		conn = c.NetConn()
	}
	if c, ok := conn.(*keptConn); ok && got.Reused {
		c.await()
	}
}

// keptConn is a connection that knows whether its reader waits for more.
type keptConn struct {
	*originConn
	mu      sync.Mutex
	changed sync.Cond
	reading bool // or closed
}

func newKeptConn(c *originConn) *keptConn {
	k := &keptConn{originConn: c}
	k.changed.L = &k.mu
	return k
}

func (c *keptConn) set(reading bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = reading
	c.changed.Broadcast()
}

func (c *keptConn) await() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.reading {
		c.changed.Wait()
	}
}

func (c *keptConn) Read(b []byte) (int, error) {
	c.set(true)
	n, err := c.originConn.Read(b)
	if err == nil {
		c.set(false)
	}
	return n, err
}

func (c *keptConn) Close() error {
	c.set(true)
	return c.originConn.Close()
}

// newTransport returns net/http's way to origins.
func newTransport(t TimeoutConfig, dials *originDials) transport {
	conns := cap(dials.places)
	return transport{&http.Transport{
		Proxy: nil, // never one from the environment
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dials.DialContext(ctx, network, addr)
			if c, ok := conn.(*originConn); ok {
				return newKeptConn(c), err
			}
			return conn, err
		},
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // what the origin sends goes out as it is
		MaxIdleConns:          max(1, min(4096, conns/2)),
		MaxIdleConnsPerHost:   min(512, conns),
		IdleConnTimeout:       originIdle,
		TLSHandshakeTimeout:   originHandshake,
		ResponseHeaderTimeout: t.Response,
		ExpectContinueTimeout: time.Second,
	}}
}

// passage is one request on its way to its origin and back.
type passage struct {
	*proxy
	outcome *gate.Outcome
	client  string       // the visitor's address, as the site is told; empty for none
	body    *patientBody // nil where there is none
}

// clientText is an address as sites are told, empty for none.
func clientText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// serve passes on a request that enters.
func (p *proxy) serve(w http.ResponseWriter, r *http.Request, o *gate.Outcome) {
	if o.Kind != gate.Enters {
		panic("proxy: the request may not enter") // nothing may reach the origin this way
	}
	x := passage{proxy: p, outcome: o, client: clientText(o.Client)}
	x.body, _ = r.Body.(*patientBody)
	rp := httputil.ReverseProxy{
		Transport: p.trip, Rewrite: x.rewrite, ModifyResponse: x.answered, ErrorHandler: x.failed, BufferPool: p.buffers, ErrorLog: p.quiet,
	}
	rp.ServeHTTP(w, r)
}

// gives returns the tickets that the visitor gets with the site's answer, and whether that
// is for nobody else.
func (x passage) gives() (tickets []gate.Field, private bool) {
	tickets = x.outcome.Tickets()
	return tickets, len(tickets) > 0 || x.outcome.Private
}

// answered makes the visitor's answer out of the origin's.
func (x passage) answered(r *http.Response) error {
	x.monitor.Answered(x.outcome.Origin)
	own := r.Header.Get(gate.CommandHeader) == gate.CommandRevoke
	revoke := own || r.Header.Get(gate.HostedCommandHeader) == gate.CommandRevoke
	// Here and not before: an informational answer (103) would have taken them along
	// and left none for the final one.
	tickets, private := x.gives()
	origin.StripAnswer(r.Header, private)
	addFields(r.Header, tickets)
	if revoke {
		x.outcome.Revoke(own)
	}
	return nil
}

// failed answers in place of an origin that does not.
func (x passage) failed(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) || (x.body != nil && x.body.broken.Load()) {
		w.WriteHeader(499) // the visitor has gone or sent half of it; nobody reads this
		return
	}
	status, header, text := x.failure(r.Host, err)
	addFields(w.Header(), header)
	w.WriteHeader(status)
	fmt.Fprint(w, text)
}

// failure takes note of a request that got no answer, and returns what the visitor is
// answered instead.
func (x passage) failure(host string, err error) (status int, header []gate.Field, text string) {
	header = append(x.outcome.Tickets(), gate.Field{Name: "Content-Type", Value: "text/plain; charset=utf-8"}, gate.Field{Name: "Cache-Control", Value: "no-store"})
	if errors.Is(err, errOriginsFull) { // says nothing about the origin
		x.metrics.originsFull.Inc()
		return http.StatusServiceUnavailable, append(header, gate.Field{Name: "Retry-After", Value: "5"}), "Too many people are here at the moment. Please try again.\n"
	}
	x.metrics.origins.Inc()
	x.log.Warn("origin does not answer", slog.String("host", host), slog.Any("error", err))
	x.monitor.Unanswered(x.outcome.Origin)
	return http.StatusBadGateway, header, "The site does not answer at the moment. Please try again.\n"
}

// refuseAddr stops connections to addresses that no origin has: whatever a
// name resolves to, the metadata service of a cloud is not a site.
func refuseAddr(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("origin address %q: %w", address, err)
	}
	if room.RefusedAddr(ap.Addr()) {
		return fmt.Errorf("origin address %s is refused", ap.Addr())
	}
	return nil
}

// rewrite makes the origin's request out of the visitor's. ReverseProxy has
// already removed hop-by-hop headers, those that Connection named, and
// X-Forwarded-For, -Host and -Proto.
func (x passage) rewrite(p *httputil.ProxyRequest) {
	out, to := p.Out, x.outcome.Origin.URL
	out.URL.Scheme, out.URL.Host = to.Scheme, to.Host
	// As it came, not as it was parsed: origins may tell spellings apart.
	path, query, _ := strings.Cut(rawTarget(p.In), "?")
	out.URL.RawQuery = query
	setPath(out.URL, path)
	out.Host = p.In.Host
	// Some origins read trailers as if they were headers, and no site asks its
	// visitors for any.
	out.Trailer = nil
	x.headers.Strip(out.Header)
	for _, f := range x.tells(nil, p.In.Host) {
		out.Header[f.Name] = []string{f.Value}
	}
}

// tells returns, behind dst, what the edge itself tells the site about a request; a
// visitor's own lines of these names were taken out.
func (x passage) tells(dst []gate.Field, host string) []gate.Field {
	if proof := x.outcome.Proof(); proof != "" {
		dst = append(dst, gate.Field{Name: gate.ProofHeader, Value: proof})
	}
	if x.client != "" {
		dst = append(dst, gate.Field{Name: "X-Forwarded-For", Value: x.client})
	}
	proto := "http"
	if x.outcome.Secure {
		proto = "https"
	}
	return append(dst, gate.Field{Name: "X-Forwarded-Host", Value: host}, gate.Field{Name: "X-Forwarded-Proto", Value: proto})
}

// setPath has u name a path in the spelling in which it came.
func setPath(u *url.URL, path string) {
	if !strings.HasPrefix(path, "//") {
		u.Opaque = path // sent as it stands
	} else if decoded, err := url.PathUnescape(path); err == nil {
		// Opaque would be taken for host and path here.
		u.Opaque, u.Path, u.RawPath = "", decoded, path
	}
}

// Preflights are answered in front of the line, so what they may ask of a site is bounded.
const (
	preflightsAtOnce = 32
	preflightTime    = 5 * time.Second
)

// preflight asks the site which pages of other origins may send a request. The site is
// told path, origin and what is asked for, and its answer is told without anything
// but CORS headers: nobody has been let in (decision 62). Its silence says
// nothing about the site: a visitor could choose a path that is slow. o becomes what the visitor is answered.
func (p *proxy) preflight(r *http.Request, o *gate.Outcome) {
	select {
	case p.preflights <- struct{}{}:
		defer func() { <-p.preflights }()
	default:
		o.Header = append(o.Header, gate.Field{Name: "Retry-After", Value: "2"})
		o.Refuse("preflight_refused", "Too many preflights at the moment.", http.StatusServiceUnavailable)
		return
	}
	headers, err := p.askPreflight(r, o)
	if err != nil {
		p.log.Debug("preflight not answered by the site", slog.String("host", r.Host), slog.Any("error", err))
		o.Refuse("preflight_refused", "The site does not allow this.", http.StatusForbidden)
		return
	}
	o.Kind, o.Status, o.Header = gate.Answered, http.StatusNoContent, append(o.Header, headers...)
}

// askPreflight returns the CORS headers of the site's answer; an error where it is none of
// success.
func (p *proxy) askPreflight(r *http.Request, o *gate.Outcome) ([]gate.Field, error) {
	ctx, cancel := context.WithTimeout(r.Context(), preflightTime)
	defer cancel()
	to := o.Origin.URL
	out := (&http.Request{
		Method: http.MethodOptions, URL: &url.URL{Scheme: to.Scheme, Host: to.Host}, Host: r.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"User-Agent": {"vestibule-preflight"}, "X-Forwarded-Host": {r.Host}, "X-Forwarded-Proto": {"http"}},
	}).WithContext(ctx)
	if o.Secure {
		out.Header.Set("X-Forwarded-Proto", "https")
	}
	path, _, _ := strings.Cut(rawTarget(r), "?")
	setPath(out.URL, path)
	for _, name := range [...]string{"Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers"} {
		if v := r.Header.Get(name); v != "" {
			out.Header.Set(name, v)
		}
	}
	res, err := p.trip.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return nil, fmt.Errorf("status %d", res.StatusCode)
	}
	fields := []gate.Field{{Name: "Cache-Control", Value: "no-store"}}
	for name, values := range res.Header {
		if name != "Vary" && !strings.HasPrefix(name, "Access-Control-") {
			continue
		}
		for _, v := range values {
			fields = append(fields, gate.Field{Name: name, Value: v})
		}
	}
	return fields, nil
}

// buffers is the proxy's pool of copy buffers.
type buffers struct{ free chan []byte }

func newBuffers() *buffers { return &buffers{make(chan []byte, 256)} }

func (b *buffers) Get() []byte {
	select {
	case buf := <-b.free:
		return buf
	default:
		return make([]byte, 32<<10)
	}
}

func (b *buffers) Put(buf []byte) {
	select {
	case b.free <- buf:
	default:
	}
}
