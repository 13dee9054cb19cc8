package front

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"vestibule/internal/edge/http1"
	"vestibule/internal/edge/origin"
)

// visit is one request as a context: it ends when the visitor leaves. The connection is watched only once Done or
// watch is called: most requests are answered at once.
type visit struct {
	conn   net.Conn // of the visitor
	readBy time.Time
	all    *sync.WaitGroup // the goroutines of the front
	log    *slog.Logger
	output *output

	mu      sync.Mutex
	gone    chan struct{}
	left    bool
	open    bool        // watch may start
	origin  *http1.Conn // is closed when the visitor leaves
	watched chan struct{}

	// Owned by the watching goroutine until watched is closed, then by the connection's goroutine.
	b [1]byte
	n int
}

var _ context.Context = (*visit)(nil)

// next starts the next request.
func (v *visit) next() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone == nil || v.left {
		v.gone = make(chan struct{})
	}
	v.left, v.open, v.origin = false, true, nil
}

// resume allows watch again after end.
func (v *visit) resume() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = true
}

// setGone notes that the visitor has left. Any goroutine may call it.
func (v *visit) setGone() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left || v.gone == nil {
		return
	}
	v.left = true
	close(v.gone)
	if v.origin != nil {
		v.origin.Close() // which ends its read
	}
}

// bind sets the connection to an origin that is closed when the visitor leaves, nil for none. It reports whether the
// visitor is still there.
func (v *visit) bind(origin *http1.Conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.origin = origin
	return !v.left
}

// watch starts to watch the connection, while a request is open. The connection's goroutine calls it, and the gate
// while that goroutine waits for it.
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
			v.setGone()
		}
	})
}

// end stops watching. It returns the byte that was read meanwhile, if any.
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
		v.log.Debug("deadline", slog.Any("error", err)) // the connection is closed, which ends the read
	}
	<-done
	read = v.n > 0
	v.n = 0
	return v.b[0], read
}

func (*visit) Deadline() (time.Time, bool) { return time.Time{}, false }

func (*visit) Value(any) any { return nil }

func (v *visit) Done() <-chan struct{} {
	v.watch()
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.gone
}

func (v *visit) Err() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left {
		return context.Canceled
	}
	return nil
}

// readUntil sets the deadline of the next read. It keeps the last one if that is at most slack earlier: the system
// call costs time.
func (v *visit) readUntil(limit time.Time, slack time.Duration) bool {
	if early := limit.Sub(v.readBy); early >= 0 && early < slack {
		return true
	}
	v.readBy = limit
	return v.conn.SetReadDeadline(limit) == nil
}

func (v *visit) hint(r *http1.Response) bool {
	b := appendStatus(nil, r.Status)
	for i := range r.Fields {
		if f := &r.Fields[i]; origin.InHint(f.Name) {
			b = appendField(b, f.Name, f.Value)
		}
	}
	began := v.output.begun
	ok := v.output.write(true, v.output.timeouts.Idle, append(b, "\r\n"...))
	v.output.begun = began // the final answer follows
	return ok
}
