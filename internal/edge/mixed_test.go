package edge

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
)

var (
	mixedFlag = flag.Int("mixed", 3000, "how many requests TestNothingUnadmittedAmongMixedRequests plays to each front")
	mixedSeed = flag.Uint64("mixed-seed", 1, "of what it draws")
)

// Several clients keep connections open and mix requests of admitted visitors, of others and of attackers, cut in two
// at any byte. The site gets exactly the requests labelled as admitted or outside of all rooms, each once. Plain
// requests of admitted visitors are answered by the site, in order.
func TestNothingUnadmittedAmongMixedRequests(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		site := newJudge(t, *mixedFlag)
		st := openAt(t, "http://"+site.addr, func(st *stage) {
			st.cfg.Reader = front
			for _, limit := range []*time.Duration{&st.cfg.Timeouts.Header, &st.cfg.Timeouts.Response, &st.cfg.Timeouts.Idle} {
				*limit = testkit.Patience // a slow machine cuts nobody
			}
		})
		st.server.proxy.transport.ExpectContinueTimeout = time.Millisecond
		st.up.queue(sale, 10, 1) // newcomers wait, whatever happened before
		st.up.queue(vip, 10, 1)
		var next, sent, bySite, byEdge atomic.Int64
		var clients sync.WaitGroup
		begun := time.Now()
		for i := range 32 {
			clients.Go(func() {
				m := &mixer{st: st, number: i, br: bufio.NewReaderSize(nil, 32<<10)}
				for sent.Load() < int64(*mixedFlag) && !t.Failed() {
					k := next.Add(1) - 1
					if err := m.play(int(k)); err != nil {
						t.Errorf("-mixed-seed %d, connection %d: %v", *mixedSeed, k, err)
					}
					bySite.Add(int64(m.bySite))
					byEdge.Add(int64(m.byEdge))
					n := int64(len(m.steps))
					if all := sent.Add(n); all/1_000_000 > (all-n)/1_000_000 {
						t.Logf("%d requests, %v", all, time.Since(begun).Round(time.Second))
					}
				}
			})
		}
		clients.Wait()
		fast, netHTTP, handed := byFront(t, st)
		t.Logf("%d requests in %v: %d answered by the site and %d by the edge, and %d reached the site on whose answer "+
			"nothing depends; %v read by the fast front, %v by net/http, %v connections handed over",
			sent.Load(), time.Since(begun).Round(time.Millisecond), bySite.Load(), byEdge.Load(),
			site.reached.Load()-bySite.Load(), fast, netHTTP, handed)
		if bySite.Load() == 0 || byEdge.Load() == 0 || site.reached.Load() <= bySite.Load() || front == frontFast &&
			(fast < netHTTP || handed == 0) {
			t.Error("nothing is shown by requests that are all alike")
		}
	})
}

// The same over HTTP/2, where net/http reads and either front passes on.
func TestNothingUnadmittedOverHTTP2(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		site := newJudge(t, *mixedFlag)
		st := openAt(t, "http://"+site.addr, readsTLS(front))
		st.up.queue(sale, 10, 1)
		st.up.queue(vip, 10, 1)
		var next, sent, bySite, byEdge atomic.Int64
		var clients sync.WaitGroup
		for i := range 8 {
			clients.Go(func() {
				m := &mixer{st: st, number: i, http2: true}
				for sent.Load() < int64(*mixedFlag)/4 && !t.Failed() {
					if err := m.playHTTP2(int(next.Add(1) - 1)); err != nil {
						t.Errorf("-mixed-seed %d, connection %d: %v", *mixedSeed, next.Load(), err)
					}
					bySite.Add(int64(m.bySite))
					byEdge.Add(int64(m.byEdge))
					sent.Add(int64(len(m.steps)))
				}
			})
		}
		clients.Wait()
		t.Logf("%d requests: %d answered by the site and %d by the edge; %d reached the site", sent.Load(), bySite.Load(),
			byEdge.Load(), site.reached.Load())
		if bySite.Load() == 0 || byEdge.Load() == 0 {
			t.Error("nothing is shown by requests that are all alike")
		}
	})
}

// playHTTP2 draws the requests of a connection over HTTP/2, and plays them, some of them canceled. At the end come
// targets that sites may read as others.
func (m *mixer) playHTTP2(k int) error {
	if time.Since(m.sealed) > 20*time.Second {
		m.renew()
	}
	m.Rand, m.connection, m.steps, m.bySite, m.byEdge = rand.New(rand.NewPCG(*mixedSeed, uint64(k))), k, m.steps[:0], 0, 0
	c, err := openHTTP2(m.st.door.entrance())
	if err != nil {
		return err
	}
	defer c.Close()
	for range least + m.IntN(most-least) {
		m.out = m.out[:0]
		m.ask(false)
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(m.out)))
		if err != nil {
			return err
		}
		var body []byte
		if r.ContentLength > 0 {
			if body, err = io.ReadAll(r.Body); err != nil {
				return err
			}
		}
		var header []string
		for name, lines := range r.Header {
			for _, line := range lines {
				header = append(header, strings.ToLower(name), line)
			}
		}
		stream, err := c.send(body, r.Method, r.Host, r.RequestURI, header...)
		if err != nil {
			return err
		}
		s := &m.steps[len(m.steps)-1]
		if m.IntN(20) == 0 {
			if err := c.WriteRSTStream(stream, http2.ErrCodeCancel); err != nil {
				return err
			}
			continue
		}
		status, answer, err := c.hear(stream)
		switch {
		case err != nil:
			return fmt.Errorf("%s %s: %w", s.method, s.label, err)
		case !s.enters && c.label == "" && status != "":
			m.byEdge++
		case s.enters && c.label == s.label && status == "200" && (s.method == "HEAD" || string(answer) == "the site"):
			m.bySite++
		default:
			return fmt.Errorf("%s %s is answered by %s %q: %.300q", s.method, s.label, status, c.label, answer)
		}
	}
	target := m.one(vipSpellings...) + m.one(enders()...) + m.one("", " HTTP/1.1", "x", "/../about")
	label := strconv.Itoa(k) + "." + strconv.Itoa(len(m.steps)) + " " + mayReach + " 0"
	if stream, err := c.ask("GET", "shop.example", target, "x-expect", label); err == nil {
		c.hear(stream) //nolint:errcheck // the edge may end the connection; the site judges
	}
	return nil
}

// most and least are how many requests a connection of a client has.
const (
	least = 4
	most  = 28
)

// mixer is a client with random requests.
type mixer struct {
	*rand.Rand
	st     *stage
	number int // among the clients
	br     *bufio.Reader
	answer heard

	sealed time.Time // when the tickets were
	rooms  [2]papers // of sale and vip

	connection     int
	http2          bool
	out            []byte
	steps          []step // with known fates
	tail           bool   // requests of unknown fate follow
	open           bool   // the connection stays open after them
	cut            bool   // the client ends in the middle
	bySite, byEdge int
}

// step is a request of a connection.
type step struct {
	end    int // of its bytes
	method string
	label  string
	enters bool
}

// papers are tickets of one room, as the cookie's values.
type papers struct{ name, in, waits, over, epoch, elsewhere string }

func (m *mixer) one(of ...string) string { return of[m.IntN(len(of))] }

// renew seals tickets that are good for some time.
func (m *mixer) renew() {
	m.sealed = time.Now()
	id := uint64(m.number*10 + 1)
	for i, name := range []string{"sale", "vip"} {
		id += 4
		over, epoch := session(id+2), session(id+3)
		over.Until -= 3600
		over.Admitted -= 3600
		over.Joined = over.Joined.Add(-time.Hour)
		epoch.Epoch = 3
		value := func(t ticket.Ticket) string { return m.st.keys.valueOver(name, m.http2, t) }
		p := papers{
			name: ticket.CookieName(name, m.http2) + "=", in: value(session(id)), waits: value(inLine(id + 1)),
			over: value(over), epoch: value(epoch),
		}
		m.rooms[i] = p
	}
	m.rooms[0].elsewhere, m.rooms[1].elsewhere = m.rooms[1].in, m.rooms[0].in
}

// good are the header lines of an admitted visitor.
func (m *mixer) good(p *papers) string {
	switch m.IntN(10) {
	case 4:
		return "Cookie: " + strings.Repeat(p.name+"junk; ", 1+m.IntN(50)) +
			strings.Repeat(p.name+p.elsewhere+"; ", m.IntN(5)) + p.name + p.in
	case 5:
		place := strings.TrimSuffix(p.name, "=") + ".place="
		return "Cookie: " + place + p.waits + "; " + p.name + m.one(p.in, p.in+"; "+place+p.in)
	case 0:
		return "Cookie: " + p.name + p.waits + "; " + p.name + p.in
	case 1:
		return "Cookie: " + p.name + p.in + "\r\nCookie: theirs=1; " + p.name + p.epoch
	case 2:
		return "Vestibule-Ticket: " + strings.TrimSuffix(p.name[strings.Index(p.name, "vestibule-")+len("vestibule-"):],
			"=") + "=" + p.in
	case 3:
		return "cookie: theirs=1;" + p.name + "junk; " + p.name + `"` + p.in + `"; theirs=2`
	}
	return "Cookie: theirs=1; " + p.name + p.in
}

// bad are the header lines of a visitor that is not admitted.
func (m *mixer) bad(p *papers) string {
	forged := []byte(p.in)
	at := m.IntN(len(forged))
	for forged[at] == p.in[at] {
		forged[at] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[m.IntN(64)]
	}
	switch m.IntN(12) {
	case 10:
		place := strings.TrimSuffix(p.name, "=") + ".place="
		return "Cookie: " + place + m.one(p.waits, p.over, string(forged)) + "; " + p.name +
			m.one(p.over, p.elsewhere, p.waits)
	case 0:
		return "Cookie: " + p.name + p.over
	case 1:
		return "Cookie: " + p.name + p.epoch
	case 2:
		return "Cookie: " + p.name + p.elsewhere
	case 3:
		return "Cookie: " + p.name + string(forged)
	case 4:
		return "Cookie: " + p.name + p.in[:at]
	case 5:
		return "Cookie: " + p.name + p.waits + "; " + p.name + p.over
	case 6:
		return "Cookie: " + strings.Repeat(p.name+"junk; ", 4) + p.name + p.over
	case 7:
		if m.http2 {
			return "Cookie: " + strings.TrimPrefix(p.name, "__Host-") + p.in
		}
		return "Cookie: __Host-" + p.name + p.in
	case 8:
		return "Vestibule-Ticket: other=" + p.in
	case 9:
		return "Accept-Language: de"
	}
	return "Cookie: theirs=1; " + p.name + p.waits
}

// draw draws the requests of a connection.
func (m *mixer) draw(k int) {
	m.Rand, m.connection = rand.New(rand.NewPCG(*mixedSeed, uint64(k))), k
	m.out, m.steps, m.tail, m.open, m.cut = m.out[:0], m.steps[:0], false, true, false
	n := least + m.IntN(most-least)
	for i := range n {
		m.ask(i == n-1)
	}
	switch {
	case !m.open:
	case m.IntN(4) == 0:
		m.tail, m.cut = true, true
		before := len(m.out)
		m.write("POST", "/about", "shop.example", "POST /about HTTP/1.1", "", neverWhole, "Content-Length: 300",
			strings.Repeat("x", 300))
		m.out = m.out[:before+1+m.IntN(len(m.out)-before-1)]
	case m.IntN(2) == 0:
		m.tail = true
		m.odd()
		m.write("GET", "/about", "shop.example", "GET /about HTTP/1.1", "Connection: close", reaches, "", "")
	}
	m.steps = m.steps[:n]
}

// ask draws a request with a known fate.
func (m *mixer) ask(last bool) {
	who, fate, more := m.IntN(100), reaches, "Accept: application/json\r\n"
	host, target := "shop.example", m.one("/about", "/", "/about?x=1", "/vips")
	p := &m.rooms[m.IntN(2)]
	if who < 80 {
		if host, target = "sale.example", m.one("/", "/a/b?c=d"); p == &m.rooms[1] {
			host, target = "shop.example", m.one("/vip", "/vip/a?b")
		}
	}
	switch {
	case who < 35:
		more += m.good(p)
	case who < 80:
		fate = stays
		if m.IntN(4) == 0 {
			more = m.one("Accept: text/html\r\n", "Accept: text/html\r\nAccept-Encoding: gzip\r\n")
		}
		more += m.bad(p)
	default:
		more += m.bad(p)
	}
	if last && m.IntN(3) == 0 {
		more += "\r\nConnection: close"
		m.open = false
	}
	if !m.http2 && m.IntN(60) == 0 {
		m.rare(fate, host, target, more)
		return
	}
	switch method := m.one("GET", "GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "DELETE"); method {
	case "POST", "PUT":
		body := m.body()
		m.write(method, target, host, method+" "+target+" HTTP/1.1", more, fate, "Content-Length: "+strconv.Itoa(len(body)),
			body)
	default:
		m.write(method, target, host, method+" "+target+" HTTP/1.1", more, fate, "", "")
	}
}

func (m *mixer) body() string {
	switch m.IntN(6) {
	case 0:
		return ""
	case 1:
		return "GET /vip HTTP/1.1\r\nHost: shop.example\r\nX-Expect: " + strconv.Itoa(m.connection) + ".63 no 0\r\n\r\n"
	case 2:
		return strings.Repeat("b", m.IntN(6000))
	}
	return "a=b"[:1+m.IntN(3)]
}

// rare draws a request for net/http, and the requests after it.
func (m *mixer) rare(fate, host, target, more string) {
	switch m.IntN(8) {
	case 0:
		body := m.body()
		chunks := ""
		for rest := body; len(rest) > 0; {
			n := 1 + m.IntN(len(rest))
			chunks += fmt.Sprintf("%x\r\n%s\r\n", n, rest[:n])
			rest = rest[n:]
		}
		sum := summed("POST", host, target, []byte(body))
		m.writeAs(sum, "POST", host, "POST "+target+" HTTP/1.1", more, fate, "Transfer-Encoding: chunked", chunks+"0\r\n\r\n")
	case 1:
		body := strings.Repeat("c", maxFastBody+m.IntN(2*maxFastBody))
		m.write("POST", target, host, "POST "+target+" HTTP/1.1", more, fate, "Content-Length: "+strconv.Itoa(len(body)),
			body)
	case 2:
		m.write("OPTIONS", target, host, "OPTIONS "+target+" HTTP/1.1", more, fate, "", "")
	case 3:
		m.writeAs(summed("GET", host, target, nil), "GET", "other.example", "GET http://"+host+target+" HTTP/1.1", more, fate,
			"", "")
	case 4:
		body := m.body() + "."
		if fate == reaches { // else the connection ends because the body is not read
			more += "\r\nExpect: 100-continue"
		}
		m.write("POST", target, host, "POST "+target+" HTTP/1.1", more, fate, "Content-Length: "+strconv.Itoa(len(body)),
			body)
	case 5:
		m.write("GET", target, host, "GET "+target+" HTTP/1.1", more+"\r\nUser-Agent: a\r\nUser-Agent: b", fate, "", "")
	case 6:
		from := len(m.out)
		m.write("GET", target, host, "GET "+target+" HTTP/1.1", more, fate, "", "")
		m.out = append(m.out[:from], bytes.ReplaceAll(m.out[from:], []byte("\r\n"), []byte("\n"))...)
		m.steps[len(m.steps)-1].end = len(m.out)
	case 7:
		m.write("GET", target, "shop.example", "GET /.well-known/vestibule/draw?room=nobody HTTP/1.1", more, stays, "", "")
	}
}

// odd draws something that the fronts may refuse, and read in no other way than as itself.
func (m *mixer) odd() {
	label := strconv.Itoa(m.connection) + "." + strconv.Itoa(len(m.steps)) + " "
	m.steps = append(m.steps, step{})
	outside := "\r\nHost: shop.example\r\nX-Expect: " + label + mayReach + " 0\r\n"
	text := ""
	switch m.IntN(5) {
	case 0:
		names := smuggledNames()
		text = strings.Replace(goingOn(smuggled()[names[m.IntN(len(names))]]), "Host: shop.example",
			"X-Expect: "+label+mayReach+" 0\r\nHost: shop.example", 1)
	case 1:
		text = "GET " + vipSpellings[m.IntN(len(vipSpellings))] + " HTTP/1.1" + strings.Replace(outside, mayReach, stays, 1) +
			m.bad(&m.rooms[1]) + "\r\n\r\n"
	case 2:
		text = "GET " + oddTargets[m.IntN(len(oddTargets))] + " HTTP/1.1" + outside + "\r\n"
	case 3:
		text = "POST /about HTTP/1.1" + outside + headerLines[m.IntN(len(headerLines))] + "\r\n\r\n"
	case 4:
		text = m.one("get", "CONNECT", "TRACE", "GET", "GET ", "P\x00ST") + " /vip " +
			m.one("HTTP/1.0", "HTTP/1.1", "HTTP/2.0", "http/1.1", "HTTP/1.1 ") + m.one("\r\n", "\n") +
			"Host: " + m.one("shop.example", "SHOP.example.", "shop.example\x00", "evil.example",
			"shop.example\r\nHost: evil.example", "shop.example:80") + "\r\nX-Expect: " + label + stays + " 0\r\n\r\n"
	}
	m.out = append(m.out, text...)
}

var smuggledNames = sync.OnceValue(func() (names []string) {
	for name := range smuggled() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
})

func (m *mixer) write(method, target, host, line, more, fate, framing, body string) {
	m.writeAs(summed(method, host, target, []byte(body)), method, host, line, more, fate, framing, body)
}

// writeAs writes a request with its label.
func (m *mixer) writeAs(sum, method, host, line, more, fate, framing, body string) {
	label := strconv.Itoa(m.connection) + "." + strconv.Itoa(len(m.steps)) + " " + fate + " " + sum
	m.out = append(append(append(append(append(m.out, line...), "\r\nHost: "...), host...), "\r\nX-Expect: "...), label...)
	for _, lines := range [...]string{more, framing} {
		if lines != "" {
			m.out = append(append(m.out, "\r\n"...), lines...)
		}
	}
	m.out = append(append(m.out, "\r\n\r\n"...), body...)
	m.steps = append(m.steps, step{len(m.out), method, label, fate == reaches})
}

// play draws a connection and plays it: each part is answered before the next is sent.
func (m *mixer) play(k int) error {
	if time.Since(m.sealed) > 20*time.Second {
		m.renew()
	}
	m.draw(k)
	m.bySite, m.byEdge = 0, 0
	c, err := net.Dial("tcp", m.st.door.entrance())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		return err
	}
	m.br.Reset(c)
	steps := m.steps
	for at := 0; at < len(m.out); {
		from := at
		at = min(len(m.out), at+1+m.IntN(1+m.IntN(10_000)))
		if _, err := c.Write(m.out[from:at]); err != nil {
			at = len(m.out) // the last answer shows why
		}
		for len(steps) > 0 && steps[0].end <= at {
			if err := m.hear(&steps[0]); err != nil {
				return err
			}
			steps = steps[1:]
		}
	}
	if m.tail {
		return m.hearTail(c.(*net.TCPConn))
	}
	if m.open {
		return c.(*net.TCPConn).SetLinger(0) // avoid thousands of sockets in TIME_WAIT
	}
	// net/http resets a connection that ends with an unread rest of a body.
	if _, err := m.br.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("behind the last answer there is more, or no end: %w", err)
	}
	return nil
}

// hear reads the answer to a request.
func (m *mixer) hear(s *step) error {
	a := &m.answer
	for a.first = ""; a.first == "" || strings.HasPrefix(a.first, "HTTP/1.1 1"); {
		if err := a.readHead(m.br); err != nil {
			return fmt.Errorf("%s %s: %w", s.method, s.label, err)
		}
	}
	if s.method != "HEAD" {
		if err := a.readBody(m.br); err != nil {
			return fmt.Errorf("%s %s: %s: %w", s.method, s.label, a.first, err)
		}
	}
	switch {
	case !s.enters && a.label == "":
		m.byEdge++
		return nil
	case s.enters && a.label == s.label && a.first == "HTTP/1.1 200 OK" &&
		(s.method == "HEAD" || string(a.body) == "the site"):
		m.bySite++
		return nil
	}
	return fmt.Errorf("%s %s is answered by %s %q: %.300q", s.method, s.label, a.first, a.label, a.body)
}

// hearTail reads the answers to requests that may be refused, and to those after them. No answer belongs to another
// connection.
func (m *mixer) hearTail(c *net.TCPConn) error {
	mine := strconv.Itoa(m.connection) + "."
	if !m.cut {
		if err := c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			return err
		}
		for a := &m.answer; ; {
			if a.readHead(m.br) != nil || a.readBody(m.br) != nil {
				break
			}
			if a.label != "" && !strings.HasPrefix(a.label, mine) {
				return fmt.Errorf("answered with what is for another: %q", a.label)
			}
		}
	}
	// It may wait for the rest of an announced body.
	if c.CloseWrite() != nil || c.SetReadDeadline(time.Now().Add(testkit.Patience)) != nil {
		return nil // it is closed
	}
	if _, err := io.Copy(io.Discard, m.br); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("no end: %w", err)
	}
	return nil
}
