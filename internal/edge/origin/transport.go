package origin

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/edge/http1"
)

// How long TLS with an origin may take, and how long a connection to one is kept that is idle.
const (
	Handshake = 5 * time.Second
	IdleFor   = 90 * time.Second
)

// MaxIdle returns how many of n connections to origins may be idle, in all and of one site.
func MaxIdle(n int) (all, site int) { return max(1, min(4096, n/2)), min(512, n) }

// Transport is net/http's way to origins. An [http.Transport] keeps a connection for the next
// request before it has looked whether anything lies behind the last answer, so that a request
// which is quick enough gets what a broken or hostile site put there. This one gives a kept
// connection a request only when its reader waits for more.
// It reads no answer that servers may read in more than one way, as [http1.Guard] finds.
type Transport struct {
	*http.Transport
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// RoundTrip is [http.RoundTripper]. The error is [http1.ErrAnswer] if the beginning of the answer cannot be read.
// Informational answers keep only the lines of [InHint], and on a reused connection none: there it may be a late one
// of another visitor.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var answers, reused atomic.Bool
	trace := &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) {
			begin(got, r.Method)
			reused.Store(got.Reused && !multiplexed(got.Conn))
		},
		GotFirstResponseByte: func() { answers.Store(true) },
		Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			maps.DeleteFunc(header, func(name string, _ []string) bool { return reused.Load() || !InHint(name) })
			return nil
		},
	}
	res, err := t.Transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil {
		if answers.Load() {
			err = readFault(err)
		}
		return nil, err
	}
	if err := beginBody(res); err != nil {
		return nil, errors.Join(err, res.Body.Close())
	}
	return res, nil
}

// multiplexed reports whether a connection speaks HTTP/2, whose answers bear numbers.
func multiplexed(c net.Conn) bool {
	t, ok := c.(*tls.Conn)
	return ok && t.ConnectionState().NegotiatedProtocol == "h2"
}

// begin waits until the reader of a kept connection has read all that was there, or has given the connection up: it
// does one or the other at once. Then a request begins.
func begin(got httptrace.GotConnInfo, method string) {
	c, ok := got.Conn.(*keptConn)
	if !ok {
		return
	}
	if got.Reused {
		c.await()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.guard.Asks(method)
}

// keptConn is a connection, above TLS, that knows whether its reader waits for more.
type keptConn struct {
	net.Conn
	mu      sync.Mutex
	changed sync.Cond
	reading bool // or closed
	guard   *http1.Guard
	fault   error // of the next byte
}

func newKeptConn(c net.Conn) *keptConn {
	k := &keptConn{Conn: c, guard: http1.GuardOfAnswers()}
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
	if c.fault != nil {
		return 0, c.fault
	}
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	var good int
	if good, c.fault = c.guard.Next(b[:n]); c.fault != nil &&
		!c.guard.InChunks() { // a fault of chunks net/http finds itself
		if n, err = good, nil; n == 0 {
			return 0, c.fault
		}
	}
	c.reading = err != nil
	return n, err
}

func (c *keptConn) Close() error {
	c.set(true)
	return c.Conn.Close()
}

// NewTransport returns net/http's way to origins. response bounds how long one takes to begin its answer.
func NewTransport(dials *Dials, response time.Duration) Transport {
	idle, ofSite := MaxIdle(dials.Limit())
	return Transport{Transport: &http.Transport{
		Proxy:                 nil, // never one from the environment
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // what the origin sends goes out as it is
		MaxIdleConns:          idle,
		MaxIdleConnsPerHost:   ofSite,
		IdleConnTimeout:       IdleFor,
		TLSHandshakeTimeout:   Handshake,
		ResponseHeaderTimeout: response,
		ExpectContinueTimeout: time.Second,
	}}.By(dials.DialContext)
}

// By returns the transport with another way to open connections.
func (t Transport) By(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Transport {
	t.dial = dial
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newKeptConn(conn), nil
	}
	t.DialTLSContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return t.secure(ctx, conn, addr)
	}
	return t
}

// secure starts TLS on a connection. The result is a [tls.Conn] if the site speaks HTTP/2.
func (t Transport) secure(ctx context.Context, conn net.Conn, addr string) (net.Conn, error) {
	protocols := []string{"http/1.1"}
	if t.ForceAttemptHTTP2 {
		protocols = []string{"h2", "http/1.1"}
	}
	c, err := http1.StartTLS(ctx, conn, t.TLSClientConfig, addr, Handshake, protocols...)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if multiplexed(c) {
		return c, nil
	}
	return newKeptConn(c), nil
}

// Alone returns a transport with a connection for each request.
func (t Transport) Alone() Transport {
	alone := t.http1()
	alone.DisableKeepAlives = true
	return alone
}

// Own returns a transport for one client, whose requests come one after the other. It begins with the connection
// first, if that is not nil, and keeps one connection.
func (t Transport) Own(first net.Conn) Transport {
	own := t.http1()
	// The next request may come before the transport has its connection back: it waits instead of dialling another, on
	// which nobody has logged in.
	own.MaxIdleConns, own.MaxIdleConnsPerHost, own.MaxConnsPerHost = 1, 1, 1
	if first == nil {
		return own
	}
	var used atomic.Bool
	dial := &own.DialContext
	if _, ok := first.(*tls.Conn); ok {
		dial = &own.DialTLSContext
	}
	next := *dial
	*dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if used.CompareAndSwap(false, true) {
			return newKeptConn(first), nil
		}
		return next(ctx, network, addr)
	}
	return own
}

// http1 returns a copy without connections that speaks HTTP/1.1 only: over HTTP/2 requests share a connection.
func (t Transport) http1() Transport {
	own := t.Clone()
	own.ForceAttemptHTTP2, own.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	return Transport{Transport: own}.By(t.dial)
}

// Buffers is a pool of buffers to copy bodies through. It is safe for concurrent use.
type Buffers struct{ free chan []byte }

// NewBuffers returns an empty pool.
func NewBuffers() *Buffers { return &Buffers{make(chan []byte, 256)} }

// Get implements [httputil.BufferPool].
func (b *Buffers) Get() []byte {
	select {
	case buf := <-b.free:
		return buf
	default:
		return make([]byte, 32<<10)
	}
}

// Put implements [httputil.BufferPool].
func (b *Buffers) Put(buf []byte) {
	select {
	case b.free <- buf:
	default:
	}
}
