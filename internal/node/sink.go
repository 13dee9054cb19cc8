package node

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Sink writes what a process says to a file or a pipe, in the background. It never blocks and never fails: what cannot
// be written, because the reader has ended or stopped or the disk is full, is dropped and counted. It is safe for
// concurrent use.
type Sink struct {
	to io.Writer

	mu      sync.Mutex
	waiting []byte        // not yet written
	closed  bool          // nothing is taken any more
	more    chan struct{} // of one element: waiting has grown, or closed was set
	ended   chan struct{} // closed when all is written
}

const (
	maxUnwritten = 1 << 20     // bytes: some thousand lines
	lastWrite    = time.Second // for what was said last
)

var (
	lostLines atomic.Uint64 // of all sinks
	pipes     = sync.OnceFunc(func() {
		// Without this a broken pipe at stdout or stderr ends a Go program. An ignored signal would pass to children.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	})
)

// NewSink returns a sink. Its owner closes it.
func NewSink(to io.Writer) *Sink {
	pipes()
	s := &Sink{to: to, more: make(chan struct{}, 1), ended: make(chan struct{})}
	go s.run()
	return s
}

// Write implements [io.Writer]: p are whole lines.
func (s *Sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	if s.closed || len(s.waiting)+len(p) > maxUnwritten {
		lose(p)
	} else {
		s.waiting = append(s.waiting, p...)
	}
	s.mu.Unlock()
	s.wake()
	return len(p), nil
}

func (s *Sink) wake() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// Close writes what waits, for at most a second: a reader that has stopped may never come back.
func (s *Sink) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wake()
	timer := time.NewTimer(lastWrite)
	defer timer.Stop()
	select {
	case <-s.ended:
	case <-timer.C:
	}
}

func (s *Sink) run() {
	defer close(s.ended)
	var spare []byte
	for range s.more {
		s.mu.Lock()
		out, closed := s.waiting, s.closed
		s.waiting = spare[:0]
		s.mu.Unlock()
		if len(out) > 0 {
			n, err := s.to.Write(out)
			if err != nil {
				lose(out[max(0, min(n, len(out))):])
			}
		}
		if spare = out; closed {
			return
		}
	}
}

// lose counts lines that are dropped.
func lose(p []byte) {
	n := bytes.Count(p, []byte("\n"))
	if len(p) > 0 && p[len(p)-1] != '\n' {
		n++
	}
	lostLines.Add(uint64(n))
}
