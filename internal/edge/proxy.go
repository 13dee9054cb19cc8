package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"vestibule/internal/room"
	"vestibule/internal/ticket"
)

// proxy hands requests to origins. Bytes of the path are passed on as they
// came; headers by which a visitor could speak for the edge are not.
type proxy struct {
	*httputil.ReverseProxy
	transport *http.Transport
	headers   *headerRules
}

// forward is what the proxy must know of a request beside the request.
type forward struct {
	origin  *pulse
	rawPath string // path and query as in the request line
	client  netip.Addr
	secure  bool
	cookies []string // tickets that the answer carries, as Set-Cookie
	tickets []string // the same for clients without cookies, as Vestibule-Ticket
	handed  []handed // the same, to be sealed anew
	late    func()   // makes of both what a slow answer brings
	poll    bool     // the waiting page asks for news: nothing is forwarded

	// revoke ends the sessions that let the request in: the origin may ask for it.
	revoke func()
}

// handed is a ticket that an answer brings.
type handed struct {
	rs     *roomSite
	ticket ticket.Ticket
}

// By this header of its answer an origin puts the visitor out: the session ends
// with this request, and its slot goes to the next.
const (
	commandHeader = "Vestibule-Command"
	commandRevoke = "revoke"
)

// setTickets puts the visitor's tickets into the answer's header.
func (f *forward) setTickets(h http.Header) {
	for _, c := range f.cookies {
		h.Add("Set-Cookie", c)
	}
	for _, t := range f.tickets {
		h.Add(ticketHeader, t)
	}
}

type forwardKey struct{}

// newProxy returns a proxy with at most so many connections to origins. It tells what
// became of the requests that it passes on.
func newProxy(t TimeoutConfig, conns int, headers *headerRules, m *metrics, log *slog.Logger, answers, fails func(*pulse)) *proxy {
	dialer := &net.Dialer{Timeout: t.Dial, KeepAlive: 30 * time.Second, Control: refuseAddr}
	transport := &http.Transport{
		Proxy:                 nil, // never one from the environment
		DialContext:           capDials(conns, dialer.DialContext),
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // what the origin sends goes out as it is
		MaxIdleConns:          max(1, min(4096, conns/2)),
		MaxIdleConnsPerHost:   min(512, conns),
		MaxConnsPerHost:       conns, // beyond it requests wait
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: t.Response,
		ExpectContinueTimeout: time.Second,
	}
	p := &proxy{transport: transport, headers: headers}
	p.ReverseProxy = &httputil.ReverseProxy{
		Transport:  transport,
		Rewrite:    p.rewrite,
		BufferPool: newBuffers(),
		ErrorLog:   slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ModifyResponse: func(r *http.Response) error {
			if f, ok := r.Request.Context().Value(forwardKey{}).(*forward); ok {
				answers(f.origin)
			}
			stripSetCookies(r.Header)
			r.Header.Del(ticketHeader)
			command := r.Header.Get(commandHeader)
			r.Header.Del(commandHeader)
			if f, ok := r.Request.Context().Value(forwardKey{}).(*forward); ok && len(f.cookies) > 0 {
				// Here and not before: an informational answer (103) would have
				// taken them along and left none for the final one.
				if f.late != nil {
					f.late()
				}
				f.setTickets(r.Header)
				keepPrivate(r.Header)
			}
			if f, ok := r.Request.Context().Value(forwardKey{}).(*forward); ok && command == commandRevoke {
				f.revoke()
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, context.Canceled) {
				w.WriteHeader(499) // the visitor has gone; nobody reads this
				return
			}
			m.origins.Inc()
			log.Warn("origin does not answer", slog.String("host", r.Host), slog.Any("error", err))
			if f, ok := r.Context().Value(forwardKey{}).(*forward); ok {
				fails(f.origin)
				f.setTickets(w.Header())
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprintln(w, "The site does not answer at the moment. Please try again.")
		},
	}
	return p
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
func (x *proxy) rewrite(p *httputil.ProxyRequest) {
	f, ok := p.In.Context().Value(forwardKey{}).(*forward)
	if !ok {
		panic("proxy: request was not decided") // nothing may reach the origin this way
	}
	out := p.Out
	out.URL.Scheme, out.URL.Host = f.origin.url.Scheme, f.origin.url.Host
	// As it came, not as it was parsed: origins may tell spellings apart.
	path, query, _ := strings.Cut(f.rawPath, "?")
	out.URL.RawQuery = query
	if !strings.HasPrefix(path, "//") {
		out.URL.Opaque = path // sent as it stands
	} else if decoded, err := url.PathUnescape(path); err == nil {
		// Opaque would be taken for host and path here.
		out.URL.Opaque, out.URL.Path, out.URL.RawPath = "", decoded, path
	}
	out.Host = p.In.Host
	// Some origins read trailers as if they were headers, and no site asks its
	// visitors for any.
	out.Trailer = nil
	x.headers.strip(out.Header)
	stripTickets(out.Header)
	if f.client.IsValid() {
		out.Header.Set("X-Forwarded-For", f.client.String())
	}
	out.Header.Set("X-Forwarded-Host", p.In.Host)
	proto := "http"
	if f.secure {
		proto = "https"
	}
	out.Header.Set("X-Forwarded-Proto", proto)
}

// stripTickets takes our tickets out of the Cookie headers: they are the
// visitor's credentials toward the edge, not the origin's business.
func stripTickets(h http.Header) {
	lines := h["Cookie"]
	kept := lines[:0]
	for _, l := range lines {
		if strings.Contains(l, ticket.CookieStem) {
			var parts []string
			for part := range strings.SplitSeq(l, ";") {
				part = strings.TrimSpace(part)
				name, _, _ := strings.Cut(part, "=")
				if part != "" && !ticket.IsCookieName(strings.TrimSpace(name)) {
					parts = append(parts, part)
				}
			}
			l = strings.Join(parts, "; ")
		}
		if l != "" {
			kept = append(kept, l)
		}
	}
	if len(kept) == 0 {
		h.Del("Cookie")
		return
	}
	h["Cookie"] = kept
}

// stripSetCookies takes cookies that are named like our tickets out of an
// origin's answer: whoever can make the origin set a cookie could otherwise
// take a visitor's place away.
func stripSetCookies(h http.Header) {
	lines := h["Set-Cookie"]
	kept := lines[:0]
	for _, l := range lines {
		name, _, _ := strings.Cut(l, "=")
		if !ticket.IsCookieName(strings.TrimSpace(name)) {
			kept = append(kept, l)
		}
	}
	if len(kept) == 0 {
		h.Del("Set-Cookie")
		return
	}
	h["Set-Cookie"] = kept
}

// keepPrivate forbids shared caches to keep an answer, because it carries one
// visitor's ticket. What the origin asks of the browser's own cache stands.
func keepPrivate(h http.Header) {
	kept := []string{"private"}
	for _, line := range h["Cache-Control"] {
		for d := range strings.SplitSeq(line, ",") {
			d = strings.TrimSpace(d)
			name, _, _ := strings.Cut(strings.ToLower(d), "=")
			switch name {
			case "", "public", "private", "s-maxage", "proxy-revalidate":
			default:
				kept = append(kept, d)
			}
		}
	}
	h.Set("Cache-Control", strings.Join(kept, ", "))
	h.Del("Surrogate-Control")
	h.Del("Cdn-Cache-Control")
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
