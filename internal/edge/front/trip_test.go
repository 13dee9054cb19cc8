package front

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/url"
	"testing"
	"time"

	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/http1"
	"vestibule/internal/edge/origin"
	"vestibule/internal/lab/testkit"
)

// leaver is a visitor's connection whose first answer makes it leave.
type leaver struct {
	net.Conn
	leaves func()
}

func (l leaver) Write(b []byte) (int, error) {
	l.leaves()
	return len(b), nil
}

// A visitor leaves as soon as it has a slow answer. The connection to the site is closed with it, and is not kept: the
// next request, which may be one that is never sent twice, would fail on it.
func TestAClosedConnectionIsNotKept(t *testing.T) {
	site := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer site.Close()
	mine, theirs := net.Pipe()
	pool := &http1.Pool{Dial: (&net.Dialer{}).DialContext, MaxIdle: 8, MaxIdlePerSite: 8, IdleFor: time.Minute}
	defer pool.Close()
	f := &shared{base: context.Background(), opts: Options{
		Pool: pool, Monitor: &origin.Monitor{Log: slog.New(slog.DiscardHandler), Changed: func() {}},
		Log:      slog.New(slog.DiscardHandler),
		Draining: func() bool { return false }, Timeouts: Timeouts{Response: testkit.Patience, Idle: testkit.Patience},
	}}
	c := newConn(f, mine, nil, nil, nil)
	c.conn = leaver{mine, func() {
		theirs.Close() // a pipe's Close does not fail
		testkit.Eventually(t, "the front has seen that the visitor left", func() bool { return c.visit.Err() != nil })
	}}
	c.takeWork()
	c.visit.conn, c.output.conn = c.conn, c.conn
	c.visit.next()
	answered := make(chan error, 1)
	go func() {
		s, err := site.Accept()
		if err == nil {
			_, err = bufio.NewReader(s).ReadString('\n')
		}
		testkit.Eventually(t, "the front watches the visitor", func() bool {
			c.visit.mu.Lock()
			defer c.visit.mu.Unlock()
			return c.visit.watched != nil
		})
		if err == nil {
			_, err = s.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
		}
		answered <- err
	}()
	up := testkit.Must(pool.New(t.Context(), "http", site.Addr().String()))(t)
	c.trip = trip{
		opts: &f.opts, outcome: &gate.Outcome{Origin: &origin.Origin{URL: &url.URL{}}}, base: f.base, visitor: &c.visit,
		up: up,
	}
	c.visit.bind(up)
	c.out = append(c.out[:0], "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n"...)
	testkit.NoError(t, c.roundTrip(up))
	c.forwardAnswer(&c.trip)
	c.endTrip()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if n := pool.Idle(); n != 0 {
		t.Errorf("%d closed connections are kept for the next request", n)
	}
	f.open.Wait()
}
