package edge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// headerLines are lines that the two fronts may treat differently; some end the head.
var headerLines = []string{
	"Connection: keep-alive", "Connection: X-A, close\r\nX-A: b", "Pragma: no-cache",
	"Pragma: no-cache\r\nCache-Control: max-age=0", "TE: trailers", "Te: trailers, gzip",
	"Accept-Encoding: gzip", "x-forwarded-for: 1.1.1.1\r\nforwarded: for=1.1.1.1\r\nX-Forwarded-Host: a",
	"Content-Length: 3\r\n\r\nabc", "Content-Length: 03\r\n\r\nabc",
	"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", "Cookie:\r\nCookie: a=1\r\nCookie: vestibule-sale=x; b=2;; c",
	"User-Agent:", "X-A:\r\nX-B: \t c\t d ", "Range: bytes=0-",
	"Proxy-Authorization: a\r\nKeep-Alive: b\r\nProxy-Connection: c", "Trailer: X-A", "If-None-Match: \"a\"",
	"Authorization: Basic YTpi", "Host: shop.example", "Vestibule-Poll: 1",
	"User-Agent: a\r\nUser-Agent: b",
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
	method := w.one("GET", "GET", "GET", "POST", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "MOVE",
		"QUERY")
	target, host, version, end := w.one("/about", "/about?x=1", "/", "/vip", "/vip/a?b"),
		w.one("shop.example", "sale.example", "shop.example:80"), "HTTP/1.1", "\r\n"
	if !plain {
		method = w.one(method, method, "get", "CONNECT", "TRACE", "PRI", "PURGE", "", "GET ", "P\x00ST")
		switch w.rand.IntN(4) {
		case 0:
			target = w.one(vipSpellings...)
		case 1:
			target = w.one(oddTargets...)
		case 2:
			target = w.one("*", "", "http://shop.example/about", "http://sale.example", "shop.example:80",
				"/about?"+strings.Repeat("a", w.rand.IntN(20000)), "/.well-known/vestibule/leave?room=vip", "/ab\tout", "/about /x")
		}
		host = w.one(host, host, "SHOP.example.", "evil.example", "", "[::1]:80", "shop.example, sale.example",
			"shop.example:http", "a@shop.example", "127.0.0.1")
		version = w.one(version, version, version, "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 ", "",
			"HTTP/01.1", "HTTP/1.1x")
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
	for _, l := range []string{
		"X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: " + w.one("http", "https"),
		"X-Forwarded-Method: " + method, "X-Forwarded-Host: " + host, "X-Forwarded-Uri: " + target,
	} {
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
		return w.one("User-Agent: a/1.0", "Accept: text/html", "Accept: */*", "Accept-Language: de, en;q=0.5",
			"Accept-Encoding: gzip, br", "Cache-Control: no-cache", "Referer: http://x/",
			"Connection: keep-alive", "Connection: close", "connection: Keep-Alive", "Sec-Fetch-Mode: navigate",
			"If-None-Match: \"a\"", "Range: bytes=0-1", "Origin: http://x", "X-Requested-With: y",
			"Authorization: Basic YTpi", "Content-Type: text/plain", "Cookie: a=1; vestibule-sale=x", "X-Forwarded-For: 6.6.6.6",
			"Vestibule-Poll: 1", "Sec-Fetch-Dest: image")
	}
	name := w.one("X-A", "x-a", "Transfer-Encoding", "Content-Length", "Connection", "Host", "Expect", "Upgrade", "TE",
		"Trailer", "Keep-Alive", "Proxy-Connection", "Cookie", "X_A", "X-Forwarded-Host", "Forwarded",
		"Via", "Vestibule-Ticket", "Vestibule-Proof", "X-Vestibule-A", "HTTP2-Settings", "Pragma", "X-Real-IP",
		"X-Original-URL", "X-HTTP-Method-Override", "Date", "User-Agent", "Destination", "Authorization", ":path", "", "X A",
		"X-\xe9", "X-A\x00")
	value := w.one("", "a", " a ", "\ta\t", "close", "keep-alive", "Upgrade", "upgrade, HTTP2-Settings", "TE", "NTLM TlRM",
		"chunked", "gzip, chunked", "100-continue", "websocket", "h2c", "trailers", "X-A", "Host, Cookie", "5", "0", "-1",
		"1e3", "0x5", "+1",
		"99999999999999999999", "a, b", "a\x00b", "a\rb", "a\x7fb", "\xe9\xc3", "a\r\n b", "a\r\n\tb", "a=b; c",
		"shop.example", "/vip", "\"", strings.Repeat("v", w.rand.IntN(3000)))
	return name + w.one(":", ": ", ": ", ": ", " : ", ":\t", "", " ") + value
}

// body adds the header lines of a body, and returns the body.
func (w *writer) body(plain bool, lines *[]string) string {
	body := w.one("", "a=b", "{}", strings.Repeat("x", w.rand.IntN(200)),
		"GET /vip HTTP/1.1\r\nHost: shop.example\r\n\r\n")
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
		return w.one(chunked, chunked, strings.Replace(chunked, "\r\n", ";a=b\r\n", 1),
			strings.Replace(chunked, "\r\n", "\n", 1), "+"+chunked, strings.TrimSuffix(chunked, "\r\n")+"X-T: a\r\n\r\n")
	case 4:
		*lines = append(*lines, counted, w.one("Transfer-Encoding: chunked", "transfer-encoding: x",
			"Transfer-Encoding : chunked", "Transfer-Encoding: identity"))
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
		w.out = slices.Insert(w.out, at,
			[]byte(w.one("\r", "\n", "\r\n", " ", "\t", ":", "\x00", "\r\n ", "%", "/", "a", "\xff"))...)
	case 3:
		end := min(len(w.out), at+w.rand.IntN(40))
		w.out = slices.Insert(w.out, w.rand.IntN(len(w.out)), slices.Clone(w.out[at:end])...)
	}
}

// overHTTP2 returns the fields of a request, and its body, nil for none.
func (w *writer) overHTTP2() (fields []string, body []byte) {
	method := w.one("GET", "GET", "GET", "GET", "GET", "HEAD", "HEAD", "POST", "DELETE", "PUT", "OPTIONS", "PROPFIND",
		"TRACE", "GET X", "")
	fields = []string{
		":method", method, ":scheme", w.one("https", "https", "https", "https", "https", "https", "http", "ftp"),
		":authority", w.one("shop.example", "shop.example", "shop.example", "sale.example", "sale.example", "shop.example:80",
			"SHOP.example.", "", "a@shop.example"),
		":path", w.one("/about", "/about?x=1", "/", "/vip", "/vip/a?b", "*", "", w.one(vipSpellings...),
			w.one(oddTargets...)),
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
