package http1

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxAnswerHead is how long the head of an answer may be, in bytes.
const MaxAnswerHead = 64 << 10

// ErrAnswer is what a site is told to have sent that is no plain answer. Nothing that
// follows on its connection may be believed.
var ErrAnswer = errors.New("not a plain HTTP/1 answer")

func odd(what string) error { return fmt.Errorf("%w: %s", ErrAnswer, what) }

// Response is the head of an answer. It is read by one goroutine at a time, and used again
// for the next after [Response.Reset].
//
// Accepted is HTTP/1.1, and HTTP/1.0 without Transfer-Encoding; a status of 100 to 599; lines
// that end with CR LF, whose names are tokens, without folding; one Content-Length or one
// Transfer-Encoding that is chunked, not both, or neither, where the end of the connection
// is that of the answer.
type Response struct {
	Status int

	// Fields are the lines in their order, without those that are about the connection:
	// framing, hop-by-hop headers, and what Connection names.
	Fields []Field

	Length  int64 // by Content-Length; -1 without
	Chunked bool
	Close   bool // the connection ends with the answer

	at    int
	minor byte
	lines []line
	named []string // by Connection
	text  []byte
}

// Reset makes r ready for the next head.
func (r *Response) Reset() {
	clear(r.Fields)
	clear(r.named)
	*r = Response{Fields: r.Fields[:0], lines: r.lines[:0], named: r.named[:0], text: r.text[:0]}
}

// Parse reads a head at the beginning of buf, and returns how many bytes it has, 0 where
// more are needed: then it is to be called again with the same bytes and more. An error is
// [ErrAnswer].
func (r *Response) Parse(buf []byte) (int, error) {
	for {
		i := bytes.IndexByte(buf[r.at:], '\n')
		if i < 0 {
			if len(buf) >= MaxAnswerHead {
				return 0, odd("the head is too long")
			}
			return 0, nil
		}
		end := r.at + i + 1
		if i == 0 || buf[end-2] != '\r' {
			return 0, odd("a line does not end with CR LF")
		}
		switch {
		case end > MaxAnswerHead:
			return 0, odd("the head is too long")
		case r.at == 0:
			if !r.statusLine(buf[:end-2]) {
				return 0, odd("status line")
			}
		case i == 1:
			return end, r.take(buf[:end])
		default:
			l, ok := splitLine(buf, r.at, end-2, &answerValue)
			if !ok {
				return 0, odd("a line of the header")
			}
			r.lines = append(r.lines, l)
		}
		r.at = end
	}
}

// statusLine reads HTTP/1.x, a blank, three digits, and what may follow a blank.
func (r *Response) statusLine(b []byte) bool {
	const prefix = "HTTP/1."
	if len(b) < len("HTTP/1.1 200") || string(b[:len(prefix)]) != prefix || b[8] != ' ' || len(b) > 12 && b[12] != ' ' {
		return false
	}
	if r.minor = b[7]; r.minor != '0' && r.minor != '1' {
		return false
	}
	for _, c := range b[9:12] {
		if c < '0' || c > '9' {
			return false
		}
		r.Status = r.Status*10 + int(c-'0')
	}
	for _, c := range b[12:] {
		if !answerValue[c] {
			return false
		}
	}
	return r.Status >= 100 && r.Status <= 599
}

func (r *Response) take(head []byte) error {
	var text string
	text, r.text = canonical(r.text, head, r.lines)
	r.Length, r.Close = -1, r.minor == '0'
	lengths, codings := 0, 0
	for _, l := range r.lines {
		name, value := text[l.name:l.nameEnd], text[l.value:l.valueEnd]
		switch name {
		case "Content-Length":
			lengths++
			n, ok := parseLengthOf(value)
			if !ok {
				return odd("Content-Length")
			}
			r.Length = n
		case "Transfer-Encoding":
			codings++
			if !strings.EqualFold(value, "chunked") {
				return odd("Transfer-Encoding")
			}
			r.Chunked = true
		case "Connection":
			for word := range strings.SplitSeq(value, ",") {
				r.name(strings.TrimSpace(word))
			}
		case "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Upgrade":
		default:
			r.Fields = append(r.Fields, Field{name, value})
		}
	}
	switch {
	case lengths > 1 || codings > 1 || lengths+codings > 1:
		return odd("framed in more than one way")
	case r.Chunked && r.minor == '0':
		return odd("chunked in HTTP/1.0")
	}
	if len(r.named) > 0 {
		r.Fields = slices.DeleteFunc(r.Fields, func(f Field) bool {
			return slices.ContainsFunc(r.named, func(n string) bool { return strings.EqualFold(n, f.Name) })
		})
	}
	return nil
}

// name takes note of a word of Connection.
func (r *Response) name(word string) {
	switch {
	case strings.EqualFold(word, "close"):
		r.Close = true
	case word == "" || strings.EqualFold(word, "keep-alive"):
	default:
		r.named = append(r.named, word)
	}
}

// parseLengthOf reads the Content-Length of an answer: those of sites are as long as an
// int64 takes.
func parseLengthOf(s string) (int64, bool) {
	if s == "" || len(s) > 18 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	n := int64(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

// Body tells how the body of an answer to a request with this method ends.
func (r *Response) Body(method string) Framing {
	switch {
	case method == "HEAD" || r.Status < 200 || r.Status == 204 || r.Status == 304 || r.Length == 0:
		return NoBody
	case r.Chunked:
		return Chunked
	case r.Length > 0:
		return Counted
	}
	return ToTheEnd
}

// Framing is how a body ends.
type Framing uint8

const (
	// NoBody is none, or an empty one.
	NoBody Framing = iota
	// Counted is as long as Content-Length says.
	Counted
	// Chunked ends with a chunk of no bytes.
	Chunked
	// ToTheEnd ends with the connection.
	ToTheEnd
)

// Chunks follows a chunked body through the bytes that carry it. They may be passed on as
// they are, but for trailers, which are read and left out. Extensions of chunks are
// refused. The zero value is at the beginning.
type Chunks struct {
	Done bool // the body has ended

	state    chunkState
	left     int64 // of a chunk
	digits   int
	trailers int  // bytes
	cut      bool // there are trailers
}

type chunkState uint8

const (
	chunkSize      chunkState = iota
	chunkSizeEnd              // LF after a size
	chunkData                 //
	chunkDataCR               // CR after data
	chunkDataEnd              // LF after data
	chunkLast                 // CR, or the first byte of a trailer
	chunkLastEnd              // LF at the very end
	chunkTrailer              // within one
	chunkTrailerLF            // LF after one
)

// maxTrailers is how many bytes of trailers are read over.
const maxTrailers = 8 << 10

// Scan goes on with the bytes of buf. Of those, buf[:pass] are to be passed on, and buf[:n]
// belong to the body; n is less than len(buf) only where it is Done. Where there were
// trailers, pass ends before them, and the caller ends the body by CR LF: see Cut. An
// error is [ErrAnswer].
func (c *Chunks) Scan(buf []byte) (pass, n int, err error) {
	for n < len(buf) && !c.Done {
		b := buf[n]
		switch c.state {
		case chunkSize:
			switch d, ok := hexOf(b); {
			case ok && c.digits < 12:
				c.left, c.digits = c.left<<4|int64(d), c.digits+1
			case b == '\r' && c.digits > 0:
				c.state = chunkSizeEnd
			default:
				return 0, 0, odd("size of a chunk")
			}
		case chunkSizeEnd, chunkDataEnd, chunkLastEnd, chunkTrailerLF:
			if b != '\n' {
				return 0, 0, odd("a line of a chunk does not end with CR LF")
			}
			switch {
			case c.state == chunkLastEnd:
				c.Done = true
			case c.state == chunkDataEnd:
				c.state, c.digits = chunkSize, 0
			case c.state == chunkTrailerLF || c.left == 0:
				c.state = chunkLast
			default:
				c.state = chunkData
			}
		case chunkData:
			take := min(int64(len(buf)-n), c.left)
			n += int(take)
			if c.left -= take; c.left == 0 {
				c.state = chunkDataCR
			}
			pass = n
			continue
		case chunkDataCR:
			if b != '\r' {
				return 0, 0, odd("end of a chunk")
			}
			c.state = chunkDataEnd
		case chunkLast:
			switch {
			case b == '\r':
				c.state = chunkLastEnd
			case tokenChar[b]:
				c.state = chunkTrailer
				c.cut = true
			default:
				return 0, 0, odd("trailer")
			}
		case chunkTrailer:
			switch {
			case b == '\r':
				c.state = chunkTrailerLF
			case !answerValue[b]:
				return 0, 0, odd("trailer")
			}
		}
		n++
		if c.cut {
			if c.trailers++; c.trailers > maxTrailers {
				return 0, 0, odd("trailers are too long")
			}
		} else {
			pass = n
		}
	}
	return pass, n, nil
}

// Next goes on with the bytes of buf up to the end of the next piece of data in it, which it returns;
// buf[:n] belong to the body. There may be none in buf; the body is told to have ended as by Scan. An
// error is [ErrAnswer].
func (c *Chunks) Next(buf []byte) (data []byte, n int, err error) {
	for n < len(buf) && !c.Done {
		from := n
		if c.state == chunkData {
			n += int(min(int64(len(buf)-n), c.left))
		} else {
			n++
		}
		in := c.state == chunkData
		if _, _, err := c.Scan(buf[from:n]); err != nil {
			return nil, 0, err
		}
		if in {
			return buf[from:n], n, nil
		}
	}
	return nil, n, nil
}

// Cut reports whether trailers were left out, and with them the end of the body.
func (c *Chunks) Cut() bool { return c.cut }

func hexOf(b byte) (byte, bool) {
	switch {
	case b >= '0' && b <= '9':
		return b - '0', true
	case b >= 'a' && b <= 'f':
		return b - 'a' + 10, true
	case b >= 'A' && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}
