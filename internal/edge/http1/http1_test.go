package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

// head returns a request head with these lines besides Host.
func head(first string, lines ...string) string {
	return first + "\r\nHost: shop.example\r\n" + strings.Join(append(lines, ""), "\r\n") + "\r\n"
}

var plainHeads = map[string]string{
	"a browser": head("GET /a?b=c HTTP/1.1", "Connection: keep-alive", "sec-ch-ua: \"Chromium\";v=\"143\"",
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64)",
		"Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "Cookie: a=1; b=\"2\"", "Pragma: no-cache",
		"Cache-Control: no-cache"),
	"curl":         head("HEAD / HTTP/1.1", "Accept: */*"),
	"a form":       head("POST /a HTTP/1.1", "Content-Length: 3", "content-type: application/x-www-form-urlencoded"),
	"no body":      head("POST /a HTTP/1.1"),
	"length 0":     head("PUT /a HTTP/1.1", "Content-Length: 0"),
	"blanks":       head("GET / HTTP/1.1", "X-A: \t b c \t ", "X-B:", "X-C:  "),
	"escapes":      head("GET /%2e%2E/%c3%a9;x=1/~a!$&'()*+,=:@?a HTTP/1.1"),
	"odd names":    head("DELETE / HTTP/1.1", "x_real_ip: 1", "!#$%&'*+-.^_`|~: 1", "HOST-A: 1"),
	"the end":      head("OPTIONS / HTTP/1.1", "Connection: Close"),
	"host, port":   "GET / HTTP/1.1\r\nhost: Shop.Example.:8080\r\n\r\n",
	"same twice":   head("GET / HTTP/1.1", "Accept: a", "Accept: b", "Cookie: a", "cookie: b"),
	"host is last": "GET / HTTP/1.1\r\nAccept: */*\r\nHost: 127.0.0.1\r\n\r\n",
}

var oddHeads = map[string]string{
	"lower method":        head("get / HTTP/1.1"),
	"CONNECT":             "CONNECT shop.example:443 HTTP/1.1\r\nHost: shop.example\r\n\r\n",
	"TRACE":               head("TRACE / HTTP/1.1"),
	"HTTP/1.0":            head("GET / HTTP/1.0"),
	"HTTP/2":              "PRI * HTTP/2.0\r\n\r\n",
	"HTTP/0.9":            "GET /\r\n",
	"two agents":          head("GET / HTTP/1.1", "User-Agent: a", "User-Agent: b"),
	"HTTP/1.1 and more":   head("GET / HTTP/1.1 "),
	"absolute form":       head("GET http://shop.example/ HTTP/1.1"),
	"asterisk":            head("OPTIONS * HTTP/1.1"),
	"no slash":            head("GET a HTTP/1.1"),
	"two slashes":         head("GET //a HTTP/1.1"),
	"no target":           head("GET HTTP/1.1"),
	"an empty target":     head("GET  HTTP/1.1"),
	"two blanks":          head("GET  / HTTP/1.1"),
	"a tab":               head("GET\t/ HTTP/1.1"),
	"a blank in it":       head("GET /a b HTTP/1.1"),
	"a blank in front":    " " + head("GET / HTTP/1.1"),
	"a line in front":     "\r\n" + head("GET / HTTP/1.1"),
	"a fragment":          head("GET /a#b HTTP/1.1"),
	"a bad escape":        head("GET /%zz HTTP/1.1"),
	"half an escape":      head("GET /%2 HTTP/1.1"),
	"UTF-8":               head("GET /é HTTP/1.1"),
	"a backslash":         head(`GET /\vip HTTP/1.1`),
	"braces":              head("GET /{a} HTTP/1.1"),
	"CR in the target":    head("GET /a\rb HTTP/1.1"),
	"NUL in the target":   head("GET /a\x00 HTTP/1.1"),
	"bare LF":             "GET / HTTP/1.1\nHost: shop.example\n\n",
	"one bare LF":         head("GET / HTTP/1.1", "X-A: b\nX-C: d"),
	"the last is LF":      "GET / HTTP/1.1\r\nHost: shop.example\r\n\n",
	"CR in a value":       head("GET / HTTP/1.1", "X-A: b\rc"),
	"NUL in a value":      head("GET / HTTP/1.1", "X-A: b\x00"),
	"a tab in a value":    head("GET / HTTP/1.1", "X-A: b\tc"),
	"UTF-8 in a value":    head("GET / HTTP/1.1", "X-A: é"),
	"folded":              head("GET / HTTP/1.1", "X-A: b", " c"),
	"folded at once":      "GET / HTTP/1.1\r\n Host: shop.example\r\n\r\n",
	"no colon":            head("GET / HTTP/1.1", "X-A"),
	"no name":             head("GET / HTTP/1.1", ": a"),
	"a blank before :":    head("GET / HTTP/1.1", "X-A : b"),
	"a name with a blank": head("GET / HTTP/1.1", "X A: b"),
	"a name in brackets":  head("GET / HTTP/1.1", "(X): b"),
	"no host":             "GET / HTTP/1.1\r\nAccept: */*\r\n\r\n",
	"an empty host":       "GET / HTTP/1.1\r\nHost:\r\n\r\n",
	"two hosts":           head("GET / HTTP/1.1", "Host: shop.example"),
	"a host and a comma":  "GET / HTTP/1.1\r\nHost: a.example,b.example\r\n\r\n",
	"a host and a user":   "GET / HTTP/1.1\r\nHost: x@shop.example\r\n\r\n",
	"a host in brackets":  "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n",
	"a named port":        "GET / HTTP/1.1\r\nHost: shop.example:http\r\n\r\n",
	"half a port":         "GET / HTTP/1.1\r\nHost: shop.example:\r\n\r\n",
	"two ports":           "GET / HTTP/1.1\r\nHost: shop.example:1:2\r\n\r\n",
	"two lengths":         head("POST / HTTP/1.1", "Content-Length: 1", "Content-Length: 1"),
	"a list of lengths":   head("POST / HTTP/1.1", "Content-Length: 1, 1"),
	"a sign":              head("POST / HTTP/1.1", "Content-Length: +1"),
	"a negative length":   head("POST / HTTP/1.1", "Content-Length: -1"),
	"a leading zero":      head("POST / HTTP/1.1", "Content-Length: 01"),
	"a hex length":        head("POST / HTTP/1.1", "Content-Length: 0x1"),
	"no length":           head("POST / HTTP/1.1", "Content-Length:"),
	"a huge length":       head("POST / HTTP/1.1", "Content-Length: 99999999999"),
	"a body of GET":       head("GET / HTTP/1.1", "Content-Length: 0"),
	"a body of DELETE":    head("DELETE / HTTP/1.1", "Content-Length: 1"),
	"chunked":             head("POST / HTTP/1.1", "Transfer-Encoding: chunked"),
	"chunked, spelled":    head("POST / HTTP/1.1", "transfer-encodinG: chunked"),
	"identity":            head("POST / HTTP/1.1", "Transfer-Encoding: identity"),
	"a trailer":           head("POST / HTTP/1.1", "Trailer: X-A"),
	"TE":                  head("GET / HTTP/1.1", "TE: trailers"),
	"Expect":              head("POST / HTTP/1.1", "Content-Length: 1", "Expect: 100-continue"),
	"Upgrade":             head("GET / HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket"),
	"only Upgrade":        head("GET / HTTP/1.1", "Upgrade: websocket"),
	"h2c":                 head("GET / HTTP/1.1", "HTTP2-Settings: AAA"),
	"Connection names":    head("GET / HTTP/1.1", "Connection: close, Host"),
	"two Connections":     head("GET / HTTP/1.1", "Connection: close", "Connection: keep-alive"),
	"an empty Connection": head("GET / HTTP/1.1", "Connection:"),
	"Keep-Alive":          head("GET / HTTP/1.1", "Keep-Alive: timeout=5"),
	"Proxy-Connection":    head("GET / HTTP/1.1", "Proxy-Connection: keep-alive"),
	"Pragma alone":        head("GET / HTTP/1.1", "Pragma: no-cache"),
	"too many lines":      head("GET / HTTP/1.1", strings.Repeat("X: y\r\n", maxFields-1)+"X: y"),
	"too long":            head("GET / HTTP/1.1", "X: "+strings.Repeat("a", MaxHead)),
	"too long a line":     "GET /" + strings.Repeat("a", MaxHead),
	"TLS":                 "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
}

func TestWhatIsPlain(t *testing.T) {
	for name, text := range plainHeads {
		if _, err := compare([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n, v := new(Request).Parse([]byte(text)); v != Ready || n != len(text) {
			t.Errorf("%s: %d of %d bytes, %d", name, n, len(text), v)
		}
	}
	for name, text := range oddHeads {
		if n, v := new(Request).Parse([]byte(text)); v != Odd || n != 0 {
			t.Errorf("%s: %d of %d bytes, %d", name, n, len(text), v)
		}
	}
}

// A head in any number of pieces is parsed like one in a single piece.
func TestHeadsInPieces(t *testing.T) {
	for name, text := range plainHeads {
		var whole, pieces Request
		whole.Parse([]byte(text))
		for i := range len(text) {
			if n, v := pieces.Parse([]byte(text[:i])); v != More || n != 0 {
				t.Fatalf("%s: %d bytes: %d, %d", name, i, n, v)
			}
		}
		n, v := pieces.Parse([]byte(text + "GET"))
		if v != Ready || n != len(text) {
			t.Errorf("%s: %d, %d", name, n, v)
		}
		if !reflect.DeepEqual(whole.Fields, pieces.Fields) || whole.Target != pieces.Target || whole.Host != pieces.Host ||
			whole.Length != pieces.Length {
			t.Errorf("%s: %+v in one, %+v in pieces", name, whole, pieces)
		}
	}
}

// Values are checked eight bytes at once, with the same result per byte as the table.
func TestEveryByteOfAValue(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			value := []byte("abcdefghijklmnopqrst")
			value[at] = byte(c)
			text := "a: <" + string(value) + ">\r\n"
			for table, allowed := range map[string]*[256]bool{"a request": &plainValue, "an answer": &answerValue} {
				if _, ok := splitLine([]byte(text), 0, len(text)-2, allowed); ok != allowed[c] {
					t.Errorf("%s: byte %#x at %d: %v", table, c, at, ok)
				}
			}
		}
	}
}

// A reused parser keeps nothing.
func TestAReaderIsUsedAgain(t *testing.T) {
	var r Request
	r.Parse([]byte(head("POST /long HTTP/1.1", "Content-Length: 5", "Connection: close", "X-A: b")))
	kept := r.Fields[0].Value
	r.Reset()
	r.Parse([]byte("GET / HTTP/1.1\r\nHost: y\r\n\r\n"))
	if r.Method != "GET" || r.Target != "/" || r.Host != "y" || r.Length != -1 || r.Close || len(r.Fields) > 0 {
		t.Errorf("%+v", r)
	}
	if kept != "b" {
		t.Errorf("what was kept has become %q", kept)
	}
}

// compare parses a head here and with net/http. It returns whether it is plain, and an error if net/http rejects it
// or parses it differently.
func compare(data []byte) (plain bool, err error) {
	var r Request
	n, v := r.Parse(data)
	if v != Ready {
		return false, nil
	}
	rest := bytes.NewReader(data)
	br := bufio.NewReaderSize(rest, len(data)+16)
	h, err := http.ReadRequest(br)
	if err != nil {
		return true, fmt.Errorf("net/http: %w", err)
	}
	if left := br.Buffered() + rest.Len(); len(data)-left != n {
		return true, fmt.Errorf("net/http reads %d bytes, not %d", len(data)-left, n)
	}
	want := http.Header{}
	for _, f := range r.Fields {
		want[f.Name] = append(want[f.Name], f.Value)
	}
	got := h.Header.Clone()
	if r.Length >= 0 && got.Get("Content-Length") != fmt.Sprint(r.Length) {
		return true, fmt.Errorf("length %d, not %s", r.Length, got.Get("Content-Length"))
	}
	got.Del("Content-Length")
	got.Del("Connection")
	switch {
	case h.Method != r.Method || h.RequestURI != r.Target || h.Host != r.Host || h.ProtoMajor != 1 || h.ProtoMinor != 1:
		return true, fmt.Errorf("%s %s of %s, not %s %s of %s", h.Method, h.RequestURI, h.Host, r.Method, r.Target, r.Host)
	case h.ContentLength != max(r.Length, 0) || len(h.TransferEncoding) > 0 || h.Trailer != nil:
		return true, fmt.Errorf("length %d %v, not %d", h.ContentLength, h.TransferEncoding, r.Length)
	case h.Close != r.Close:
		return true, fmt.Errorf("ends: %v", h.Close)
	case len(got)+len(want) > 0 && !reflect.DeepEqual(got, want):
		return true, fmt.Errorf("header %q, not %q", got, want)
	case h.URL.Scheme != "" || h.URL.Host != "" || h.URL.Opaque != "" || h.URL.User != nil || h.URL.Fragment != "":
		return true, fmt.Errorf("target %+v", h.URL)
	}
	if _, err := url.ParseRequestURI(r.Target); err != nil {
		return true, fmt.Errorf("target: %w", err)
	}
	return true, nil
}

// FuzzRequest looks for heads that are accepted here and that net/http rejects or parses differently.
func FuzzRequest(f *testing.F) {
	for _, heads := range []map[string]string{plainHeads, oddHeads} {
		for _, text := range heads {
			f.Add([]byte(text))
			f.Add([]byte(text + "body" + text))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := compare(data); err != nil {
			t.Errorf("%q: %v", data, err)
		}
	})
}

var plainAnswers = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Type: text/plain\r\n\r\nabc",
	"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 404 \r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	"HTTP/1.0 200 OK\r\n\r\nto the end",
	"HTTP/1.1 204 No Content\r\nConnection: close, X-A\r\nX-A: 1\r\nx-b: 2\r\n\r\n",
	"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
	"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n",
	"HTTP/1.1 200 Tr\xc3\xa8s bien\r\nX-Name: \xe9\tb\r\nContent-Length: 1\r\n\r\nx",
}

var oddAnswers = map[string]string{
	"a greeting":       "SSH-2.0-OpenSSH\r\n",
	"HTTP/2":           "HTTP/2 200 OK\r\n\r\n",
	"HTTP/1.2":         "HTTP/1.2 200 OK\r\n\r\n",
	"a short status":   "HTTP/1.1 20\r\n\r\n",
	"a long status":    "HTTP/1.1 2000 OK\r\n\r\n",
	"status 0":         "HTTP/1.1 000 OK\r\n\r\n",
	"status 600":       "HTTP/1.1 600 OK\r\n\r\n",
	"a blank first":    " HTTP/1.1 200 OK\r\n\r\n",
	"bare LF":          "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
	"folded":           "HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\n\r\n",
	"no colon":         "HTTP/1.1 200 OK\r\nX-A\r\n\r\n",
	"a blank before :": "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n",
	"NUL":              "HTTP/1.1 200 OK\r\nX-A: \x00\r\n\r\n",
	"CR in a value":    "HTTP/1.1 200 OK\r\nX-A: a\rb\r\n\r\n",
	"two lengths":      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
	"a list":           "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
	"a sign":           "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
	"both":             "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
	"chunked twice":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
	"gzip, chunked":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
	"identity":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
	"chunked in 1.0":   "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	"too long":         "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", MaxAnswerHead) + "\r\n\r\n",
}

func TestAnswers(t *testing.T) {
	for _, text := range plainAnswers {
		if err := compareAnswer([]byte(text), "GET"); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if n, err := new(Response).Parse([]byte(text)); err != nil || n != strings.Index(text, "\r\n\r\n")+4 {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	for name, text := range oddAnswers {
		if n, err := new(Response).Parse([]byte(text)); !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	var r Response
	r.Parse([]byte(plainAnswers[4])) //nolint:errcheck // it was read above
	if !r.Close || !reflect.DeepEqual(r.Fields, []Field{{"X-B", "2"}}) {
		t.Errorf("%+v", r)
	}
	for _, tc := range []struct {
		text, method string
		want         Framing
	}{
		{plainAnswers[0], "GET", Counted},
		{plainAnswers[0], "HEAD", NoBody},
		{plainAnswers[1], "GET", NoBody},
		{plainAnswers[2], "GET", Chunked},
		{plainAnswers[2], "HEAD", NoBody},
		{plainAnswers[3], "GET", ToTheEnd},
		{plainAnswers[4], "GET", NoBody},
		{plainAnswers[6], "GET", NoBody},
	} {
		r.Reset()
		if _, err := r.Parse([]byte(tc.text)); err != nil || r.Body(tc.method) != tc.want {
			t.Errorf("%s %q: body %d, want %d", tc.method, tc.text, r.Body(tc.method), tc.want)
		}
	}
}

// compareAnswer parses a response here and with net/http, and returns their difference if it is plain.
func compareAnswer(data []byte, method string) error {
	var r Response
	n, err := r.Parse(data)
	if err != nil || n == 0 {
		return nil
	}
	h, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(data)), &http.Request{Method: method})
	if err != nil {
		return fmt.Errorf("net/http: %w", err)
	}
	var body []byte
	switch rest := data[n:]; r.Body(method) {
	case Counted:
		body = rest[:min(int64(len(rest)), r.Length)]
	case ToTheEnd:
		body = rest
	case Chunked:
		var c Chunks
		for !c.Done && len(rest) > 0 {
			data, n, err := c.Next(rest)
			if err != nil {
				return nil // chunk parsing is stricter here
			}
			body, rest = append(body, data...), rest[n:]
		}
		if !c.Done || bytes.Contains(data, []byte(" ;")) || bytes.Contains(data, []byte("\t;")) {
			return nil // net/http refuses blanks before an extension
		}
	case NoBody:
	}
	read, err := io.ReadAll(h.Body)
	if err != nil && r.Body(method) != Counted {
		return fmt.Errorf("net/http, body: %w", err)
	}
	switch {
	case h.StatusCode != r.Status:
		return fmt.Errorf("status %d, not %d", h.StatusCode, r.Status)
	case !bytes.Equal(read, body):
		return fmt.Errorf("body %q, not %q", read, body)
	}
	for _, f := range r.Fields {
		if h.Header[f.Name] == nil {
			return fmt.Errorf("net/http has no %s", f.Name)
		}
	}
	return nil
}

// FuzzAnswer looks for responses with another status or body here than in net/http.
func FuzzAnswer(f *testing.F) {
	for _, text := range plainAnswers {
		f.Add([]byte(text), false)
	}
	for _, text := range oddAnswers {
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, isHead bool) {
		method := "GET"
		if isHead {
			method = "HEAD"
		}
		if err := compareAnswer(data, method); err != nil {
			t.Errorf("%q: %v", data, err)
		}
	})
}

func TestChunks(t *testing.T) {
	for _, tc := range []struct{ in, data, rest string }{
		{"0\r\n\r\n", "", ""},
		{"3\r\nabc\r\n0\r\n\r\nHTTP", "abc", "HTTP"},
		{"00a\r\n0123456789\r\n1\r\nx\r\n000\r\n\r\n", "0123456789x", ""},
		{"1\r\nx\r\n0\r\nX-A: b\r\nX-C: d\r\n\r\nrest", "x", "rest"},
		{"5   \r\nhello\r\n0 \t\r\n\r\n", "hello", ""},
		{"5;sig=abc\r\nhello\r\n1 ; a = \"b;\\\"c\"\r\n!\r\n0;end\r\n\r\nrest", "hello!", "rest"},
		{"1;\r\nx\r\n0;\r\n\r\n", "x", ""},
		{
			"1;" + strings.Repeat("e", maxExtra) + "\r\nx\r\n1;" + strings.Repeat("e", maxExtra) + "\r\ny\r\n0\r\n\r\n", "xy",
			"",
		},
	} {
		for size := range min(len(tc.in), 100) {
			var c Chunks
			out, in := "", tc.in
			for in != "" && !c.Done {
				data, n, err := c.Next([]byte(in[:min(size+1, len(in))]))
				if err != nil {
					t.Fatalf("%.80q: %v", tc.in, err)
				}
				out, in = out+string(data), in[n:]
			}
			if !c.Done || out != tc.data || in != tc.rest {
				t.Errorf("%.80q in pieces of %d: the data %q, %q left, %+v", tc.in, size+1, out, in, c)
			}
		}
		if err := CheckChunks([]byte(tc.in)); err != nil {
			t.Errorf("%.80q: %v", tc.in, err)
		}
	}
	for _, text := range []string{
		"\r\n", "x\r\n", "-1\r\n", "+1\r\n", " 1\r\n", "1 1\r\n", "1 x\r\n", ";a\r\n", "1;a\nx\r\n", "1;a\x00\r\n", "1;a\rx",
		"1 \n", "1\nx\n", "1\r\nxy\r\n", "1\r\nx\n", "1\r\nx\r1", "0\r\n\n", "0\r\n \r\n",
		"1\rx", "0x1\r\n", "ffffffffffffffff\r\n", "0\r\nA: \x00\r\n", "0\r\nA: b\n\r\n",
		"0\r\nA: " + strings.Repeat("b", maxExtra) + "\r\n\r\n", "1;" + strings.Repeat("e", maxExtra+1),
		"1" + strings.Repeat(" ", maxExtra+1),
	} {
		if err := CheckChunks([]byte(text)); !errors.Is(err, ErrAnswer) {
			t.Errorf("%.40q is read", text)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	text := []byte(plainHeads["a browser"])
	var r Request
	b.ReportAllocs()
	for b.Loop() {
		r.Reset()
		if _, v := r.Parse(text); v != Ready {
			b.Fatal(v)
		}
	}
}
