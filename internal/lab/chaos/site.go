//go:build linux

package main

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	siteHeader    = "X-Site"           // on every page of the site, and only there
	requestHeader = "X-Request-Number" // the ID of a request, which the waiting room does not know
)

// site is the site behind the waiting room. It records when requests arrive.
type site struct {
	server *http.Server
	addr   string
	since  func() time.Duration

	mu       sync.Mutex
	arrivals map[string]time.Duration // first arrival of each request
}

// openSite starts a site on a free port of host. The times of arrivals are those of since.
func openSite(host string, since func() time.Duration) (*site, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	s := &site{addr: l.Addr().String(), since: since, arrivals: map[string]time.Duration{}}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // the run is worthless without it
		}
	}()
	return s, nil
}

func (s *site) url() string { return "http://" + s.addr }

func (s *site) close() error { return s.server.Close() }

// ServeHTTP implements [http.Handler].
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if id := r.Header.Get(requestHeader); id != "" {
		s.mu.Lock()
		if _, again := s.arrivals[id]; !again {
			s.arrivals[id] = s.since()
		}
		s.mu.Unlock()
	}
	w.Header().Set(siteHeader, "1")
	w.Header().Set("Content-Type", "text/plain")
	if _, err := w.Write([]byte("You are in.\n")); err != nil {
		return // the edge went away: its visitor reports it
	}
}

// arrived returns the arrival of a request, 0 for never.
func (s *site) arrived(id string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrivals[id]
}
