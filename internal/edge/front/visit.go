package front

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"vestibule/internal/edge/http1"
)

// visit is one request as a context: it ends when the visitor goes away. Nobody looks
// out for that before somebody asks: most are answered at once.
type visit struct {
	c *conn

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
	v.c.readBy = time.Time{}
	if v.c.conn.SetReadDeadline(v.c.readBy) != nil {
		return
	}
	done := make(chan struct{})
	v.watched = done
	v.c.f.open.Go(func() {
		defer close(done)
		n, err := v.c.conn.Read(v.b[:])
		if v.n = n; err != nil && n == 0 && !isTimeout(err) {
			v.leave()
		}
	})
}

// end ends looking out. What the visitor has said meanwhile belongs to what follows.
func (v *visit) end() {
	v.mu.Lock()
	done := v.watched
	v.watched, v.origin, v.open = nil, nil, false
	v.mu.Unlock()
	if done == nil {
		return
	}
	c := v.c
	c.readBy = time.Unix(1, 0)
	if err := c.conn.SetReadDeadline(c.readBy); err != nil {
		c.f.opts.Log.Debug("deadline", slog.Any("error", err)) // it is closed, and so the read ends
	}
	<-done
	if v.n > 0 {
		c.in = append(c.in[:c.w], v.b[0])
		c.in = c.in[:cap(c.in)]
		c.w++
		v.n = 0
	}
}

// hint implements [asker].
func (v *visit) hint(r *http1.Response) bool { return v.c.hint(r) }

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
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
