// Package natsbus implements Vestibule's interfaces on NATS, one file each: a bus for reports and grants ([Conn]),
// documents that every node watches ([Documents]), leadership ([Lease]) and the promises of a data centre
// ([Promises]).
//
// Core NATS carries messages that are repeated anyway, so nothing is buffered while disconnected: a late flush
// would be noise. JetStream KV holds state that must survive. The hard limit never depends on it, and decisions are
// never based on a read, only on a successful compare-and-set (reads may be stale, and a write that timed out may
// have succeeded).
//
// The one knob is the lease's length, [LeaseLength].
package natsbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"vestibule/internal/core/wire"
)

// Options configure a NATS connection.
type Options struct {
	URL      string // one or more, separated by commas
	Name     string // of this node, shown by the server
	Inbox    string // prefix for answers, "" for the name: see NodeInbox
	Creds    string // file with user credentials, "" for none
	User     string // of an embedded server with Password; others have theirs in URL
	Password string
	CA       string // file with trusted certificates, "" for the system's
	Cert     string // client certificate and key files, "" for none
	Key      string

	Domain    string                     // JetStream domain, "" for the server's own
	InProcess nats.InProcessConnProvider // an embedded server instead of URL
	Listens   []string                   // its addresses, each as host:port

	Stream string // that this node uses, for the diagnosis of faults; "" for none

	Log     *slog.Logger
	OnState func(connected bool) // called from the connection's goroutine
}

// Conn is a connection to NATS that reconnects for ever. It is safe for concurrent use.
type Conn struct {
	nc     *nats.Conn
	domain string
	log    *slog.Logger
	link   *link

	inProcess bool     // to an embedded server
	own       []string // its addresses
}

var (
	_ wire.Bus  = (*Conn)(nil)
	_ wire.Desk = (*Conn)(nil)
)

// Connect returns a connection. Without a reachable server it is down until one answers. It returns an error only
// for options that can never work.
func Connect(o Options) (*Conn, error) {
	log := o.Log.With(slog.String("component", "nats"))
	ln := &link{
		again: make(chan struct{}), closed: make(chan struct{}), watched: make(chan struct{}), inspected: make(chan struct{}),
		log: log, onState: o.OnState,
	}
	opts := append(ln.options(),
		nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		// A server that does not know this node's user may learn it later, by a reload of its configuration.
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(200*time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 300*time.Millisecond),
		nats.PingInterval(2*time.Second), // another server is used some 6 s after this one was cut off
		nats.MaxPingsOutstanding(2),
		nats.Timeout(2*time.Second),
		nats.FlusherTimeout(2*time.Second),
	)
	opts = append(opts, o.identity()...)
	address := o.URL
	if o.InProcess != nil {
		opts = append(opts, nats.InProcessServer(o.InProcess))
		address = ""
	}
	nc, err := nats.Connect(address, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	c := &Conn{nc: nc, domain: o.Domain, log: log, link: ln, inProcess: o.InProcess != nil, own: o.Listens}
	if nc.IsConnected() { // its handler may not have run yet
		ln.up.Store(true)
		close(ln.watched)
	} else {
		go ln.watchUntilConnected(nc.LastError)
	}
	if o.InProcess == nil && o.Stream != "" {
		go c.inspect(o)
	} else {
		close(ln.inspected)
	}
	return c, nil
}

// identity returns the options with the node's name, its inbox and its credentials.
func (o *Options) identity() []nats.Option {
	opts := []nats.Option{nats.Name("vestibule " + o.Name), nats.CustomInboxPrefix(inboxPrefix + cmp.Or(o.Inbox, o.Name))}
	if o.Creds != "" {
		opts = append(opts, nats.UserCredentials(o.Creds))
	}
	if o.CA != "" {
		opts = append(opts, nats.RootCAs(o.CA))
	}
	if o.Cert != "" {
		opts = append(opts, nats.ClientCert(o.Cert, o.Key))
	}
	if o.User != "" {
		opts = append(opts, nats.UserInfo(o.User, o.Password))
	}
	return opts
}

// Publish implements [wire.Bus].
func (c *Conn) Publish(subject string, data []byte) error {
	if !c.Connected() {
		return wire.ErrDown
	}
	if err := c.nc.Publish(subject, data); err != nil {
		if errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionClosed) {
			return wire.ErrDown
		}
		return fmt.Errorf("publish on %s: %w", subject, err)
	}
	return nil
}

// pending bounds the messages queued for one subscription before this process counts as a slow consumer: reports
// are state, so a newer one replaces any that was dropped.
const pending = 4096

// Subscribe implements [wire.Bus].
func (c *Conn) Subscribe(subject string, handle func(subject string, data []byte)) (func(), error) {
	s, err := c.nc.Subscribe(subject, func(m *nats.Msg) { handle(m.Subject, m.Data) })
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	if err := s.SetPendingLimits(pending, pending*wire.MaxMessage/16); err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	done := make(chan struct{})
	s.SetClosedHandler(func(string) { close(done) })
	return func() {
		if err := s.Unsubscribe(); err != nil {
			return // closed with its connection
		}
		select {
		case <-done:
		case <-time.After(time.Second):
		}
	}, nil
}

// Flush implements [wire.Bus]. The server handles one connection's messages in order, and so does this process.
func (c *Conn) Flush(ctx context.Context) error {
	if err := c.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	handled := make(chan struct{})
	if err := c.nc.Barrier(func() { close(handled) }); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	select {
	case <-handled:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("flush: %w", ctx.Err())
	}
}

// Answer implements [wire.Desk].
func (c *Conn) Answer(subject string, handle func([]byte) []byte) (func(), error) {
	s, err := c.nc.Subscribe(subject, func(m *nats.Msg) {
		// The client chooses the reply subject: never one that nodes or stores receive.
		if !strings.HasPrefix(m.Reply, "_INBOX") {
			c.log.Warn("request rejected: its reply subject is no inbox",
				slog.String("subject", subject), slog.String("reply", m.Reply))
			return
		}
		if err := m.Respond(handle(m.Data)); err != nil {
			c.log.Warn("answer not sent", slog.String("subject", subject), slog.Any("error", err))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	return func() {
		if err := s.Unsubscribe(); err != nil {
			c.log.Debug("closed with its connection", slog.String("subject", subject))
		}
	}, nil
}

// ErrNobody is returned if a subject has no responder.
var ErrNobody = errors.New("no responders")

// Ask sends a request and returns the response. It returns ErrNobody without a responder, and ctx's error without a
// response in time.
func (c *Conn) Ask(ctx context.Context, subject string, question []byte) ([]byte, error) {
	m, err := c.nc.RequestWithContext(ctx, subject, question)
	if errors.Is(err, nats.ErrNoResponders) {
		err = ErrNobody
	}
	if err != nil {
		return nil, fmt.Errorf("ask on %s: %w", subject, err)
	}
	return m.Data, nil
}

// WithDomain returns the same connection for the buckets of another JetStream domain. Only one of the two must be
// closed.
func (c *Conn) WithDomain(domain string) *Conn {
	other := *c
	other.domain = domain
	return &other
}

// Connected reports whether there is a connection now.
func (c *Conn) Connected() bool { return c.link.up.Load() && c.nc.IsConnected() }

// Refused returns why the server refuses this node, or "" if it does not or cannot be reached. It never blocks.
func (c *Conn) Refused() string {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	return c.link.refused
}

// URL returns the address of the connected server without a password, or "".
func (c *Conn) URL() string { return c.nc.ConnectedUrlRedacted() }

// Servers returns the addresses of the servers that the connection knows, each as host:port.
func (c *Conn) Servers() (all []string) {
	if c.inProcess {
		return c.own
	}
	for _, text := range append(c.nc.Servers(), c.nc.ConnectedUrl()) {
		if u, err := url.Parse(text); err == nil && u.Host != "" {
			all = append(all, u.Host)
		}
	}
	return append(all, c.nc.ConnectedAddr())
}

// Close flushes and closes the connection.
func (c *Conn) Close() {
	if c.Connected() {
		if err := c.nc.FlushTimeout(500 * time.Millisecond); err != nil {
			c.log.Debug("last messages may be lost", slog.Any("error", err))
		}
	}
	c.nc.Close()
	c.link.close.Do(func() { close(c.link.closed) })
	<-c.link.watched
	<-c.link.inspected
}
