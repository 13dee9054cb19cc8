package edge

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/fleet"
)

const (
	// An origin that did not answer so many requests in a row, over at least so
	// long, is out of order: nobody is let in until it answers.
	pulseFailures = 3
	pulseSilence  = time.Second

	// One that is out of order is asked so often.
	pulseEvery = time.Second
	pulseWait  = 5 * time.Second
)

// pulse is what an edge knows of one origin's health, from the requests that it
// passes on. An answer of whatever status is a sign of life: what an origin says of
// itself is between it and its visitors. Safe for concurrent use.
type pulse struct {
	url    *url.URL     // of the origin
	failed atomic.Int32 // requests in a row without an answer
	asking atomic.Bool

	mu    sync.Mutex
	since fleet.Mono // the first of them
	down  bool
}

// answers notes an answer, and reports whether the origin is back by it.
func (p *pulse) answers() bool {
	if p.failed.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed.Store(0)
	was := p.down
	p.down = false
	return was
}

// fails notes that a request was not answered, and reports whether the origin is
// out of order by it.
func (p *pulse) fails(now fleet.Mono) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.failed.Add(1)
	if n == 1 {
		p.since = now
	}
	if p.down || n < pulseFailures || now.Sub(p.since) < pulseSilence {
		return false
	}
	p.down = true
	return true
}

// isDown reports whether the origin is out of order.
func (p *pulse) isDown() bool {
	if p == nil || p.failed.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// originAnswers and originFails take note of what became of a request.
func (s *Server) originAnswers(p *pulse) {
	if p.answers() {
		s.log.Info("origin answers again: people are let in", slog.String("origin", p.url.Host))
		s.pauseRooms()
	}
}

func (s *Server) originFails(p *pulse) {
	if p.fails(s.clock.Now()) {
		s.log.Error("origin is out of order: nobody is let in until it answers", slog.String("origin", p.url.Host))
		s.pauseRooms()
	}
}

// pauseRooms tells the engine which rooms let nobody in.
func (s *Server) pauseRooms() {
	now := s.lock()
	for _, rs := range s.site.Load().rooms {
		s.eng.Pause(now, rs.ID, rs.pulse.isDown())
	}
	s.mu.Unlock()
	s.wake()
}

// watchOrigins asks the origins that are out of order whether they are back, until
// ctx ends.
func (s *Server) watchOrigins(ctx context.Context) {
	var asked sync.WaitGroup
	defer asked.Wait()
	tick := time.NewTicker(pulseEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, p := range s.site.Load().origins {
			if p.isDown() && p.asking.CompareAndSwap(false, true) {
				asked.Go(func() {
					defer p.asking.Store(false)
					s.askOrigin(ctx, p)
				})
			}
		}
	}
}

// askOrigin asks one origin for a sign of life.
func (s *Server) askOrigin(ctx context.Context, p *pulse) {
	ctx, cancel := context.WithTimeout(ctx, pulseWait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, p.url.JoinPath("/").String(), nil)
	if err != nil {
		s.log.Error("origin cannot be asked", slog.Any("error", err)) // its URL was validated
		return
	}
	r.Header.Set("User-Agent", "vestibule")
	res, err := s.proxy.transport.RoundTrip(r)
	if err != nil {
		s.log.Debug("origin is still out of order", slog.String("origin", p.url.Host), slog.Any("error", err))
		return
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, 1)); err != nil {
		s.log.Debug("origin's answer was cut off", slog.Any("error", err))
	}
	if err := res.Body.Close(); err != nil {
		s.log.Debug("close", slog.Any("error", err))
	}
	s.originAnswers(p)
}
