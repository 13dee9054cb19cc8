package front

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"

	"vestibule/internal/edge/http1"
)

// Frames of HTTP/2 and header blocks as bytes. A block refers to no earlier one (RFC 7541, dynamic table of size 0), so
// that any goroutine may write it at any time.

// frameHead is the length of a frame's header, maxPayload that of the longest payload here: with it, a frame is one TLS
// record.
const (
	frameHead  = 9
	maxPayload = 16<<10 - frameHead
)

// appendFrame appends the header of a frame.
func appendFrame(b []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	return append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags),
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

// append32 appends a frame whose payload are numbers.
func append32(b []byte, kind http2.FrameType, stream uint32, payload ...uint32) []byte {
	b = appendFrame(b, 4*len(payload), kind, 0, stream)
	for _, n := range payload {
		b = append(b, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return b
}

// beginHead appends the beginning of a HEADERS frame; endHead completes it. shrunk reports that the client keeps a
// smaller table than usual, to which a block must answer.
func beginHead(b []byte, shrunk bool) []byte {
	b = append(b, make([]byte, frameHead)...)
	if shrunk {
		b = append(b, 0x20) // the table has a size of 0
	}
	return b
}

// endHead completes the HEADERS frame in b, with CONTINUATION frames if it is long.
func endHead(b []byte, stream uint32, ends bool) []byte {
	flags, kind, at := http2.Flags(0), http2.FrameHeaders, 0
	if ends {
		flags = http2.FlagHeadersEndStream
	}
	var rest []byte
	if block := b[frameHead:]; len(block) > maxPayload {
		rest = append(rest, block[maxPayload:]...)
		b = b[:frameHead+maxPayload]
	}
	for {
		if len(rest) == 0 {
			flags |= http2.FlagHeadersEndHeaders
		}
		appendFrame(b[:at], len(b)-at-frameHead, kind, flags, stream)
		if len(rest) == 0 {
			return b
		}
		flags, kind, at = 0, http2.FrameContinuation, len(b)
		n := min(len(rest), maxPayload)
		b = append(append(b, make([]byte, frameHead)...), rest[:n]...)
		rest = rest[n:]
	}
}

// staticStatuses are the statuses in the static table, from place 8 on.
var staticStatuses = [...]int{200, 204, 206, 304, 400, 404, 500}

// appendStatus2 appends the field of a status.
func appendStatus2(b []byte, status int) []byte {
	if i := slices.Index(staticStatuses[:], status); i >= 0 {
		return append(b, 0x80|byte(8+i))
	}
	return strconv.AppendInt(append(b, 8, 3), int64(status), 10)
}

// literal and neverIndexed begin a field that enters no table. Intermediaries do not compress the second.
const (
	literal      = 0x00
	neverIndexed = 0x10
)

// appendField2 appends a header field with a name of any case. It leaves out what HTTP/2 cannot carry.
func appendField2(b []byte, name, value string) []byte {
	if !http1.PlainValue(value) && !httpguts.ValidHeaderFieldValue(value) {
		return b
	}
	if begins, ok := beginnings[name]; ok {
		b = append(b, begins...)
	} else {
		if ofConnection[name] || !httpguts.ValidHeaderFieldName(name) {
			return b
		}
		b = appendName2(b, name)
	}
	return append(appendInt(b, 0, 7, len(value)), value...)
}

// appendName2 appends the beginning of a field with a name that is not in the static table.
func appendName2(b []byte, name string) []byte {
	b = append(appendInt(append(b, literal), 0, 7, len(name)), name...)
	for i := len(b) - len(name); i < len(b); i++ {
		if c := b[i]; c >= 'A' && c <= 'Z' {
			b[i] = c + ('a' - 'A')
		}
	}
	return b
}

// appendLength2 appends a Content-Length.
func appendLength2(b []byte, n int64) []byte {
	b = append(b, beginnings["Content-Length"]...)
	at := len(b)
	b = strconv.AppendInt(append(b, 0), n, 10)
	b[at] = byte(len(b) - at - 1)
	return b
}

// appendInt appends a number behind the other bits of its first byte (RFC 7541, 5.1).
func appendInt(b []byte, first byte, bits, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(b, first|byte(n))
	}
	b = append(b, first|byte(most))
	for n -= most; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// ofConnection are the fields that HTTP/2 does not have.
var ofConnection = map[string]bool{
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Transfer-Encoding": true, "Upgrade": true,
}

// beginnings are the bytes of common fields up to the value, by the spelling of net/http. commonNames are these
// spellings by those of HTTP/2.
var (
	beginnings  = map[string]string{}
	commonNames = map[string]string{}
)

func init() {
	for i, name := range [...]string{ // of the static table (RFC 7541, appendix A), from place 15 on
		"Accept-Charset", "Accept-Encoding", "Accept-Language", "Accept-Ranges", "Accept", "Access-Control-Allow-Origin",
		"Age", "Allow", "Authorization", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language",
		"Content-Length", "Content-Location", "Content-Range", "Content-Type", "Cookie", "Date", "Etag", "Expect", "Expires",
		"From", "Host", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Last-Modified",
		"Link", "Location", "Max-Forwards", "Proxy-Authenticate", "Proxy-Authorization", "Range", "Referer", "Refresh",
		"Retry-After", "Server", "Set-Cookie", "Strict-Transport-Security", "Transfer-Encoding", "User-Agent", "Vary", "Via",
		"Www-Authenticate",
	} {
		kind := byte(literal)
		if name == "Set-Cookie" {
			kind = neverIndexed
		}
		beginnings[name] = string(appendInt(nil, kind, 4, 15+i))
		commonNames[strings.ToLower(name)] = name
	}
	delete(beginnings, "Transfer-Encoding")
	for _, name := range [...]string{
		"Origin", "Pragma", "Priority", "Dnt", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User",
		"Sec-Purpose", "Sec-Ch-Ua", "Sec-Ch-Ua-Mobile", "Sec-Ch-Ua-Platform", "Sec-Gpc", "Upgrade-Insecure-Requests", "Te",
		"Traceparent", "Vestibule-Poll", "Vestibule-Ticket", "X-Forwarded-For", "X-Forwarded-Proto", "X-Requested-With",
		"Content-Security-Policy", "Permissions-Policy", "Referrer-Policy", "Vestibule-Decision", "X-Content-Type-Options",
		"X-Frame-Options",
	} {
		beginnings[name] = string(appendName2(nil, name))
		commonNames[strings.ToLower(name)] = name
	}
}
