package front

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"vestibule/internal/edge/http1"
)

// visit is one request as a context: it ends when the visitor goes away. Nobody looks
// out for that before somebody asks: most are answered at once.
type visit struct {
	conn   net.Conn // of the visitor
	readBy time.Time
	all    *sync.WaitGroup // of goroutines that read from conn
	log    *slog.Logger

	mu      sync.Mutex
	gone    chan struct{}
	left    bool
	open    bool        // somebody may begin to look out
	origin  *http1.Conn // is closed when the visitor goes away
	watched chan struct{}

	// Of who watches until watched is closed, then of the connection's goroutine.
	b [1]byte
	n int
}

var _ context.Context = (*visit)(nil)

// begin begins the next request.
func (v *visit) begin() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone == nil || v.left {
		v.gone = make(chan struct{})
	}
	v.left, v.open, v.origin = false, true, nil
}

// goOn lets somebody look out again, after end.
func (v *visit) goOn() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = true
}

// leave notes that the visitor has gone away. It may be called by anybody.
func (v *visit) leave() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left || v.gone == nil {
		return
	}
	v.left = true
	close(v.gone)
	if v.origin != nil {
		v.origin.Close() // whoever waits for it is told
	}
}

// hold has a connection to an origin closed when the visitor goes away; nil for none any
// more. It reports whether the visitor is there.
func (v *visit) hold(origin *http1.Conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.origin = origin
	return !v.left
}

// watch begins to look out, between begin and end. It is called by the connection's
// goroutine, and by whom it waits for.
func (v *visit) watch() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.open || v.watched != nil || v.left {
		return
	}
	v.readBy = time.Time{}
	if v.conn.SetReadDeadline(v.readBy) != nil {
		return
	}
	done := make(chan struct{})
	v.watched = done
	v.all.Go(func() {
		defer close(done)
		n, err := v.conn.Read(v.b[:])
		if v.n = n; err != nil && n == 0 && !isTimeout(err) {
			v.leave()
		}
	})
}

// end ends looking out. It returns the byte that was read meanwhile, if any.
func (v *visit) end() (b byte, read bool) {
	v.mu.Lock()
	done := v.watched
	v.watched, v.origin, v.open = nil, nil, false
	v.mu.Unlock()
	if done == nil {
		return 0, false
	}
	v.readBy = time.Unix(1, 0)
	if err := v.conn.SetReadDeadline(v.readBy); err != nil {
		v.log.Debug("deadline", slog.Any("error", err)) // it is closed, and so the read ends
	}
	<-done
	read = v.n > 0
	v.n = 0
	return v.b[0], read
}

// Deadline implements [context.Context].
func (*visit) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value implements [context.Context].
func (*visit) Value(any) any { return nil }

// Done implements [context.Context].
func (v *visit) Done() <-chan struct{} {
	v.watch()
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.gone
}

// Err implements [context.Context].
func (v *visit) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left {
		return context.Canceled
	}
	return nil
}

// readUntil bounds the next read. What is set already is left where it is earlier by
// slack at most: setting it takes time.
func (v *visit) readUntil(limit time.Time, slack time.Duration) bool {
	if early := limit.Sub(v.readBy); early >= 0 && early < slack {
		return true
	}
	v.readBy = limit
	return v.conn.SetReadDeadline(limit) == nil
}
