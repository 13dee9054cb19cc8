package edge

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
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
			if st.cfg.Reader, st.keys.ring = front, ring; form != "" {
				st.cfg.Listen, st.cfg.Front.Listen, st.cfg.Front.Form, st.cfg.Proxies = "", "127.0.0.1:0", form,
					[]string{"127.0.0.1"}
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
		st.serve(document("http://127.0.0.1:80"))
		st.up.queue(sale, 10, 1) // newcomers wait, whatever happened before
		st.up.queue(vip, 10, 1)
		x.st[i], x.site[i], x.enter[i] = st, site, st.inMemory()
	}
	x.renew()
	return x
}

// renew seals sessions that are valid from now on.
func (x *twin) renew() {
	seal := x.st[0].keys.seal
	if x.st[0].cfg.TLS.Listen != "" {
		seal = x.st[0].keys.sealTLS
	}
	x.place = seal("sale", session(7)) + "; " + seal("vip", session(8))
}

// inMemory returns a function that serves a connection like one of the edge's first listener.
func (st *stage) inMemory() func(net.Conn) {
	st.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	servers := testkit.Must(st.server.servers(ctx))(st.t)
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
	return fmt.Sprintf("%q, cut at %d\nnet/http: %q %v\nfast:     %q %v", data, cut, got[0].asked, got[0].answers,
		got[1].asked, got[1].answers)
}

// last ends a connection on which nothing else went wrong.
const last = "GET /about?last HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"

// FuzzFronts feeds the same bytes to an edge with each front, and compares the requests at their sites and their
// answers. A request that ends the connection follows.
func FuzzFronts(f *testing.F) {
	for _, text := range smuggled() {
		f.Add([]byte(goingOn(text)), uint16(0))
	}
	for _, target := range oddTargets {
		f.Add([]byte("GET "+target+" HTTP/1.1\r\nHost: shop.example\r\nCookie: a=b; vestibule-vip=c\r\n"+
			"X-Real-IP: 1.2.3.4\r\n\r\n"), uint16(7))
	}
	// Each line with one method: before it looks for anything new, a fuzzer tries all of these.
	methods := []string{"GET", "POST", "DELETE", "HEAD", "OPTIONS"}
	for i, lines := range headerLines {
		f.Add([]byte(methods[i%len(methods)]+" /about?x=1 HTTP/1.1\r\nHost: shop.example:80\r\n"+lines+"\r\n\r\n"),
			uint16(len(lines)))
	}
	x := newTwin(f, "")
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		data = append(slices.Clone(data), last...)
		if d := x.differ(t, data, int(at)%len(data)); d != "" {
			t.Error(d)
		}
	})
}

var (
	cases    = flag.Int("cases", 300, "how many connections TestFrontsAgree draws")
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
	x := newTwin(t, "", (*stage).withTLS)
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
				over[i] = dialHTTP2(t, x.st[i].door.addr(0))
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
			before := metric(t, x.st[i], "vestibule_edge_origin_unreadable_total")
			c := newQuietConn([]byte(last))
			x.enter[i](c)
			<-c.done
			if got := c.whole(); got != want {
				t.Errorf("%.80q, %s: %.80q, want %.80q", tc.answer, front, got, want)
			}
			if faulty, n := strings.HasPrefix(want, "502") || strings.HasSuffix(want, " cut"),
				metric(t, x.st[i], "vestibule_edge_origin_unreadable_total")-before; (n == 1) != faulty || n > 1 {
				t.Errorf("%.80q, %s: counted %v times", tc.answer, front, n)
			}
			if n := metric(t, x.st[i], "vestibule_edge_origin_errors_total"); n != 0 {
				t.Errorf("%.80q, %s: the site counts as silent", tc.answer, front)
			}
		}
	}
}
