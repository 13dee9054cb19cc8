package origin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
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
}

// NewDials returns Dials that keep n connections at most; wait bounds how long a connection may take, and how long a caller
// waits for a place.
func NewDials(n int, wait time.Duration, m *Metrics) *Dials {
	dialer := &net.Dialer{Timeout: wait, KeepAlive: 30 * time.Second, Control: refuseAddr}
	m.limit.Set(float64(n))
	return &Dials{dial: dialer.DialContext, wait: wait, places: make(chan struct{}, n), metrics: m}
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
