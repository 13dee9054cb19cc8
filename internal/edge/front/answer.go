package front

import (
	"net/http"
	"slices"
	"time"

	"vestibule/internal/edge/gate"
)

// withDecision adds the decision of the edge's own answers if it is missing.
func withDecision(header []gate.Field) []gate.Field {
	if slices.ContainsFunc(header, func(f gate.Field) bool { return f.Name == gate.DecisionHeader }) {
		return header
	}
	return append(header, gate.Field{Name: gate.DecisionHeader, Value: gate.SaysAnswer})
}

// reply reads the body of the request, discards it and writes an answer. It reports whether the connection stays
// open.
func (c *conn) reply(status int, header []gate.Field, body []byte, ends bool, length int) bool {
	patience := c.f.opts.Timeouts.Header
	ends = ends || c.ends()
	if c.body(length, patience, false) {
		c.in.r += length
	} else {
		ends = true
	}
	return c.writeAnswer(status, header, body, ends, patience) && !ends
}

// writeAnswer writes head and body of an answer of the edge.
func (c *conn) writeAnswer(status int, header []gate.Field, body []byte, ends bool, patience time.Duration) bool {
	b := appendStatus(c.out[:0], status)
	b = appendFields(b, header)
	b = appendDate(b)
	if ends {
		b = append(b, "Connection: close\r\n"...)
	}
	if status != http.StatusNoContent && status != http.StatusNotModified {
		b = appendLength(b, int64(len(body)))
	}
	b = append(b, "\r\n"...)
	if c.req.Method == http.MethodHead {
		body = nil
	}
	if len(body) >= longBody && c.from.Direct() {
		c.out = b
		return c.output.write(c.trip.up != nil, patience, b, body)
	}
	c.out = append(b, body...)
	return c.output.write(c.trip.up != nil, patience, c.out)
}

// longBody is the shortest body, in bytes, that is written without a copy behind its head.
const longBody = 4 << 10

// ends reports whether the connection closes after the answer.
func (c *conn) ends() bool { return c.req.Close || c.f.opts.Draining() }

// answerPanic answers a request whose handling panicked.
func (c *conn) answerPanic(o *gate.Outcome, p any) {
	c.f.opts.panicked("request", p)
	if c.output.begun {
		return
	}
	header := panicHeader(o)
	if c.auth != nil {
		header = withDecision(header)
	}
	c.writeAnswer(http.StatusInternalServerError, header, []byte(panicText), true, c.f.opts.Timeouts.Header)
}

const panicText = "Something went wrong. Please try again.\n"

// panicHeader returns the header of the answer to a request whose handling panicked. A session permit may have been
// spent: the visitor gets the ticket.
func panicHeader(o *gate.Outcome) []gate.Field {
	return append(o.Tickets(), gate.Field{Name: "Cache-Control", Value: "no-store"},
		gate.Field{Name: "Content-Type", Value: "text/plain; charset=utf-8"},
		gate.Field{Name: "X-Content-Type-Options", Value: "nosniff"})
}
