// Package http1 reads HTTP/1.1 as browsers and load balancers write it, and nothing
// else. A request that it does not plainly know is told to be [Odd], and is for
// net/http, with the bytes that were read: so there is one tolerant reader and not two.
// An answer of a site that it does not plainly know is an error.
//
// What is read is told as strings of their own, one allocation for each head, so that
// nobody holds on to a buffer that is used again.
package http1

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// MaxHead is how long the head of a request may be, in bytes.
const MaxHead = 16 << 10

// maxFields is how many lines a head may have.
const maxFields = 100

// Verdict is what a reader says of the bytes that there are.
type Verdict uint8

const (
	// More bytes are needed.
	More Verdict = iota
	// Ready says that a head is there, whole and plain.
	Ready
	// Odd says that these bytes are not for this package.
	Odd
)

// Field is one line of a header. The name is spelled as net/http spells it, the value is
// without the blanks around it.
type Field struct{ Name, Value string }

// Request is the head of a request. It is read by one goroutine at a time, and used
// again for the next after [Request.Reset].
//
// What is accepted, everything else is Odd:
//
//	request line   METHOD SP TARGET SP HTTP/1.1 CR LF, nothing doubled
//	method         GET HEAD POST PUT PATCH DELETE OPTIONS
//	target         begins with one slash; letters, digits, -._~!$&'()*+,;=:@/? and % with two hex digits
//	lines          name, colon, value, CR LF; at most 100 lines, 16 KiB in all
//	name           one or more token characters (RFC 9110, 5.6.2), so no folding and no blank before the colon
//	value          printable ASCII and blanks
//	Host           once; letters, digits, dots, hyphens, and a port where there is a colon
//	Content-Length none, or one of up to 10 digits without a leading zero; of POST, PUT and PATCH only
//	Connection     none, or one line: keep-alive or close
//	others         none of Transfer-Encoding, Trailer, TE, Expect, Upgrade, HTTP2-Settings, Keep-Alive and
//	               Proxy-*; Pragma only beside Cache-Control, which net/http would add; User-Agent at most
//	               once, as net/http sends a site the first
type Request struct {
	Method, Target, Host string

	// Fields are the lines in their order, without Host, Content-Length and Connection.
	Fields []Field

	Length int64 // of the body; -1 where none is told, and there is no body
	Close  bool  // the connection is to end with the answer

	at    int // where the first line begins that was not read yet
	lines []line
	text  []byte
}

// line tells where name and value of a line stand in a head.
type line struct{ name, nameEnd, value, valueEnd int }

// Reset makes r ready for the next head.
func (r *Request) Reset() {
	clear(r.Fields)
	*r = Request{Fields: r.Fields[:0], lines: r.lines[:0], text: r.text[:0]}
}

// Parse reads a head at the beginning of buf. It returns how many bytes it has, where it
// is Ready. Where it says More, it is to be called again with the same bytes and those
// that came since.
func (r *Request) Parse(buf []byte) (int, Verdict) {
	for {
		i := bytes.IndexByte(buf[r.at:], '\n')
		if i < 0 {
			if len(buf) >= MaxHead {
				return 0, Odd
			}
			return 0, More
		}
		end := r.at + i + 1
		if i == 0 || buf[end-2] != '\r' || end > MaxHead {
			return 0, Odd
		}
		switch {
		case r.at == 0:
			if !plainRequestLine(buf[:end-2]) {
				return 0, Odd
			}
		case i == 1:
			if !r.take(buf[:end]) {
				return 0, Odd
			}
			return end, Ready
		default:
			l, ok := splitLine(buf, r.at, end-2, &plainValue)
			if !ok || len(r.lines) == maxFields {
				return 0, Odd
			}
			r.lines = append(r.lines, l)
		}
		r.at = end
	}
}

// version is what a request line ends with.
const version = " HTTP/1.1"

// plainRequestLine reports whether a request line is one that is accepted.
func plainRequestLine(b []byte) bool {
	b, ok := bytes.CutSuffix(b, []byte(version))
	if !ok {
		return false
	}
	method, target, ok := bytes.Cut(b, []byte(" "))
	if !ok || methodOf(method) == "" || len(target) == 0 || target[0] != '/' || len(target) > 1 && target[1] == '/' {
		return false
	}
	for i := range target {
		c := target[i]
		if !plainTarget[c] {
			return false
		}
		if c == '%' && (i+2 >= len(target) || !isHex(target[i+1]) || !isHex(target[i+2])) {
			return false
		}
	}
	return true
}

// methodOf returns the method that a text is, empty for none that is accepted.
func methodOf(b []byte) string {
	switch string(b) {
	case "GET":
		return "GET"
	case "HEAD":
		return "HEAD"
	case "POST":
		return "POST"
	case "PUT":
		return "PUT"
	case "PATCH":
		return "PATCH"
	case "DELETE":
		return "DELETE"
	case "OPTIONS":
		return "OPTIONS"
	}
	return ""
}

// splitLine tells name and value apart of the line buf[from:to].
func splitLine(buf []byte, from, to int, allowed *[256]bool) (line, bool) {
	colon := bytes.IndexByte(buf[from:to], ':')
	if colon <= 0 {
		return line{}, false
	}
	l := line{from, from + colon, from + colon + 1, to}
	for _, c := range buf[l.name:l.nameEnd] {
		if !tokenChar[c] {
			return line{}, false
		}
	}
	for l.value < l.valueEnd && isBlank(buf[l.value]) {
		l.value++
	}
	for l.valueEnd > l.value && isBlank(buf[l.valueEnd-1]) {
		l.valueEnd--
	}
	b := buf[l.value:l.valueEnd]
	for len(b) >= 8 && printable(binary.LittleEndian.Uint64(b)) {
		b = b[8:]
	}
	for _, c := range b {
		if !allowed[c] {
			return line{}, false
		}
	}
	return l, true
}

// printable reports whether eight bytes are all from blank to tilde, which every value may
// have.
func printable(x uint64) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	// A byte below a blank borrows, and one above a tilde carries, into the highest bit.
	return (x|(x-ones*' ')|(x+ones*(0x80-0x7f)))&high == 0
}

// take makes of a head whose lines are plain what it says, and reports whether that
// is plain too.
func (r *Request) take(head []byte) bool {
	var text string
	text, r.text = canonical(r.text, head, r.lines)
	first, _, _ := strings.Cut(text, version) // a target has no blank
	r.Method, r.Target, _ = strings.Cut(first, " ")
	r.Length = -1
	hosts, lengths, connections := 0, 0, 0
	pragma, cache, agents := false, false, 0
	for _, l := range r.lines {
		name, value := text[l.name:l.nameEnd], text[l.value:l.valueEnd]
		switch name {
		case "Host":
			hosts++
			r.Host = value
			continue
		case "Content-Length":
			lengths++
			n, ok := parseLength(value)
			if !ok {
				return false
			}
			r.Length = n
			continue
		case "Connection":
			connections++
			switch {
			case strings.EqualFold(value, "close"):
				r.Close = true
			case !strings.EqualFold(value, "keep-alive"):
				return false
			}
			continue
		case "Transfer-Encoding", "Trailer", "Te", "Expect", "Upgrade", "Http2-Settings", "Keep-Alive":
			return false
		case "Pragma":
			pragma = true
		case "Cache-Control":
			cache = true
		case "User-Agent":
			agents++
		default:
			if strings.HasPrefix(name, "Proxy-") {
				return false
			}
		}
		r.Fields = append(r.Fields, Field{name, value})
	}
	switch {
	case hosts != 1 || !plainHost(r.Host) || lengths > 1 || connections > 1 || agents > 1 || pragma && !cache:
		return false
	case lengths == 1:
		return r.Method == "POST" || r.Method == "PUT" || r.Method == "PATCH"
	}
	return true
}

// canonical returns a copy of a head in which the names of its lines are spelled as
// net/http spells them; scratch is used for it and returned.
func canonical(scratch, head []byte, lines []line) (string, []byte) {
	scratch = append(scratch[:0], head...)
	for _, l := range lines {
		upper := true
		for i := l.name; i < l.nameEnd; i++ {
			c := scratch[i]
			switch {
			case upper && c >= 'a' && c <= 'z':
				scratch[i] = c - ('a' - 'A')
			case !upper && c >= 'A' && c <= 'Z':
				scratch[i] = c + ('a' - 'A')
			}
			upper = c == '-'
		}
	}
	return string(scratch), scratch
}

// parseLength reads a Content-Length.
func parseLength(s string) (int64, bool) {
	if s == "" || len(s) > 10 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	n := int64(0)
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// plainHost reports whether a Host is a name or an IPv4 address, with or without a port.
func plainHost(s string) bool {
	name, port, colon := strings.Cut(s, ":")
	if name == "" || colon && port == "" {
		return false
	}
	for i := range len(port) {
		if port[i] < '0' || port[i] > '9' {
			return false
		}
	}
	for i := range len(name) {
		c := name[i]
		if c != '.' && c != '-' && !isAlphaNum(c) {
			return false
		}
	}
	return true
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

func isAlphaNum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// Which bytes may stand where.
var tokenChar, plainTarget, plainValue, answerValue [256]bool

func init() {
	for c := range 256 {
		b := byte(c)
		tokenChar[c] = isAlphaNum(b) || b < 0x80 && strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
		plainTarget[c] = isAlphaNum(b) || b < 0x80 && strings.IndexByte("-._~!$&'()*+,;=:@/?%", b) >= 0
		plainValue[c] = b >= ' ' && b < 0x7f
		answerValue[c] = b == '\t' || b >= ' ' && b != 0x7f // sites write UTF-8, and worse
	}
}
