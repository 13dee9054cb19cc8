// Package origin connects to the sites behind an edge, tracks their health, and filters the headers between them and
// visitors.
package origin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/edge/http1"
	"vestibule/internal/node"
)

const (
	// After so many failed requests in a row, over at least this time, an origin is down: admissions stop until it
	// responds.
	maxFailures = 3
	minSilence  = time.Second

	// Interval and timeout of the probes of a down origin.
	probeEvery   = time.Second
	probeTimeout = 5 * time.Second
)

// Origin is one site and its health, judged by forwarded requests. A response of any status is a sign of life:
// error statuses are between the site and its visitors. It is safe for concurrent use.
type Origin struct {
	URL *url.URL

	failed  atomic.Int32 // failed requests in a row
	probing atomic.Bool

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
	if o.failed.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed.Store(0)
	was := o.down
	o.down = false
	return was
}

// unanswered records a failed request, and reports whether the origin is now down.
func (o *Origin) unanswered(now fleettime.Mono) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.failed.Add(1)
	if n == 1 {
		o.since = now
	}
	if o.down || n < maxFailures || now.Sub(o.since) < minSilence {
		return false
	}
	o.down = true
	return true
}

// Down reports whether the origin is down. A nil origin is up.
func (o *Origin) Down() bool {
	if o == nil || o.failed.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.down
}

// Monitor records the results of requests, and probes origins that are down. It is safe for concurrent use.
type Monitor struct {
	Transport http.RoundTripper     // for probes
	Origins   func() []*Origin      // all current origins
	Now       func() fleettime.Mono // clock reading
	Changed   func()                // called when an origin goes down or comes back, see [Origin.Down]
	Metrics   *Metrics
	Log       *slog.Logger

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
	if o.answered() {
		m.Log.Info("origin responds again: admissions resume", slog.String("origin", o.URL.Host))
		m.Changed()
	}
}

// Failure is the visitor's answer in place of a site's.
type Failure struct {
	Status     int
	RetryAfter string // in seconds; empty for none
	Text       string
}

// Failed records a request to host that got no answer.
func (m *Monitor) Failed(o *Origin, host string, err error) Failure {
	if errors.Is(err, ErrFull) { // says nothing about the origin
		m.Metrics.full.Inc()
		return Failure{http.StatusServiceUnavailable, "5", "Too many people are here at the moment. Please try again.\n"}
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
	m.unanswered(o)
	return Failure{Status: http.StatusBadGateway, Text: "The site does not answer at the moment. Please try again.\n"}
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
		m.Log.Error("origin does not respond: admissions stop until it does", slog.String("origin", o.URL.Host))
		m.Changed()
	}
}

// Run probes origins that are down until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	var probes sync.WaitGroup
	defer probes.Wait()
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
