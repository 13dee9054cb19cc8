// Package origin tracks the health of the sites behind an edge, and filters the headers between them and visitors.
package origin

import (
	"context"
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
	Log       *slog.Logger
}

// Answered records a response.
func (m *Monitor) Answered(o *Origin) {
	if o.answered() {
		m.Log.Info("origin answers again: people are let in", slog.String("origin", o.URL.Host))
		m.Changed()
	}
}

// Unanswered records a failed request.
func (m *Monitor) Unanswered(o *Origin) {
	if o.unanswered(m.Now()) {
		m.Log.Error("origin is out of order: nobody is let in until it answers", slog.String("origin", o.URL.Host))
		m.Changed()
	}
}

// Run probes origins that are down until ctx ends.
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

// probe probes one origin.
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
