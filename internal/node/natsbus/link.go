package natsbus

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"vestibule/internal/core/fleettime"
)

// link is the state of a connection as reported by its handlers. The client itself cannot be asked: while
// reconnecting it holds its lock, for seconds if packets are lost, and would block the caller.
type link struct {
	up      atomic.Bool
	log     *slog.Logger
	onState func(connected bool) // nil for none

	mu      sync.Mutex
	refused string        // why the server refuses this node, or ""
	fault   string        // why NATS cannot be used, or ""
	again   chan struct{} // closed on reconnect
	broke   bool          // it was disconnected

	lines lines

	close   sync.Once
	closed  chan struct{}
	watched chan struct{} // closed when the watch for the first connection ends

	inspected chan struct{} // closed when the diagnoses end
}

// lines are the log lines of asynchronous errors. The zero value has none.
type lines struct {
	mu   sync.Mutex
	last map[string]*fleettime.Minutely[time.Time] // by text
}

// maxLines is the number of texts that are told apart.
const maxLines = 64

// note counts an error. It reports whether it is due for a line, and how many were not since the last one.
func (l *lines) note(now time.Time, text string) (more int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.last[text]
	if line == nil {
		if l.last == nil || len(l.last) >= maxLines {
			l.last = map[string]*fleettime.Minutely[time.Time]{}
		}
		line = &fleettime.Minutely[time.Time]{}
		l.last[text] = line
	}
	all, due := line.Count(now, 1)
	return max(0, all-1), due
}

// next returns a channel that is closed on the next reconnect.
func (l *link) next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.again
}

// broken reports whether there was a reconnect.
func (l *link) broken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broke
}

// options are the client's connection handlers.
func (l *link) options() []nats.Option {
	return []nats.Option{
		nats.ConnectHandler(func(*nats.Conn) {
			l.log.Info("connected")
			l.up.Store(true)
			l.setRefused("")
			l.notify(true)
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			l.log.Info("reconnected")
			l.reconnected()
			l.notify(true)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			l.up.Store(false)
			if err != nil {
				l.log.Warn("connection lost", slog.Any("error", err))
			}
			l.notify(false)
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { // not reached
			l.setRefused("")
			l.log.Debug("reconnect failed", slog.Any("error", err))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			if isRefusal(err) {
				l.logRefused(err)
				l.log.Debug("refused", slog.Any("error", err))
				return
			}
			if more, now := l.lines.note(time.Now(), err.Error()); now { // a missing permission comes with every message
				l.log.Warn("asynchronous error", slog.String("subject", subject), slog.Any("error", err),
					slog.Int("more_since_last_line", more))
			}
		}),
	}
}

func (l *link) notify(up bool) {
	if l.onState != nil {
		l.onState(up)
	}
}

func (l *link) reconnected() {
	l.up.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = ""
	close(l.again)
	l.again = make(chan struct{})
	l.broke = true
}

// logRefused logs that the server refuses this node, once per reason.
func (l *link) logRefused(err error) {
	if l.setRefused(err.Error()) {
		l.log.Error("the server refuses this node, retrying", slog.Any("error", err))
	}
}

// setRefused sets why the server refuses this node, or "", and reports whether that changed.
func (l *link) setRefused(why string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := why != l.refused
	l.refused = why
	return news
}

// isRefusal reports whether a connection error means that the server does not, or no longer, know this node.
func isRefusal(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// errAgain means that a watch ended because of a reconnect. By itself a watch would notice only after many missed
// heartbeats, and never that a server came back without its data.
var errAgain = errors.New("reconnected")

// watchUntilConnected detects refusals before the first connection, for which the client calls no handler.
// lastError may block on the client's lock.
func (l *link) watchUntilConnected(lastError func() error) {
	defer close(l.watched)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for !l.up.Load() {
		if err := lastError(); err != nil && isRefusal(err) && !l.up.Load() {
			l.logRefused(err)
		}
		select {
		case <-l.closed:
			return
		case <-tick.C:
		}
	}
	l.setRefused("")
}
