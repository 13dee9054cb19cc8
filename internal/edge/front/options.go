package front

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/http1"
	"vestibule/internal/edge/origin"
)

// Connections counts the connections of visitors and knows which are idle. It is safe for concurrent use.
type Connections interface {
	// Close closes a connection or a listener; further calls do nothing.
	Close(c io.Closer)

	// State implements [http.Server.ConnState]. [Socket] returns the accepted connection of c.
	State(c net.Conn, s http.ConnState)
}

// Progress is a visitor's connection that wants to know whether it makes progress. Any goroutine may use it. Calls of
// Begin and End, and of Await and Resume, come in pairs.
type Progress interface {
	// Begin notes that a request was read up to its body, End that it was answered.
	Begin()
	End()
	// Await notes that the request waits for the visitor to send its body or to take its answer, and whether it holds a
	// connection to a site meanwhile; since is when the visitor began to owe, the [Pace.Lag] before now. Resume notes
	// that the visitor did so.
	Await(atSite bool, since time.Time)
	Resume(atSite bool, since time.Time)
	// Identify notes the visitor's address, and the ID of the visitor's valid session, 0 for none.
	Identify(client netip.Addr, session uint64)
}

// ProgressOf returns the Progress of the connection that a listener accepted. It does nothing for other connections.
func ProgressOf(c net.Conn) Progress {
	if p, ok := Socket(c).(Progress); ok {
		return p
	}
	return noProgress{}
}

type noProgress struct{}

func (noProgress) Begin()                      {}
func (noProgress) End()                        {}
func (noProgress) Await(bool, time.Time)       {}
func (noProgress) Resume(bool, time.Time)      {}
func (noProgress) Identify(netip.Addr, uint64) {}

// Authorizer decides requests that a server in front of the site asks about.
type Authorizer interface {
	// Authorize decides the request that q asks about: the outcome enters or is answered. peer is the address of the
	// server that asks; lines returns the values of a header field of q, nil for none. Authorize reports whether there is
	// an answer: without one the connection is closed, so that the server asks another edge.
	Authorize(ctx context.Context, q *gate.Request, o *gate.Outcome, peer netip.Addr, lines func(name string) []string) bool

	// AppendPermit appends the header of the answer to a request that enters.
	AppendPermit(dst []gate.Field, o *gate.Outcome) []gate.Field
}

// Prefaced is a connection that may hold bytes read from its socket: only Read sees them.
type Prefaced interface{ Prefaced() bool }

// Options configure a front.
type Options struct {
	Gate        *gate.Gate
	Proxies     clientaddr.Proxies // their X-Forwarded-For and X-Forwarded-Proto are believed
	Connections Connections
	Timeouts    Timeouts
	Draining    func() bool // the edge drains: each answer closes its connection
	HandsOver   bool        // net/http reads every request
	Metrics     Metrics
	Log         *slog.Logger

	Pool    *http1.Pool // of connections to origins; closed by Shutdown
	Headers *origin.HeaderRules
	Monitor *origin.Monitor
	Buffers httputil.BufferPool

	// Handler serves the requests over HTTP/2 that the front does not serve by itself. Context is as ConnContext of
	// [http.Server].
	Handler http.Handler
	Context func(ctx context.Context, c net.Conn) context.Context
}

// Timeouts are the timeouts of a front.
type Timeouts struct {
	Header   time.Duration // for the head of a request, and for the visitor to take an answer of the edge
	Idle     time.Duration // for the next request, and for a body to make progress
	Response time.Duration // for an origin to begin its answer
}

// Metrics are the counters of a front.
type Metrics struct {
	Requests   prometheus.Counter // of visitors, read here
	HandedOver prometheus.Counter // connections
	Panics     prometheus.Counter
}

// panicked counts and logs a panic. in is "request" or "connection".
func (o *Options) panicked(in string, p any) { Panicked(o.Log, o.Metrics.Panics, in, p) }

// Panicked counts and logs a panic. in says where: "request" or "connection".
func Panicked(log *slog.Logger, n prometheus.Counter, in string, p any) {
	n.Inc()
	log.Error("panic", slog.String("in", in), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
}
