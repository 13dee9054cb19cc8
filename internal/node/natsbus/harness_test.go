package natsbus_test

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/leak"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

func TestMain(m *testing.M) { leak.WithNATS(m) }

var quiet = slog.New(slog.DiscardHandler)

// site is a nats-server that can be stopped and restarted at its address, with or without its data.
type site struct {
	t    *testing.T
	opts embedded.Options
	*embedded.Server
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, opts: embedded.Options{Name: "test", Dir: t.TempDir(), Listen: testkit.FreeAddr(t), Log: quiet}}
	s.start()
	t.Cleanup(func() { s.Stop() })
	return s
}

func (s *site) start() {
	s.t.Helper()
	s.Server = testkit.Must(embedded.Start(s.opts))(s.t)
}

// forget makes the server restart without its data.
func (s *site) forget() { s.opts.Dir = s.t.TempDir() }

func connect(t *testing.T, url, name string) *natsbus.Conn {
	t.Helper()
	c := testkit.Must(natsbus.Connect(natsbus.Options{URL: url, Name: name, Log: quiet}))(t)
	t.Cleanup(c.Close)
	return c
}

var eventually = testkit.Eventually

var within = testkit.Within

// link is a network path to a server that can be blocked in either direction: blocked data arrives once it is
// released.
type link struct {
	listener net.Listener
	target   string
	up, down gate
	delay    atomic.Int64 // of each way, in nanoseconds
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

// gate is open or shut.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil while open
}

func (g *gate) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) free() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *gate) pass() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

func newLink(t *testing.T, url string) *link {
	t.Helper()
	listener := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	l := &link{listener: listener, target: strings.TrimPrefix(url, "nats://")}
	l.wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			l.join(c)
		}
	})
	t.Cleanup(func() {
		listener.Close()
		l.up.free()
		l.down.free()
		l.cut()
		l.wg.Wait()
	})
	return l
}

func (l *link) url() string { return "nats://" + l.listener.Addr().String() }

func (l *link) join(c net.Conn) {
	s, err := net.Dial("tcp", l.target)
	if err != nil {
		c.Close()
		return
	}
	l.mu.Lock()
	l.conns = append(l.conns, c, s)
	l.mu.Unlock()
	for _, way := range []struct {
		from, to net.Conn
		gate     *gate
	}{{c, s, &l.up}, {s, c, &l.down}} {
		type piece struct {
			data []byte
			due  time.Time
		}
		pieces := make(chan piece, 1<<10)
		l.wg.Go(func() {
			defer close(pieces)
			buf := make([]byte, 32<<10)
			for {
				n, err := way.from.Read(buf)
				pieces <- piece{bytes.Clone(buf[:n]), time.Now().Add(time.Duration(l.delay.Load()))}
				if err != nil {
					return
				}
			}
		})
		l.wg.Go(func() {
			defer way.to.Close()
			open := true
			for p := range pieces {
				<-time.After(time.Until(p.due))
				way.gate.pass()
				if open {
					_, err := way.to.Write(p.data)
					open = err == nil
				}
			}
		})
	}
}

// cut closes the current connections.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}
