package edge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// twin are two edges that differ in their front, each with a site that records requests. All traffic goes through
// memory without waits, so that a case takes only its computing time.
type twin struct {
	st    [2]*stage
	site  [2]*quietSite
	enter [2]func(net.Conn)
	place string // the cookies of a visitor admitted to sale and vip
}

// newTwin returns two edges that visitors ask or, with a form, servers in front of the site.
func newTwin(t testing.TB, form string, change ...func(*stage)) *twin {
	x := &twin{}
	ring := keyring(t)
	for i, front := range []string{frontNetHTTP, frontFast} {
		site := &quietSite{}
		st := newStage(t, func(st *stage) {
			if st.cfg.Reader, st.ring = front, ring; form != "" {
				st.cfg.Listen, st.cfg.Front.Listen, st.cfg.Front.Form, st.cfg.Proxies = "", "127.0.0.1:0", form, []string{"127.0.0.1"}
			}
			for _, c := range change {
				c(st)
			}
		})
		st.server.proxy.transport = st.server.proxy.transport.By(site.dial)
		st.server.proxy.trip = st.server.proxy.transport
		st.server.proxy.transport.ExpectContinueTimeout = time.Millisecond
		if p := st.server.pool; p != nil {
			p.Dial = site.dial
		}
		st.up = newParent(t, st.bus, sale, vip)
		st.docs.offer(node.RoomsDocument, roomsDocument(t, 1, document("http://127.0.0.1:80")))
		st.docs.offer(node.KeysDocument, keysDocument(t, st.ring))
		st.start()
		st.adopted()
		st.up.queue(sale, 10, 1) // newcomers wait, whatever happened before
		st.up.queue(vip, 10, 1)
		x.st[i], x.site[i], x.enter[i] = st, site, st.inMemory()
	}
	x.renew()
	return x
}

// renew seals sessions that are valid from now on.
func (x *twin) renew() {
	seal := x.st[0].seal
	if x.st[0].cfg.TLS.Listen != "" {
		seal = x.st[0].sealTLS
	}
	x.place = seal("sale", session(7)) + "; " + seal("vip", session(8))
}

// inMemory returns a function that serves a connection like one of the edge's first listener.
func (st *stage) inMemory() func(net.Conn) {
	st.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	servers, err := st.server.servers(ctx)
	if err != nil {
		st.t.Fatal(err)
	}
	inner := &memoryListener{addr: st.server.listeners[0].Addr(), conns: make(chan net.Conn), closed: make(chan struct{})}
	serve := st.server.front.Serve(inner, nil, st.server.listeners[0].auth)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		servers[0].Serve(serve) //nolint:errcheck // it is ended below
	}()
	st.t.Cleanup(func() {
		if err := servers[0].Shutdown(ctx); err != nil { // closes serve
			st.t.Error(err)
		}
		if err := inner.Close(); err != nil {
			st.t.Error(err)
		}
		cancel()
		<-ended
	})
	return inner.dial
}

// memoryListener accepts connections that are in memory.
type memoryListener struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memoryListener) dial(c net.Conn) { l.conns <- c }

// Accept implements [net.Listener].
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (l *memoryListener) Addr() net.Addr { return l.addr }

// result is the effect of some bytes at one edge.
type result struct {
	asked   []string // of the site
	answers []string // that the visitor got
}

// play sends the same bytes to both edges, in two pieces, and returns the results.
func (x *twin) play(t testing.TB, data []byte, cut int) (out [2]result) {
	t.Helper()
	for i := range x.st {
		c := newQuietConn(data[:cut], data[cut:])
		x.enter[i](c)
		select {
		case <-c.done:
		case <-time.After(testkit.Patience):
			t.Errorf("no end of %q", data)
		}
		out[i] = result{x.site[i].forget(), c.answers()}
	}
	return out
}

// refusesLength reports whether this edge did the same as the other, but refused the last head for its length. The
// limit of net/http depends on the size of its reads: between 16 and 20 KiB.
func (r *result) refusesLength(other *result) bool {
	n, asked := len(r.answers)-1, len(r.asked)
	return n >= 0 && r.answers[n] == "431" && n <= len(other.answers) && slices.Equal(r.answers[:n], other.answers[:n]) &&
		asked <= len(other.asked) && slices.Equal(r.asked, other.asked[:asked])
}

// differ describes the difference of the two edges on some bytes, empty if there is none.
func (x *twin) differ(t testing.TB, data []byte, cut int) string {
	t.Helper()
	var got [2]result
	for range 2 { // at first it may be for want of time
		got = x.play(t, data, cut)
		if reflect.DeepEqual(got[0], got[1]) || got[1].refusesLength(&got[0]) {
			return ""
		}
	}
	return fmt.Sprintf("%q, cut at %d\nnet/http: %q %v\nfast:     %q %v", data, cut, got[0].asked, got[0].answers, got[1].asked, got[1].answers)
}

// quietConn is the connection of a visitor that sends everything at the beginning and takes every answer. Its bytes
// arrive in pieces, then end.
type quietConn struct {
	peer
	mu     sync.Mutex
	change *sync.Cond
	pieces [][]byte
	out    bytes.Buffer
	over   bool // pending reads end
	late   bool // so are those of one byte, for they have waited for long
	tired  *time.Timer
	closed bool
	once   sync.Once
	done   chan struct{}
}

func newQuietConn(pieces ...[]byte) *quietConn {
	c := &quietConn{done: make(chan struct{})}
	c.change = sync.NewCond(&c.mu)
	for _, p := range pieces {
		if len(p) > 0 {
			c.pieces = append(c.pieces, p)
		}
	}
	return c
}

func (c *quietConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A read of one byte watches for the visitor's departure while a request is answered. The visitor stays. It may
	// also be the end of a reader's buffer.
	for len(b) == 1 && len(c.pieces) == 0 && !c.over && !c.closed && !c.late {
		if c.tired == nil {
			c.tired = time.AfterFunc(5*time.Second, c.tire)
		}
		c.change.Wait()
	}
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.over:
		return 0, os.ErrDeadlineExceeded
	case len(c.pieces) == 0:
		return 0, io.EOF
	}
	n := copy(b, c.pieces[0])
	if c.pieces[0] = c.pieces[0][n:]; len(c.pieces[0]) == 0 {
		c.pieces = c.pieces[1:]
	}
	return n, nil
}

func (c *quietConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	return c.out.Write(b)
}

// CloseWrite ends the visitor's answers; net/http then waits half a second before it closes.
func (c *quietConn) CloseWrite() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

func (c *quietConn) tire() {
	c.mu.Lock()
	c.late = true
	c.mu.Unlock()
	c.change.Broadcast()
}

func (c *quietConn) Close() error {
	c.mu.Lock()
	if c.closed = true; c.tired != nil {
		c.tired.Stop()
	}
	c.mu.Unlock()
	c.change.Broadcast()
	return c.CloseWrite()
}

func (c *quietConn) SetReadDeadline(at time.Time) error {
	c.mu.Lock()
	c.over = !at.IsZero() && !time.Now().Before(at)
	c.mu.Unlock()
	c.change.Broadcast()
	return nil
}

func (c *quietConn) SetDeadline(at time.Time) error { return c.SetReadDeadline(at) }

// answers returns the status and the front's headers of each answer, except answers to a visitor that left within a
// request.
func (c *quietConn) answers() (codes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rest := c.out.Bytes(); ; {
		var word []byte
		if word, rest = nextSaid(rest); word == nil {
			return codes
		}
		if string(word) != "499" {
			codes = append(codes, string(word))
		}
	}
}

// said are the prefixes of a status and of headers for fronts; no body here contains one.
var said = [...]string{"HTTP/1.1 ", "HTTP/1.0 ", "\r\nVestibule-Decision: ", "\r\nX-Accel-Redirect: "}

// nextSaid returns the next status or header for fronts, nil for none, and the rest. A regular expression would take
// more time than the edges.
func nextSaid(b []byte) (word, rest []byte) {
	at, end := len(b), byte(' ')
	for i, s := range said {
		if n := bytes.Index(b[:at], []byte(s)); n >= 0 {
			word, at = b[n+len(s):], n+len(s)
			if end = ' '; i > 1 {
				end = '\r'
			}
		}
	}
	word, rest, _ = bytes.Cut(word, []byte{end})
	return word, rest
}

// peer is the address of all connections in memory.
type peer struct{}

func (peer) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }
func (peer) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711} }

func (peer) SetWriteDeadline(time.Time) error { return nil }

// quietSite is a site in memory that records its requests.
type quietSite struct {
	mu     sync.Mutex
	asked  []string
	answer string // of every request; empty for a good one. With <end> at its end the connection ends.
}

func (s *quietSite) dial(context.Context, string, string) (net.Conn, error) {
	c := &siteConn{of: s}
	c.change = sync.NewCond(&c.mu)
	return c, nil
}

// forget returns the requests since the last call.
func (s *quietSite) forget() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

// siteConn is a connection to it: after the end of a request the answer is readable at once.
type siteConn struct {
	peer
	of     *quietSite
	mu     sync.Mutex
	change *sync.Cond
	in     []byte
	out    []byte
	ended  bool // by the site: no bytes follow out
	closed bool
}

func (c *siteConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	c.in = append(c.in, b...)
	for bytes.Contains(c.in, []byte("\r\n\r\n")) { // a line that was cut in two would be no line
		raw := bytes.NewReader(c.in)
		br := bufio.NewReader(raw)
		r, err := http.ReadRequest(br)
		var body []byte
		if err == nil {
			body, err = io.ReadAll(r.Body)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break // incomplete
		}
		if err != nil {
			c.of.note(fmt.Sprintf("no request: %v: %q", err, c.in))
			c.closed = true
			c.change.Broadcast()
			break
		}
		c.in = slices.Clone(c.in[len(c.in)-raw.Len()-br.Buffered():])
		var head bytes.Buffer
		r.Header.Write(&head) //nolint:errcheck // memory
		c.of.note(fmt.Sprintf("%s %s\nHost: %s\n%s%v %d %v\n%q", r.Method, r.RequestURI, r.Host, head.String(), r.TransferEncoding, r.ContentLength, r.Trailer, body))
		answer := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok"
		if r.Method == http.MethodHead {
			answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
		}
		if c.of.answer != "" {
			answer = strings.TrimSuffix(c.of.answer, "<end>")
			c.ended = c.ended || answer != c.of.answer
		}
		c.out = append(c.out, answer...)
		c.change.Broadcast()
	}
	return len(b), nil
}

func (s *quietSite) note(asked string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, asked)
}

func (c *siteConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) == 0 && !c.closed && !c.ended {
		c.change.Wait()
	}
	n := copy(b, c.out)
	c.out = c.out[n:]
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (c *siteConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.change.Broadcast()
	return nil
}

func (c *siteConn) SetDeadline(time.Time) error     { return nil }
func (c *siteConn) SetReadDeadline(time.Time) error { return nil }

// last ends a connection on which nothing else went wrong.
const last = "GET /about?last HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"

// FuzzFronts feeds the same bytes to an edge with each front, and compares the requests at their sites and their
// answers. A request that ends the connection follows.
func FuzzFronts(f *testing.F) {
	for _, text := range smuggled() {
		f.Add([]byte(goingOn(text)), uint16(0))
	}
	for _, target := range oddTargets {
		f.Add([]byte("GET "+target+" HTTP/1.1\r\nHost: shop.example\r\nCookie: a=b; vestibule-vip=c\r\nX-Real-IP: 1.2.3.4\r\n\r\n"), uint16(7))
	}
	// Each line with one method: before it looks for anything new, a fuzzer tries all of these.
	methods := []string{"GET", "POST", "DELETE", "HEAD", "OPTIONS"}
	for i, lines := range headerLines {
		f.Add([]byte(methods[i%len(methods)]+" /about?x=1 HTTP/1.1\r\nHost: shop.example:80\r\n"+lines+"\r\n\r\n"), uint16(len(lines)))
	}
	x := newTwin(f, "")
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		data = append(slices.Clone(data), last...)
		if d := x.differ(t, data, int(at)%len(data)); d != "" {
			t.Error(d)
		}
	})
}

// headerLines are lines that the two fronts may treat differently; some end the head.
var headerLines = []string{
	"Connection: keep-alive", "Connection: X-A, close\r\nX-A: b", "Pragma: no-cache", "Pragma: no-cache\r\nCache-Control: max-age=0", "TE: trailers", "Te: trailers, gzip",
	"Accept-Encoding: gzip", "x-forwarded-for: 1.1.1.1\r\nforwarded: for=1.1.1.1\r\nX-Forwarded-Host: a", "Content-Length: 3\r\n\r\nabc", "Content-Length: 03\r\n\r\nabc",
	"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", "Cookie:\r\nCookie: a=1\r\nCookie: vestibule-sale=x; b=2;; c", "User-Agent:", "X-A:\r\nX-B: \t c\t d ", "Range: bytes=0-",
	"Proxy-Authorization: a\r\nKeep-Alive: b\r\nProxy-Connection: c", "Trailer: X-A", "If-None-Match: \"a\"", "Authorization: Basic YTpi", "Host: shop.example", "Vestibule-Poll: 1",
	"User-Agent: a\r\nUser-Agent: b",
}

var (
	cases    = flag.Int("cases", 3000, "how many connections TestFrontsAgree draws")
	caseSeed = flag.Uint64("case-seed", 1, "the first of its seeds")
)

// Requests as browsers and programs write them, as attackers do, and mixtures: both
// fronts ask their sites for the same, and answer the same. Each seed is a connection. A tenth as
// many are questions of servers in front of the site, in each form.
func TestFrontsAgree(t *testing.T) {
	t.Run("visitors", func(t *testing.T) { agree(t, "", *cases) })
	for _, form := range []string{formHeaders, formAccel, formPrefix} {
		t.Run(form, func(t *testing.T) { agree(t, form, *cases/10) })
	}
}

func agree(t *testing.T, form string, cases int) {
	const batch = 50
	seeds := make(chan uint64)
	go func() {
		defer close(seeds)
		for n := 0; n < cases && !t.Failed(); n += batch {
			if n > 0 && n%100_000 == 0 {
				t.Logf("%d cases", n)
			}
			seeds <- *caseSeed + uint64(n)
		}
	}()
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 1+cases/10000) {
		x := newTwin(t, form)
		all.Go(func() {
			for from := range seeds {
				x.renew()
				for seed := from; seed < from+batch; seed++ {
					w := &writer{rand: rand.New(rand.NewPCG(seed, 0)), place: x.place, form: form}
					data, cut := w.connection()
					if d := x.differ(t, data, cut); d != "" {
						t.Errorf("-case-seed %d: %s", seed, d)
					}
				}
			}
		})
	}
	all.Wait()
}

// Over HTTP/2 the site's requests and the visitor's answers are the same with both fronts.
func TestFrontsAgreeAboutHTTP2(t *testing.T) {
	x := newTwin(t, "", func(st *stage) { st.withTLS(); pair(t, st.cfg.TLS, 1) })
	var over [2]*rawHTTP2
	for seed := *caseSeed; seed < *caseSeed+uint64(*cases); seed++ {
		if seed%500 == 0 {
			x.renew()
		}
		var got [2]string
		for i := range got {
			w := &writer{rand: rand.New(rand.NewPCG(seed, 0)), place: x.place}
			fields, body := w.overHTTP2()
			if over[i] == nil {
				over[i] = dialHTTP2(t, x.st[i].addr(0))
			}
			c := over[i]
			status, _, err := c.fields(fields, body)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("-case-seed %d: no answer to %q", seed, fields)
			}
			if status != "200" { // the edge may end the connection
				c.Close() // it was read
				over[i] = nil
			}
			var head []string
			for _, f := range c.header {
				switch f.Name {
				case "date", "content-length", "x-content-type-options": // of any answer; of net/http alone
				default:
					head = append(head, f.Name+": "+f.Value)
				}
				if f.Name == "vary" { // pages ask their visitors to come back at random times
					head = nil
					break
				}
			}
			if slices.Sort(head); status == "" || status == "400" { // the fast front resets streams that are malformed
				status, head = "refused", nil
			}
			got[i] = fmt.Sprintf("%q\n%s\n%q", x.site[i].forget(), status, head)
		}
		if got[0] != got[1] {
			fields, body := (&writer{rand: rand.New(rand.NewPCG(seed, 0)), place: x.place}).overHTTP2()
			t.Fatalf("-case-seed %d: %q %q\nnet/http: %s\nfast: %s", seed, fields, body, got[0], got[1])
		}
	}
	if fast, _, _ := byFront(t, x.st[1]); int(fast) < *cases/10 {
		t.Errorf("the fast front has read %v of %d", fast, *cases)
	}
}

// overHTTP2 returns the fields of a request, and its body, nil for none.
func (w *writer) overHTTP2() (fields []string, body []byte) {
	method := w.one("GET", "GET", "GET", "GET", "GET", "HEAD", "HEAD", "POST", "DELETE", "PUT", "OPTIONS", "PROPFIND", "TRACE", "GET X", "")
	fields = []string{
		":method", method, ":scheme", w.one("https", "https", "https", "https", "https", "https", "http", "ftp"),
		":authority", w.one("shop.example", "shop.example", "shop.example", "sale.example", "sale.example", "shop.example:80", "SHOP.example.", "", "a@shop.example"),
		":path", w.one("/about", "/about?x=1", "/", "/vip", "/vip/a?b", "*", "", w.one(vipSpellings...), w.one(oddTargets...)),
	}
	if w.in(2) {
		for c := range strings.SplitSeq("theirs=1; "+w.place, "; ") {
			fields = append(fields, "cookie", c)
		}
	}
	for !w.in(4) {
		name, value, _ := strings.Cut(w.line(w.in(2)), ":")
		if name = strings.ToLower(name); name != "host" && name != "content-length" { // of which net/http takes wrong ones
			fields = append(fields, name, strings.Trim(value, " \t"))
		}
	}
	if w.in(4) && method == "POST" {
		body = []byte(w.one("a=b", ""))
	}
	return fields, body
}

// Answers of sites, good and broken: each front gives the visitor the same. Heads that are not as RFC 9112 requires are
// an error of the site.
func TestFrontsAgreeAboutAnswers(t *testing.T) {
	x := newTwin(t, "")
	const head, chunked = "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	long := strings.Repeat("x", 20<<10)
	for _, tc := range []struct {
		answer string
		want   string // status and body; "cut" behind it if the connection ends early
		fast   string // if the fast front differs
	}{
		{head + "Content-Length: 2\r\n\r\nok", "200 ok", ""},
		{head + "\r\nto the end<end>", "200 to the end", ""},
		{chunked + "2\r\nok\r\n0\r\n\r\n", "200 ok", ""},
		{chunked + "5   \r\nhello\r\n0\r\n\r\n", "200 hello", ""},
		{chunked + "5\t\r\nhello\r\n0  \r\n\r\n", "200 hello", ""},
		{chunked + "5;sig=abc\r\nhello\r\n0;last\r\n\r\n", "200 hello", ""},
		{chunked + "5;a=\"b;c\"\r\nhello\r\n000\r\nX-Trailer: a\r\n\r\n", "200 hello", ""},
		{chunked + "00000A\r\n0123456789\r\n0\r\n\r\n", "200 0123456789", ""},
		{chunked + "zz\r\nhello\r\n0\r\n\r\n<end>", "502", ""},
		{chunked + "-5\r\nhello\r\n0\r\n\r\n<end>", "502", ""},
		{chunked + "5\r\nhelloworld\r\n0\r\n\r\n<end>", "502", ""},
		{chunked + "5 5\r\nhello\r\n0\r\n\r\n<end>", "502", ""},
		{chunked + "fffffffffffffffff\r\nhello<end>", "502", ""},
		{chunked + "ff\r\nhalf<end>", "200 half cut", ""},
		{head + "Content-Length: 100\r\n\r\nhalf<end>", "502", ""},
		{head + "Content-Length: 30000\r\n\r\n" + long + "<end>", "200 " + long + " cut", ""},
		{head + "Content-Length: 9000\r\n\r\nhalf<end>", "200 half cut", ""},
		{head + "Content-Length: x\r\n\r\nhalf<end>", "502", ""},
		{head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nok<end>", "502", ""},
		{head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n<end>", "502", ""},
		{"SSH-2.0-OpenSSH_9.9\r\n<end>", "502", ""},
		{"HTTP/1.1 20\r\n\r\n<end>", "502", ""},
		{head + "A B: c\r\n\r\n<end>", "502", ""},
		{head + "X-A: b\x00\r\n\r\n<end>", "502", ""},
		{"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "502", ""},
		{head + "X-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok", "502", ""},
		{head + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", "502", ""},
		{head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "502", ""},
		{"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "502", ""},
		{chunked + "2\nok\n0\n\n<end>", "502", ""},
		{chunked + "2 ;a\r\nok\r\n0\r\n\r\n<end>", "502", "200 ok"},
	} {
		for i, front := range []string{frontNetHTTP, frontFast} {
			want := tc.want
			if i == 1 && tc.fast != "" {
				want = tc.fast
			}
			x.site[i].answer = tc.answer
			before := metric1(t, x.st[i], "vestibule_edge_origin_unreadable_total")
			c := newQuietConn([]byte(last))
			x.enter[i](c)
			<-c.done
			if got := c.whole(); got != want {
				t.Errorf("%.80q, %s: %.80q, want %.80q", tc.answer, front, got, want)
			}
			if faulty, n := strings.HasPrefix(want, "502") || strings.HasSuffix(want, " cut"), metric1(t, x.st[i], "vestibule_edge_origin_unreadable_total")-before; (n == 1) != faulty || n > 1 {
				t.Errorf("%.80q, %s: counted %v times", tc.answer, front, n)
			}
			if n := metric1(t, x.st[i], "vestibule_edge_origin_errors_total"); n != 0 {
				t.Errorf("%.80q, %s: the site counts as silent", tc.answer, front)
			}
		}
	}
}

// whole returns status and body of the answer, with "cut" behind it if it breaks off; without the body of an error.
func (c *quietConn) whole() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	res, err := http.ReadResponse(bufio.NewReader(&c.out), nil)
	if err != nil {
		return "no answer: " + err.Error()
	}
	body, err := io.ReadAll(res.Body)
	switch {
	case res.StatusCode != http.StatusOK:
		return fmt.Sprint(res.StatusCode)
	case err != nil:
		return fmt.Sprintf("200 %s cut", body)
	}
	return fmt.Sprintf("200 %s", body)
}

// writer writes random bytes of a connection.
type writer struct {
	rand  *rand.Rand
	place string
	form  string // in which a server in front of the site asks, empty for a visitor
	out   []byte
}

func (w *writer) one(of ...string) string { return of[w.rand.IntN(len(of))] }

// in reports true once in n times.
func (w *writer) in(n int) bool { return w.rand.IntN(n) == 0 }

func (w *writer) connection() (data []byte, cut int) {
	for range 1 + w.rand.IntN(3) {
		w.request()
		if w.in(12) {
			w.out = append(w.out, w.one("\r\n", "\n", "\r\n\r\n", "\x00", " ", "GET", "\r", "0\r\n\r\n")...)
		}
	}
	for w.in(4) {
		w.spoil()
	}
	w.out = append(w.out, last...)
	return w.out, w.rand.IntN(len(w.out))
}

// request writes one request, plain more often than not.
func (w *writer) request() {
	plain := !w.in(3)
	method := w.one("GET", "GET", "GET", "POST", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "MOVE", "QUERY")
	target, host, version, end := w.one("/about", "/about?x=1", "/", "/vip", "/vip/a?b"), w.one("shop.example", "sale.example", "shop.example:80"), "HTTP/1.1", "\r\n"
	if !plain {
		method = w.one(method, method, "get", "CONNECT", "TRACE", "PRI", "PURGE", "", "GET ", "P\x00ST")
		switch w.rand.IntN(4) {
		case 0:
			target = w.one(vipSpellings...)
		case 1:
			target = w.one(oddTargets...)
		case 2:
			target = w.one("*", "", "http://shop.example/about", "http://sale.example", "shop.example:80", "/about?"+strings.Repeat("a", w.rand.IntN(20000)), "/.well-known/vestibule/leave?room=vip", "/ab\tout", "/about /x")
		}
		host = w.one(host, host, "SHOP.example.", "evil.example", "", "[::1]:80", "shop.example, sale.example", "shop.example:http", "a@shop.example", "127.0.0.1")
		version = w.one(version, version, version, "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 ", "", "HTTP/01.1", "HTTP/1.1x")
		end = w.one(end, end, end, end, "\n", "\r", "\r\r\n", " \r\n")
	}
	lines := []string{"Host: " + host}
	if w.form != "" {
		lines = append(lines, w.question(method, host, target)...)
	}
	if w.form == formPrefix && !w.in(20) {
		target = "/decide" + target
	}
	w.out = append(w.out, method+" "+target+" "+version+end...)
	if w.in(2) {
		lines = append(lines, "Cookie: theirs=1; "+w.place)
	}
	for w.in(2) {
		lines = append(lines, w.line(plain))
	}
	body := ""
	if method == "POST" || method == "PUT" || method == "PATCH" || w.in(15) {
		body = w.body(plain, &lines)
	}
	w.rand.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	for _, l := range lines {
		w.out = append(w.out, l+end...)
	}
	w.out = append(w.out, end+body...)
}

// question returns header lines of a server's question about a request, usually all of them.
func (w *writer) question(method, host, target string) (lines []string) {
	for _, l := range []string{"X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: " + w.one("http", "https"), "X-Forwarded-Method: " + method, "X-Forwarded-Host: " + host, "X-Forwarded-Uri: " + target} {
		switch w.rand.IntN(30) {
		case 0:
		case 1:
			lines = append(lines, l, l)
		case 2:
			lines = append(lines, l+w.one("x", ",", " ", ", 6.6.6.6", "/../vip"))
		default:
			lines = append(lines, l)
		}
	}
	return lines
}

// line writes a line of a header.
func (w *writer) line(plain bool) string {
	if w.in(3) || plain {
		return w.one("User-Agent: a/1.0", "Accept: text/html", "Accept: */*", "Accept-Language: de, en;q=0.5", "Accept-Encoding: gzip, br", "Cache-Control: no-cache", "Referer: http://x/",
			"Connection: keep-alive", "Connection: close", "connection: Keep-Alive", "Sec-Fetch-Mode: navigate", "If-None-Match: \"a\"", "Range: bytes=0-1", "Origin: http://x", "X-Requested-With: y",
			"Authorization: Basic YTpi", "Content-Type: text/plain", "Cookie: a=1; vestibule-sale=x", "X-Forwarded-For: 6.6.6.6", "Vestibule-Poll: 1", "Sec-Fetch-Dest: image")
	}
	name := w.one("X-A", "x-a", "Transfer-Encoding", "Content-Length", "Connection", "Host", "Expect", "Upgrade", "TE", "Trailer", "Keep-Alive", "Proxy-Connection", "Cookie", "X_A", "X-Forwarded-Host", "Forwarded",
		"Via", "Vestibule-Ticket", "Vestibule-Proof", "X-Vestibule-A", "HTTP2-Settings", "Pragma", "X-Real-IP", "X-Original-URL", "X-HTTP-Method-Override", "Date", "User-Agent", "Destination", "Authorization", ":path", "", "X A", "X-\xe9", "X-A\x00")
	value := w.one("", "a", " a ", "\ta\t", "close", "keep-alive", "Upgrade", "upgrade, HTTP2-Settings", "TE", "NTLM TlRM", "chunked", "gzip, chunked", "100-continue", "websocket", "h2c", "trailers", "X-A", "Host, Cookie", "5", "0", "-1", "1e3", "0x5", "+1",
		"99999999999999999999", "a, b", "a\x00b", "a\rb", "a\x7fb", "\xe9\xc3", "a\r\n b", "a\r\n\tb", "a=b; c", "shop.example", "/vip", "\"", strings.Repeat("v", w.rand.IntN(3000)))
	return name + w.one(":", ": ", ": ", ": ", " : ", ":\t", "", " ") + value
}

// body adds the header lines of a body, and returns the body.
func (w *writer) body(plain bool, lines *[]string) string {
	body := w.one("", "a=b", "{}", strings.Repeat("x", w.rand.IntN(200)), "GET /vip HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	if w.in(40) {
		body = strings.Repeat("y", w.rand.IntN(3*maxFastBody))
	}
	counted, chunked := fmt.Sprintf("Content-Length: %d", len(body)), fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	if len(body) == 0 {
		chunked = "0\r\n\r\n"
	}
	if plain {
		*lines = append(*lines, counted)
		return body
	}
	switch w.rand.IntN(9) {
	case 0, 1:
		*lines = append(*lines, counted)
	case 2, 3:
		*lines = append(*lines, "Transfer-Encoding: chunked")
		return w.one(chunked, chunked, strings.Replace(chunked, "\r\n", ";a=b\r\n", 1), strings.Replace(chunked, "\r\n", "\n", 1), "+"+chunked, strings.TrimSuffix(chunked, "\r\n")+"X-T: a\r\n\r\n")
	case 4:
		*lines = append(*lines, counted, w.one("Transfer-Encoding: chunked", "transfer-encoding: x", "Transfer-Encoding : chunked", "Transfer-Encoding: identity"))
		return w.one(body, chunked)
	case 5:
		*lines = append(*lines, counted, w.one(counted, "Content-Length: 0", "Content-Length: 5"))
	case 6:
		*lines = append(*lines, fmt.Sprintf("Content-Length: %s%d", w.one("+", "-", "0", " ", "00", "\t"), len(body)))
	case 7:
		*lines = append(*lines, fmt.Sprintf("Content-Length: %d", max(0, len(body)+w.rand.IntN(7)-3)))
	case 8:
		*lines = append(*lines, "Expect: 100-continue", counted)
	}
	return body
}

// spoil changes bytes anywhere.
func (w *writer) spoil() {
	if len(w.out) == 0 {
		return
	}
	at := w.rand.IntN(len(w.out))
	switch w.rand.IntN(4) {
	case 0:
		w.out[at] = byte(w.rand.IntN(256))
	case 1:
		w.out = slices.Delete(w.out, at, at+1)
	case 2:
		w.out = slices.Insert(w.out, at, []byte(w.one("\r", "\n", "\r\n", " ", "\t", ":", "\x00", "\r\n ", "%", "/", "a", "\xff"))...)
	case 3:
		end := min(len(w.out), at+w.rand.IntN(40))
		w.out = slices.Insert(w.out, w.rand.IntN(len(w.out)), slices.Clone(w.out[at:end])...)
	}
}
