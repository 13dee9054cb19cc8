package front

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/http1"
	"vestibule/internal/edge/origin"
)

// patienceBeforeWatching is the shortest wait for an origin before the front watches whether the visitor leaves; the
// longest is twice that.
const patienceBeforeWatching = 100 * time.Millisecond

// maxHints bounds the informational answers to one request.
const maxHints = 8

var (
	errVisitorLeft = errors.New("the visitor went away")
	errHints       = errors.New("too many informational answers")
	errUpgraded    = errors.New("the origin upgrades unasked")
	errCutShort    = errors.New("the answer ends before its Content-Length")
)

// trip is one request to its origin and the answer.
type trip struct {
	opts    *Options
	outcome *gate.Outcome
	client  string          // the visitor's address for X-Forwarded-For; empty for none
	base    context.Context // ends when the request is cut off
	visitor visitor
	asked   time.Time   // when the request was last sent
	up      *http1.Conn // to the origin; the trip owns it from connect until Pool.Put, Pool.Tie or drop

	own       *http1.Conn // of the visitor's connection alone, to use if it leads to the site; nil for none
	tie       bool        // up is for the visitor's connection alone, because a login may be bound to it
	cannotTie error       // why it cannot be; nil if it can
}

// drop closes the connection to the origin, if the trip has one.
func (x *trip) drop() {
	if up := x.up; up != nil {
		x.up = nil
		up.Close() // its error changes nothing
	}
}

type visitor interface {
	// bind sets the connection to an origin that is closed when the visitor leaves, nil for none. It reports whether the
	// visitor is still there.
	bind(origin *http1.Conn) bool

	// watch starts to watch whether the visitor leaves.
	watch()

	// hint forwards an informational answer, and reports whether it could.
	hint(r *http1.Response) bool
}

// work is the memory of a request. One connection at a time uses it.
type work struct {
	in      buffer
	out     []byte // an answer, or the request to an origin
	req     http1.Request
	res     http1.Response
	ask     gate.Request
	values  []string // of the header fields in ask
	lengths uint64   // bit n is set if a field name has n bytes, modulo 64
	fields  []gate.Field
	chunks  http1.Chunks
	trip    trip
	lines   func(name string) []string // linesOf
}

// Sizes of buffers in bytes: of a new one, and of the longest one that is kept for the next request.
const (
	firstBuffer = 4 << 10
	keptBuffer  = 16 << 10
)

// buffers is the pool of work. It is safe for concurrent use.
type buffers struct{ pool sync.Pool }

func (p *buffers) get() *work {
	if w, ok := p.pool.Get().(*work); ok {
		return w
	}
	w := &work{in: buffer{b: make([]byte, firstBuffer)}}
	w.lines = w.linesOf
	return w
}

func (p *buffers) put(w *work) {
	if w.in.r, w.in.w = 0, 0; len(w.in.b) > firstBuffer {
		w.in.b = make([]byte, firstBuffer)
	}
	if cap(w.out) > keptBuffer {
		w.out = nil
	}
	p.pool.Put(w)
}

// buffer is the memory of a reader: b[r:w] was read and is unused.
type buffer struct {
	b    []byte
	r, w int
}

// skip skips up to n CR and LF, which some old browsers send after a form, as net/http does. It returns how many more
// may come.
func (b *buffer) skip(n int) int {
	for ; n > 0 && b.r < b.w; n-- {
		if next := b.b[b.r]; next != '\r' && next != '\n' {
			return 0
		}
		b.r++
	}
	return n
}

// room returns memory for the bytes of a read.
func (b *buffer) room() []byte {
	if b.w == len(b.b) {
		if b.r > 0 {
			b.r, b.w = 0, copy(b.b, b.b[b.r:b.w])
		} else {
			b.b = append(b.b, make([]byte, len(b.b))...)
		}
	}
	return b.b[b.w:]
}

// put appends a byte that was read.
func (b *buffer) put(c byte) {
	b.b = append(b.b[:b.w], c)
	b.b = b.b[:cap(b.b)]
	b.w++
}

// linesOf returns the values of a header field, nil for none.
func (w *work) linesOf(name string) []string {
	if w.lengths>>(len(name)%64)&1 == 0 {
		return nil
	}
	from := len(w.values)
	for i := range w.req.Fields {
		if f := &w.req.Fields[i]; f.Name == name {
			w.values = append(w.values, f.Value)
		}
	}
	if len(w.values) == from {
		return nil
	}
	return w.values[from:len(w.values):len(w.values)]
}

// endTrip closes the connection of a trip unless the pool has it.
func (w *work) endTrip() {
	w.trip.drop()
	if own := w.trip.own; own != nil { // it was not used
		own.Close() // nothing is in progress on it
	}
	w.trip = trip{}
}

// exchange sends the request of a trip to its origin, and reads the head of the answer. After an error the trip has no
// connection; after a panic endTrip closes it.
func (w *work) exchange(body []byte) error {
	x := &w.trip
	for i := range w.req.Fields {
		if f := &w.req.Fields[i]; f.Name == "Authorization" && origin.BindsLogin(f.Value) {
			x.tie = true
		}
	}
	if x.tie && x.cannotTie != nil {
		return x.cannotTie
	}
	w.out = w.requestFor(w.out[:0], body)
	for fresh := x.tie || x.outcome.Alone; ; {
		if x.base.Err() != nil {
			return errVisitorLeft // or Shutdown cuts requests off
		}
		up, err := x.connect(fresh)
		if err != nil {
			if x.base.Err() != nil {
				return errVisitorLeft
			}
			return err
		}
		if x.up = up; !x.visitor.bind(up) {
			x.drop() // nothing was sent on it
			return errVisitorLeft
		}
		if err = w.roundTrip(up); err == nil {
			err = w.beginBody(up)
		}
		if err == nil {
			err = w.checkOffers()
		}
		if err == nil {
			return nil
		}
		x.drop() // it is of no use
		if !x.visitor.bind(nil) {
			return errVisitorLeft
		}
		if errors.Is(err, http1.ErrStale) {
			continue
		}
		// The origin may have closed the idle connection: a GET or HEAD without a body is sent once more.
		again := up.Reused && len(body) == 0 && (w.req.Method == http.MethodGet || w.req.Method == http.MethodHead)
		if !again || len(up.Buffered()) > 0 || errors.Is(err, errVisitorLeft) || errors.Is(err, http1.ErrAnswer) ||
			errors.Is(err, origin.ErrSharedLogin) || errors.Is(err, origin.ErrMultiplexedLogin) || isTimeout(err) {
			return err
		}
		fresh = true
	}
}

// connect returns a connection to the site.
func (x *trip) connect(fresh bool) (*http1.Conn, error) {
	to := x.outcome.Origin.URL
	if up := x.own; up != nil {
		x.own = nil
		if up.Again(to.Scheme, to.Host) {
			return up, nil
		}
		up.Close() // it is of no use
	}
	if !fresh {
		if up := x.opts.Pool.Kept(to.Scheme, to.Host); up != nil {
			return up, nil
		}
	}
	return x.opts.Pool.New(origin.ForClient(x.base, x.outcome.Client), to.Scheme, to.Host)
}

// checkOffers ties the connection if the site offers a login that it binds to it. The error says that this cannot be.
func (w *work) checkOffers() error {
	if w.res.Status != http.StatusUnauthorized {
		return nil
	}
	for i := range w.res.Fields {
		if f := &w.res.Fields[i]; f.Name == "Www-Authenticate" && origin.OffersBinding(f.Value) {
			w.trip.tie = true
			return w.trip.cannotTie
		}
	}
	return nil
}

// requestFor appends the request as it goes to the origin.
func (w *work) requestFor(b, body []byte) []byte {
	b = append(append(append(b, w.req.Method...), ' '), w.req.Target...)
	b = append(b, " HTTP/1.1\r\n"...)
	b = appendField(b, "Host", w.req.Host)
	for i := range w.req.Fields {
		f := &w.req.Fields[i]
		if value, ok := w.trip.opts.Headers.ToSite(f.Name, f.Value); ok {
			b = appendField(b, f.Name, value)
		}
	}
	w.fields = w.trip.outcome.AppendForSite(w.fields[:0], w.trip.client, w.req.Host)
	b = appendFields(b, w.fields)
	switch w.req.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		b = appendLength(b, int64(len(body)))
	}
	return append(append(b, "\r\n"...), body...)
}

// roundTrip sends out, and reads heads up to that of the final answer.
func (w *work) roundTrip(up *http1.Conn) error {
	now := time.Now()
	w.trip.asked = now
	limit := now.Add(w.trip.opts.Timeouts.Response)
	if err := w.send(now, up, limit); err != nil {
		return err
	}
	for range maxHints {
		w.res.Reset()
		for {
			n, err := w.res.Parse(up.Buffered())
			if err != nil {
				return err
			}
			if n > 0 {
				up.Use(n)
				break
			}
			if err := w.fill(up, limit); err != nil {
				return err
			}
		}
		switch {
		case w.res.Status == http.StatusSwitchingProtocols:
			return errors.Join(http1.ErrAnswer, errUpgraded)
		case w.res.Status >= http.StatusOK:
			return nil
		case w.res.Status != http.StatusContinue &&
			(!up.Reused || w.trip.own == nil && w.trip.tie): // on a reused connection it may be a late one of another visitor
			if !w.trip.visitor.hint(&w.res) {
				return errVisitorLeft
			}
		}
	}
	return errors.Join(http1.ErrAnswer, errHints)
}

// wholeBody is the longest counted answer, in bytes, that is read before anything of it is sent. net/http buffers as
// much of an answer over HTTP/2.
const wholeBody = 4 << 10

// beginBody reads what shows early that an answer is broken, so that the visitor gets an error instead of a part: all
// of a short body, or the chunks that came with the head. The error is [http1.ErrAnswer].
func (w *work) beginBody(up *http1.Conn) error {
	switch framing := w.res.Body(w.req.Method); {
	case framing == http1.Chunked:
		return http1.CheckChunks(up.Buffered())
	case framing == http1.Counted && w.res.Length <= wholeBody:
		for int64(len(up.Buffered())) < w.res.Length {
			if err := w.fill(up, time.Time{}); err != nil {
				return errors.Join(http1.ErrAnswer, errCutShort, err)
			}
		}
	}
	return nil
}

// bodyWriter writes the body of an answer to the visitor. Its errors are errVisitorLeft.
type bodyWriter interface {
	// add adds a part, which is the last one if last, to what is sent next. It may send it.
	add(b []byte, last bool) error

	// flush sends what was added: the rest may take long.
	flush() error

	// through sends a part of a long body, once what was added is sent.
	through(b []byte, last bool) error
}

// pass copies the body of the site's answer to the visitor. whole reports whether the origin's connection holds nothing
// more of the answer. The error is errVisitorLeft, or a fault of the answer: the visitor has what came before it.
func (w *work) pass(framing http1.Framing, to bodyWriter) (whole bool, err error) {
	whole = true
	switch framing {
	case http1.NoBody:
	case http1.Counted:
		err = w.counted(w.res.Length, to)
	case http1.Chunked:
		err = w.chunked(to)
	default:
		whole, err = false, w.untilClose(to)
	}
	if errors.Is(err, errVisitorLeft) {
		return whole, err
	}
	if lost := to.flush(); lost != nil {
		return whole, lost
	}
	return whole, err
}

// counted copies a body of left bytes.
func (w *work) counted(left int64, to bodyWriter) error {
	up := w.trip.up
	if left == 0 {
		return to.add(nil, true)
	}
	for left > 0 {
		if len(up.Buffered()) == 0 {
			if left > smallBody {
				if err := to.flush(); err != nil {
					return err
				}
				return w.copyBody(up, left, func(b []byte) bool {
					left -= int64(len(b))
					return to.through(b, left == 0) == nil
				})
			}
			if err := w.fill(up, time.Time{}); err != nil {
				return err
			}
		}
		b := up.Buffered()
		b = b[:min(int64(len(b)), left)]
		left -= int64(len(b))
		if err := to.add(b, left == 0); err != nil {
			return err
		}
		up.Use(len(b))
	}
	return nil
}

// chunked copies a body that comes in chunks.
func (w *work) chunked(to bodyWriter) error {
	w.chunks = http1.Chunks{}
	for up := w.trip.up; ; {
		for b := up.Buffered(); len(b) > 0 && !w.chunks.Done; b = up.Buffered() {
			data, n, err := w.chunks.Next(b)
			if err != nil {
				return err
			}
			if err := to.add(data, w.chunks.Done); err != nil {
				return err
			}
			up.Use(n)
		}
		if w.chunks.Done {
			return nil
		}
		if err := to.flush(); err != nil {
			return err
		}
		if err := w.fill(up, time.Time{}); err != nil {
			return err
		}
	}
}

// untilClose copies a body that ends with the origin's connection.
func (w *work) untilClose(to bodyWriter) error {
	for up := w.trip.up; ; {
		b := up.Buffered()
		if err := to.add(b, false); err != nil {
			return err
		}
		up.Use(len(b))
		if err := to.flush(); err != nil {
			return err
		}
		if err := w.fill(up, time.Time{}); errors.Is(err, io.EOF) {
			return to.add(nil, true)
		} else if err != nil {
			return err
		}
	}
}

// brokeOff records a fault in the middle of an answer, unless its visitor has left.
func (w *work) brokeOff(err error) {
	if x := &w.trip; !errors.Is(err, errVisitorLeft) && x.visitor.bind(nil) {
		x.opts.Monitor.BrokeOff(x.outcome.Origin, w.req.Host, err)
	}
}

// send sends out, and may wait for the answer.
func (w *work) send(now time.Time, up *http1.Conn, limit time.Time) error {
	_, secure := up.Conn.(*tls.Conn)
	if left := up.By.Sub(now); left < patienceBeforeWatching || left > 2*patienceBeforeWatching || secure {
		up.By = now.Add(2 * patienceBeforeWatching)
		if err := up.SetDeadline(up.By); err != nil {
			return err
		}
	}
	if secure { // TLS cannot continue after a deadline in a write
		if err := up.SetWriteDeadline(limit); err != nil {
			return err
		}
	}
	n, err := up.Ask(w.out)
	if !isTimeout(err) || !time.Now().Before(limit) {
		return err
	}
	if n == len(w.out) {
		return nil // the answer takes longer
	}
	w.trip.visitor.watch()
	up.By = time.Time{}
	if err := up.SetDeadline(limit); err != nil {
		return err
	}
	if n == 0 { // the kept connection may be stale: Ask looks
		_, err = up.Ask(w.out)
	} else {
		_, err = up.Write(w.out[n:])
	}
	return err
}

// fill reads from an origin until limit, the zero time for no limit. A long wait ends when the visitor leaves.
func (w *work) fill(up *http1.Conn, limit time.Time) error {
	err := up.Fill()
	if !isTimeout(err) {
		return err
	}
	w.trip.visitor.watch()
	up.By = time.Time{}
	if err := up.SetReadDeadline(limit); err != nil {
		return err
	}
	return up.Fill()
}

// eachField calls line with the header fields of the visitor's answer except for its framing, and obeys the
// commands of the site in it. dated reports whether there is a Date.
func (w *work) eachField(line func(name, value string)) (dated bool) {
	x := &w.trip
	tickets, private := x.outcome.ForVisitor()
	var commands gate.SiteCommands
	var cache []string
	for i := range w.res.Fields {
		f := &w.res.Fields[i]
		commands.Read(f.Name, f.Value)
		switch f.Name {
		case "Cache-Control":
			if private {
				cache = append(cache, f.Value)
			}
		case "Date":
			dated = true
		case gate.HSTSHeader:
			if x.outcome.HSTS != "" {
				continue
			}
		}
		if origin.ToVisitor(f.Name, f.Value, private) {
			line(f.Name, f.Value)
		}
	}
	if x.outcome.HSTS != "" {
		line(gate.HSTSHeader, x.outcome.HSTS)
	}
	if private {
		line("Cache-Control", origin.Private(cache))
	}
	if commands.KeepsTickets() {
		for i := range tickets {
			line(tickets[i].Name, tickets[i].Value)
		}
	}
	x.outcome.Obey(&commands)
	return dated
}

// smallBody is the longest answer, in bytes, that is sent in one write.
const smallBody = 16 << 10

// copyBody copies left bytes from up through one buffer, which bounds the memory for a visitor that reads slowly. The
// error is errVisitorLeft or that of the origin's connection.
func (w *work) copyBody(up *http1.Conn, left int64, write func(b []byte) bool) error {
	buf := w.trip.opts.Buffers.Get()
	defer w.trip.opts.Buffers.Put(buf)
	for left > 0 {
		n, err := up.Read(buf[:min(int64(len(buf)), left)])
		if n > 0 {
			if !write(buf[:n]) {
				return errVisitorLeft
			}
			left -= int64(n)
			continue
		}
		if !isTimeout(err) {
			return err
		}
		w.trip.visitor.watch()
		up.By = time.Time{}
		if err := up.SetReadDeadline(up.By); err != nil {
			return err
		}
	}
	return nil
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}
