package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"

	"vestibule/internal/lab/testkit"
)

// bare returns connections without sockets, one for each address.
func (x *connections) bare(addrs ...string) (out []*visitorConn) {
	for _, a := range addrs {
		c := &visitorConn{TCPConn: &net.TCPConn{}, of: x}
		c.debt.since.Store(time.Now().Add(-time.Minute).UnixMicro())
		x.open++
		x.assign(c, netip.MustParseAddr(a))
		out = append(out, c)
	}
	return out
}

// The connections without progress of the prefix that has most of them are closed, and no others.
func TestSheddingClosesTheDebtorsOfOnePrefix(t *testing.T) {
	synctest.Test(t, sheddingClosesTheDebtorsOfOnePrefix)
}

func sheddingClosesTheDebtorsOfOnePrefix(t *testing.T) {
	repeat := func(n int, addr func(i int) string) (out []string) {
		for i := range n {
			out = append(out, addr(i))
		}
		return out
	}
	one := func(a string) func(int) string { return func(int) string { return a } }
	hasSession := func(i int, c *visitorConn) {
		c.Identify(*c.client.Load(), uint64(2+i/connsOfSession))
		c.debt.since.Store(time.Now().Add(-owedForSession / 2).UnixMicro())
	}
	for _, c := range []struct {
		name           string
		attack, others []string
		kind           func(i int, c *visitorConn) // of the others
		ofSession      uint64                      // of the attack, 0 for none
	}{
		{
			"one IPv4 address", repeat(40, one("192.0.2.1")),
			repeat(200, func(i int) string { return fmt.Sprintf("10.0.%d.1", i) }), nil, 0,
		},
		{
			"one IPv6 /64", repeat(40, func(i int) string { return fmt.Sprintf("2001:db8::%x", i+1) }),
			repeat(200, func(i int) string { return fmt.Sprintf("2001:db8:%x::1", i+1) }), nil, 0,
		},
		{
			"an IPv4 /24", repeat(200, func(i int) string { return fmt.Sprintf("192.0.2.%d", i) }),
			repeat(200, func(i int) string { return fmt.Sprintf("10.0.%d.1", i) }), nil, 0,
		},
		{
			"one address beside a larger one that is busy", repeat(40, one("192.0.2.1")), repeat(500, one("10.0.0.1")),
			func(_ int, c *visitorConn) { c.Begin() }, 0,
		},
		{
			"one address beside a larger one with sessions", repeat(40, one("192.0.2.1")), repeat(500, one("10.0.0.1")),
			hasSession, 0,
		},
		{"one session with many connections", repeat(70, one("192.0.2.1")), repeat(500, one("10.0.0.1")), hasSession, 1},
	} {
		x := newConnections(1000, 500, newMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
		others, attack := x.bare(c.others...), x.bare(c.attack...)
		for i, o := range others {
			if c.kind != nil {
				c.kind(i, o)
			}
		}
		for _, a := range attack {
			a.Identify(*a.client.Load(), c.ofSession)
		}
		for range len(attack) {
			x.searches = [numWants][2]lastSearch{}
			if before := x.open; x.shed(wantConnections, true) == 0 && before > len(others) {
				t.Fatalf("%s: nothing is closed", c.name)
			}
			if x.open <= len(others) {
				break
			}
		}
		for _, a := range attack {
			if !a.closed {
				t.Errorf("%s: a connection of the attack is open", c.name)
				break
			}
		}
		for _, o := range others {
			if o.closed && c.name != "an IPv4 /24" {
				t.Errorf("%s: another connection is closed", c.name)
				break
			}
		}
		if a := x.alarm(time.Now()); !strings.HasPrefix(a, shedAlarm) || x.alarm(time.Now().Add(2*time.Minute)) != "" {
			t.Errorf("%s: the alarm is %q", c.name, a)
		}
	}
}

// At the limit sessions keep no connections from others: those of a large prefix are closed however young their debts
// are. Below it a small prefix is not closed while a large one owes anything.
func TestSheddingOfManySessions(t *testing.T) { synctest.Test(t, sheddingOfManySessions) }

func sheddingOfManySessions(t *testing.T) {
	x := newConnections(100, 50, newMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	inside, outside := x.bare("10.0.1.1")[0], x.bare("10.0.2.1")[0]
	inside.Identify(*inside.client.Load(), 1)
	inside.debt.since.Store(time.Now().Add(-owedForSession / 2).UnixMicro())
	large := x.bare(slices.Repeat([]string{"192.0.2.1"}, 80)...)
	for i, c := range large {
		c.Identify(*c.client.Load(), uint64(2+i))
		c.debt.since.Store(time.Now().UnixMicro())
	}
	if n := x.shed(wantConnections, false); n > 0 {
		t.Errorf("%d connections are closed while others are free", n)
	}
	if n := x.shed(wantConnections, true); n != 1 || !outside.closed {
		t.Errorf("%d connections are closed at the limit, an old debt: %v", n, outside.closed)
	}
	if n := x.shed(wantConnections, true); n != 1 || inside.closed {
		t.Errorf("%d connections are closed, a session of a small prefix: %v", n, inside.closed)
	}
	for _, c := range large {
		c.Close() // some are closed already
	}
	inside.debt.since.Store(time.Now().Add(-owedForSession).UnixMicro())
	x.searches = [numWants][2]lastSearch{}
	if n := x.shed(wantConnections, false); n != 1 || !inside.closed {
		t.Errorf("%d connections are closed when no large prefix owes", n)
	}
}

// An upgraded connection of a session may rest, unless the session has more connections than a browser opens.
func TestSheddingOfTunnels(t *testing.T) { synctest.Test(t, sheddingOfTunnels) }

func sheddingOfTunnels(t *testing.T) {
	for n, closes := range map[int]bool{connsOfSession: false, connsOfSession + 1: true} {
		x := newConnections(100, 50, newMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
		for _, c := range x.bare(slices.Repeat([]string{"192.0.2.1"}, n)...) {
			c.Identify(*c.client.Load(), 1)
			c.Begin()
			c.tunnels()
			c.debt.since.Store(time.Now().Add(-time.Minute).UnixMicro())
		}
		if closed := x.shed(wantSites, true); closed > 0 != closes {
			t.Errorf("%d of %d connections are closed", closed, n)
		}
	}
}

// At the limit a connection waits for a moment in which all others are busy. It is refused at once while they stay
// busy.
func TestAMomentWithoutDebtors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newConnections(10, 10, newMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
		all := x.bare(slices.Repeat([]string{"192.0.2.1"}, 10)...)
		for _, c := range all {
			c.Begin()
		}
		time.AfterFunc(shedPause/2, func() { all[0].Close() })
		time.AfterFunc(shedPause*3/2, all[1].End)
		begun := time.Now()
		for _, after := range []time.Duration{shedPause / 2, shedPause * 2} {
			if x.acquire(&net.TCPConn{}, false) == nil || time.Since(begun) > after {
				t.Errorf("no place after %v", time.Since(begun))
			}
		}
		if x.acquire(&net.TCPConn{}, false) != nil {
			t.Error("there is an eleventh connection")
		}
		refused := time.Now()
		if x.acquire(&net.TCPConn{}, false) != nil || time.Since(refused) > 0 {
			t.Errorf("the next refusal takes %v", time.Since(refused))
		}
		if took := refused.Sub(begun); took > 10*shedPause {
			t.Errorf("the refusal took %v", took)
		}
	})
}

// Groups of connections end with them.
func TestPrefixesAreForgotten(t *testing.T) {
	x := newConnections(1000, 500, newMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	all := x.bare("192.0.2.1", "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2")
	all[0].Identify(netip.MustParseAddr("198.51.100.1"), 1)
	all[1].Identify(netip.Addr{}, 1)
	for _, c := range all {
		c.Close()
	}
	for kind := range x.near {
		if len(x.near[kind]) > 0 {
			t.Errorf("%d prefixes are left", len(x.near[kind]))
		}
	}
	if len(x.sessions) > 0 {
		t.Errorf("%d sessions are left", len(x.sessions))
	}
}

// attackFrom is the address of an attacker; visitors come from 127.0.0.1.
var attackFrom = &net.TCPAddr{IP: net.IPv4(127, 9, 9, 9)}

// Attacks of one address hold every connection that they can, and visitors beside them are served.
func TestOneAddressClosesNoEdge(t *testing.T) {
	oneFront(t, func(t *testing.T, front string) {
		for name, attack := range map[string]string{
			"slow heads":         "GET /about HTTP/1.1\r\nHost: shop.example\r\n",
			"slow bodies":        "POST /about HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 100000\r\n\r\n",
			"short slow bodies":  "POST /about HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 100\r\n\r\n",
			"silent connections": "",
			"slow heads of one session": "GET / HTTP/1.1\r\nHost: sale.example\r\nCookie: SESSION\r\n\r\n" +
				"GET / HTTP/1.1\r\n",
			"slow bodies of many sessions": "POST / HTTP/1.1\r\nHost: sale.example\r\nCookie: EACH\r\n" +
				"Content-Length: 100000\r\n\r\n",
		} {
			t.Run(name, func(t *testing.T) {
				st := open(t, func(st *stage) { st.cfg.Reader, st.maxFiles = front, 256 }) // 128 connections, 64 to origins
				cookie := st.keys.seal("sale", session(7))
				attack := strings.ReplaceAll(attack, "SESSION", st.keys.seal("sale", session(8)))
				stop := make(chan struct{})
				done := make(chan struct{})
				go func() {
					defer close(done)
					var held []net.Conn
					id := uint64(1000)
					for {
						select {
						case <-stop:
							for _, c := range held {
								c.Close() // it may be closed already
							}
							return
						default:
						}
						if len(held) >= 400 {
							held[0].Close() // as above
							held = held[1:]
						}
						c, err := (&net.Dialer{LocalAddr: attackFrom}).Dial("tcp", st.door.addr(0))
						if err != nil {
							continue
						}
						text := attack
						if id++; strings.Contains(text, "EACH") {
							text = strings.ReplaceAll(text, "EACH", st.keys.seal("sale", session(id)))
						}
						io.WriteString(c, text) //nolint:errcheck // the edge may have closed it
						held = append(held, c)
					}
				}()
				eventually(t, "connections are closed",
					func() bool { return metric(t, st, "vestibule_edge_connections_shed_total") > 100 })
				for i := range 10 {
					url, host := "/", "sale.example"
					if i%2 == 1 {
						url, host = "/about", "shop.example"
					}
					c := st.door.dial()
					testkit.NoError(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
					testkit.Must(io.WriteString(c, request("GET "+url+" HTTP/1.1", host, "Cookie: "+cookie)))(t)
					if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 ") {
						t.Errorf("a visitor beside the attack: %v %.60q", err, b)
					}
				}
				r := st.server.Ready()
				// the machine's disk
				r.Alarms = slices.DeleteFunc(r.Alarms,
					func(a string) bool { return strings.HasPrefix(a, "data_dir cannot be written in time") })
				if !r.Ready || len(r.Alarms) != 1 || !strings.Contains(r.Alarms[0], "127.9.9.") {
					t.Errorf("ready %v, alarms %q", r.Ready, r.Alarms)
				}
				close(stop)
				<-done
				eventually(t, "no connection is left", func() bool { return metric(t, st, "vestibule_edge_connections") == 0 })
			})
		}
	})
}

// A client takes no byte of its answers, and their requests hold connections to the site. Another request of each
// connection is in progress, or each connection has a session. Visitors beside it are served.
func TestOneAddressHoldsNotAllConnectionsToTheSite(t *testing.T) {
	t.Parallel()
	about := []string{":method", "GET", ":scheme", "https", ":authority", "shop.example", ":path", "/about"}
	inside := []string{":method", "GET", ":scheme", "https", ":authority", "sale.example", ":path", "/", "cookie", ""}
	slow := append(slices.Clone(about[:len(about)-1]), "/about?slow")
	for name, c := range map[string]struct{ first, others []string }{
		"a request in progress": {slow, about},
		"a session":             {inside, inside},
	} {
		t.Run(name, func(t *testing.T) {
			st := openTLS(t, func(st *stage) { st.maxFiles = 256 }) // 64 connections to origins, 8 of them for sessions
			inside[len(inside)-1] = st.keys.sealTLS("sale", session(8))
			over := make(chan struct{})
			st.origin.serves(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery == "slow" {
					select {
					case <-over:
					case <-r.Context().Done():
					}
				}
				io.WriteString(w, "the site") //nolint:errcheck // the client checks the answer
			})
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				for ctx.Err() == nil {
					st.door.stall(ctx, c.first, c.others)
				}
			}()
			eventually(t, "connections are closed",
				func() bool { return metric(t, st, "vestibule_edge_connections_shed_total") > 0 })
			for range 5 {
				x := dialHTTP2(t, st.door.entrance())
				stream := testkit.Must(x.ask("GET", "shop.example", "/about"))(t)
				if status, body, err := x.hear(stream); status != "200" || string(body) != "the site" {
					t.Errorf("a visitor beside the attack: %v %q %q", err, status, body)
				}
			}
			stop()
			close(over)
			<-done
		})
	}
}

// stall opens a connection for a first and 89 other requests without a window for their answers, and waits for its end.
func (d *door) stall(ctx context.Context, first, others []string) {
	x, err := openHTTP2By(d.entrance(), &tls.Config{}, attackFrom)
	if err != nil {
		return // the edge is full
	}
	defer context.AfterFunc(ctx, func() { x.Close() })() // it may be closed already
	defer x.Close()                                      // as above
	err = x.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize})
	for next := first; err == nil && x.next < 2*90; next = others {
		_, err = x.begin(nil, next)
	}
	for err == nil || errors.As(err, new(http2.StreamError)) {
		_, err = x.ReadFrame()
	}
}

// Above the part of the memory limit connections without progress are closed; below it, and without a limit, none.
func TestMemoryShedsConnections(t *testing.T) { synctest.Test(t, memoryShedsConnections) }

func memoryShedsConnections(t *testing.T) {
	for _, c := range []struct {
		limit int64
		sheds bool
	}{{1, true}, {1 << 50, false}, {math.MaxInt64, false}} {
		m := newMetrics(prometheus.NewRegistry())
		x := newConnections(1000, 500, m, slog.New(slog.DiscardHandler))
		x.bare("192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1")
		use := newMemoryUse()
		use.limit = c.limit
		ctx, cancel := context.WithTimeout(t.Context(), 10*memoryEvery)
		x.watchMemory(ctx, use)
		cancel()
		if closed := x.open == 0; closed != c.sheds {
			t.Errorf("limit %d: %d are open", c.limit, x.open)
		}
		if n := testutil.ToFloat64(m.shed.WithLabelValues("memory")); n != float64(4-x.open) {
			t.Errorf("limit %d: %v are counted", c.limit, n)
		}
		if a := x.alarm(time.Now()); strings.Contains(a, "(memory)") != c.sheds {
			t.Errorf("limit %d: the alarm is %q", c.limit, a)
		}
	}
}
