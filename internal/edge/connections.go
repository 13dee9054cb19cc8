package edge

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/front"
	"vestibule/internal/edge/gate"
)

// Every connection takes a file descriptor. A process without free descriptors can accept neither visitors nor health
// checks, so the limit is divided at the start and each use keeps within its share.

// files are the shares of one edge, in file descriptors.
type files struct {
	limit    int // of the process
	visitors int // connections of visitors
	streams  int // of those, event streams
	origins  int // connections to origins
}

// keepFree descriptors stay reserved for NATS, the listeners, health and metrics, the files of data_dir, the log, and
// answers to refused connections.
const keepFree = 64

// shareFiles divides limit file descriptors. The configuration may lower the shares of connections and streams (0
// connections: the whole share).
func shareFiles(limit, connections, streams int) files {
	rest := max(limit-keepFree, limit/2)
	f := files{limit: limit, visitors: max(4, rest*2/3)}
	f.origins = max(2, rest-f.visitors)
	if connections > 0 {
		f.visitors = min(f.visitors, connections)
	}
	f.streams = min(streams, f.visitors*3/4) // leave room for page requests and visitors without a stream
	return f
}

// logLimit logs if the file limit, rather than the configuration, bounds connections or event streams.
func (f *files) logLimit(log *slog.Logger, cfg *Config) {
	asked := shareFiles(1<<30, cfg.Connections.Total, cfg.Events.Total)
	if f.visitors >= cfg.Connections.Total && f.streams >= asked.streams {
		return
	}
	log.Warn("few files may be open: connections and event streams are capped below what the configuration asks for; raise the limit of open files (ulimit -n)",
		slog.Int("limit", f.limit), slog.Int("connections", f.visitors), slog.Int("event_streams", f.streams),
		slog.Int("connections_to_origins", f.origins), slog.Int("event_streams_asked_for", asked.streams))
}

// connections are the visitors' connections, up to a cap. At the cap the longest idle one is closed for the next; if
// none is idle, the next is refused and closed. It is safe for concurrent use.
type connections struct {
	max     int
	sites   int // connections to sites
	metrics *metrics
	log     *slog.Logger

	fresh atomic.Int64 // connections without a byte read yet

	// A rush of new connections contends for this lock, and so slows the accepting of all: a connection takes it as it
	// comes, rests, and closes only.
	mu   sync.Mutex
	open int
	idle idleConns
	near [prefixKinds]map[netip.Prefix]*neighbours

	sessions map[uint64]int // connections of each session, by its ID

	shedding
	unaccepted fleettime.Minutely[time.Time] // lines about failures to accept a connection
	searches   [numWants][2]lastSearch       // by whether none was free

	freed    chan struct{} // a place may be free
	refusals chan struct{} // one place for each refusal in progress
	refusing sync.WaitGroup
}

func newConnections(limit, sites int, m *metrics, log *slog.Logger) *connections {
	m.connectionsMax.Set(float64(limit))
	x := &connections{
		max: limit, sites: sites, metrics: m, log: log, sessions: map[uint64]int{},
		freed: make(chan struct{}, 1), refusals: make(chan struct{}, keepFree/2),
	}
	for kind := range x.near {
		x.near[kind] = map[netip.Prefix]*neighbours{}
	}
	return x
}

// noteUnaccepted notes that a connection could not be accepted, mostly for want of a file descriptor.
func (x *connections) noteUnaccepted(now time.Time, err error) {
	x.mu.Lock()
	failures, due := x.unaccepted.Count(now, 1)
	x.mu.Unlock()
	if due {
		x.log.Error("no connection is accepted for a moment: raise the limit of open files (LimitNOFILE), or lower connections.total",
			slog.Any("error", err), slog.Int("failures", failures))
	}
}

// visitorConn is a visitor's connection.
type visitorConn struct {
	*net.TCPConn
	of      *connections
	direct  bool        // the peer is the visitor
	preface *preface    // a PROXY header, nil if none is expected
	fresh   atomic.Bool // no byte was read yet
	closed  bool        // under of.mu

	debt    debt
	client  atomic.Pointer[netip.Addr] // the visitor's address; nil before it is known
	near    [prefixKinds]*neighbours   // nil while the address is unknown; under of.mu
	at      [prefixKinds]int           // index in near; under of.mu
	session atomic.Uint64              // ID of the session of the last request, 0 for none; written under of.mu

	rests         atomic.Bool  // it is in the idle list; written under of.mu
	before, after *visitorConn // in the idle list; under of.mu
}

// RemoteAddr returns the visitor's address: the peer's, or the one in a listed peer's PROXY header.
func (c *visitorConn) RemoteAddr() net.Addr {
	if c.preface != nil {
		c.preface.read(c.TCPConn)
		if c.preface.from != nil {
			if c.client.Load() == nil {
				c.of.assign(c, clientaddr.Peer(c.preface.from.String()))
			}
			return c.preface.from
		}
	}
	return c.TCPConn.RemoteAddr()
}

// Prefaced implements [front.Prefaced]: bytes after the PROXY header may have been read.
func (c *visitorConn) Prefaced() bool { return c.preface != nil }

// Read reads from the visitor.
func (c *visitorConn) Read(b []byte) (int, error) {
	n, err := c.read(b)
	if n > 0 && c.debt.tunnel.Load() {
		c.debt.since.Store(time.Now().UnixMicro())
	}
	return n, err
}

func (c *visitorConn) read(b []byte) (int, error) {
	p := c.preface
	if p == nil {
		return c.TCPConn.Read(b)
	}
	p.read(c.TCPConn)
	if p.err != nil {
		return 0, p.err
	}
	if len(p.rest) > 0 {
		n := copy(b, p.rest)
		p.rest = p.rest[n:]
		return n, nil
	}
	return c.TCPConn.Read(b)
}

// idleConns is a list of the idle connections.
type idleConns struct {
	longest, newest *visitorConn
	n               int
}

func (l *idleConns) add(c *visitorConn) {
	c.before = l.newest
	c.rests.Store(true)
	if l.newest != nil {
		l.newest.after = c
	} else {
		l.longest = c
	}
	l.newest = c
	l.n++
}

// remove removes c if it is in the list.
func (l *idleConns) remove(c *visitorConn) {
	if !c.rests.Load() {
		return
	}
	if c.before != nil {
		c.before.after = c.after
	} else {
		l.longest = c.after
	}
	if c.after != nil {
		c.after.before = c.before
	} else {
		l.newest = c.before
	}
	c.before, c.after = nil, nil
	c.rests.Store(false)
	l.n--
}

// Close frees the place of the connection; it may be called again.
func (c *visitorConn) Close() error {
	c.of.mu.Lock()
	c.of.free(c)
	c.of.mu.Unlock()
	return c.TCPConn.Close()
}

// free frees the place of a connection, once. The caller holds the lock.
func (x *connections) free(c *visitorConn) {
	if c.closed {
		return
	}
	c.closed = true
	x.open--
	x.metrics.connections.Dec()
	x.idle.remove(c)
	x.known(c)
	x.unassign(c)
	x.part(c)
	select {
	case x.freed <- struct{}{}:
	default:
	}
}

// known removes a connection from the fresh ones.
func (x *connections) known(c *visitorConn) {
	if c.fresh.CompareAndSwap(true, false) {
		x.fresh.Add(-1)
	}
}

// settle waits until something was read from every connection, for settleFor at most. During its shutdown net/http
// closes fresh connections without an answer.
func (x *connections) settle() {
	over := time.NewTimer(settleFor)
	defer over.Stop()
	tick := time.NewTicker(settleFor / 200)
	defer tick.Stop()
	for {
		if x.fresh.Load() == 0 {
			return
		}
		select {
		case <-over.C:
			return
		case <-tick.C:
		}
	}
}

const settleFor = time.Second

// acquire returns the connection with a place, nil if none is free. direct means that the peer is the visitor, and not
// a proxy. At the limit the longest idle connection is closed for the next one, or one without progress.
func (x *connections) acquire(c *net.TCPConn, direct bool) *visitorConn {
	v := &visitorConn{TCPConn: c, of: x, direct: direct}
	v.fresh.Store(true)
	v.debt.since.Store(time.Now().UnixMicro())
	peer := netip.Addr{} // unknown behind a proxy, until it says
	if direct {
		peer = clientaddr.Peer(c.RemoteAddr().String())
	}
	for {
		x.mu.Lock()
		open, oldest := x.open, x.idle.longest
		if open < x.max {
			x.open++
			x.fresh.Add(1)
			if direct {
				x.place(v, peer)
			}
			x.mu.Unlock()
			x.metrics.connections.Inc()
			if (open+1)*100 >= x.max*shedAt {
				x.shed(wantConnections, false)
			}
			return v
		}
		if oldest != nil {
			x.free(oldest)
		}
		x.mu.Unlock()
		switch {
		case oldest != nil:
			x.Close(oldest.TCPConn)
		case x.shed(wantConnections, true) == 0 && !x.await():
			return nil
		}
	}
}

func (x *connections) Close(c io.Closer) {
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		x.log.Debug("close", slog.Any("error", err))
	}
}

// State implements [front.Connections]: it tracks the idle connections.
func (x *connections) State(conn net.Conn, s http.ConnState) {
	c, ok := front.Socket(conn).(*visitorConn)
	if !ok {
		return
	}
	if s == http.StateActive { // a head begins: until now the visitor owed nothing
		c.debt.since.Store(time.Now().UnixMicro())
	}
	if s != http.StateNew {
		x.known(c)
	}
	if s != http.StateIdle && !c.rests.Load() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.idle.remove(c)
	if s == http.StateIdle && !c.closed {
		x.idle.add(c)
	}
}

// refused answers a connection over the limit. Browsers retry by themselves.
const refused = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 61\r\n" +
	"Retry-After: 5\r\nRefresh: 5\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n" +
	"Too many people are here at the moment. Please wait a moment."

// unlisted answers a peer of front_auth.listen that trusted_proxies does not list.
const unlisted = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 57\r\n" +
	gate.DecisionHeader + ": " + gate.SaysAnswer + "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n" +
	"trusted_proxies: must list the clients of this listener.\n"

// refuse answers a connection without a place, if there is time, and closes it.
func (x *connections) refuse(c *net.TCPConn, answer string) {
	select {
	case x.refusals <- struct{}{}:
	default:
		x.Close(c)
		return
	}
	x.refusing.Go(func() {
		defer func() { <-x.refusals }()
		defer x.Close(c)
		if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return
		}
		// Read the pending bytes: otherwise closing would reset the connection and lose the answer.
		var buf [4 << 10]byte
		if _, err := c.Read(buf[:]); err == nil {
			if _, err := c.Write([]byte(answer)); err != nil {
				x.log.Debug("refusal not written", slog.Any("error", err))
			}
		}
	})
}
