package edge

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// A draining edge is not ready from the start of the drain. It serves and admits new visitors and ends the connection
// with each answer; streams go on. After drain_delay streams end, listeners close, and the regional gets a goodbye.
func TestAnEdgeDrainsBeforeItStops(t *testing.T) {
	st := open(t, nil)
	st.up.queue(vip, 10, 1)
	delays, over := make(chan time.Duration, 1), make(chan time.Time)
	st.server.after = func(d time.Duration) <-chan time.Time {
		delays <- d
		return over
	}
	inside, newcomer, pages := st.door.visitor(), st.door.visitor(), st.door.visitor()
	if a := inside.get("http://sale.example/"); a.body != "the site" || a.Close {
		t.Fatalf("before: %d %.60q, the connection ends: %v", a.StatusCode, a.body, a.Close)
	}
	page := st.door.visitor()
	page.Jar = nil
	l := page.listen("http://shop.example/.well-known/vestibule/events?room=vip", "Cookie", st.keys.seal("vip", inLine(7)))

	st.cancel(node.ErrTerminated)
	if d := testkit.Receive(t, "the edge drains", delays); d != st.cfg.DrainDelay || d == 0 {
		t.Errorf("it drains for %v", d)
	}
	if r := st.server.Ready(); r.Ready || !slices.Contains(r.Reasons, "draining") {
		t.Errorf("readiness: %+v", r)
	}
	for _, c := range []struct {
		who  string
		a    answer
		code int
		body string
	}{
		{"somebody inside, on the old connection", inside.get("http://sale.example/"), http.StatusOK, "the site"},
		{"the same, on a new one", inside.get("http://sale.example/"), http.StatusOK, "the site"},
		{"a newcomer", newcomer.get("http://sale.example/"), http.StatusOK, "the site"},
		{"somebody who waits", pages.get("http://shop.example/vip"), http.StatusTooManyRequests, "You are in line"},
		{"a form", pages.ask(http.MethodPost, "http://shop.example/about", "a=b"), http.StatusOK, "the site"},
	} {
		if c.a.StatusCode != c.code || !strings.Contains(c.a.body, c.body) || !c.a.Close {
			t.Errorf("%s: %d %.60q, the connection ends: %v", c.who, c.a.StatusCode, c.a.body, c.a.Close)
		}
	}
	l.until("a message while the edge drains", func(string, map[string]any) bool { return true })

	close(over)
	for _, _, more := l.next(); more; _, _, more = l.next() {
	}
	testkit.NoError(t, st.stop())
	if c, err := net.Dial("tcp", st.door.addr(0)); err == nil {
		c.Close() // it should not be there
		t.Error("an edge that has stopped listens")
	}
	st.up.mu.Lock()
	defer st.up.mu.Unlock()
	if !st.up.last.Bye {
		t.Errorf("the last report: %+v", st.up.last)
	}
}

// Over HTTP/2 a connection ends once its streams have.
func TestAnEdgeDrainsHTTP2(t *testing.T) {
	st := open(t, (*stage).withTLS)
	draining, over := make(chan bool), make(chan time.Time)
	st.server.after = func(time.Duration) <-chan time.Time {
		close(draining)
		return over
	}
	v := st.door.secure(true)
	if a := v.get("https://sale.example/"); a.ProtoMajor != 2 || a.body != "the site" {
		t.Fatalf("%s %d", a.Proto, a.StatusCode)
	}
	st.cancel(node.ErrTerminated)
	testkit.Receive(t, "the edge drains", draining)
	v.get("https://sale.example/").enters(t, "on the old connection")
	eventually(t, "the connection ends", func() bool { return metric(t, st, "vestibule_edge_connections") == 0 })
	v.get("https://sale.example/").enters(t, "on a new one")
	close(over)
}

// Without a signal, on an interrupt, or with a zero drain_delay, an edge stops at once.
func TestAnEdgeStopsAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name  string
		delay time.Duration
		cause error
	}{{"interrupted", time.Hour, nil}, {"drain_delay: 0s", 0, node.ErrTerminated}} {
		t.Run(tc.name, func(t *testing.T) {
			l := &testkit.Log{}
			st := open(t, func(st *stage) {
				st.cfg.DrainDelay = tc.delay
				st.log = slog.New(slog.NewTextHandler(l, nil))
			})
			st.server.after = func(d time.Duration) <-chan time.Time {
				t.Errorf("it drains for %v", d)
				return time.After(0)
			}
			st.cancel(tc.cause)
			testkit.NoError(t, st.stop())
			if r := st.server.Ready(); r.Ready || !slices.Contains(r.Reasons, "draining") {
				t.Errorf("readiness: %+v", r)
			}
			if _, text, up := strings.Cut(l.String(), "edge up"); !up || strings.Contains(text, "level=WARN") {
				t.Errorf("it warned when it was stopped:\n%s", l)
			}
		})
	}
}

// Connections in the backlog of a listener that ends are still served; later ones are not.
func TestWhoWaitsToBeAcceptedIsServed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems than Linux reset what waits to be accepted")
	}
	ln := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	m := newMetrics(prometheus.NewRegistry())
	l := cappedListener{
		listener{TCPListener: ln.(*net.TCPListener)},
		newConnections(10, 10, m, slog.New(slog.DiscardHandler)), nil, &queued{closed: make(chan struct{})},
	}
	var clients []net.Conn
	for range 3 {
		c := testkit.Must(net.Dial("tcp", ln.Addr().String()))(t)
		defer c.Close()
		clients = append(clients, c)
	}
	l.Stop()
	if c, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		c.Close() // it should not be there
		t.Error("it listens still")
	}
	for range clients {
		c := testkit.Must(l.Accept())(t)
		defer c.Close()
		testkit.Must(io.WriteString(c, c.RemoteAddr().String()))(t)
	}
	testkit.NoError(t, l.Close())
	// Accept fails with an invalid socket if the listener stops meanwhile. That is the normal end, without a warning.
	if _, err := l.last.next(syscall.EINVAL); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v, want %v", err, net.ErrClosed)
	}
	for _, c := range clients {
		want := c.LocalAddr().String()
		b := make([]byte, len(want))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
			t.Errorf("%s hears %q, %v", want, b, err)
		}
	}
}
