// Package origin connects to the sites behind an edge, tracks their health, and filters the headers between them and
// visitors.
package origin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/edge/http1"
	"vestibule/internal/node"
)

const (
	// After so many failed requests in a row, over at least this time, an origin is down: admissions stop until it
	// responds.
	maxFailures = 3
	minSilence  = time.Second
	maxRefusals = 2 // refused connections in a row: nobody listens

	// Interval and timeout of the probes of a down origin.
	probeEvery   = time.Second
	probeTimeout = 5 * time.Second

	// A site that answered within ten minutes and is not asked for a second is connected to: operators hear of its end
	// although nobody asks it.
	watchedFor = 10 * time.Minute
	quietFor   = time.Second
	watchEvery = time.Second
	maxWatched = 64 // sites that are connected to at once
)

// Origin is one site and its health, judged by forwarded requests. A response of any status is a sign of life:
// error statuses are between the site and its visitors. It is safe for concurrent use.
type Origin struct {
	URL *url.URL

	failures atomic.Int32 // failed requests in a row
	heard    atomic.Int64 // clock reading of an answer, to a second; 0 for none
	probing  atomic.Bool

	mu    sync.Mutex
	since fleettime.Mono // time of the first of them
	down  bool
	lines [faults]fleettime.Minutely[fleettime.Mono]
}

// The faults that are logged once a minute for each site.
const (
	logSilent = iota // it does not answer
	logBroken        // its answer cannot be read, or breaks off
	faults
)

// logs counts a fault. It reports whether it is due for a line, and how many were not since the last one.
func (o *Origin) logs(now fleettime.Mono, fault int) (more int, due bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all, due := o.lines[fault].Count(now, 1)
	return max(0, all-1), due
}

// New returns an origin of unknown health, which counts as up.
func New(u *url.URL) *Origin { return &Origin{URL: u} }

// answered records a response, and reports whether it ended a downtime.
func (o *Origin) answered() bool {
	if o.failures.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures.Store(0)
	was := o.down
	o.down = false
	return was
}

// unanswered records a failed request, and reports whether the origin is now down.
func (o *Origin) unanswered(now fleettime.Mono) bool { return o.failed(now, maxFailures, minSilence) }

// refused records a refused connection, and reports whether the origin is now down: of two in a row nobody listens.
func (o *Origin) refused(now fleettime.Mono) bool { return o.failed(now, maxRefusals, 0) }

// failed records a failure, and reports whether the origin is now down: after most in a row, over at least silence.
func (o *Origin) failed(now fleettime.Mono, most int32, silence time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.failures.Add(1)
	if n == 1 {
		o.since = now
	}
	if o.down || n < most || now.Sub(o.since) < silence {
		return false
	}
	o.down = true
	return true
}

// hear records when an answer came.
func (o *Origin) hear(now fleettime.Mono) {
	if was := o.heard.Load(); was == 0 || now.Sub(fleettime.Mono(was)) >= quietFor/2 {
		o.heard.Store(int64(max(now, 1)))
	}
}

// quiet reports whether a site that is in use has not been heard for a moment.
func (o *Origin) quiet(now fleettime.Mono) bool {
	at := o.heard.Load()
	since := now.Sub(fleettime.Mono(at))
	return at != 0 && since >= quietFor && since < watchedFor
}

// Down reports whether the origin is down. A nil origin is up.
func (o *Origin) Down() bool {
	if o == nil || o.failures.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.down
}

// DialFunc opens a connection, as [net.Dialer.DialContext].
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Monitor records the results of requests, and probes origins that are down. It is safe for concurrent use.
type Monitor struct {
	Transport http.RoundTripper     // for probes
	Dial      DialFunc              // for connections to quiet origins; nil for none
	Origins   func() []*Origin      // all current origins
	Now       func() fleettime.Mono // clock reading
	Changed   func()                // called when an origin goes down or comes back, see [Origin.Down]
	Metrics   *Metrics
	Log       *slog.Logger

	suspects    chan *Origin // that refused a connection; from Watch
	sharedLogin atomic.Int64 // clock reading at the last ErrSharedLogin, 0 for none
}

// alarmFor is how long a refused login stays an alarm.
const alarmFor = 10 * time.Minute

// Alarms returns the alarms about sites.
func (m *Monitor) Alarms() []string {
	if at := m.sharedLogin.Load(); at != 0 && m.Now().Sub(fleettime.Mono(at)) < alarmFor {
		return []string{ErrSharedLogin.Error()}
	}
	return nil
}

// Answered records a response.
func (m *Monitor) Answered(o *Origin) {
	if m.Dial != nil {
		o.hear(m.Now())
	}
	if o.answered() {
		m.Log.Info("origin responds again: admissions resume", slog.String("origin", o.URL.Host))
		m.Changed()
	}
}

// Failure is the visitor's answer in place of a site's.
type Failure struct {
	Status     int
	RetryAfter string // in seconds; empty for none
	Refused    bool   // nobody listens: the site has not seen the request
	Down       bool   // the site does not answer: a page asks again by itself
	Text       string
}

// Failed records a request to host that got no answer.
func (m *Monitor) Failed(o *Origin, host string, err error) Failure {
	if errors.Is(err, ErrFull) { // says nothing about the origin
		m.Metrics.full.Inc()
		return Failure{
			Status: http.StatusServiceUnavailable, RetryAfter: "5",
			Text: "Too many people are here at the moment. Please try again.\n",
		}
	}
	if errors.Is(err, http1.ErrAnswer) { // a sign of life: one broken page says nothing about the others
		m.Metrics.unreadable.Inc()
		m.warn(o, logBroken, "answer of the origin cannot be read: the visitor gets 502", host, err)
		return Failure{Status: http.StatusBadGateway, Text: "The site's answer cannot be read. Please try again.\n"}
	}
	if errors.Is(err, ErrSharedLogin) {
		m.Metrics.sharedLogins.Inc()
		m.sharedLogin.Store(int64(max(m.Now(), 1)))
		m.Log.Error("login refused", slog.String("host", host), slog.Any("error", err))
		return Failure{
			Status: http.StatusBadGateway,
			Text:   "This site's login needs a connection of its own, which a proxy on the way does not give.\n",
		}
	}
	if errors.Is(err, ErrMultiplexedLogin) {
		m.Log.Info("login refused", slog.String("host", host), slog.Any("error", err))
		return Failure{Status: http.StatusMisdirectedRequest, Text: "This site's login needs HTTP/1.1.\n"}
	}
	m.Metrics.failed.Inc()
	m.warn(o, logSilent, "origin does not answer", host, err)
	f := Failure{
		Status: http.StatusBadGateway, RetryAfter: "5", Down: true,
		Text: "The site does not answer at the moment. Please try again.\n",
	}
	if f.Refused = errors.Is(err, syscall.ECONNREFUSED); f.Refused {
		m.refused(o)
	} else {
		m.unanswered(o)
	}
	return f
}

// refused records a refused connection, and has the next one tried at once.
func (m *Monitor) refused(o *Origin) {
	if o.refused(m.Now()) {
		m.fell(o)
		return
	}
	select {
	case m.suspects <- o:
	default: // nil without Watch, or full: the next request or tick tells
	}
}

// Watch makes Run connect to origins that are quiet or refused a connection. It is called before Run.
func (m *Monitor) Watch(dial DialFunc) { m.Dial, m.suspects = dial, make(chan *Origin, maxWatched) }

// look connects to an origin, and records a failure. It tries again at once after a refusal.
func (m *Monitor) look(ctx context.Context, o *Origin) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for !o.Down() {
		c, err := m.Dial(ctx, "tcp", net.JoinHostPort(node.HostPort(o.URL)))
		switch {
		case err == nil:
			if err := c.Close(); err != nil {
				m.Log.Debug("close", slog.Any("error", err))
			}
			return
		case errors.Is(err, ErrFull) || ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
			return // says nothing about the origin
		case !errors.Is(err, syscall.ECONNREFUSED):
			m.unanswered(o)
			return
		}
		if o.refused(m.Now()) {
			m.fell(o)
		}
	}
}

// BrokeOff records an answer to a request to host with a fault behind its beginning: the visitor's connection is cut.
func (m *Monitor) BrokeOff(o *Origin, host string, err error) {
	m.Metrics.unreadable.Inc()
	m.warn(o, logBroken, "answer of the origin breaks off: the visitor gets the part before the fault", host, err)
}

// warn logs a fault of an origin, once a minute.
func (m *Monitor) warn(o *Origin, fault int, text, host string, err error) {
	if more, ok := o.logs(m.Now(), fault); ok {
		m.Log.Warn(text, //nolint:sloglint // a constant of each caller
			slog.String("host", host), slog.String("origin", o.URL.Host), slog.Any("error", err),
			slog.Int("more_since_last_line", more))
	}
}

// unanswered records a failed request.
func (m *Monitor) unanswered(o *Origin) {
	if o.unanswered(m.Now()) {
		m.fell(o)
	}
}

// fell tells that an origin is down.
func (m *Monitor) fell(o *Origin) {
	m.Log.Error("origin does not respond: admissions stop until it does", slog.String("origin", o.URL.Host))
	m.Changed()
}

// watch connects to origins that are quiet, or suspected, until ctx ends.
func (m *Monitor) watch(ctx context.Context) {
	var looks errgroup.Group
	looks.SetLimit(maxWatched)
	look := func(o *Origin) {
		if !o.Down() && o.probing.CompareAndSwap(false, true) {
			if !looks.TryGo(func() error {
				defer o.probing.Store(false)
				m.look(ctx, o)
				return nil
			}) {
				o.probing.Store(false)
			}
		}
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			_ = looks.Wait() // no error
			return
		case o := <-m.suspects:
			look(o)
		case <-tick.C:
			now := m.Now()
			for _, o := range m.Origins() {
				if o.quiet(now) || o.failures.Load() > 0 {
					look(o)
				}
			}
		}
	}
}

// Run probes origins that are down until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	var probes sync.WaitGroup
	defer probes.Wait()
	if m.Dial != nil {
		probes.Go(func() { m.watch(ctx) })
	}
	node.Every(ctx, probeEvery, func() {
		for _, o := range m.Origins() {
			if o.Down() && o.probing.CompareAndSwap(false, true) {
				probes.Go(func() {
					defer o.probing.Store(false)
					m.probe(ctx, o)
				})
			}
		}
	})
}

func (m *Monitor) probe(ctx context.Context, o *Origin) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, o.URL.JoinPath("/").String(), nil)
	if err != nil {
		m.Log.Error("origin cannot be asked", slog.Any("error", err)) // its URL was validated
		return
	}
	r.Header.Set("User-Agent", "vestibule")
	res, err := m.Transport.RoundTrip(r)
	if err != nil {
		m.Log.Debug("origin is still out of order", slog.String("origin", o.URL.Host), slog.Any("error", err))
		return
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, 1)); err != nil {
		m.Log.Debug("origin's answer was cut off", slog.Any("error", err))
	}
	if err := res.Body.Close(); err != nil {
		m.Log.Debug("close", slog.Any("error", err))
	}
	m.Answered(o)
}
