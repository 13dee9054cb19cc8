package natsbus

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// link is the state of a connection as reported by its handlers. The client itself cannot be asked: during a reconnect
// it holds its lock, for seconds if packets are lost.
type link struct {
	up      atomic.Bool
	log     *slog.Logger
	onState func(connected bool) // may be nil

	mu      sync.Mutex
	refused string        // why the server refuses this node, "" if it does not
	again   chan struct{} // closed on a reconnect
	broke   bool          // whether it ever reconnected

	close   sync.Once
	closed  chan struct{}
	watched chan struct{} // closed when the first connection is no longer watched
}

// next returns a channel that is closed on the next reconnect.
func (l *link) next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.again
}

// broken reports whether the connection was ever made again.
func (l *link) broken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broke
}

// options returns the connection handlers of the client.
func (l *link) options() []nats.Option {
	return []nats.Option{
		nats.ConnectHandler(func(*nats.Conn) {
			l.log.Info("connected")
			l.up.Store(true)
			l.refuse("")
			l.report(true)
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			l.log.Info("reconnected")
			l.made()
			l.report(true)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			l.up.Store(false)
			if err != nil {
				l.log.Warn("connection lost", slog.Any("error", err))
			}
			l.report(false)
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { // unreachable
			l.refuse("")
			l.log.Debug("not reconnected", slog.Any("error", err))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			if refuses(err) {
				l.logRefused(err)
				l.log.Debug("refused", slog.Any("error", err))
				return
			}
			l.log.Warn("asynchronous error", slog.String("subject", subject), slog.Any("error", err))
		}),
	}
}

func (l *link) report(up bool) {
	if l.onState != nil {
		l.onState(up)
	}
}

func (l *link) made() {
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
	if l.refuse(err.Error()) {
		l.log.Error("the server refuses this node; it keeps retrying", slog.Any("error", err))
	}
}

// refuse records the reason of a refusal, "" for none, and reports whether it is new.
func (l *link) refuse(why string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := why != l.refused
	l.refused = why
	return news
}

// refuses reports whether the server does not know this node, or no longer.
func refuses(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// errAgain reports that a watch ended because of a reconnect. The watch itself would notice only after many missed
// heartbeats, and never that a server lost its data.
var errAgain = errors.New("reconnected")

// watchFirst reports refusals of the first connection, for which the client calls no handler. lastError may block on
// the client's lock.
func (l *link) watchFirst(lastError func() error) {
	defer close(l.watched)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for !l.up.Load() {
		if err := lastError(); err != nil && refuses(err) && !l.up.Load() {
			l.logRefused(err)
		}
		select {
		case <-l.closed:
			return
		case <-tick.C:
		}
	}
	l.refuse("")
}
