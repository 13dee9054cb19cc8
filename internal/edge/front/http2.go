package front

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"vestibule/internal/edge/http1"
)

// HTTP/2. One goroutine at a time reads a connection: it decides requests and answers them in place. Before it waits
// for anything but the client's next bytes (a permit, a site, a window), it has another goroutine read on, see
// [stream.goApart], and serves its stream to the end. So each stream has one owner, and a stream that is answered in
// place needs no goroutine.

// Limits of a connection.
const (
	maxStreams   = 100
	streamWindow = 256 << 10 // bytes of a body that the client may send ahead
	connWindow   = 1 << 20   // the same, of all bodies
	maxFrame     = 16 << 10  // payload of the client's frames

	// Then the client is asked for another connection, which may lead to another edge.
	maxRequests = 10_000
	maxLife     = time.Hour

	goAwayFor = time.Second // the client may take to hear that the connection ends
)

// h2 is a connection with HTTP/2.
type h2 struct {
	outbox   // frames to the client
	progress Progress
	remote   string // the peer as text

	// Of the goroutine that reads.
	frames   frameReader
	unpack   *hpack.Decoder
	head     head2
	begun    time.Time
	now      time.Time // of the last read
	by       time.Time // for the frame or header block that has begun; the zero time for none
	last     uint32    // the highest stream of the client
	refused  uint32    // streams from here on are not served: the client knows; 0 for none
	requests int
	unacked  int     // own SETTINGS
	settled  bool    // the client's SETTINGS were read
	spare    *stream // for the next request
	calm     calm
	away     time.Time // when the client heard that the connection ends; the zero time if it did not
	lingers  bool

	client     netip.Addr // of the last request; clientText is its text
	clientText string

	shrunk atomic.Bool // the client keeps a smaller table

	open streams
	wait wait
}

// streams are the open streams of a connection, with its windows. Their mu guards the wait of the reader too.
type streams struct {
	mu      sync.Mutex
	byID    map[uint32]*stream // that have an owner of their own, or a body to come
	window  int64              // bytes that may be sent
	initial int64              // window of a new stream
	recv    int64              // bytes that the client may send
	owed    int64              // of those, read and not yet credited
	cuts    []cutStream        // the newest maxStreams that the edge has reset, in a ring
	oldest  int                // of cuts
	outbox  *outbox
}

// cutStream is a stream that the edge has reset. What the client sent before it knew is ignored (RFC 9113, 5.1). A
// client has at most maxStreams open, so that older ones need not be kept.
type cutStream struct {
	id   uint32
	recv int64 // bytes that may be on their way
}

// cutLocked notes that the edge resets a stream, of whose body recv bytes may be on their way.
func (x *streams) cutLocked(id uint32, recv int64) {
	if c := (cutStream{id, recv}); len(x.cuts) < maxStreams {
		x.cuts = append(x.cuts, c)
	} else {
		x.cuts[x.oldest] = c
		x.oldest = (x.oldest + 1) % maxStreams
	}
}

// isCut reports whether the edge has reset a stream lately.
func (x *streams) isCut(id uint32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cutOfLocked(id) != nil
}

// cutOfLocked returns the note of a stream, nil for none.
func (x *streams) cutOfLocked(id uint32) *cutStream {
	for i := range x.cuts {
		if x.cuts[i].id == id {
			return &x.cuts[i]
		}
	}
	return nil
}

// forget drops the note of a stream that the client has reset too: nothing of it is on its way any more.
func (x *streams) forget(id uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.cutOfLocked(id); c != nil {
		c.id = 0
	}
	if s := x.byID[id]; s != nil {
		s.cut = false
	}
}

// get returns a stream that has an owner, nil for none.
func (x *streams) get(id uint32) *stream {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byID[id]
}

// maxWindow is the largest window.
const maxWindow = 1<<31 - 1

// resize sets the window of new streams, and changes that of all others as much.
func (x *streams) resize(initial int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	more := initial - x.initial
	x.initial = initial
	for _, s := range x.byID {
		if s.window += more; s.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		s.wake()
	}
	return nil
}

// widen adds to the window of a stream, 0 for that of the connection.
func (x *streams) widen(stream uint32, n int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if stream != 0 {
		if s := x.byID[stream]; s != nil {
			if s.window += n; s.window > maxWindow {
				return http2.StreamError{StreamID: stream, Code: http2.ErrCodeFlowControl}
			}
			s.wake()
		}
		return nil
	}
	if x.window += n; x.window > maxWindow {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	for _, s := range x.byID {
		s.wake()
	}
	return nil
}

// creditLocked notes that the client may send n more bytes, and reports whether the next frames tell it.
func (x *streams) creditLocked(n int64) (credited bool) {
	if x.owed += n; x.owed < connWindow/4 {
		return false
	}
	x.recv += x.owed
	x.outbox.add(append32(nil, http2.FrameWindowUpdate, 0, uint32(x.owed)))
	x.owed = 0
	return true
}

// grab takes up to n bytes of the windows for one frame of s. It returns -1 if the visitor has left.
func (x *streams) grab(s *stream, n int) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.left {
		return -1
	}
	got := max(0, min(int64(n), maxPayload, s.window, x.window))
	s.window -= got
	x.window -= got
	if got == 0 && n > 0 && s.room == nil {
		s.room = make(chan struct{}, 1)
	}
	return int(got)
}

// wait is the wait of the reader for the next bytes.
type wait struct {
	conn    *tls.Conn
	waits   bool      // the reader waits for bytes
	between bool      // the same, of the next frame
	rests   bool      // the same, and there is no stream
	idle    time.Time // since when there is no stream
	readBy  time.Time
	nudged  bool // the reader must look
	ends    bool // after the streams
}

// until sets the deadline of the reader. It keeps the last one if that is at most slack earlier.
func (w *wait) until(limit time.Time, slack time.Duration) {
	if early := limit.Sub(w.readBy); early < 0 || early > slack {
		w.readBy = limit
		w.conn.SetReadDeadline(limit) //nolint:errcheck // the connection is closed, which ends the read
	}
}

// nudge has the reader look.
func (w *wait) nudge() {
	if w.nudged = true; w.waits {
		w.readBy = time.Unix(1, 0)
		w.conn.SetReadDeadline(w.readBy) //nolint:errcheck // as in until
	}
}

// input is the memory of a reader.
type input struct {
	buf   []byte
	r, w  int // buf[r:w] was read and is unused
	frame *http2.Framer
}

// Read implements [io.Reader] for the framer: a whole frame is in the buffer.
func (in *input) Read(b []byte) (int, error) {
	n := copy(b, in.buf[in.r:in.w])
	if in.r += n; n == 0 && len(b) > 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return n, nil
}

var inputs = sync.Pool{New: func() any {
	in := &input{buf: make([]byte, firstBuffer)}
	in.frame = http2.NewFramer(nil, in)
	in.frame.SetMaxReadFrameSize(maxFrame)
	in.frame.SetReuseFrames()
	return in
}}

// frameReader reads frames. It has memory only while there is something to read.
type frameReader struct {
	in       *input // nil while the connection rests
	inHead   bool   // more of the header block must come
	prefaced bool   // the client's preface was read
}

// whole reports whether there is a whole frame in the buffer, behind the preface.
func (x *frameReader) whole() (bool, error) {
	in := x.in
	if in == nil {
		return false, nil
	}
	if !x.prefaced {
		n := min(in.w, len(http2.ClientPreface))
		if string(in.buf[:n]) != http2.ClientPreface[:n] {
			x.prefaced = true
			return false, http2.ConnectionError(http2.ErrCodeProtocol)
		}
		if n < len(http2.ClientPreface) {
			return false, nil
		}
		in.r, x.prefaced = n, true
	}
	if in.w-in.r < frameHead {
		return false, nil
	}
	length := int(in.buf[in.r])<<16 | int(in.buf[in.r+1])<<8 | int(in.buf[in.r+2])
	if length > maxFrame {
		return false, http2.ConnectionError(http2.ErrCodeFrameSize)
	}
	return in.w-in.r >= frameHead+length, nil
}

// readMore reads into the buffer, or one byte into another while the connection rests, which has no buffer.
func (x *frameReader) readMore(conn *tls.Conn) (int, error) {
	if x.in != nil && x.in.r == x.in.w && !x.inHead && x.prefaced {
		x.in.r, x.in.w = 0, 0
		inputs.Put(x.in)
		x.in = nil
	}
	one := x.in == nil
	if one {
		var b [1]byte
		n, err := conn.Read(b[:])
		if n == 0 {
			return 0, err
		}
		x.in = inputs.Get().(*input)
		x.in.buf[0], x.in.r, x.in.w = b[0], 0, 1
	}
	in := x.in
	if in.r > 0 {
		in.r, in.w = 0, copy(in.buf, in.buf[in.r:in.w])
	}
	if in.w == len(in.buf) {
		in.buf = append(in.buf, make([]byte, frameHead+maxFrame-len(in.buf))...)
	}
	n, err := conn.Read(in.buf[in.w:]) // behind one byte it has the rest of the record
	if in.w += n; one {
		return n + 1, nil // an error comes again
	}
	return n, err
}

// partial reports whether a part of a frame or header block has come.
func (x *frameReader) partial() bool {
	return x.inHead || !x.prefaced || x.in != nil && x.in.w > x.in.r
}

// patience returns how long the rest of a frame may take.
func (x *frameReader) patience(least time.Duration) time.Duration {
	if in := x.in; !x.inHead && in != nil && in.w-in.r > 3 && http2.FrameType(in.buf[in.r+3]) == http2.FrameData {
		return max(least, maxFrame/MinRate*time.Second)
	}
	return least
}

// newH2 returns the HTTP/2 connection that c becomes, before its preface.
func newH2(c *conn, t *tls.Conn) *h2 {
	now := time.Now()
	x := &h2{
		outbox: outbox{f: c.f, conn: t, accepted: c}, progress: c.output.progress, remote: t.RemoteAddr().String(),
		unpack: hpack.NewDecoder(maxTable, nil), begun: now, now: now, by: now.Add(c.f.opts.Timeouts.Header), unacked: 1,
		calm: newCalm(now), wait: wait{conn: t, rests: true, idle: now},
		open: streams{byID: map[uint32]*stream{}, window: 65535, initial: 65535, recv: connWindow},
	}
	x.open.outbox = &x.outbox
	x.unpack.SetEmitFunc(x.head.add)
	x.unpack.SetMaxStringLength(http1.MaxHead)
	c.given, c.two = true, x
	return x
}

// readers are goroutines that wait for a connection to read: a new one would have to grow its stack.
type readers struct {
	next   chan *h2
	parked atomic.Int32
	over   chan struct{} // closed by Shutdown
}

// maxParked bounds the goroutines that wait.
const maxParked = 256

// readOn has another goroutine read a connection.
func (s *shared) readOn(x *h2) {
	select {
	case s.readers.next <- x:
	default:
		s.open.Go(func() {
			for x != nil {
				x.run()
				x = s.readers.park()
			}
		})
	}
}

// park waits for a connection to read. It returns nil if the goroutine is of no use.
func (r *readers) park() *h2 {
	defer r.parked.Add(-1)
	if r.parked.Add(1) > maxParked {
		return nil
	}
	select {
	case x := <-r.next:
		return x
	case <-r.over:
		return nil
	}
}

// run reads until another goroutine does, or the connection ends.
func (x *h2) run() {
	var s *stream // the request in progress
	defer func() {
		if p := recover(); p != nil { // outside of a request: serve answers those
			x.f.opts.panicked("connection", p)
		}
		if s == nil || !s.apart {
			x.end()
		}
	}()
	for {
		if s = x.next(); s == nil {
			return
		}
		if s.serve(); s.apart {
			return
		}
		x.spare = s
	}
}

// next reads frames up to the end of a request's head. It returns nil at the end of the connection.
func (x *h2) next() *stream {
	for x.look() {
		greeted := x.frames.prefaced
		whole, err := x.frames.whole()
		if !greeted && x.frames.prefaced { // it hears of a fault too
			x.by = time.Time{}
			x.put(greeting)
		}
		switch {
		case err != nil:
			x.tell(err)
			return nil
		case !whole:
			if !x.fill() {
				return nil
			}
			continue
		}
		s, err := x.read()
		if !x.frames.inHead {
			x.by = time.Time{}
		}
		if err != nil && !x.tell(err) {
			return nil
		}
		if s != nil {
			return s
		}
	}
	return nil
}

// greeting begins a connection: the settings of the edge, and the window of the connection.
var greeting = func() (b []byte) {
	b = appendFrame(b, 3*6, http2.FrameSettings, 0, 0)
	for _, s := range [...]http2.Setting{
		{ID: http2.SettingMaxConcurrentStreams, Val: maxStreams},
		{ID: http2.SettingInitialWindowSize, Val: streamWindow},
		{ID: http2.SettingMaxHeaderListSize, Val: http1.MaxHead},
	} {
		b = append(b, byte(s.ID>>8), byte(s.ID), byte(s.Val>>24), byte(s.Val>>16), byte(s.Val>>8), byte(s.Val))
	}
	return append32(b, http2.FrameWindowUpdate, 0, connWindow-65535)
}()

// tell tells the client of its fault, and reports whether the connection goes on.
func (x *h2) tell(err error) bool {
	if s, ok := errors.AsType[http2.StreamError](err); ok {
		x.reset(s.StreamID, s.Code)
		err = x.calm.control.take(x.now)
		if err == nil {
			return true
		}
	}
	code := http2.ErrCodeProtocol
	if c, ok := errors.AsType[http2.ConnectionError](err); ok {
		code = http2.ErrCode(c)
	}
	x.fail(code, err.Error())
	return false
}

// reset ends a stream, which has an owner or not.
func (x *h2) reset(stream uint32, code http2.ErrCode) {
	s := x.open.get(stream)
	left := s != nil && s.leave()
	x.open.mu.Lock()
	if left {
		s.cut = true
	}
	if x.open.cutOfLocked(stream) == nil {
		x.open.cutLocked(stream, streamWindow)
	}
	x.open.mu.Unlock()
	x.put(append32(nil, http2.FrameRSTStream, stream, uint32(code)))
}

// fail tells the client why the connection ends.
func (x *h2) fail(code http2.ErrCode, why string) {
	x.f.opts.Log.Debug("HTTP/2 connection ended",
		slog.String("code", code.String()), slog.String("why", why), slog.String("peer", x.remote))
	x.lingers = true
	x.put(append32(nil, http2.FrameGoAway, 0, x.last, uint32(code)))
}

// look ends the connection in steps if it is to end, and reports whether it goes on.
func (x *h2) look() bool {
	x.open.mu.Lock()
	ends, streams := x.wait.ends, len(x.open.byID)
	x.wait.nudged = false
	x.open.mu.Unlock()
	if !ends {
		return true
	}
	now := time.Now()
	switch {
	case x.away.IsZero(): // requests may be on their way
		x.away = now
		x.put(append(append32(nil, http2.FrameGoAway, 0, 1<<31-1, uint32(http2.ErrCodeNo)), endPing...))
	case x.refused == 0 && now.Sub(x.away) >= goAwayFor:
		x.refuse()
	}
	x.lingers = x.refused > 0 && streams == 0 && !x.frames.inHead
	return !x.lingers
}

// endPing is the PING behind the first GOAWAY: with its answer, all requests that came before have come.
var endPing = append(appendFrame(nil, 8, http2.FramePing, 0, 0), "the end."...)

// refuse tells the client which streams are not served.
func (x *h2) refuse() {
	x.refused = x.last + 1
	x.put(append32(nil, http2.FrameGoAway, 0, x.last, uint32(http2.ErrCodeNo)))
}

// fill writes what is unsent, and reads more. It reports whether the connection goes on.
func (x *h2) fill() bool {
	if x.frames.prefaced && !x.flush(x.f.opts.Timeouts.Header) {
		return false
	}
	now := time.Now()
	x.open.mu.Lock()
	if x.wait.nudged {
		x.open.mu.Unlock()
		return true
	}
	partial := x.frames.partial()
	if partial && x.by.IsZero() {
		x.by = now.Add(x.frames.patience(x.f.opts.Timeouts.Header))
	}
	x.wait.waits, x.wait.between = true, !partial
	x.restLocked()
	x.untilLocked(now)
	x.open.mu.Unlock()
	n, err := x.frames.readMore(x.conn)
	x.now = time.Now()
	x.open.mu.Lock()
	defer x.open.mu.Unlock()
	x.wait.waits = false
	switch {
	case n > 0 && x.wait.rests:
		x.wait.rests = false
		x.f.opts.Connections.State(x.conn, http.StateActive)
	case n == 0 && isTimeout(err) && !x.by.IsZero():
		return x.now.Before(x.by)
	case n == 0 && isTimeout(err):
		if len(x.open.byID) == 0 && x.now.Sub(x.wait.idle) >= x.f.opts.Timeouts.Idle {
			x.wait.ends = true
		}
		return true
	}
	return n > 0
}

// restLocked notes that the connection is idle if the reader waits and there is no stream.
func (x *h2) restLocked() {
	if x.wait.waits && x.wait.between && !x.wait.rests && len(x.open.byID) == 0 {
		x.wait.rests = true
		x.f.opts.Connections.State(x.conn, http.StateIdle)
	}
}

// untilLocked sets the deadline of the reader, which may be early: fill looks.
func (x *h2) untilLocked(now time.Time) {
	idle := x.f.opts.Timeouts.Idle
	limit, slack := now.Add(idle), idle/8
	if x.wait.rests && x.away.IsZero() {
		limit = x.wait.idle.Add(idle)
	}
	if !x.by.IsZero() && x.by.Before(limit) {
		limit, slack = x.by, 0
	}
	if end := x.away.Add(goAwayFor); !x.away.IsZero() && x.refused == 0 && end.Before(limit) {
		limit, slack = end, 0
	}
	x.wait.until(limit, slack)
}

// shutDown ends the connection once its streams have ended. Any goroutine may call it.
func (x *h2) shutDown() {
	x.open.mu.Lock()
	defer x.open.mu.Unlock()
	if !x.wait.ends {
		x.wait.ends = true
		x.wait.nudge()
	}
}

// end ends the connection and all of its streams.
func (x *h2) end() {
	x.open.mu.Lock()
	all := make([]*stream, 0, len(x.open.byID))
	for _, s := range x.open.byID {
		all = append(all, s)
	}
	x.open.mu.Unlock()
	for _, s := range all {
		s.leave()
	}
	if x.lingers {
		x.linger()
	}
	x.f.close(x.conn)
	x.frames.in = nil // its framer may be in the middle of a head
	x.accepted.forget()
}
