package front

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/net/http2"

	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/http1"
	"vestibule/internal/edge/origin"
)

// stream is one request over HTTP/2 and its answer. Its goroutine, the reader of the connection or after goApart
// another, owns it but for what x.open.mu guards.
type stream struct {
	*work
	x       *h2
	id      uint32
	head    http2Head
	apart   bool // another goroutine reads
	ended   bool // the client knows the end of the answer
	started bool // a part of the answer is on its way
	pace    Pace
	code    http2.ErrCode // why it ends without an answer; 0 for a fault of the edge
	visit   visit2
	by      time.Time // for writes of a handler; the zero time for none

	// Guarded by x.open.mu. The stream is in x.open.byID from goApart until it has ended.
	window int64
	left   bool
	cut    bool          // by the edge: the client may not know yet
	room   chan struct{} // there may be a window; nil if nobody waits
	body   *body2        // nil for none
}

// visit2 is one request over HTTP/2 as a context, which ends when the visitor leaves, and as the [visitor] of its trip.
type visit2 struct {
	s       *stream
	session bool          // the visitor has one; set before the trip
	gone    chan struct{} // nil if nobody asked; as origin, guarded by mu of the streams
	origin  *http1.Conn   // is closed when the visitor leaves
}

var _ context.Context = (*visit2)(nil)

func (*visit2) Deadline() (time.Time, bool) { return time.Time{}, false }

func (v *visit2) Done() <-chan struct{} {
	v.s.goApart()
	mu := &v.s.x.open.mu
	mu.Lock()
	defer mu.Unlock()
	if v.gone == nil {
		if v.gone = make(chan struct{}); v.s.left {
			close(v.gone)
		}
	}
	return v.gone
}

func (v *visit2) Err() error {
	mu := &v.s.x.open.mu
	mu.Lock()
	defer mu.Unlock()
	if v.s.left {
		return context.Canceled
	}
	return nil
}

// Value implements [context.Context]. It may be called after the end.
func (v *visit2) Value(key any) any {
	if key == http.ServerContextKey {
		return v // a handler may panic to end the stream
	}
	if v.session {
		return v.s.x.f.sessions.Value(key)
	}
	return nil
}

func (v *visit2) bind(up *http1.Conn) bool {
	mu := &v.s.x.open.mu
	mu.Lock()
	defer mu.Unlock()
	v.origin = up
	return !v.s.left
}

// watch implements [visitor]: the reader of the connection always does.
func (v *visit2) watch() {}

func (v *visit2) hint(r *http1.Response) bool {
	s := v.s
	b := appendStatus2(beginHead(nil, s.x.shrunk.Load()), r.Status)
	for i := range r.Fields {
		if f := &r.Fields[i]; origin.InHint(f.Name) {
			b = appendField2(b, f.Name, f.Value)
		}
	}
	return s.x.send(endHead(b, s.id, false), s.pace.Left(s.x.f.opts.Timeouts.Idle))
}

// http2Head is what a handler needs of a head2.
type http2Head struct {
	plain  bool
	long   bool
	server bool          // OPTIONS *: of the server, not of a site
	r      *http.Request // if not plain
	waits  bool          // for 100 Continue; under x.open.mu
}

// begin makes s the stream of a request. The stream keeps w.
func (s *stream) begin(w *work, h *head2, window int64) {
	*s = stream{work: w, x: s.x, id: h.stream, window: window}
	s.visit.s = s
	switch {
	case h.fault != nil:
		s.head.long = true
	case h.method == http.MethodOptions && h.path == "*":
		s.head.server = true
	case h.plain() && !gate.Answers(h.path) && h.method != http.MethodOptions:
		s.head.plain = true
	default:
		var err error
		if s.head.r, s.head.waits, err = h.request(); err != nil {
			s.head.r = nil
		}
	}
	if !h.ends {
		s.body = &body2{s: s, length: h.length, recv: streamWindow}
	}
}

// serve serves the request to its end. Afterwards s is of no use if it went apart.
func (s *stream) serve() {
	defer s.end()
	switch {
	case s.head.long:
		s.reply(http.StatusRequestHeaderFieldsTooLarge, nil, nil)
	case s.head.server:
		s.reply(http.StatusOK, nil, nil)
	case s.head.plain:
		s.decide()
	case s.head.r == nil:
		s.reset(http2.ErrCodeProtocol)
	default:
		s.goApart()
		s.handle()
	}
}

// end ends the stream, whatever its answer was, and gives its memory back.
func (s *stream) end() {
	x := s.x
	if !s.apart {
		if !s.ended {
			s.reset(http2.ErrCodeInternal)
		} else if s.body != nil {
			s.reset(http2.ErrCodeNo) // the client need not send the rest
		}
		x.calm.control.earned.Add(4)
		x.open.mu.Lock()
		x.wait.idle = x.now
		x.open.mu.Unlock()
	} else {
		s.endApart()
	}
	x.f.buffers.put(s.work)
	s.work = nil
}

// endApart is end of a stream that went apart.
func (s *stream) endApart() {
	x := s.x
	x.open.mu.Lock()
	left := s.left
	unread := s.body != nil && !s.body.over
	if !left && (unread || !s.ended) {
		s.cut = true
		recv := int64(0)
		if unread {
			recv = s.body.recv
		}
		x.open.cutLocked(s.id, recv)
	}
	x.open.mu.Unlock()
	switch {
	case left:
	case !s.ended:
		s.sendOut(x.f.opts.Timeouts.Header) // what came before the fault
		x.send(append32(nil, http2.FrameRSTStream, s.id, uint32(cmp.Or(s.code, http2.ErrCodeInternal))),
			x.f.opts.Timeouts.Header)
	case unread:
		x.send(append32(nil, http2.FrameRSTStream, s.id, uint32(http2.ErrCodeNo)), x.f.opts.Timeouts.Header)
	}
	if !left {
		x.calm.control.earned.Add(4)
		x.calm.resets.earned.Add(1)
	}
	s.leave() // ends what waits for it
	x.open.mu.Lock()
	credited := s.body != nil && s.body.dropLocked()
	if delete(x.open.byID, s.id); len(x.open.byID) == 0 {
		x.wait.idle = time.Now()
		if x.restLocked(); x.wait.ends {
			x.wait.nudge()
		}
	}
	x.open.mu.Unlock()
	if credited {
		x.flush(x.f.opts.Timeouts.Header) // the reader hears of an error
	}
}

// reset ends a stream that has not gone apart.
func (s *stream) reset(code http2.ErrCode) {
	s.ended = true
	s.x.open.mu.Lock()
	s.x.open.cutLocked(s.id, streamWindow)
	s.x.open.mu.Unlock()
	s.x.put(append32(nil, http2.FrameRSTStream, s.id, uint32(code)))
}

// goApart has another goroutine read the connection, so that this one may wait.
func (s *stream) goApart() {
	if s.apart {
		return
	}
	s.apart = true
	x := s.x
	x.open.mu.Lock()
	x.open.byID[s.id] = s
	x.open.mu.Unlock()
	x.f.readOn(x)
}

// leave notes that the visitor has left, and reports whether it was there. Any goroutine may call it.
func (s *stream) leave() bool {
	s.x.open.mu.Lock()
	defer s.x.open.mu.Unlock()
	if s.left {
		return false
	}
	s.left = true
	if s.visit.gone != nil {
		close(s.visit.gone)
	}
	if s.visit.origin != nil {
		s.visit.origin.Close() // which ends its read
	}
	s.wake()
	if s.body != nil {
		s.body.wake()
	}
	return true
}

// wake wakes the owner if it waits for a window. The caller holds x.open.mu.
func (s *stream) wake() {
	if s.room != nil {
		select {
		case s.room <- struct{}{}:
		default:
		}
	}
}

// decide has the request decided, and acts on the outcome.
func (s *stream) decide() {
	x, opts := s.x, &s.x.f.opts
	x.progress.Begin()
	defer x.progress.End()
	o := opts.Gate.Begin()
	defer o.End()
	defer func() {
		if p := recover(); p != nil {
			s.answerPanic(o, p)
		}
	}()
	s.fillAsk("HTTP/2.0", false, opts.Proxies, x.accepted.peer, x.accepted.secure)
	opts.Metrics.Requests.Inc()
	opts.Gate.Decide(&s.visit, &s.ask, o)
	x.progress.Identify(o.Client, o.Session())
	switch o.Kind {
	case gate.Enters:
		if s.apart {
			s.forward(o, clientaddr.Text(o.Client))
			return
		}
		if o.Client != x.client {
			x.client, x.clientText = o.Client, clientaddr.Text(o.Client)
		}
		text := x.clientText
		s.goApart()
		s.forward(o, text)
	case gate.Answered:
		if o.Close {
			x.shutDown()
		}
		s.reply(o.Status, o.Header, o.Body)
	default:
		panic(fmt.Sprintf("fast front: an outcome of kind %d", o.Kind))
	}
}

// reply writes an answer of the edge.
func (s *stream) reply(status int, header []gate.Field, body []byte) {
	b := appendStatus2(beginHead(s.out[:0], s.x.shrunk.Load()), status)
	for i := range header {
		b = appendField2(b, header[i].Name, header[i].Value)
	}
	b = appendField2(b, "Date", dateNow().value)
	if status != http.StatusNoContent && status != http.StatusNotModified {
		b = appendLength2(b, int64(len(body)))
	}
	if s.req.Method == http.MethodHead {
		body = nil
	}
	s.started, s.ended = true, len(body) == 0
	s.out = endHead(b, s.id, s.ended)
	if s.write(body, true, s.x.f.opts.Timeouts.Header) {
		s.sendOut(s.x.f.opts.Timeouts.Header)
	}
}

// answerPanic answers a request whose handling panicked.
func (s *stream) answerPanic(o *gate.Outcome, p any) {
	s.x.f.opts.panicked("request", p)
	if !s.started {
		s.reply(http.StatusInternalServerError, panicHeader(o), []byte(panicText))
	}
}

// forward sends an admitted request to its site. client is the text of the visitor's address.
func (s *stream) forward(o *gate.Outcome, client string) {
	o.MustGo(gate.Enters, s.req.Target)
	s.visit.session = o.Session() != 0
	s.trip = trip{
		opts: &s.x.f.opts, outcome: o, client: client, base: &s.visit, visitor: &s.visit, cannotTie: origin.ErrMultiplexedLogin,
	}
	defer s.endTrip()
	err := s.exchange(nil)
	if err != nil {
		s.out = s.out[:0] // it has the request
	}
	switch {
	case errors.Is(err, errVisitorLeft), errors.Is(err, context.Canceled):
	case err != nil:
		o.Forwarded(0, 0)
		f := s.x.f.opts.Monitor.Failed(o.Origin, s.req.Host, err)
		if errors.Is(err, origin.ErrMultiplexedLogin) { // browsers ask again over HTTP/1.1
			s.code = http2.ErrCodeHTTP11Required
			return
		}
		s.reply(f.Status, o.FailureHeader(s.req.Method, &f), []byte(f.Text))
	default:
		s.answer()
	}
}

// answer sends the site's answer to the visitor, once its head was read.
func (s *stream) answer() {
	t := &s.trip
	t.opts.Monitor.Answered(t.outcome.Origin)
	t.outcome.Forwarded(s.res.Status, time.Since(t.asked))
	framing := s.res.Body(s.req.Method)
	b := appendStatus2(beginHead(s.out[:0], s.x.shrunk.Load()), s.res.Status)
	if dated := s.eachField(func(name, value string) { b = appendField2(b, name, value) }); !dated {
		b = appendField2(b, "Date", dateNow().value)
	}
	if framing != http1.Chunked && framing != http1.ToTheEnd && s.res.Length >= 0 && s.res.Status != http.StatusNoContent {
		b = appendLength2(b, s.res.Length)
	}
	s.out = endHead(b, s.id, framing == http1.NoBody)
	s.started = true
	s.ended = framing == http1.NoBody
	whole, err := s.pass(framing, s)
	if err != nil {
		s.ended = false
		s.brokeOff(err)
		return
	}
	if there := s.visit.bind(nil); whole && there && !s.res.Close &&
		!t.outcome.Alone { // otherwise it is closed with the visitor
		t.opts.Pool.Put(t.up)
		t.up = nil
	}
}

func (s *stream) add(b []byte, last bool) error {
	if !s.write(b, last, s.trip.opts.Timeouts.Idle) {
		return errVisitorLeft
	}
	return nil
}

func (s *stream) flush() error {
	if !s.sendOut(s.trip.opts.Timeouts.Idle) {
		return errVisitorLeft
	}
	return nil
}

func (s *stream) through(b []byte, last bool) error {
	if err := s.add(b, last); err != nil {
		return err
	}
	return s.flush()
}

// write adds DATA to out, as the windows allow: until they do, it sends out and waits for patience at most, or less if
// the visitor is slow. It reports whether it could.
func (s *stream) write(b []byte, ends bool, patience time.Duration) bool {
	if s.ended {
		return len(b) == 0
	}
	for {
		n := s.x.open.grab(s, len(b))
		switch {
		case n < 0:
			return false
		case n == 0 && len(b) > 0:
			s.goApart()
			if !s.sendOut(patience) || !s.await(patience, awaitRoom(s.room)) {
				return false
			}
			continue
		case n == 0 && !ends:
			return true
		}
		flags := http2.Flags(0)
		if ends && n == len(b) {
			flags, s.ended = http2.FlagDataEndStream, true
		}
		s.out = append(appendFrame(s.out, n, http2.FrameData, flags, s.id), b[:n]...)
		s.x.calm.control.earned.Add(4)
		if b = b[n:]; len(b) == 0 {
			return true
		}
		if len(s.out) >= maxPayload && s.apart && !s.sendOut(patience) {
			return false
		}
	}
}

// awaitRoom waits until there may be a window.
func awaitRoom(room <-chan struct{}) func(patience time.Duration) (n int, ok bool) {
	return func(patience time.Duration) (int, bool) {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-room:
			return 0, true
		case <-timer.C:
			return 0, false
		}
	}
}

// await waits for the visitor, see [Pace].
func (s *stream) await(patience time.Duration, wait func(patience time.Duration) (n int, ok bool)) bool {
	progress, atSite, begun := s.x.progress, s.trip.up != nil, time.Now()
	if s.head.r != nil { // its handler does
		_, ok := wait(patience)
		return ok
	}
	since := begun.Add(-s.pace.Lag())
	progress.Await(atSite, since)
	n, ok := wait(s.pace.Left(patience))
	progress.Resume(atSite, since)
	s.pace.Add(n, time.Since(begun))
	return ok
}

// sendOut sends out, or leaves it to the reader if that is this goroutine. It reports whether it could.
func (s *stream) sendOut(patience time.Duration) bool {
	if len(s.out) == 0 {
		return true
	}
	if !s.apart {
		s.x.put(s.out)
		s.out = s.out[:0]
		return true
	}
	s.x.open.mu.Lock()
	left, others := s.left, len(s.x.open.byID) > 1
	s.x.open.mu.Unlock()
	if left {
		s.out = s.out[:0]
		return false
	}
	ok := s.await(patience, func(patience time.Duration) (int, bool) {
		patience = max(patience, time.Second)  // a moment, for the other streams' sake
		if others && len(s.out) <= wholeBody { // a long one would only be copied
			return len(s.out), s.x.sendTogether(s.out, patience)
		}
		return len(s.out), s.x.send(s.out, patience)
	})
	s.out = s.out[:0]
	return ok
}
