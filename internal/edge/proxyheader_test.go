package edge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/pires/go-proxyproto"

	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
)

// headerOf returns a PROXY header of a visitor.
func headerOf(t testing.TB, version byte, from string) string {
	t.Helper()
	source := testkit.Must(net.ResolveTCPAddr("tcp", from))(t)
	to := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 80}
	if source.IP.To4() == nil {
		to.IP = net.ParseIP("2001:db8::1")
	}
	return string(testkit.Must(proxyproto.HeaderProxyFromAddrs(version, source, to).Format())(t))
}

// v2 returns a header of version 2 with these bytes behind its signature.
func v2(rest ...byte) string { return string(proxyproto.SIGV2) + string(rest) }

func TestReadingPROXYHeaders(t *testing.T) {
	four, six := headerOf(t, 2, "192.0.2.7:4711"), headerOf(t, 2, "[2001:db8::7]:4711")
	extra := "\x21\x11\x00\x10" + "\xc0\x00\x02\x07\x0a\x00\x00\x01\x12\x67\x00\x50" + "\x04\x00\x01\x00" // and a TLV
	const get = "GET / HTTP/1.1\r\n"
	for _, tc := range []struct {
		name, in string
		from     string // "" for a header of a proxy that speaks for itself
		err      error
	}{
		{"version 2, IPv4", four, "192.0.2.7:4711", nil},
		{"version 2, IPv6", six, "[2001:db8::7]:4711", nil},
		{"version 2, with more in it", v2([]byte(extra)...), "192.0.2.7:4711", nil},
		{"version 2, LOCAL", v2(0x20, 0, 0, 0), "", nil},
		{"version 2, LOCAL with more in it", v2(0x20, 0, 0, 3, 1, 2, 3), "", nil},
		{"version 1, IPv4", "PROXY TCP4 192.0.2.7 10.0.0.1 4711 80\r\n", "192.0.2.7:4711", nil},
		{"version 1, IPv6", "PROXY TCP6 2001:db8::7 2001:db8::1 4711 80\r\n", "[2001:db8::7]:4711", nil},
		{"version 1, UNKNOWN", "PROXY UNKNOWN\r\n", "", nil},
		{"version 1, UNKNOWN with addresses", "PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", "", nil},

		{"a request", get, "", errNoHeader},
		{"a request that begins like a header", "POST / HTTP/1.1\r\n", "", errNoHeader},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00", "", errNoHeader},
		{"no signature to the end", "\r\n\r\n\x00\r\nQUIT!\x21\x11", "", errNoHeader},
		{"another word", "PROXYX TCP4 192.0.2.7 10.0.0.1 4711 80\r\n", "", errNoHeader},

		{"version 2 over UDP", v2(append([]byte{0x21, 0x12, 0, 12}, make([]byte, 12)...)...), "", errMalformed},
		{"version 2 over a unix socket", v2(append([]byte{0x21, 0x31, 0, 216}, make([]byte, 216)...)...), "", errMalformed},
		{"version 2 of nothing", v2(0x21, 0, 0, 0), "", errMalformed},
		{"version 3", v2(0x31, 0x11, 0, 12), "", errMalformed},
		{"another command", v2(append([]byte{0x22, 0x11, 0, 12}, make([]byte, 12)...)...), "", errMalformed},
		{"too short for its addresses", v2(append([]byte{0x21, 0x11, 0, 11}, make([]byte, 11)...)...), "", errMalformed},
		{"too long", v2(append([]byte{0x21, 0x11, 0x10, 1}, make([]byte, 4097)...)...), "", errMalformed},
		{"cut off in the head", v2(0x21), "", errMalformed},
		{"cut off in the addresses", four[:len(four)-1], "", errMalformed},
		{"version 1 over UDP", "PROXY UDP4 192.0.2.7 10.0.0.1 4711 80\r\n", "", errMalformed},
		{"one word too many", "PROXY TCP4 192.0.2.7 10.0.0.1 4711 80 81\r\n", "", errMalformed},
		{"one word too few", "PROXY TCP4 192.0.2.7 10.0.0.1 4711\r\n", "", errMalformed},
		{"no address", "PROXY TCP4 example.com 10.0.0.1 4711 80\r\n", "", errMalformed},
		{"an address of the other family", "PROXY TCP4 2001:db8::7 10.0.0.1 4711 80\r\n", "", errMalformed},
		{"no port", "PROXY TCP4 192.0.2.7 10.0.0.1 65536 80\r\n", "", errMalformed},
		{"a line without its end", "PROXY TCP4 " + strings.Repeat("1", 120) + "\r\n", "", errMalformed},
		{"a bare line feed", "PROXY TCP4 192.0.2.7 10.0.0.1 4711 80\n" + get, "", errMalformed},
		{"a short line", "PROXY \r\nGET / HTTP/1.1\r\n", "", errMalformed},
		{"cut off in the line", "PROXY TCP4 192.0.2.7", "", errMalformed},
	} {
		for _, way := range []struct {
			name string
			of   func(io.Reader) io.Reader
		}{{"at once", func(r io.Reader) io.Reader { return r }}, {"byte by byte", iotest.OneByteReader}} {
			in := strings.NewReader(tc.in + get)
			if strings.HasPrefix(tc.name, "cut off") {
				in = strings.NewReader(tc.in)
			}
			h, rest, err := readHeader(way.of(in), true)
			if !errors.Is(err, tc.err) || (err == nil) != (h != nil) || rest != nil {
				t.Errorf("%s, %s: %v, %v, %q", tc.name, way.name, h, err, rest)
				continue
			}
			if err != nil {
				continue
			}
			if from := h.SourceAddr; h.Command.IsLocal() != (tc.from == "") || (tc.from != "" && from.String() != tc.from) {
				t.Errorf("%s, %s: from %v", tc.name, way.name, from)
			}
			if left, err := io.ReadAll(in); string(left) != get || err != nil {
				t.Errorf("%s, %s: %q is left", tc.name, way.name, left)
			}
		}
	}
}

// FuzzPROXYHeader: bytes that are no header remain readable, a header is read to its end and no further, and the
// library agrees with every header that is believed.
func FuzzPROXYHeader(f *testing.F) {
	for _, s := range []string{
		headerOf(f, 2, "192.0.2.7:4711"), headerOf(f, 2, "[2001:db8::7]:4711"), headerOf(f, 1, "192.0.2.7:4711"),
		"PROXY UNKNOWN\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\r\n\r\n", v2(0x20, 0, 0, 0), "PROXY \r\n",
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s+"GET /"), false)
	}
	f.Fuzz(func(t *testing.T, in []byte, required bool) {
		r := bytes.NewReader(in)
		h, rest, err := readHeader(r, required)
		used := len(in) - r.Len()
		switch {
		case err != nil:
			if h != nil || rest != nil {
				t.Errorf("%v beside %v, %q", err, h, rest)
			}
		case h == nil:
			if required || !bytes.Equal(rest, in[:used]) || len(rest) > len(signatureV2) {
				t.Errorf("%d bytes were read, %q came back", used, rest)
			}
		default:
			if used > headerV2Head+maxHeaderV2 {
				t.Errorf("a header of %d bytes", used)
			}
			want, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(in), 8<<10))
			if err != nil || !h.EqualsTo(want) {
				t.Errorf("%v, the library says %v, %v", h, want, err)
			}
		}
	})
}

// through requests path over a connection that begins with preface, and returns the answer; nil if the edge closed
// it.
func (d *door) through(preface, request string) *http.Response {
	d.Helper()
	c := d.dial()
	testkit.NoError(d, c.SetDeadline(time.Now().Add(20*time.Second)))
	if _, err := io.WriteString(c, preface+request); err != nil {
		return nil
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil
	}
	return res
}

const about = "GET /about HTTP/1.1\r\nHost: shop.example\r\n\r\n"

// Behind listed balancers the visitor's address is that of the header: for the site, and for the caps of
// neighbourhoods.
func TestAVisitorIsWhoThePROXYHeaderSays(t *testing.T) {
	st := open(t, func(st *stage) {
		st.cfg.ProxyProtocol.Trusted = []string{"127.0.0.0/8"}
		st.cfg.Events.Prefix = 1
	})
	st.up.queue(sale, 10, 1)
	for _, tc := range []struct{ preface, want string }{
		{headerOf(t, 2, "192.0.2.7:4711"), "192.0.2.7"},
		{headerOf(t, 2, "[2001:db8::7]:4711"), "2001:db8::7"},
		{headerOf(t, 1, "192.0.2.8:4711"), "192.0.2.8"},
		{v2(0x20, 0, 0, 0), "127.0.0.1"},
	} {
		if res := st.door.through(tc.preface, about); res == nil || res.StatusCode != http.StatusOK {
			t.Errorf("%s: %+v", tc.want, res)
		} else if got := st.origin.last().Header.Get("X-Forwarded-For"); got != tc.want {
			t.Errorf("the site hears of %s, want %s", got, tc.want)
		}
	}
	listen := func(id uint64) string {
		return "GET " + gate.EventsPath + "?room=sale HTTP/1.1\r\nHost: sale.example\r\nCookie: " +
			st.keys.seal("sale", inLine(id)) + "\r\n\r\n"
	}
	for i, tc := range []struct {
		from string
		want int
	}{{"192.0.2.7:1", http.StatusOK}, {"192.0.2.8:1", http.StatusServiceUnavailable}, {"198.51.100.7:1", http.StatusOK}} {
		if res := st.door.through(headerOf(t, 2, tc.from), listen(uint64(i)+7)); res == nil || res.StatusCode != tc.want {
			t.Errorf("an event stream of %s: %+v, want %d", tc.from, res, tc.want)
		}
	}
	// Listed, but without a header: the visitor is unknown.
	for _, preface := range []string{"", "PROXY TCP4 nowhere\r\n", v2(0x21, 0x12, 0, 0)} {
		if res := st.door.through(preface, about); res != nil {
			t.Errorf("%q: %d", preface, res.StatusCode)
		}
	}
	for result, want := range map[string]float64{"proxied": 6, "local": 1, "missing": 1, "malformed": 2} {
		if got := metric(t, st, "vestibule_edge_proxy_headers_total", "result", result); got != want {
			t.Errorf("%v %s, want %v", got, result, want)
		}
	}
}

// Over TLS the header stands before the handshake.
func TestAPROXYHeaderBeforeTLS(t *testing.T) {
	st := open(t, func(st *stage) {
		st.withTLS()
		st.cfg.ProxyProtocol.Trusted = []string{"127.0.0.1"}
	})
	v := st.door.secure(true)
	v.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		c, err := net.Dial("tcp", st.door.addr(0))
		if err == nil {
			_, err = io.WriteString(c, headerOf(t, 2, "192.0.2.7:4711"))
		}
		return c, err
	}
	if a := v.get("https://sale.example/"); a.body != "the site" || a.ProtoMajor != 2 {
		t.Fatalf("%s %d", a.Proto, a.StatusCode)
	}
	if got := st.origin.last().Header.Get("X-Forwarded-For"); got != "192.0.2.7" {
		t.Errorf("the site hears of %s", got)
	}
}

// Only listed peers set a visitor's address.
func TestPROXYHeadersOfOthers(t *testing.T) {
	for _, tc := range []struct {
		what   string
		served bool
		result string
	}{{"refuse", false, "refused"}, {"ignore", true, "ignored"}} {
		t.Run(tc.what, func(t *testing.T) {
			st := open(t, func(st *stage) {
				st.cfg.ProxyProtocol = ProxyProtocolConfig{Trusted: []string{"192.0.2.0/24"}, Untrusted: tc.what}
			})
			for _, preface := range []string{headerOf(t, 2, "203.0.113.7:4711"), headerOf(t, 1, "203.0.113.7:4711")} {
				res := st.door.through(preface, about)
				if (res != nil && res.StatusCode == http.StatusOK) != tc.served {
					t.Errorf("%q: %+v", preface, res)
				}
			}
			if n := metric(t, st, "vestibule_edge_proxy_headers_total", "result", tc.result); n != 2 {
				t.Errorf("%v %s", n, tc.result)
			}
			// A connection without a header is served.
			if res := st.door.through("", about); res == nil || res.StatusCode != http.StatusOK {
				t.Errorf("without a header: %+v", res)
			}
			if got := st.origin.last().Header.Get("X-Forwarded-For"); got != "127.0.0.1" {
				t.Errorf("the site hears of %s", got)
			}
		})
	}
}

// A header that does not come holds a place for timeouts.header, and no longer.
func TestAPROXYHeaderThatDoesNotCome(t *testing.T) {
	st := open(t, func(st *stage) {
		st.cfg.ProxyProtocol.Trusted = []string{"127.0.0.1"}
		st.cfg.Timeouts.Header = 100 * time.Millisecond
	})
	for _, begun := range []string{"", "PROXY TCP4 ", v2(0x21, 0x11)} {
		if res := st.door.through(begun, ""); res != nil {
			t.Errorf("%q: %+v", begun, res)
		}
	}
	st.counts(3, "vestibule_edge_proxy_headers_total", "result", "late")
	eventually(t, "no place is taken", func() bool { return metric(t, st, "vestibule_edge_connections") == 0 })
}
