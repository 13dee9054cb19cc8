package natsbus

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// link is the state of a connection as its handlers have told it. The client
// itself cannot be asked: while it tries to connect again it holds its lock, for
// seconds where packets vanish, and whoever asks waits with it.
type link struct {
	up   atomic.Bool
	log  *slog.Logger
	told func(connected bool) // nil for nobody

	mu      sync.Mutex
	refused string        // why the server does not let this node in, "" where that is not the trouble
	again   chan struct{} // closed when the connection is made again
	broke   bool          // it was

	close   sync.Once
	closed  chan struct{}
	watched chan struct{} // closed when nobody watches for the first connection any more
}

// next returns a channel that is closed when the connection is made again.
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

// options are the handlers of the client by which it tells of its connection.
func (l *link) options() []nats.Option {
	return []nats.Option{
		nats.ConnectHandler(func(*nats.Conn) {
			l.log.Info("connected")
			l.up.Store(true)
			l.refuse("")
			l.tell(true)
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			l.log.Info("connected again")
			l.made()
			l.tell(true)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			l.up.Store(false)
			if err != nil {
				l.log.Warn("connection lost", slog.Any("error", err))
			}
			l.tell(false)
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { // it is not reached
			l.refuse("")
			l.log.Debug("not connected again", slog.Any("error", err))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			if refuses(err) {
				l.tellRefused(err)
				l.log.Debug("refused", slog.Any("error", err))
				return
			}
			l.log.Warn("asynchronous error", slog.String("subject", subject), slog.Any("error", err))
		}),
	}
}

func (l *link) tell(up bool) {
	if l.told != nil {
		l.told(up)
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

// tellRefused says that the server does not let this node in, once for every reason.
func (l *link) tellRefused(err error) {
	if l.refuse(err.Error()) {
		l.log.Error("the server refuses this node, which goes on asking", slog.Any("error", err))
	}
}

// refuse notes why the server does not let this node in, "" where it does or is not
// reached, and reports whether that is news.
func (l *link) refuse(why string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := why != l.refused
	l.refused = why
	return news
}

// refuses reports whether an error of the connection says that the server does not
// know this node, or no longer.
func refuses(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// errAgain says that a watch ended because the connection was made again. A
// watch would find out by itself only after many missed heartbeats, and never
// that a server came back without what it had stored.
var errAgain = errors.New("the connection was made again")

// watchFirst tells of refusals before there ever was a connection: the client calls
// nobody for them. lastError may wait for the client's lock.
func (l *link) watchFirst(lastError func() error) {
	defer close(l.watched)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for !l.up.Load() {
		if err := lastError(); err != nil && refuses(err) && !l.up.Load() {
			l.tellRefused(err)
		}
		select {
		case <-l.closed:
			return
		case <-tick.C:
		}
	}
	l.refuse("")
}
