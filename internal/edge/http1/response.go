package http1

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxAnswerHead is the maximum length of a response head, in bytes.
const MaxAnswerHead = 64 << 10

// ErrAnswer is returned for a response that is not plain. The rest of its connection is not trustworthy.
var ErrAnswer = errors.New("not a plain HTTP/1 answer")

func odd(what string) error { return fmt.Errorf("%w: %s", ErrAnswer, what) }

// Response is the head of a response. One goroutine at a time uses it, for one response after the other, see
// [Response.Reset].
//
// Accepted are HTTP/1.1, and HTTP/1.0 without Transfer-Encoding; a status of 100 to 599; lines that end with CR LF,
// with tokens as names, without folding; one Content-Length or one chunked Transfer-Encoding, not both. With
// neither, the response ends with the connection.
type Response struct {
	Status int

	// Fields are the lines in order, without connection-specific ones: framing, hop-by-hop headers, and those named
	// by Connection.
	Fields []Field

	Length  int64 // Content-Length; -1 without
	Chunked bool
	Close   bool // the connection ends with the response

	at    int
	minor byte
	lines []line
	named []string // by Connection
	text  []byte
}

// Reset prepares r for the next head.
func (r *Response) Reset() {
	clear(r.Fields)
	clear(r.named)
	*r = Response{Fields: r.Fields[:0], lines: r.lines[:0], named: r.named[:0], text: r.text[:0]}
}

// Parse parses a head at the start of buf and returns its length, or 0 if more bytes are needed: then call it again
// with the same bytes and more. The error is [ErrAnswer].
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
			return end, r.parse(buf[:end])
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

// statusLine parses HTTP/1.x, a blank, three digits, and an optional reason after a blank.
func (r *Response) statusLine(b []byte) bool {
	const prefix = "HTTP/1."
	if len(b) < len("HTTP/1.1 200") || string(b[:len(prefix)]) != prefix || b[8] != ' ' || len(b) > 12 && b[12] != ' ' {
		return false
	}
	if r.minor = b[7]; r.minor != '0' && r.minor != '1' {
		return false
	}
	if !only(b[9:12], &digit) {
		return false
	}
	r.Status = int(b[9]-'0')*100 + int(b[10]-'0')*10 + int(b[11]-'0')
	return r.Status >= 100 && r.Status <= 599 && only(b[12:], &answerValue)
}

func (r *Response) parse(head []byte) error {
	var text string
	text, r.text = canonical(r.text, head, r.lines)
	r.Length, r.Close = -1, r.minor == '0'
	lengths, codings := 0, 0
	for _, l := range r.lines {
		name, value := text[l.name:l.nameEnd], text[l.value:l.valueEnd]
		switch name {
		case "Content-Length":
			lengths++
			n, ok := parseLength(value, lengthDigits)
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
				switch word = strings.TrimSpace(word); {
				case strings.EqualFold(word, "close"):
					r.Close = true
				case word != "" && !strings.EqualFold(word, "keep-alive"):
					r.named = append(r.named, word)
				}
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

// lengthDigits are those of a response's Content-Length, which may be as long as an int64 allows.
const lengthDigits = 18

// Body returns the framing of the response body for a request with this method.
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
	// NoBody is no body, or an empty one.
	NoBody Framing = iota
	// Counted ends after Content-Length bytes.
	Counted
	// Chunked ends with an empty chunk.
	Chunked
	// ToTheEnd ends with the connection.
	ToTheEnd
)

// Chunks parses a chunked body. Blanks and extensions behind the size of a chunk, and trailers, are read and dropped:
// a caller that passes the body on writes chunks of its own. The zero value is at the start.
type Chunks struct {
	Done bool // the body has ended

	state  chunkState
	left   int64 // of a chunk
	digits int
	extra  int // bytes of the extension of this chunk, or of the trailers
}

type chunkState uint8

const (
	chunkSize      chunkState = iota
	chunkBlank                // behind the size
	chunkExtension            // up to CR
	chunkSizeEnd              // LF after a size
	chunkData                 //
	chunkDataCR               // CR after data
	chunkDataEnd              // LF after data
	chunkLast                 // CR, or the first byte of a trailer
	chunkLastEnd              // LF at the very end
	chunkTrailer              // within one
	chunkTrailerLF            // LF after one
)

// maxExtra is the maximum length of the blanks and extensions of a chunk, and of the trailers of a body, in bytes.
const maxExtra = 8 << 10

// Next parses buf up to the end of the next piece of data, which it returns; buf[:n] belong to the body. The piece is
// empty if n is len(buf) or the body has ended, see Done. The error is [ErrAnswer].
func (c *Chunks) Next(buf []byte) (data []byte, n int, err error) {
	for n < len(buf) && !c.Done {
		if c.state == chunkData {
			from := n
			n += int(min(int64(len(buf)-n), c.left))
			if c.left -= int64(n - from); c.left == 0 {
				c.state = chunkDataCR
			}
			return buf[from:n], n, nil
		}
		if err := c.step(buf[n]); err != nil {
			return nil, 0, err
		}
		n++
	}
	return nil, n, nil
}

// CheckChunks parses the first bytes of a chunked body. The error is [ErrAnswer].
func CheckChunks(buf []byte) error {
	var c Chunks
	for len(buf) > 0 && !c.Done {
		_, n, err := c.Next(buf)
		if err != nil {
			return err
		}
		buf = buf[n:]
	}
	return nil
}

// step parses one byte outside of data.
func (c *Chunks) step(b byte) error {
	switch c.state {
	case chunkSize:
		switch d, ok := hexOf(b); {
		case ok && c.digits < 12:
			c.left, c.digits = c.left<<4|int64(d), c.digits+1
			return nil
		case ok || c.digits == 0:
			return odd("size of a chunk")
		}
		return c.sizeEnds(b)
	case chunkBlank:
		return c.sizeEnds(b)
	case chunkExtension:
		switch {
		case b == '\r':
			c.state = chunkSizeEnd
		case !answerValue[b]:
			return odd("extension of a chunk")
		default:
			return c.more("the extension of a chunk is too long")
		}
	case chunkSizeEnd, chunkDataEnd, chunkLastEnd, chunkTrailerLF:
		if b != '\n' {
			return odd("a line of a chunk does not end with CR LF")
		}
		c.lineEnds()
	case chunkDataCR:
		if b != '\r' {
			return odd("end of a chunk")
		}
		c.state = chunkDataEnd
	case chunkLast:
		switch {
		case b == '\r':
			c.state = chunkLastEnd
		case tokenChar[b]:
			c.state = chunkTrailer
			return c.more("trailers are too long")
		default:
			return odd("trailer")
		}
	case chunkTrailer:
		switch {
		case b == '\r':
			c.state = chunkTrailerLF
		case !answerValue[b]:
			return odd("trailer")
		default:
			return c.more("trailers are too long")
		}
	case chunkData: // not here
	}
	return nil
}

// sizeEnds parses a byte behind the digits of a size.
func (c *Chunks) sizeEnds(b byte) error {
	switch b {
	case '\r':
		c.state = chunkSizeEnd
	case ' ', '\t':
		c.state = chunkBlank
		return c.more("too many blanks behind the size of a chunk")
	case ';':
		c.state = chunkExtension
	default:
		return odd("size of a chunk")
	}
	return nil
}

// lineEnds parses the LF of a line.
func (c *Chunks) lineEnds() {
	switch {
	case c.state == chunkLastEnd:
		c.Done = true
	case c.state == chunkDataEnd:
		c.state, c.digits, c.extra = chunkSize, 0, 0
	case c.state == chunkTrailerLF:
		c.state = chunkLast
	case c.left == 0:
		c.state, c.extra = chunkLast, 0
	default:
		c.state = chunkData
	}
}

// more counts a byte that is dropped.
func (c *Chunks) more(tooMany string) error {
	if c.extra++; c.extra > maxExtra {
		return odd(tooMany)
	}
	return nil
}

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
