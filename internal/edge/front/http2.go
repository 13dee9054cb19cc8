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
	in       *input // nil while the connection rests
	unpack   *hpack.Decoder
	head     head2
	inHead   bool // more of the header block must come
	begun    time.Time
	now      time.Time // of the last read
	by       time.Time // for the frame or header block that has begun; the zero time for none
	last     uint32    // the highest stream of the client
	refused  uint32    // streams from here on are not served: the client knows; 0 for none
	requests int
	unacked  int     // own SETTINGS
	settled  bool    // the client's SETTINGS were read
	prefaced bool    // the client's preface was read
	spare    *stream // for the next request
	calm     calm
	away     time.Time // when the client heard that the connection ends; the zero time if it did not
	lingers  bool

	client     netip.Addr // of the last request; clientText is its text
	clientText string

	shrunk atomic.Bool // the client keeps a smaller table

	mu      sync.Mutex
	streams map[uint32]*stream // that have an owner of their own, or a body to come
	window  int64              // bytes that may be sent
	initial int64              // window of a new stream
	recv    int64              // bytes that the client may send
	owed    int64              // of those, read and not yet told
	waits   bool               // the reader waits for bytes
	between bool               // the same, of the next frame
	rests   bool               // the same, and there is no stream
	idle    time.Time          // since when there is no stream
	readBy  time.Time
	nudged  bool // the reader must look
	ends    bool // after the streams
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

// newH2 returns the HTTP/2 connection that c becomes, before its preface.
func newH2(c *conn, t *tls.Conn) *h2 {
	now := time.Now()
	x := &h2{
		outbox: outbox{f: c.f, conn: t, accepted: c}, progress: c.output.progress, remote: t.RemoteAddr().String(),
		unpack: hpack.NewDecoder(maxTable, nil), begun: now, now: now, by: now.Add(c.f.opts.Timeouts.Header), unacked: 1,
		calm: newCalm(now), streams: map[uint32]*stream{}, window: 65535, initial: 65535, recv: connWindow, rests: true,
		idle: now,
	}
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
		switch whole, err := x.whole(); {
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
		if !x.inHead {
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

// whole reports whether there is a whole frame in the buffer, behind the preface.
func (x *h2) whole() (bool, error) {
	in := x.in
	if in == nil {
		return false, nil
	}
	if !x.prefaced {
		n := min(in.w, len(http2.ClientPreface))
		if string(in.buf[:n]) != http2.ClientPreface[:n] {
			x.prefaced = true // it hears of it
			x.put(greeting)
			return false, http2.ConnectionError(http2.ErrCodeProtocol)
		}
		if n < len(http2.ClientPreface) {
			return false, nil
		}
		in.r, x.prefaced, x.by = n, true, time.Time{}
		x.put(greeting)
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
		err = x.spend(&x.calm.control)
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
	if s := x.stream(stream); s != nil && s.leave() {
		x.mu.Lock()
		s.cut = true
		x.mu.Unlock()
	}
	x.put(append32(nil, http2.FrameRSTStream, stream, uint32(code)))
}

// stream returns a stream that has an owner, nil for none.
func (x *h2) stream(id uint32) *stream {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.streams[id]
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
	x.mu.Lock()
	ends, streams := x.ends, len(x.streams)
	x.nudged = false
	x.mu.Unlock()
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
	x.lingers = x.refused > 0 && streams == 0 && !x.inHead
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
	if x.prefaced && !x.flush(x.f.opts.Timeouts.Header) {
		return false
	}
	now := time.Now()
	x.mu.Lock()
	if x.nudged {
		x.mu.Unlock()
		return true
	}
	if x.partial() && x.by.IsZero() {
		x.by = now.Add(x.patience())
	}
	x.waits, x.between = true, !x.partial()
	x.restLocked()
	x.untilLocked(now)
	x.mu.Unlock()
	n, err := x.readMore()
	x.now = time.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waits = false
	switch {
	case n > 0 && x.rests:
		x.rests = false
		x.f.opts.Connections.State(x.conn, http.StateActive)
	case n == 0 && isTimeout(err):
		return x.lateLocked(x.now)
	}
	return n > 0
}

// readMore reads into the buffer, or one byte into another while the connection rests, which has no buffer.
func (x *h2) readMore() (int, error) {
	if x.in != nil && x.in.r == x.in.w && !x.inHead && x.prefaced {
		x.in.r, x.in.w = 0, 0
		inputs.Put(x.in)
		x.in = nil
	}
	one := x.in == nil
	if one {
		var b [1]byte
		n, err := x.conn.Read(b[:])
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
	n, err := x.conn.Read(in.buf[in.w:]) // behind one byte it has the rest of the record
	if in.w += n; one {
		return n + 1, nil // an error comes again
	}
	return n, err
}

// partial reports whether a part of a frame or header block has come.
func (x *h2) partial() bool { return x.inHead || !x.prefaced || x.in != nil && x.in.w > x.in.r }

// patience returns how long the rest of a frame may take.
func (x *h2) patience() time.Duration {
	if in := x.in; !x.inHead && in != nil && in.w-in.r > 3 && http2.FrameType(in.buf[in.r+3]) == http2.FrameData {
		return max(x.f.opts.Timeouts.Header, maxFrame/MinRate*time.Second)
	}
	return x.f.opts.Timeouts.Header
}

// restLocked notes that the connection is idle if the reader waits and there is no stream.
func (x *h2) restLocked() {
	if x.waits && x.between && !x.rests && len(x.streams) == 0 {
		x.rests = true
		x.f.opts.Connections.State(x.conn, http.StateIdle)
	}
}

// untilLocked sets the deadline of the reader, which may be early: late looks.
func (x *h2) untilLocked(now time.Time) {
	idle := x.f.opts.Timeouts.Idle
	limit, slack := now.Add(idle), idle/8
	if x.rests && x.away.IsZero() {
		limit = x.idle.Add(idle)
	}
	if !x.by.IsZero() && x.by.Before(limit) {
		limit, slack = x.by, 0
	}
	if end := x.away.Add(goAwayFor); !x.away.IsZero() && x.refused == 0 && end.Before(limit) {
		limit, slack = end, 0
	}
	if early := limit.Sub(x.readBy); early < 0 || early > slack {
		x.readBy = limit
		x.conn.SetReadDeadline(limit) //nolint:errcheck // the connection is closed, which ends the read
	}
}

// lateLocked reports whether the connection goes on although nothing has come until a deadline.
func (x *h2) lateLocked(now time.Time) bool {
	if !x.by.IsZero() {
		return now.Before(x.by)
	}
	if len(x.streams) == 0 && now.Sub(x.idle) >= x.f.opts.Timeouts.Idle {
		x.ends = true
	}
	return true
}

// nudgeLocked has the reader look.
func (x *h2) nudgeLocked() {
	if x.nudged = true; x.waits {
		x.readBy = time.Unix(1, 0)
		x.conn.SetReadDeadline(x.readBy) //nolint:errcheck // as in untilLocked
	}
}

// shutDown ends the connection once its streams have ended. Any goroutine may call it.
func (x *h2) shutDown() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.ends {
		x.ends = true
		x.nudgeLocked()
	}
}

// end ends the connection and all of its streams.
func (x *h2) end() {
	x.mu.Lock()
	all := make([]*stream, 0, len(x.streams))
	for _, s := range x.streams {
		all = append(all, s)
	}
	x.mu.Unlock()
	for _, s := range all {
		s.leave()
	}
	if x.lingers {
		x.linger()
	}
	x.f.close(x.conn)
	x.in = nil // its framer may be in the middle of a head
	x.accepted.forget()
}

// linger sends the last frames, and waits for the client to take them: a close would reset the connection and drop
// them.
func (x *h2) linger() {
	over := time.Now().Add(lingerFor)
	if x.conn.SetDeadline(over) != nil { // also of a write in progress
		return
	}
	x.writeUntil(over)
	if !x.flush(lingerFor) || x.conn.CloseWrite() != nil {
		return
	}
	b := make([]byte, firstBuffer)
	for left := connWindow; left > 0; { // what may be on its way; a flood goes on
		n, err := x.conn.Read(b)
		if err != nil {
			return
		}
		left -= n
	}
}
