// Package origin is what an edge knows of the sites behind it: how they are reached, whether they answer, and which headers
// pass between them and visitors.
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
)

const (
	// An origin that did not answer so many requests in a row, over at least so
	// long, is out of order: nobody is let in until it answers.
	maxFailures = 3
	minSilence  = time.Second

	// One that is out of order is asked so often, and has so long to answer.
	probeEvery   = time.Second
	probeTimeout = 5 * time.Second
)

// Origin is one site and its health, as far as the requests tell that are passed on
// to it. An answer of whatever status is a sign of life: what an origin says of
// itself is between it and its visitors. It is safe for concurrent use.
type Origin struct {
	URL *url.URL

	failed  atomic.Int32 // requests in a row without an answer
	probing atomic.Bool

	mu    sync.Mutex
	since fleettime.Mono // the first of them
	down  bool
}

// New returns an origin of which nothing is known; it is taken to be well.
func New(u *url.URL) *Origin { return &Origin{URL: u} }

// answered notes an answer, and reports whether the origin is back by it.
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

// unanswered notes that a request was not answered, and reports whether the origin is
// out of order by it.
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

// Down reports whether the origin is out of order. No origin never is.
func (o *Origin) Down() bool {
	if o == nil || o.failed.Load() == 0 {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.down
}

// Monitor takes note of what becomes of requests, and asks origins that are out of
// order whether they are back. It is safe for concurrent use.
type Monitor struct {
	Transport http.RoundTripper     // by which they are asked
	Origins   func() []*Origin      // all there are at the moment
	Now       func() fleettime.Mono // the reading of a clock
	Changed   func()                // one is out of order or back, see [Origin.Down]
	Metrics   *Metrics
	Log       *slog.Logger
}

// Answered takes note of an answer.
func (m *Monitor) Answered(o *Origin) {
	if o.answered() {
		m.Log.Info("origin answers again: people are let in", slog.String("origin", o.URL.Host))
		m.Changed()
	}
}

// Failure is the visitor's answer in place of a site's.
type Failure struct {
	Status     int
	RetryAfter string // in seconds; empty for none
	Text       string
}

// Failed takes note of a request to host that got no answer.
func (m *Monitor) Failed(o *Origin, host string, err error) Failure {
	if errors.Is(err, ErrFull) { // says nothing about the origin
		m.Metrics.full.Inc()
		return Failure{http.StatusServiceUnavailable, "5", "Too many people are here at the moment. Please try again.\n"}
	}
	m.Metrics.failed.Inc()
	m.Log.Warn("origin does not answer", slog.String("host", host), slog.Any("error", err))
	m.unanswered(o)
	return Failure{Status: http.StatusBadGateway, Text: "The site does not answer at the moment. Please try again.\n"}
}

// unanswered takes note of a request that was not answered.
func (m *Monitor) unanswered(o *Origin) {
	if o.unanswered(m.Now()) {
		m.Log.Error("origin is out of order: nobody is let in until it answers", slog.String("origin", o.URL.Host))
		m.Changed()
	}
}

// Run asks the origins that are out of order until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	var probes sync.WaitGroup
	defer probes.Wait()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, o := range m.Origins() {
			if o.Down() && o.probing.CompareAndSwap(false, true) {
				probes.Go(func() {
					defer o.probing.Store(false)
					m.probe(ctx, o)
				})
			}
		}
	}
}

// probe asks one origin for a sign of life.
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
