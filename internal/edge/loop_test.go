package edge

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// relay returns the address of a server that passes connections on to the address that to returns.
func relay(t *testing.T, to func() string) string {
	return testkit.Listen(t, func(c net.Conn) {
		next, err := net.Dial("tcp", to())
		if err != nil {
			return
		}
		defer next.Close()
		go io.Copy(next, c) //nolint:errcheck // it ends with the connections
		io.Copy(c, next)    //nolint:errcheck // as above
	})
}

// A request whose site leads back to an edge ends when it comes for the second time.
func TestLoopsEnd(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		var edge atomic.Value // the edge's address; the edge may dial its site before it is known
		back := relay(t, func() string { addr, _ := edge.Load().(string); return addr })
		st := openAt(t, "http://"+back, func(st *stage) { st.cfg.Reader = front })
		edge.Store(st.door.addr(0))
		for n, body := range []string{"", "a=b", strings.Repeat("x", 2*maxFastBody)} {
			method := http.MethodGet
			if body != "" {
				method = http.MethodPost
			}
			if a := st.door.visitor().ask(method, "http://shop.example/about", body); a.StatusCode != http.StatusLoopDetected {
				t.Errorf("%d %.60q", a.StatusCode, a.body)
			}
			if fast, netHTTP, _ := byFront(t, st); int(fast+netHTTP) != 2*(n+1) {
				t.Errorf("%v requests of %d visitors", fast+netHTTP, n+1)
			}
		}
		if m := metric(t, st, "vestibule_edge_requests_total", "result", "loop"); m != 3 {
			t.Errorf("%v counted", m)
		}
	})
}

// A listener of the process that is not for visitors, such as that of metrics, is no site, whatever port it got.
func TestAnOwnListenerIsNoSite(t *testing.T) {
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	defer metrics.Close()
	eachFront(t, func(t *testing.T, front string) {
		own := &node.Listeners{}
		st := openAt(t, metrics.URL, func(st *stage) { st.cfg.Reader, st.own = front, own })
		own.Add(metrics.Listener.Addr()) // of a node that starts after the edge
		if a := st.door.visitor().ask(http.MethodGet, "http://shop.example/about",
			""); a.StatusCode != http.StatusBadGateway {
			t.Errorf("%d %.60q", a.StatusCode, a.body)
		}
	})
}

// the site gets which servers a request came by, and how many edges.
func TestViaOfRequests(t *testing.T) {
	eachFront(t, func(t *testing.T, front string) {
		st := open(t, reads(front))
		for _, c := range []struct {
			lines     []string
			via, hops string
			code      int
		}{
			{nil, "1.1 vestibule-shop.example", "1", 200},
			{[]string{"Via: 1.0 a, 1.1 b (c)", "Via: 2 d"}, "1.0 a, 1.1 b (c), 2 d, 1.1 vestibule-shop.example", "1", 200},
			{
				[]string{"Via: 1.1 vestibule-sale.example", "Vestibule-Hops: 3"},
				"1.1 vestibule-sale.example, 1.1 vestibule-shop.example", "4", 200,
			},
			{[]string{"Via: 1.1 a, 2.0  vestibule-shop.example"}, "", "", 508},
			{[]string{"Vestibule-Hops: 4"}, "", "", 508},
			{[]string{"Vestibule-Hops: x"}, "", "", 508},
			{[]string{"Vestibule-Hops: 256"}, "", "", 508},
		} {
			codes, _ := st.door.raw(request("GET /about HTTP/1.1", "Shop.example:80", c.lines...))
			if len(codes) != 1 || codes[0] != c.code {
				t.Errorf("%q: %v", c.lines, codes)
				continue
			}
			if h := st.origin.last().Header; c.code == 200 &&
				(len(h["Via"]) != 1 || h.Get("Via") != c.via || len(h["Vestibule-Hops"]) != 1 ||
					h.Get("Vestibule-Hops") != c.hops) {
				t.Errorf("%q: %q %q", c.lines, h["Via"], h["Vestibule-Hops"])
			}
		}
	})
}
