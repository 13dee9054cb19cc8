package front

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/http1"
	"vestibule/internal/edge/origin"
)

// net/http reads HTTP/2. A request without a body that would be plain over HTTP/1.1 goes to its site like the
// requests that the front reads itself.

// http2Trip is one request over HTTP/2 to its site. It is the [visitor] of its trip.
type http2Trip struct {
	*work
	w   http.ResponseWriter
	ctx context.Context // of the request: it ends when the visitor leaves

	origin *http1.Conn
	unbind func() bool // of origin from ctx; nil if the visitor is not watched
}

// ForwardHTTP2 forwards an admitted request, and reports whether it did: otherwise nothing was sent or written.
func (f *Front) ForwardHTTP2(w http.ResponseWriter, r *http.Request, o *gate.Outcome) bool {
	if r.ProtoMajor != 2 || r.ContentLength != 0 || !strings.HasPrefix(r.RequestURI, "/") {
		return false
	}
	o.MustGo(gate.Enters, r.RequestURI)
	x := &http2Trip{work: f.works.get(), w: w, ctx: r.Context()}
	if o.HasSession() {
		x.ctx = origin.WithSession(x.ctx)
	}
	defer f.works.put(x.work)
	if !x.parse(r) {
		return false
	}
	x.trip = trip{opts: &f.opts, outcome: o, client: clientaddr.Text(o.Client), base: x.ctx, visitor: x}
	defer x.endTrip()
	defer x.bind(nil)
	switch err := x.exchange(nil); {
	case errors.Is(err, errVisitorLeft), errors.Is(err, context.Canceled):
		w.WriteHeader(499) // nobody reads this
	case err != nil:
		x.failed(r.Host, err)
	default:
		x.answer(r)
	}
	return true
}

// parse reads a request as over HTTP/1.1, and reports whether it is plain and means the same.
func (x *http2Trip) parse(r *http.Request) bool {
	b := append(append(append(x.out[:0], r.Method...), ' '), r.RequestURI...)
	b = appendField(append(b, " HTTP/1.1\r\n"...), "Host", r.Host)
	n := 0
	for name, lines := range r.Header {
		switch name {
		case "Te": // asks for trailers, and sites are not asked for any
			continue
		case "Content-Length": // 0
		default:
			n += len(lines)
		}
		for _, l := range lines {
			b = appendField(b, name, l)
		}
	}
	x.out = append(b, "\r\n"...)
	x.req.Reset()
	end, v := x.req.Parse(x.out)
	return v == http1.Ready && end == len(x.out) && x.req.Method == r.Method && x.req.Target == r.RequestURI && x.req.Host == r.Host && len(x.req.Fields) == n
}

// bind implements [visitor].
func (x *http2Trip) bind(origin *http1.Conn) bool {
	if x.unbind != nil {
		x.unbind()
		x.unbind = nil
	}
	x.origin = origin
	return x.ctx.Err() == nil
}

// watch implements [visitor].
func (x *http2Trip) watch() {
	if up := x.origin; x.unbind == nil && up != nil {
		x.unbind = context.AfterFunc(x.ctx, func() { up.Close() }) // which ends its read
	}
}

// hint implements [visitor].
func (x *http2Trip) hint(r *http1.Response) bool {
	h := x.w.Header()
	for i := range r.Fields {
		if f := &r.Fields[i]; origin.InHint(f.Name) {
			h.Add(f.Name, f.Value)
		}
	}
	x.w.WriteHeader(r.Status)
	clear(h)
	return true
}

// answer sends the origin's answer to the visitor, once its head was read.
func (x *http2Trip) answer(r *http.Request) {
	t := &x.trip
	t.opts.Monitor.Answered(t.outcome.Origin)
	t.outcome.Forwarded(x.res.Status, time.Since(t.asked))
	framing := x.res.Body(r.Method)
	x.header()
	if t.opts.Draining() {
		x.w.Header().Set("Connection", "close") // GOAWAY over HTTP/2
	}
	if framing != http1.Counted || x.res.Length > wholeBody { // net/http sets the length of a short one
		if x.res.Length >= 0 && x.res.Status != http.StatusNoContent {
			x.w.Header()["Content-Length"] = []string{strconv.FormatInt(x.res.Length, 10)}
		}
		if framing != http1.NoBody {
			x.w = t.opts.Patient(x.w, r)
		}
	}
	x.w.WriteHeader(x.res.Status)
	whole, err := x.body(framing)
	if err != nil {
		x.brokeOff(err)
		x.flush()                   // the visitor gets what came before the fault
		panic(http.ErrAbortHandler) // net/http's way to end a stream
	}
	bound := x.unbind == nil || x.unbind() // otherwise it is closed with the visitor
	if x.unbind = nil; whole && bound && !x.res.Close {
		t.opts.Pool.Put(t.up)
		t.up = nil
	}
}

// failed answers in place of an origin that did not.
func (x *http2Trip) failed(host string, err error) {
	x.trip.outcome.Forwarded(0, 0)
	f := x.trip.opts.Monitor.Failed(x.trip.outcome.Origin, host, err)
	for _, field := range x.trip.outcome.FailureHeader(&f) {
		x.w.Header().Add(field.Name, field.Value)
	}
	x.w.WriteHeader(f.Status)
	x.write([]byte(f.Text)) // a visitor that does not take it has left
}

// header sets the header of the answer.
func (x *http2Trip) header() {
	h, lines := x.w.Header(), make([]string, 0, len(x.res.Fields)+4)
	x.eachField(func(name, value string) {
		if all := h[name]; all != nil {
			h[name] = append(all, value)
			return
		}
		lines = append(lines, value)
		h[name] = lines[len(lines)-1 : len(lines) : len(lines)]
	})
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // or net/http sniffs one
	}
}

// body copies the body of the answer. whole reports whether the origin's connection holds nothing more of it. The
// error is errVisitorLeft or a fault of the answer.
func (x *http2Trip) body(framing http1.Framing) (whole bool, err error) {
	switch framing {
	case http1.NoBody:
		return true, nil
	case http1.Counted:
		return true, x.counted(x.res.Length)
	case http1.Chunked:
		return true, x.chunked()
	default:
		return false, x.untilClose()
	}
}

func (x *http2Trip) write(b []byte) bool {
	_, err := x.w.Write(b)
	return err == nil
}

func (x *http2Trip) counted(left int64) error {
	up := x.trip.up
	for left > 0 {
		if len(up.Buffered()) == 0 {
			if left > smallBody {
				return x.copyBody(up, left, x.write)
			}
			if err := x.fill(up, time.Time{}); err != nil {
				return err
			}
		}
		b := up.Buffered()
		b = b[:min(int64(len(b)), left)]
		if !x.write(b) {
			return errVisitorLeft
		}
		up.Use(len(b))
		left -= int64(len(b))
	}
	return nil
}

func (x *http2Trip) chunked() error {
	x.chunks = http1.Chunks{}
	for up := x.trip.up; ; {
		for len(up.Buffered()) > 0 && !x.chunks.Done {
			data, n, err := x.chunks.Next(up.Buffered())
			if err != nil {
				return err
			}
			if len(data) > 0 && !x.write(data) {
				return errVisitorLeft
			}
			up.Use(n)
		}
		if x.chunks.Done {
			return nil
		}
		if !x.flush() {
			return errVisitorLeft
		}
		if err := x.fill(up, time.Time{}); err != nil {
			return err
		}
	}
}

func (x *http2Trip) untilClose() error {
	for up := x.trip.up; ; {
		if b := up.Buffered(); len(b) > 0 {
			if !x.write(b) || !x.flush() {
				return errVisitorLeft
			}
			up.Use(len(b))
		}
		if err := x.fill(up, time.Time{}); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// flush sends the bytes written so far: the rest may take long.
func (x *http2Trip) flush() bool { return http.NewResponseController(x.w).Flush() == nil }
