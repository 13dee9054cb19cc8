// Package http1 parses HTTP/1.1 as browsers and load balancers write it, and nothing else. Any other request is
// reported as [Odd], for net/http with the bytes already read, so that there is only one tolerant parser. Any other
// response of a site is an error.
//
// Parsed values are strings in one allocation per head, so that no caller keeps a reused buffer.
package http1

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
)

// MaxHead is the maximum length of a request head, in bytes.
const MaxHead = 16 << 10

// maxFields is the maximum number of header lines.
const maxFields = 100

// Verdict is the result of parsing the bytes so far.
type Verdict uint8

const (
	// More means that more bytes are needed.
	More Verdict = iota
	// Ready means that a complete plain head was parsed.
	Ready
	// Odd means that the bytes are for another parser.
	Odd
)

// Field is one header line. The name has the spelling of net/http, the value no surrounding blanks.
type Field struct{ Name, Value string }

// Request is the head of a request. One goroutine at a time uses it, for one request after the other, see
// [Request.Reset].
//
// Accepted is the following; everything else is Odd:
//
//	request line   METHOD SP TARGET SP HTTP/1.1 CR LF, nothing doubled
//	method         GET HEAD POST PUT PATCH DELETE OPTIONS
//	target         begins with one slash; letters, digits, -._~!$&'()*+,;=:@/? and % with two hex digits
//	lines          name, colon, value, CR LF; at most 100 lines, 16 KiB in all
//	name           one or more token characters (RFC 9110, 5.6.2), so no folding and no blank before the colon
//	value          printable ASCII and blanks
//	Host           once; letters, digits, dots, hyphens, and a port if there is a colon
//	Content-Length none, or one of up to 10 digits without a leading zero; of POST, PUT and PATCH only
//	Connection     none, or one line: keep-alive or close
//	others         none of Transfer-Encoding, Trailer, TE, Expect, Upgrade, HTTP2-Settings, Keep-Alive and
//	               Proxy-*; Pragma only beside Cache-Control, which net/http would add; User-Agent at most
//	               once, as net/http sends a site the first
type Request struct {
	Method, Target, Host string

	// Fields are the lines in order, without Host, Content-Length and Connection.
	Fields []Field

	Length int64 // of the body; -1 without Content-Length, and without a body
	Close  bool  // close the connection after the response

	at    int // start of the first unparsed line
	lines []line
	text  []byte
}

// line is the position of a header line's name and value in a head.
type line struct{ name, nameEnd, value, valueEnd int }

// Reset prepares r for the next head.
func (r *Request) Reset() {
	clear(r.Fields)
	*r = Request{Fields: r.Fields[:0], lines: r.lines[:0], text: r.text[:0]}
}

// Parse parses a head at the start of buf and returns its length if Ready. After More, call it again with the same
// bytes and the new ones.
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
			if !r.parsePlain(buf[:end]) {
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

// version is the end of a request line.
const version = " HTTP/1.1"

// plainRequestLine reports whether a request line is accepted.
func plainRequestLine(b []byte) bool {
	b, ok := bytes.CutSuffix(b, []byte(version))
	if !ok {
		return false
	}
	method, target, ok := bytes.Cut(b, []byte(" "))
	return ok && methodOf(method) != "" && isPlainTarget(target)
}

func isPlainTarget[T string | []byte](target T) bool {
	if len(target) == 0 || target[0] != '/' || len(target) > 1 && target[1] == '/' {
		return false
	}
	for i := range len(target) {
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

// methods are the accepted methods.
var methods = [...]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// methodOf returns the accepted method in a text, or "".
func methodOf[T string | []byte](b T) string {
	for _, m := range methods {
		if string(b) == m {
			return m
		}
	}
	return ""
}

// splitLine splits the line buf[from:to] into name and value.
func splitLine(buf []byte, from, to int, allowed *[256]bool) (line, bool) {
	colon := bytes.IndexByte(buf[from:to], ':')
	if colon <= 0 {
		return line{}, false
	}
	l := line{from, from + colon, from + colon + 1, to}
	if !only(buf[l.name:l.nameEnd], &tokenChar) {
		return line{}, false
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
	return l, only(b, allowed)
}

// only reports whether all bytes of a text are of a class.
func only[T string | []byte](text T, allowed *[256]bool) bool {
	for i := range len(text) {
		if !allowed[text[i]] {
			return false
		}
	}
	return true
}

// PlainValue reports whether a value is plain.
func PlainValue(s string) bool { return only(s, &plainValue) }

// printable reports whether eight bytes are all from blank to tilde, which every value may contain.
func printable(x uint64) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	// A byte below a blank borrows, and one above a tilde carries, into the highest bit.
	return (x|(x-ones*' ')|(x+ones*(0x80-0x7f)))&high == 0
}

// parsePlain extracts the fields of a head with plain lines, and reports whether its content is plain too.
func (r *Request) parsePlain(head []byte) bool {
	var text string
	text, r.text = canonical(r.text, head, r.lines)
	first, _, _ := strings.Cut(text, version) // a target has no blank
	r.Method, r.Target, _ = strings.Cut(first, " ")
	r.Length = -1
	hosts, lengths, connections, lone := 0, 0, 0, loners{}
	for _, l := range r.lines {
		name, value := text[l.name:l.nameEnd], text[l.value:l.valueEnd]
		switch name {
		case "Host":
			hosts++
			r.Host = value
			continue
		case "Content-Length":
			lengths++
			n, ok := parseLength(value, 10)
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
		}
		if !lone.add(name) {
			return false
		}
		r.Fields = append(r.Fields, Field{name, value})
	}
	return hosts == 1 && lengths <= 1 && connections <= 1 && r.plainContent(&lone)
}

// Adopt makes r a request without a body that another parser has read, with all lines but Host and Content-Length in
// Fields, and reports whether it is plain. Names have the spelling of net/http, values are plain without surrounding
// blanks; length is the Content-Length, -1 for none.
func (r *Request) Adopt(method, target, host string, length int64) bool {
	r.Method, r.Target, r.Host, r.Length = methodOf(method), target, host, length
	if r.Method == "" || len(r.Fields) > maxFields || !isPlainTarget(target) {
		return false
	}
	lone := loners{}
	for i := range r.Fields {
		if !lone.add(r.Fields[i].Name) {
			return false
		}
	}
	return r.plainContent(&lone)
}

// plainContent reports whether what the lines of a head say together is plain.
func (r *Request) plainContent(lone *loners) bool {
	return plainHost(r.Host) && lone.ok() &&
		(r.Length < 0 || r.Method == "POST" || r.Method == "PUT" || r.Method == "PATCH")
}

// loners are lines that may come once, or not alone.
type loners struct {
	agents        int
	pragma, cache bool
}

// add notes a line, and reports whether it is plain.
func (l *loners) add(name string) bool {
	switch name {
	case "Transfer-Encoding", "Trailer", "Te", "Expect", "Upgrade", "Http2-Settings", "Keep-Alive":
		return false
	case "Pragma":
		l.pragma = true
	case "Cache-Control":
		l.cache = true
	case "User-Agent":
		l.agents++
	default:
		return !strings.HasPrefix(name, "Proxy-")
	}
	return true
}

func (l *loners) ok() bool { return l.agents <= 1 && (l.cache || !l.pragma) }

// canonical returns a copy of a head with header names in the spelling of net/http; it uses scratch and returns it.
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

// parseLength parses a Content-Length of at most so many digits.
func parseLength(s string, digits int) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil && len(s) <= digits && (s == "0" || s[0] != '0')
}

// plainHost reports whether a Host is a name or an IPv4 address, with or without a port.
func plainHost(s string) bool {
	name, port, colon := strings.Cut(s, ":")
	return name != "" && only(name, &hostChar) && (!colon || port != "" && only(port, &digit))
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

func isAlphaNum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// Character classes.
var tokenChar, plainTarget, plainValue, answerValue, hostChar, digit [256]bool

func init() {
	for c := range 256 {
		b := byte(c)
		tokenChar[c] = isAlphaNum(b) || b < 0x80 && strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
		plainTarget[c] = isAlphaNum(b) || b < 0x80 && strings.IndexByte("-._~!$&'()*+,;=:@/?%", b) >= 0
		hostChar[c] = b == '.' || b == '-' || isAlphaNum(b)
		digit[c] = b >= '0' && b <= '9'
		plainValue[c] = b >= ' ' && b < 0x7f
		answerValue[c] = b == '\t' || b >= ' ' && b != 0x7f // sites write UTF-8, and worse
	}
}
