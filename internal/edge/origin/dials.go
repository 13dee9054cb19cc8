package origin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/edge/clientaddr"
)

// ErrFull says that no connection to an origin came free in time.
var ErrFull = errors.New("the limit of connections to origins is reached (from the limit of open files)")

// Dials opens connections to origins, and bounds how many are open at the same time. Where all places are taken, a
// caller waits for timeouts.dial. Address prefixes share the waiting: one visitor does not keep all others behind it. It
// is safe for concurrent use.
type Dials struct {
	dial    func(context.Context, string, string) (net.Conn, error)
	wait    time.Duration
	places  chan struct{} // for all requests
	reserve chan struct{} // for requests with a session
	metrics *Metrics
	own     func() []net.Addr // listeners of this process; nil for none
	servers func() []string   // of the fleet, by address or name; nil for none

	waiting *clientaddr.Shares // places of waiting callers

	// Short is called when few places are free for all requests, full means none. Nil for no call.
	Short  func(full bool)
	called atomic.Int64 // the last call of a waiting caller, in Unix time in nanoseconds
}

// The reserve of sessions is 1/reservePart of the places. From shortAt percent of the others on, Short is called, and
// every shortEvery while callers wait: other callers may take what it frees.
const (
	reservePart = 8
	shortAt     = 70
	shortEvery  = 50 * time.Millisecond
)

// leastWaiting is the least number of callers that may wait; else it is that of the places.
const leastWaiting = 64

type sessionKey struct{}

// WithSession returns a context of requests with a valid session: they may take a place of the reserve.
func WithSession(ctx context.Context) context.Context {
	return context.WithValue(ctx, sessionKey{}, true)
}

type clientKey struct{}

// ForClient returns a context of requests of a visitor.
func ForClient(ctx context.Context, client netip.Addr) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// Refuse makes connections to listeners of this process fail: a site there would be a loop, or what only operators may
// read. It is called before the first connection.
func (d *Dials) Refuse(listeners func() []net.Addr) { d.own = listeners }

// RefuseServers makes connections to servers of the fleet fail, each given as host:port. It is called before the first
// connection.
func (d *Dials) RefuseServers(servers func() []string) { d.servers = servers }

// NewDials returns Dials that keep n connections at most; wait bounds how long a connection may take, and how long a
// caller waits for a place.
func NewDials(n int, wait time.Duration, m *Metrics) *Dials {
	m.limit.Set(float64(n))
	d := &Dials{
		wait: wait, places: make(chan struct{}, n-n/reservePart), reserve: make(chan struct{}, n/reservePart), metrics: m,
		waiting: clientaddr.NewShares(max(n, leastWaiting)),
	}
	dialer := &net.Dialer{Timeout: wait, KeepAlive: 30 * time.Second, ControlContext: d.refuseAddr}
	d.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(addr)
		_, err := netip.ParseAddr(host)
		return dialer.DialContext(context.WithValue(ctx, resolved{}, err != nil && !room.LoopbackName(host)), network, addr)
	}
	return d
}

// Limit returns how many connections may be open.
func (d *Dials) Limit() int { return cap(d.places) + cap(d.reserve) }

// acquire waits for a place, and returns the channel to which it belongs.
func (d *Dials) acquire(ctx context.Context) (chan struct{}, error) {
	if d.Short != nil && len(d.places)*100 >= cap(d.places)*shortAt {
		d.Short(len(d.places) == cap(d.places))
	}
	select {
	case d.places <- struct{}{}:
		return d.places, nil
	default:
	}
	var reserve chan struct{} // nil is never ready
	if ctx.Value(sessionKey{}) != nil {
		reserve = d.reserve
	}
	select {
	case reserve <- struct{}{}:
		return reserve, nil
	default:
	}
	client, _ := ctx.Value(clientKey{}).(netip.Addr) // the edge itself has none
	from := clientaddr.Prefix(client)
	if !d.waiting.Take(from) {
		return nil, ErrFull
	}
	defer d.waiting.Give(from)
	d.metrics.waits.Inc()
	late := time.NewTimer(d.wait)
	defer late.Stop()
	again := time.NewTicker(shortEvery)
	defer again.Stop()
	for {
		select {
		case d.places <- struct{}{}:
			return d.places, nil
		case reserve <- struct{}{}:
			return reserve, nil
		case now := <-again.C:
			d.stillShort(now)
		case <-late.C:
			return nil, ErrFull
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// stillShort calls Short for a caller that waits, unless another one has just done so.
func (d *Dials) stillShort(now time.Time) {
	last := d.called.Load()
	if d.Short != nil && now.UnixNano()-last >= int64(shortEvery) && d.called.CompareAndSwap(last, now.UnixNano()) {
		d.Short(true)
	}
}

// DialContext is [http.Transport.DialContext].
func (d *Dials) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	place, err := d.acquire(ctx)
	if err != nil {
		return nil, err
	}
	d.metrics.connections.Inc()
	free := sync.OnceFunc(func() {
		d.metrics.connections.Dec()
		<-place
	})
	conn, err := d.dial(ctx, network, addr)
	if err != nil {
		free()
		return nil, err
	}
	c, ok := conn.(*net.TCPConn)
	if !ok {
		free()
		return conn, nil
	}
	return &Conn{TCPConn: c, free: free, reserved: place == d.reserve}, nil
}

// Conn is a connection to an origin. Close gives its place back.
type Conn struct {
	*net.TCPConn
	free     func()
	reserved bool
}

// Reserved reports whether the connection has a place of the reserve of sessions: no other request may get it later.
func (c *Conn) Reserved() bool { return c.reserved }

// Close closes the connection.
func (c *Conn) Close() error {
	defer c.free()
	return c.TCPConn.Close()
}

// resolved is the key of whether an address is what a name resolved to.
type resolved struct{}

// refuseAddr stops connections to addresses that no origin has: whatever a name resolves to, the metadata service of a
// cloud, this machine and a listener of this process are no sites.
func (d *Dials) refuseAddr(ctx context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("origin address %q: %w", address, err)
	}
	if room.RefusedAddr(ap.Addr()) {
		return fmt.Errorf("origin address %s is refused: it is link-local, or of a metadata service", ap.Addr())
	}
	if byName, _ := ctx.Value(resolved{}).(bool); byName && room.LoopbackAddr(ap.Addr()) {
		return fmt.Errorf("origin address %s is refused: a name resolved to it; a site on this machine is written as its address or localhost",
			ap.Addr())
	}
	if d.own != nil {
		for _, l := range d.own() {
			if at, ok := l.(*net.TCPAddr); ok && isOwn(ap, at.AddrPort()) {
				return fmt.Errorf("origin address %s is refused: it is a listener of this process", ap)
			}
		}
	}
	if d.servers == nil {
		return nil
	}
	for _, text := range d.servers() {
		if s, err := netip.ParseAddrPort(text); err == nil && isOwn(ap, s) {
			return fmt.Errorf("origin address %s is refused: it is the NATS server of this edge", ap)
		}
	}
	return nil
}

// isOwn reports whether an address is that of a listener, which may listen at all addresses of the machine.
func isOwn(to, listener netip.AddrPort) bool {
	addr, at := room.Unwrap(to.Addr()), listener.Addr().Unmap()
	return listener.Port() == to.Port() && (at == addr || at.IsUnspecified() && local(addr))
}

// local reports whether an address is of this machine.
func local(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(n.IP); ok && own.Unmap() == addr {
				return true
			}
		}
	}
	return false
}
