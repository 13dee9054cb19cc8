//go:build linux

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// gateway passes the connections of a place to NATS servers on, and delays their messages on request.
type gateway struct {
	place   string
	through map[string]string // by host and port of a NATS server: where the gateway passes connections on to it
	delay   atomic.Int64      // mean delay each way, in nanoseconds
	cut     atomic.Bool       // data is lost

	all       sync.WaitGroup
	listeners []net.Listener
	ended     chan struct{}
}

// newGateway starts the gateway of a place to some addresses.
func newGateway(place string, servers []string) (*gateway, error) {
	g := &gateway{place: place, through: map[string]string{}, ended: make(chan struct{})}
	for _, server := range servers {
		l, err := within(place, func() (net.Listener, error) { return net.Listen("tcp", join(addrOf(place), 0)) })
		if err != nil {
			return g, err
		}
		g.listeners = append(g.listeners, l)
		g.through[server] = l.Addr().String()
		g.all.Go(func() { g.serve(l, server) })
	}
	return g, nil
}

// stop closes all connections.
func (g *gateway) stop() error {
	var errs []error
	for _, l := range g.listeners {
		errs = append(errs, l.Close())
	}
	close(g.ended)
	g.all.Wait()
	return errors.Join(errs...)
}

// late delays every message by about the given time, plus or minus half, each way. It keeps their order, as a
// connection does.
func (g *gateway) late(by time.Duration) (heal func() error) {
	g.delay.Store(int64(by))
	return func() error { g.delay.Store(0); return nil }
}

func (g *gateway) serve(l net.Listener, server string) {
	for {
		near, err := l.Accept()
		if err != nil {
			return // closed by stop
		}
		g.all.Go(func() {
			dialer := net.Dialer{Timeout: 5 * time.Second}
			far, err := within(g.place,
				func() (net.Conn, error) { return dialer.DialContext(context.Background(), "tcp", server) })
			if err != nil {
				near.Close() // as if the server had refused it
				return
			}
			both, end := context.WithCancel(context.Background())
			g.all.Go(func() { g.carry(near, far); end() })
			g.all.Go(func() { g.carry(far, near); end() })
			select {
			case <-both.Done(): // a server or a client has closed it
			case <-g.ended:
			}
			near.Close() // maybe closed already
			far.Close()
		})
	}
}

// carry passes data on in one direction, until either side closes the connection.
func (g *gateway) carry(from, to net.Conn) {
	type piece struct {
		due  time.Time
		data []byte
	}
	queue := make(chan piece, 64) // when it is full, TCP stops the sender
	over := make(chan struct{})
	g.all.Go(func() {
		defer close(queue)
		due := time.Time{}
		for {
			data := make([]byte, 16<<10)
			n, err := from.Read(data)
			if err != nil {
				return
			}
			if g.cut.Load() {
				continue // the connection breaks when it carries data again
			}
			delay := time.Duration(float64(g.delay.Load()) * (0.5 + rand.Float64()))
			if at := time.Now().Add(delay); at.After(due) {
				due = at
			}
			select {
			case queue <- piece{due, data[:n]}:
			case <-over:
				return
			}
		}
	})
	defer close(over)
	for p := range queue {
		wait := time.NewTimer(time.Until(p.due))
		select {
		case <-wait.C:
		case <-g.ended:
			return
		}
		if _, err := to.Write(p.data); err != nil {
			return
		}
	}
}
