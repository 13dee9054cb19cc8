package edge

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"vestibule/internal/lab/testkit"
)

// rawHTTP2 is a connection over HTTP/2 on which any field can be sent.
type rawHTTP2 struct {
	net.Conn
	*http2.Framer
	next uint32 // stream
	head bytes.Buffer
	pack *hpack.Encoder

	label  string // X-Expect of the last answer, or the code of a reset
	header []hpack.HeaderField
}

// dialHTTP2 opens a connection to an address with TLS.
func dialHTTP2(t testing.TB, addr string) *rawHTTP2 {
	t.Helper()
	x := testkit.Must(openHTTP2(addr))(t)
	t.Cleanup(func() { x.Close() }) // it may be closed already
	return x
}

func openHTTP2(addr string) (*rawHTTP2, error) { return openHTTP2By(addr, &tls.Config{}, nil) }

// openHTTP2By is openHTTP2 with settings for TLS, and from an address, nil for any.
func openHTTP2By(addr string, cfg *tls.Config, from net.Addr) (*rawHTTP2, error) {
	// the test's own certificate
	cfg.InsecureSkipVerify, cfg.ServerName, cfg.NextProtos = true, "sale.example", []string{"h2"}
	c, err := tls.DialWithDialer(&net.Dialer{LocalAddr: from}, "tcp", addr, cfg)
	if err != nil {
		return nil, err
	}
	x := &rawHTTP2{Conn: c, Framer: http2.NewFramer(c, c), next: 1}
	x.pack = hpack.NewEncoder(&x.head)
	x.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	err = c.SetDeadline(time.Now().Add(testkit.Patience))
	if err == nil {
		_, err = io.WriteString(c, http2.ClientPreface)
	}
	if err == nil {
		err = x.WriteSettings()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return x, nil
}

// ask begins a request without a body, of names and values, and returns its stream.
func (x *rawHTTP2) ask(method, host, target string, header ...string) (uint32, error) {
	return x.send(nil, method, host, target, header...)
}

// send begins a request with a body, nil for none.
func (x *rawHTTP2) send(body []byte, method, host, target string, header ...string) (uint32, error) {
	return x.begin(body, append([]string{":method", method, ":scheme", "https", ":authority", host, ":path", target},
		header...))
}

// begin begins a request of any fields, with a body, nil for none.
func (x *rawHTTP2) begin(body []byte, fields []string) (uint32, error) {
	stream, err := x.open(body == nil, fields...)
	if err == nil && body != nil {
		err = x.WriteData(stream, true, body)
	}
	return stream, err
}

// open begins a request of any fields. Unless it ends, a body comes.
func (x *rawHTTP2) open(ends bool, fields ...string) (uint32, error) {
	x.head.Reset()
	for i := 0; i < len(fields); i += 2 {
		if err := x.pack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return 0, err
		}
	}
	stream := x.next
	x.next += 2
	return stream, x.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: x.head.Bytes(), EndStream: ends, EndHeaders: true,
	})
}

// hear reads up to the end of a stream, and returns the status of its answer, 0 if it was reset, and the body.
func (x *rawHTTP2) hear(stream uint32) (status string, body []byte, err error) {
	for {
		f, err := x.ReadFrame()
		if err != nil {
			return "", nil, err
		}
		if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
			if err := x.WriteSettingsAck(); err != nil {
				return "", nil, err
			}
		}
		if away, ok := f.(*http2.GoAwayFrame); ok && (away.ErrCode != http2.ErrCodeNo || away.LastStreamID < stream) {
			return "", nil, fmt.Errorf("the edge ends the connection: %v", away.ErrCode)
		}
		if n := f.Header().Length; n > 0 && f.Header().Type == http2.FrameData { // also of a stream that was cancelled
			if err := x.WriteWindowUpdate(0, n); err != nil {
				return "", nil, err
			}
		}
		if f.Header().StreamID != stream {
			continue
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			status, x.label, x.header = f.PseudoValue("status"), "", f.RegularFields()
			for _, field := range x.header {
				if field.Name == "x-expect" {
					x.label = field.Value
				}
			}
		case *http2.DataFrame:
			body = append(body, f.Data()...)
		case *http2.RSTStreamFrame:
			x.label = "nobody: " + f.ErrCode.String()
			return "", nil, nil
		}
		if f.Header().Flags.Has(http2.FlagDataEndStream) && f.Header().Type != http2.FrameSettings {
			return status, body, nil
		}
	}
}

// enders are bytes and characters at which some server ends a target, and encoded ones for comparison.
func enders() (out []string) {
	for c := range 0x21 {
		out = append(out, string([]byte{byte(c)}))
	}
	return append(out, "\x7f", "\x80", "\x85", "\x9f", "\xa0", "\xff", "\u0085", "\u00a0", "\u2003", "\u2028", "\u3000",
		"#", ";", "\\", "?", "%00", "%09", "%0a", "%0D", "%20", "%7f", "%85", "%A0",
		"%c2%a0", "%2500", "%2520", "%ef%bf%bd", "|", "^", "\"", "<", " \t", "\t ", "  ", "\r\n", "\n\n")
}

// endedTargets are targets that some server may read as the path of the room vip.
func endedTargets() (out []string) {
	for _, b := range enders() {
		for _, form := range []string{
			"/vip%", "/vip% HTTP/1.1", "/vip%HTTP/1.1", "/vip%HTTP/1.0.js", "/vip%x", "/vip%/../about", "%/vip", "/%vip",
			"/vi%p", "/x/../vip%y", "/about%/../vip", "/vip%?a", "/%76ip%b", "//vip%", "/vip%.css",
		} {
			out = append(out, strings.Replace(form, "%", b, 1))
		}
	}
	return out
}

// cutters are the bytes at which sites end a target: the first blank, any white space, a NUL, any control character,
// or the blanks of Latin-1.
var cutters = []string{
	" ", " \t\r\n\v\f", "\x00",
	"\x00\x01\x02\x03\x04\x05\x06\a\b\t\n" +
		"\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f \x7f",
	"\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0",
}

// servesVIP reports whether some lenient or strict site takes the target in a request line for the path of the room.
func servesVIP(target string) bool {
	for _, cut := range cutters {
		t := target
		for t != "" && strings.IndexByte(cut, t[0]) >= 0 {
			t = t[1:]
		}
		for i := range len(t) {
			if strings.IndexByte(cut, t[i]) >= 0 {
				t = t[:i]
				break
			}
		}
		t, _, _ = strings.Cut(t, "?")
		for _, trimmed := range []string{t, strings.TrimSpace(t)} {
			p, err := url.PathUnescape(trimmed)
			if err != nil {
				p = trimmed
			}
			if p = path.Clean("/" + p); p == "/vip" || strings.HasPrefix(p, "/vip/") {
				return true
			}
		}
	}
	return false
}

// lenientSite is a site that ends a target wherever some server does, and records the targets past the room.
type lenientSite struct {
	addr string
	mu   sync.Mutex
	past []string
	n    int
}

func newLenientSite(t testing.TB) *lenientSite {
	s := &lenientSite{}
	s.addr = testkit.Listen(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		line, err := br.ReadString('\n')
		for l := line; err == nil && strings.Trim(l, "\r\n") != ""; {
			l, err = br.ReadString('\n')
		}
		_, target, ok := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		if err != nil || !ok {
			return
		}
		if target = strings.TrimSuffix(target, " HTTP/1.1"); !strings.HasPrefix(line, "HEAD") {
			s.mu.Lock()
			if s.n++; servesVIP(target) {
				s.past = append(s.past, target)
			}
			s.mu.Unlock()
		}
		const answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nsite"
		io.WriteString(c, answer) //nolint:errcheck // the client checks it
	})
	return s
}

// No target passes the room vip, whatever bytes are in it, on whatever transport, and wherever the site ends a target.
func TestNoByteInATargetPassesTheRoom(t *testing.T) {
	all := endedTargets()
	for _, target := range []string{"/vip", "/vip HTTP/1.1", "/vip\x00x", "/vip\xa0"} {
		if !servesVIP(target) {
			t.Errorf("the lenient site does not take %q for the room's path", target)
		}
	}
	oneFront(t, func(t *testing.T, front string) {
		site := newLenientSite(t)
		closed := func(change func(*stage)) *stage {
			st := openAt(t, "http://"+site.addr, func(st *stage) {
				st.cfg.Reader, st.cfg.Timeouts.Header = front, 500*time.Millisecond // some targets end no line
				change(st)
			})
			st.up.queue(vip, 10, 1)
			return st
		}
		plain, secure := closed(func(*stage) {}), closed((*stage).withTLS)
		send := func(c net.Conn, target string) {
			defer c.Close()
			testkit.NoError(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
			if _, err := io.WriteString(c, request("GET "+target+" HTTP/1.1", "shop.example")); err == nil {
				io.Copy(io.Discard, c) //nolint:errcheck // the site tells whether it was asked
			}
		}
		transports := map[string]func(target string){
			"http/1.1": func(target string) { send(plain.door.dial(), target) },
			"https/1.1": func(target string) {
				c := testkit.Must(tls.Dial("tcp", secure.door.addr(0), trusting("sale.example")))(t)
				send(c, target)
			},
		}
		for name, line := range map[string]string{
			"http/1.0":      "GET % HTTP/1.0",
			"absolute form": "GET http://shop.example% HTTP/1.1",
		} {
			transports[name] = func(target string) {
				c := plain.door.dial()
				defer c.Close()
				testkit.NoError(t, c.SetDeadline(time.Now().Add(testkit.Patience)))
				if _, err := io.WriteString(c, request(strings.Replace(line, "%", target, 1), "shop.example")); err == nil {
					io.Copy(io.Discard, c) //nolint:errcheck // the site tells whether it was asked
				}
			}
		}
		const atOnce = 16
		over := make(chan *rawHTTP2, atOnce) // nil is to be dialled
		for range atOnce {
			over <- nil
		}
		transports["http/2"] = func(target string) {
			x := <-over
			if x == nil {
				x = dialHTTP2(t, secure.door.addr(0))
			}
			stream, err := x.ask("GET", "shop.example", target)
			if err == nil {
				_, _, err = x.hear(stream)
			}
			if err != nil {
				x = nil // the edge ends a connection with an invalid field
			}
			over <- x
		}
		for name, ask := range transports {
			site.n = 0
			part := all
			if name != "http/1.1" && name != "http/2" { // they differ in the line and the connection alone
				part = some(all, 8)
			}
			var asking sync.WaitGroup
			free := make(chan struct{}, atOnce)
			for _, target := range part { // many wait for the end of their line
				free <- struct{}{}
				asking.Go(func() {
					defer func() { <-free }()
					ask(target)
				})
			}
			asking.Wait()
			ask("/about")
			site.mu.Lock()
			if len(site.past) > 0 || site.n == 0 {
				t.Errorf("%s: %d of %d targets pass the room: %.300q; the site was asked %d times", name, len(site.past), len(part),
					site.past, site.n)
			}
			t.Logf("%s: %d targets, %d past the room, %d reached the site", name, len(part), len(site.past), site.n)
			site.past = nil
			site.mu.Unlock()
		}
		for _, form := range forms {
			st := openFront(t, form, reads(front))
			st.up.queue(vip, 10, 1)
			past, in := 0, 0
			part := some(all, 4)
			for _, target := range part {
				if form != formGRPC && strings.ContainsAny(target, "\r\n\x00") || form == formGRPC && !asciiOnly(target) ||
					form == formPrefix && !strings.HasPrefix(target, "/") {
					continue // no such header line, string of protobuf, or path
				}
				if !admitted(t, form, st.question(form, http.MethodGet, "shop.example", target)) {
					continue
				}
				if in++; form == formHeaders {
					target = strings.Trim(target, " \t") // of the header line
				}
				if servesVIP(target) {
					past++
					t.Errorf("front_auth %s lets %q in", form, target)
				}
			}
			t.Logf("front_auth %s: %d targets, %d past the room, %d let in", form, len(part), past, in)
			if in == 0 || !admitted(t, form, st.question(form, http.MethodGet, "shop.example", "/about")) {
				t.Errorf("front_auth %s lets nobody in", form)
			}
		}
	})
}

func asciiOnly(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}
