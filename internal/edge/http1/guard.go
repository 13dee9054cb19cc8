package http1

import (
	"bytes"
	"strconv"
	"strings"
)

// Guard checks the bytes that net/http reads from a connection, for what servers read in more than one way and net/http
// reads in one of them: folded lines, more than one framing of a body, blanks in names. Of answers it demands CR LF
// too. It follows the heads and bodies of a connection, and keeps no bytes but the beginning of a line. The zero value
// is at the start of requests. One goroutine at a time uses it.
type Guard struct {
	answers bool
	state   guardState
	method  string // of the request that an answer is for; "" for none
	status  int    // of an answer

	line  [maxFraming]byte // the beginning of a line
	n     int              // its length so far; more than len(line) is not kept
	last  byte             // of the line
	lines int              // of the head so far

	lengths, codings int // lines of Content-Length and Transfer-Encoding
	length           int64
	chunked          bool
	old              bool // HTTP/1.0

	left   int64 // of a counted body
	chunks Chunks
}

// maxFraming is the longest line, in bytes, that may frame a body.
const maxFraming = 128

type guardState uint8

const (
	inHead guardState = iota
	inBody
	inChunks
	unguarded // up to the end of the connection
)

// GuardOfAnswers returns a guard of a site's answers. Nothing may come before [Guard.Asks].
func GuardOfAnswers() *Guard { return &Guard{answers: true} }

// Asks notes that a request is sent, whose answer comes next.
func (g *Guard) Asks(method string) { g.method = method }

// InChunks reports whether the next byte is of a chunked body.
func (g *Guard) InChunks() bool { return g.state == inChunks }

// Between reports whether the last byte was the end of a message, or none was read.
func (g *Guard) Between() bool { return g.state == inHead && g.lines == 0 && g.n == 0 }

// Next returns how many bytes of b may be read. The error, [ErrAnswer], is for the byte behind them.
func (g *Guard) Next(b []byte) (n int, err error) {
	for n < len(b) {
		switch g.state {
		case unguarded:
			return len(b), nil
		case inBody:
			take := min(g.left, int64(len(b)-n))
			n += int(take)
			if g.left -= take; g.left == 0 {
				g.next()
			}
		case inChunks:
			_, took, err := g.chunks.Next(b[n:])
			if err != nil {
				return n, err
			}
			if n += took; g.chunks.Done {
				g.next()
			}
		case inHead:
			if g.answers && g.method == "" {
				return n, odd("an answer to no request")
			}
			end := bytes.IndexByte(b[n:], '\n')
			if end < 0 {
				g.keep(b[n:])
				return len(b), nil
			}
			g.keep(b[n : n+end])
			if err := g.endLine(); err != nil {
				return n, err
			}
			n += end + 1
		}
	}
	return n, nil
}

// keep adds bytes to the line.
func (g *Guard) keep(b []byte) {
	if len(b) == 0 {
		return
	}
	if g.n < len(g.line) {
		copy(g.line[g.n:], b)
	}
	g.n, g.last = g.n+len(b), b[len(b)-1]
}

// endLine checks a line.
func (g *Guard) endLine() error {
	n, whole, cr := g.n, g.n <= len(g.line), g.n > 0 && g.last == '\r'
	g.n, g.last = 0, 0
	line := g.line[:min(n, len(g.line))]
	if cr && whole {
		line = line[:n-1]
	}
	switch {
	case g.answers && !cr:
		return odd("a line does not end with CR LF")
	case len(line) == 0 && g.lines == 0 && !g.answers:
		return nil // some browsers send it behind a form
	case len(line) == 0:
		return g.endHead()
	}
	if g.lines++; g.lines == 1 {
		return g.firstLine(line, whole)
	}
	if isBlank(line[0]) {
		return odd("a folded line")
	}
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok && whole {
		return odd("a line without a colon")
	}
	if !only(name, &tokenChar) {
		return odd("the name of a field")
	}
	return g.field(string(name), strings.Trim(string(value), " \t"), whole)
}

// firstLine reads the request or status line.
func (g *Guard) firstLine(line []byte, whole bool) error {
	if !g.answers {
		if whole && string(line) == "PRI * HTTP/2.0" {
			g.state = unguarded // net/http reads HTTP/2, or refuses it
		}
		g.old = whole && bytes.HasSuffix(line, []byte(" HTTP/1.0"))
		return nil
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return odd("the status line")
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return odd("the status")
	}
	g.status, g.old = status, line[7] == '0'
	return nil
}

// field reads a line that may frame the body.
func (g *Guard) field(name, value string, whole bool) error {
	switch {
	case strings.EqualFold(name, "Content-Length"):
		var ok bool
		if g.length, ok = parseLength(value, lengthDigits); !ok {
			return odd("a Content-Length")
		}
		g.lengths++
	case strings.EqualFold(name, "Transfer-Encoding"):
		g.codings++
		g.chunked = strings.EqualFold(value, "chunked")
	default:
		return nil
	}
	if !whole || g.lengths+g.codings > 1 {
		return odd("framed in more than one way")
	}
	return nil
}

// endHead begins the body.
func (g *Guard) endHead() error {
	if g.codings > 0 && g.old {
		return odd("chunked in HTTP/1.0")
	}
	switch {
	case g.answers && (g.status == 101 || g.status < 100):
		g.state = unguarded // upgraded, or no answer
	case g.answers && g.status < 200:
		g.beginHead() // the final answer follows
	case g.answers && (g.method == "HEAD" || g.status == 204 || g.status == 304):
		g.next()
	case g.codings > 0 && !g.chunked:
		g.state = unguarded // net/http refuses the coding
	case g.chunked:
		g.state, g.chunks = inChunks, Chunks{}
	case g.length > 0:
		g.state, g.left = inBody, g.length
	case g.answers && g.lengths == 0:
		g.state = unguarded // to the end of the connection
	default:
		g.next()
	}
	return nil
}

// next begins the next message.
func (g *Guard) next() {
	g.beginHead()
	g.method = ""
}

func (g *Guard) beginHead() {
	g.state, g.lines, g.lengths, g.codings, g.length, g.chunked, g.old = inHead, 0, 0, 0, 0, false, false
}
