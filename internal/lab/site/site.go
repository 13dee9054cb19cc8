// Package site is the site behind a waiting room for chaos, crowd and bench. It records when requests arrive.
package site

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// Header is on every page of the site, and only there.
	Header = "X-Site"

	// RequestHeader carries the ID of a request. The waiting room does not know it.
	RequestHeader = "X-Request-Number"
)

// Site is a running site.
type Site struct {
	server *http.Server
	addr   string
	since  func() time.Duration

	mu       sync.Mutex
	arrivals map[string]time.Duration // first arrival of each request
}

// Open starts a site on a free port of host. The times of arrivals are those of since.
func Open(host string, since func() time.Duration) (*Site, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	s := &Site{addr: l.Addr().String(), since: since, arrivals: map[string]time.Duration{}}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // the run is worthless without it
		}
	}()
	return s, nil
}

// URL returns the address.
func (s *Site) URL() string { return "http://" + s.addr }

// Close ends the site.
func (s *Site) Close() error { return s.server.Close() }

// ServeHTTP implements [http.Handler].
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id := r.Header.Get(RequestHeader); id != "" {
		s.mu.Lock()
		if _, again := s.arrivals[id]; !again {
			s.arrivals[id] = s.since()
		}
		s.mu.Unlock()
	}
	w.Header().Set(Header, "1")
	w.Header().Set("Content-Type", "text/plain")
	if _, err := w.Write([]byte("You are in.\n")); err != nil {
		return // the edge went away: its visitor reports it
	}
}

// Arrived returns the arrival of a request, 0 for never.
func (s *Site) Arrived(id string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrivals[id]
}
