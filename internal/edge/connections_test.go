package edge

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
)

func TestFilesAreSharedOut(t *testing.T) {
	for _, tc := range []struct {
		limit, connections, streams int
		want                        files
	}{
		{1024, 0, 20_000, files{1024, 640, 480, 320}},
		{1024, 100, 20_000, files{1024, 100, 75, 320}},
		{1 << 20, 0, 20_000, files{1 << 20, 699_008, 20_000, 349_504}},
		{256, 0, 0, files{256, 128, 0, 64}},
		{16, 0, 9, files{16, 5, 3, 3}},
	} {
		got := shareFiles(tc.limit, tc.connections, tc.streams)
		if got != tc.want {
			t.Errorf("of %d: %+v, want %+v", tc.limit, got, tc.want)
		}
		if tc.limit >= 256 && got.visitors+got.origins+keepFree > tc.limit {
			t.Errorf("of %d: more than all", tc.limit)
		}
	}
}

// The warning about few files is for an operator that can change something: it is not logged if the configuration
// itself asks for few connections.
func TestFewFilesAreLogged(t *testing.T) {
	for _, tc := range []struct {
		limit, connections, streams int
		want                        bool
	}{
		{1024, 0, 20_000, true},
		{1024, 700, 0, true},
		{1024, 600, 450, false},
		{1 << 20, 0, 20_000, false},
		{1 << 20, 1000, 20_000, false}, // 750 streams, because connections.total says so
	} {
		var log strings.Builder
		f := shareFiles(tc.limit, tc.connections, tc.streams)
		f.logLimit(slog.New(slog.NewTextHandler(&log, nil)), &Config{
			Connections: ConnectionsConfig{Total: tc.connections},
			Events:      EventsConfig{Total: tc.streams},
		})
		if got := log.Len() > 0; got != tc.want {
			t.Errorf("%+v: %q", tc, log.String())
		}
	}
}

// talk sends one request over a connection that stays open, and returns the status of the answer, 0 if the edge
// closed it.
func talk(t *testing.T, c net.Conn, header string) int {
	t.Helper()
	testkit.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	if _, err := io.WriteString(c, "GET /about HTTP/1.1\r\nHost: shop.example\r\n"+header+"\r\n"); err != nil {
		return 0
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
		return 0
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Error(err)
	}
	return res.StatusCode
}

func (d *door) dial() net.Conn { return d.dialTo(0) }

func (d *door) dialTo(listener int) net.Conn {
	d.Helper()
	c := testkit.Must(net.Dial("tcp", d.addr(listener)))(d)
	d.Cleanup(func() { c.Close() }) // it may be closed already
	return c
}

// At the cap of connections the longest idle one is closed; if all are busy, the next one is refused.
func TestIdleConnectionsGiveWay(t *testing.T) {
	st := open(t, func(st *stage) { st.cfg.Connections.Total = 3 })
	var conns []net.Conn
	for range 4 {
		c := st.door.dial()
		if code := talk(t, c, ""); code != http.StatusOK {
			t.Fatalf("connection %d: %d", len(conns), code)
		}
		conns = append(conns, c)
		n := min(len(conns), 3)
		eventually(t, "it is idle", func() bool {
			st.server.conns.mu.Lock()
			defer st.server.conns.mu.Unlock()
			return st.server.conns.idle.n == n && st.server.conns.open == n
		})
	}
	if code := talk(t, conns[0], ""); code != 0 {
		t.Errorf("the one that was idle for longest: %d", code)
	}
	for i := 1; i < 4; i++ {
		if code := talk(t, conns[i], ""); code != http.StatusOK {
			t.Errorf("connection %d: %d", i, code)
		}
	}

	// All busy.
	begun, let := make(chan struct{}, 3), make(chan struct{})
	st.origin.serves(func(http.ResponseWriter, *http.Request) { begun <- struct{}{}; <-let })
	done := make(chan int, 3)
	for i := 1; i < 4; i++ {
		go func() { done <- talk(t, conns[i], "") }()
		<-begun
	}
	if code := talk(t, st.door.dial(), ""); code != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", code)
	}
	if r := st.server.Ready(); !r.Ready {
		t.Errorf("not ready: %v", r.Reasons)
	}
	close(let)
	for range 3 {
		if code := <-done; code != http.StatusOK {
			t.Errorf("who was there before: %d", code)
		}
	}
	st.counts(1, "vestibule_edge_connections_refused_total")
	for _, c := range conns {
		c.Close() // as in dial
	}
	eventually(t, "no place is taken", func() bool { return metric(t, st, "vestibule_edge_connections") == 0 })
}

// Sixty visitors want a stream at an edge with few files: half get one, the others poll, and pages are answered
// throughout.
func TestFewFilesLeaveRoomForPages(t *testing.T) {
	st := open(t, func(st *stage) { st.maxFiles = 128 }) // 42 connections, 31 streams
	st.up.queue(sale, 1000, 1)
	codes := map[int]int{}
	for id := range 60 {
		place := ticket.Ticket{
			ID: uint64(id) + 1, Joined: fleettime.TimeOf(time.Now()), Seen: uint32(time.Now().Unix()),
			Flags: ticket.Returned,
		}
		c := st.door.dial()
		ask := "GET " + gate.EventsPath + "?room=sale HTTP/1.1\r\nHost: sale.example\r\nCookie: " +
			st.keys.seal("sale", place) + "\r\n\r\n"
		testkit.Must(io.WriteString(c, ask))(t)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("stream %d: %v", id, err)
		}
		codes[res.StatusCode]++
		if a := st.door.visitor().get("http://sale.example/"); a.StatusCode != http.StatusOK ||
			!strings.Contains(a.body, "You are in line") {
			t.Fatalf("a page beside %d streams: %d", id+1, a.StatusCode)
		}
	}
	if codes[http.StatusOK] != 31 || codes[http.StatusServiceUnavailable] != 29 {
		t.Errorf("streams: %v, want 31 and 29 asked to poll", codes)
	}
}

// With every connection to origins busy, the next request waits briefly and then gets an answer to retry. That is no
// fault of the origin: its rooms stay open.
func TestBusyConnectionsToTheOriginAreNoFaultOfIt(t *testing.T) {
	st := open(t, func(st *stage) {
		st.maxFiles = 16 // 3 connections to origins
		st.cfg.Timeouts.Dial = 50 * time.Millisecond
	})
	begun, let := make(chan struct{}, 3), make(chan struct{})
	st.origin.serves(func(http.ResponseWriter, *http.Request) { begun <- struct{}{}; <-let })
	done := make(chan int, 3)
	for range 3 {
		c := st.door.dial()
		go func() { done <- talk(t, c, "") }()
		<-begun
	}
	a := st.door.visitor().get("http://shop.example/about")
	if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d, Retry-After %q", a.StatusCode, a.Header.Get("Retry-After"))
	}
	for name, want := range map[string]float64{
		"connections": 3, "connections_limit": 3, "waits_total": 1, "full_total": 1,
		"errors_total": 0,
	} {
		if got := metric(t, st, "vestibule_edge_origin_"+name); got != want {
			t.Errorf("vestibule_edge_origin_%s: %v, want %v", name, got, want)
		}
	}
	for _, o := range st.server.gate.Origins() {
		if o.Down() {
			t.Errorf("%s counts as down", o.URL)
		}
	}
	close(let)
	for range 3 {
		if code := <-done; code != http.StatusOK {
			t.Errorf("who was there before: %d", code)
		}
	}
	st.door.visitor().get("http://shop.example/about").has(t, http.StatusOK, "afterwards")
}

// Peers of front_auth.listen that are not listed are told so, and take no place of a visitor.
func TestUnlistedPeersTakeNoPlace(t *testing.T) {
	for _, form := range forms {
		eachFront(t, func(t *testing.T, front string) {
			st := openFront(t, form, func(st *stage) {
				st.cfg.Reader, st.cfg.Proxies, st.cfg.Connections.Total = front, []string{"192.0.2.1"}, 4
			})
			for range 20 {
				c := testkit.Must(net.Dial("tcp", st.door.addr(len(st.server.listeners)-1)))(t)
				defer c.Close()
			}
			codes, body := st.door.rawOn(st.door.dialTo(len(st.server.listeners)-1), request("GET / HTTP/1.1", "auth"))
			if !slices.Equal(codes, []int{http.StatusForbidden}) || !strings.Contains(body, "trusted_proxies") {
				t.Errorf("%s: %v %q", form, codes, body)
			}
			if n := metric(t, st, "vestibule_edge_requests_total", "result", "refused_front"); n != 21 {
				t.Errorf("%s: %v are counted", form, n)
			}
			if n := metric(t, st, "vestibule_edge_connections"); n != 0 {
				t.Errorf("%s: %v connections of visitors", form, n)
			}
		})
	}
}

// Failures to accept are logged once a minute, with the next step: a process without file descriptors has one each
// second at each listener.
func TestFailuresToAcceptAreLoggedOnceAMinute(t *testing.T) {
	ln := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var said testkit.Log
	x := newConnections(10, 10, newMetrics(prometheus.NewRegistry()), slog.New(slog.NewTextHandler(&said, nil)))
	l := cappedListener{listener{TCPListener: ln.(*net.TCPListener)}, x, nil, &queued{closed: make(chan struct{})}}
	testkit.NoError(t, l.SetDeadline(time.Unix(1, 0))) // Accept fails, as without a descriptor
	lines := func(want int) {
		t.Helper()
		if n := strings.Count(said.String(), "raise the limit of open files"); n != want {
			t.Errorf("%d lines, want %d:\n%s", n, want, said.String())
		}
	}
	for range 3 {
		if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	lines(1)
	x.noteUnaccepted(time.Now().Add(time.Minute), syscall.EMFILE)
	if lines(2); !strings.Contains(said.String(), `error="too many open files" failures=3`) {
		t.Errorf("not all failures are counted:\n%s", said.String())
	}
	testkit.NoError(t, l.Close())
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	lines(2)
}
