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
)

// ErrFull says that no connection to an origin came free in time.
var ErrFull = errors.New("as many connections to origins are open as the limit of open files allows, and all are busy")

// Dials opens connections to origins, and bounds how many are open at the same time. Where all places are taken, a caller
// waits for timeouts.dial. It is safe for concurrent use.
type Dials struct {
	dial    func(context.Context, string, string) (net.Conn, error)
	wait    time.Duration
	places  chan struct{}
	metrics *Metrics
	own     atomic.Pointer[[]netip.AddrPort] // listeners of this process
}

// Refuse makes connections to listeners of this process fail: a site there would be a loop, or what only operators may
// read.
func (d *Dials) Refuse(own []netip.AddrPort) { d.own.Store(&own) }

// NewDials returns Dials that keep n connections at most; wait bounds how long a connection may take, and how long a caller
// waits for a place.
func NewDials(n int, wait time.Duration, m *Metrics) *Dials {
	m.limit.Set(float64(n))
	d := &Dials{wait: wait, places: make(chan struct{}, n), metrics: m}
	dialer := &net.Dialer{Timeout: wait, KeepAlive: 30 * time.Second, ControlContext: d.refuseAddr}
	d.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, _ := net.SplitHostPort(addr)
		_, err := netip.ParseAddr(host)
		return dialer.DialContext(context.WithValue(ctx, resolved{}, err != nil && !room.LoopbackName(host)), network, addr)
	}
	return d
}

// Limit returns how many connections may be open.
func (d *Dials) Limit() int { return cap(d.places) }

// acquire waits for a place.
func (d *Dials) acquire(ctx context.Context) error {
	select {
	case d.places <- struct{}{}:
		return nil
	default:
	}
	d.metrics.waits.Inc()
	late := time.NewTimer(d.wait)
	defer late.Stop()
	select {
	case d.places <- struct{}{}:
		return nil
	case <-late.C:
		return ErrFull
	case <-ctx.Done():
		return ctx.Err()
	}
}

// DialContext is [http.Transport.DialContext].
func (d *Dials) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := d.acquire(ctx); err != nil {
		return nil, err
	}
	d.metrics.connections.Inc()
	free := sync.OnceFunc(func() {
		d.metrics.connections.Dec()
		<-d.places
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
	return &Conn{TCPConn: c, free: free}, nil
}

// Conn is a connection to an origin. Close gives its place back.
type Conn struct {
	*net.TCPConn
	free func()
}

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
		return fmt.Errorf("origin address %s is refused: a name resolved to it; a site on this machine is written as its address or localhost", ap.Addr())
	}
	if own := d.own.Load(); own != nil && isOwn(ap, *own) {
		return fmt.Errorf("origin address %s is refused: it is a listener of this edge", ap)
	}
	return nil
}

// isOwn reports whether an address is one of the listeners, which may listen at all addresses of the machine.
func isOwn(to netip.AddrPort, own []netip.AddrPort) bool {
	addr := to.Addr().Unmap()
	for _, l := range own {
		at := l.Addr().Unmap()
		if l.Port() == to.Port() && (at == addr || at.IsUnspecified() && local(addr)) {
			return true
		}
	}
	return false
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
