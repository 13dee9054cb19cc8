package front

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"vestibule/internal/edge/gate"
)

// Status lines and header fields as text.

func appendStatus(b []byte, status int) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(status)...)
	return append(b, "\r\n"...)
}

func appendFields(b []byte, fields []gate.Field) []byte {
	for i := range fields {
		b = appendField(b, fields[i].Name, fields[i].Value)
	}
	return b
}

// appendField appends one header field on one line, whatever value holds.
func appendField(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	if strings.IndexByte(value, '\n') >= 0 || strings.IndexByte(value, '\r') >= 0 {
		value = strings.NewReplacer("\r", " ", "\n", " ").Replace(value)
	}
	b = append(b, value...)
	return append(b, "\r\n"...)
}

func appendLength(b []byte, n int64) []byte {
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, n, 10)
	return append(b, "\r\n"...)
}

// appendChunk appends a chunk of a body; none if it is empty, which would end the body.
func appendChunk(b, data []byte) []byte {
	if len(data) == 0 {
		return b
	}
	b = strconv.AppendInt(b, int64(len(data)), 16)
	return append(append(append(b, "\r\n"...), data...), "\r\n"...)
}

// lastChunk ends a chunked body.
const lastChunk = "0\r\n\r\n"

// date is the Date field of one second.
type date struct {
	second      int64
	value, line string
}

var lastDate atomic.Pointer[date]

func dateNow() *date {
	now := time.Now()
	d := lastDate.Load()
	if d == nil || d.second != now.Unix() {
		value := now.UTC().Format(http.TimeFormat)
		d = &date{now.Unix(), value, "Date: " + value + "\r\n"}
		lastDate.Store(d)
	}
	return d
}

func appendDate(b []byte) []byte { return append(b, dateNow().line...) }
