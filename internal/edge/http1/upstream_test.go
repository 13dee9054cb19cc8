package http1

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// scripted is a site that answers each request on a connection with the next of these texts, and then closes it.
func scripted(t *testing.T, answers ...string) (addr string) {
	t.Helper()
	return testkit.Listen(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		for _, a := range answers {
			if _, err := http.ReadRequest(br); err != nil {
				return
			}
			if _, err := io.WriteString(c, a); err != nil {
				return
			}
		}
	})
}

func newPool() *Pool {
	return &Pool{
		Dial: (&net.Dialer{}).DialContext, Handshake: 5 * time.Second, MaxIdle: 4, MaxIdlePerSite: 2, IdleFor: time.Minute,
	}
}

func get(t *testing.T, p *Pool, host string) *Conn {
	t.Helper()
	return getBy(t, p, "http", host)
}

func getBy(t *testing.T, p *Pool, scheme, host string) *Conn {
	t.Helper()
	c := p.Kept(scheme, host)
	if c == nil {
		c = testkit.Must(p.New(context.Background(), scheme, host))(t)
	}
	t.Cleanup(func() { c.Close() }) // maybe already closed
	return c
}

// ask sends a request and parses the response head.
func ask(c *Conn) (*Response, error) {
	if _, err := c.Ask([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		return nil, err
	}
	var r Response
	for {
		n, err := r.Parse(c.Buffered())
		if err != nil {
			return nil, err
		}
		if n > 0 {
			c.Use(n)
			return &r, nil
		}
		if err := c.Fill(); err != nil {
			return nil, err
		}
	}
}

const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

func TestConnectionsAreUsedAgain(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("connections are used again where the system tells that they are silent")
	}
	addr := scripted(t, empty, empty, empty)
	p := newPool()
	defer p.Close()
	a, b, c := get(t, p, addr), get(t, p, addr), get(t, p, addr)
	for _, x := range []*Conn{a, b} {
		if _, err := ask(x); err != nil || x.Reused {
			t.Fatal(err, x.Reused)
		}
		p.Put(x)
	}
	if got := get(t, p, addr); got != b || !got.Reused {
		t.Error("the newest is not in front")
	}
	if fresh, err := p.New(context.Background(), "http", addr); err != nil || fresh.Reused || p.Idle() != 1 {
		t.Errorf("a fresh one: %v, %d idle", err, p.Idle())
	} else {
		fresh.Close() // it was not used
	}
	if got := get(t, p, addr); got != a {
		t.Error("the other one was not kept")
	}
	for _, x := range []*Conn{a, b, c} {
		p.Put(x)
	}
	if p.Idle() != 2 {
		t.Errorf("%d idle, want no more than 2 of one site", p.Idle())
	}
	p.Expire(time.Now())
	if p.Idle() != 2 {
		t.Error("closed too early")
	}
	p.Expire(time.Now().Add(time.Hour))
	if p.Idle() != 0 || len(p.idle) != 0 {
		t.Errorf("%d idle after an hour, %d sites", p.Idle(), len(p.idle))
	}
	p.Close()
	x := get(t, p, addr)
	p.Put(x)
	if _, err := x.Write([]byte("x")); p.Idle() != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("kept after the end: %v", err)
	}
}

// Unsolicited bytes of a site are nobody's response, and neither is the end of a connection.
func TestASiteThatSpeaksUnasked(t *testing.T) {
	for name, answers := range map[string][]string{
		"behind its answer":  {empty + "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", empty},
		"the end afterwards": {empty},
	} {
		addr := scripted(t, answers...)
		p := newPool()
		defer p.Close()
		first := get(t, p, addr)
		testkit.Must(ask(first))(t)
		p.Put(first)
		if name == "the end afterwards" {
			testkit.Eventually(t, "it is reported", func() bool { return p.Idle() == 0 || !p.idle[first.to][0].silent() })
		}
		second := get(t, p, addr)
		if second == first {
			if _, err := ask(second); !errors.Is(err, ErrStale) {
				t.Errorf("%s: the connection is used again: %v", name, err)
			}
			second = get(t, p, addr)
		}
		if _, err := ask(second); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// And while idle.
	ln := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer ln.Close()
	p := newPool()
	defer p.Close()
	c := get(t, p, ln.Addr().String())
	there := testkit.Must(ln.Accept())(t)
	defer there.Close()
	p.Put(c)
	if p.Idle() != 1 || !c.silent() {
		t.Fatal("not kept")
	}
	testkit.Must(io.WriteString(there, "H"))(t)
	testkit.Eventually(t, "it has arrived", func() bool { return !c.silent() })
	if again := get(t, p, ln.Addr().String()); again != c {
		t.Error("it was not kept")
	} else if n, err := again.Ask([]byte("GET")); n > 0 || !errors.Is(err, ErrStale) {
		t.Errorf("used again with something unasked on it: %d bytes, %v", n, err)
	}
}

func TestSitesWithTLS(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.Proto) //nolint:errcheck // seen by who asks
	}))
	defer s.Close()
	host := strings.TrimPrefix(s.URL, "https://")
	p := newPool()
	defer p.Close()
	if c, err := p.New(context.Background(), "https", host); err == nil {
		c.Close()
		t.Error("an unknown certificate is believed")
	}
	p.TLS = &tls.Config{RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	var last *Conn
	for i := range 3 {
		c := getBy(t, p, "https", host)
		if r, err := ask(c); err != nil || r.Length != 8 {
			t.Fatal(r, err)
		}
		for len(c.Buffered()) < 8 {
			testkit.NoError(t, c.Fill())
		}
		if got := string(c.Buffered()); got != "HTTP/1.1" {
			t.Errorf("%q", got)
		}
		c.Use(8)
		if i > 0 && c != last {
			t.Error("the connection was not used again")
		}
		last = c
		p.Put(c)
	}
}

func TestAHeadThatDoesNotEnd(t *testing.T) {
	addr := scripted(t, "HTTP/1.1 200 OK\r\nX-A: "+strings.Repeat("a", 2*MaxAnswerHead))
	p := newPool()
	defer p.Close()
	if _, err := ask(get(t, p, addr)); !errors.Is(err, ErrAnswer) {
		t.Error(err)
	}
	long := "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", MaxAnswerHead/2) + "\r\nContent-Length: 0\r\n\r\n"
	c := get(t, p, scripted(t, long))
	if r, err := ask(c); err != nil || len(r.Fields[0].Value) != MaxAnswerHead/2 {
		t.Error(err)
	}
}
