package front

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/http1"
	"vestibule/internal/edge/origin"
)

// Connections keeps account of the connections of visitors. It is safe for concurrent use.
type Connections interface {
	// Close closes a connection or a listener, once or again.
	Close(c io.Closer)

	// State is [http.Server.ConnState]. The connection is one that a listener accepted, under TLS or handed over: see
	// [Socket].
	State(c net.Conn, s http.ConnState)
}

// Authorizer decides requests that a server in front of the site asks about.
type Authorizer interface {
	// Authorize decides the request that q asks about. The outcome enters or is answered, and never a stream. peer is the
	// server that asks; lines returns the lines of a header of its question.
	Authorize(ctx context.Context, q *gate.Request, o *gate.Outcome, peer netip.Addr, lines func(name string) []string)

	// AppendPermit appends the header of the answer to a request that enters.
	AppendPermit(dst []gate.Field, o *gate.Outcome) []gate.Field
}

// Prefaced is a connection whose Read may return bytes that were read from the socket before.
type Prefaced interface{ Prefaced() bool }

// Options are what a front is made of.
type Options struct {
	Gate        *gate.Gate
	Proxies     clientaddr.Proxies // whose X-Forwarded-For and X-Forwarded-Proto are believed
	Connections Connections
	Timeouts    Timeouts
	Draining    func() bool // the edge drains: each answer ends its connection
	Metrics     Metrics
	Log         *slog.Logger

	Pool    *http1.Pool // of connections to origins; closed by Shutdown
	Headers *origin.HeaderRules
	Monitor *origin.Monitor
	Buffers httputil.BufferPool

	// Patient returns a writer that bounds the time in which the visitor takes nothing of an answer of net/http.
	Patient func(w http.ResponseWriter, r *http.Request) http.ResponseWriter
}

// Timeouts bound how long a front waits.
type Timeouts struct {
	Header   time.Duration // for the head of a request, and for the visitor to take an answer of the edge
	Idle     time.Duration // for the next request, and for a body to make progress
	Response time.Duration // for an origin to begin its answer
}

// Metrics are what a front counts.
type Metrics struct {
	Requests   prometheus.Counter // of visitors, read here
	HandedOver prometheus.Counter // connections
	Panics     prometheus.Counter
}
