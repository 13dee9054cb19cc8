//go:build linux

package main

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// visitHeader carries the identity of a request: "stay.request", both numbers. The waiting room does not know it.
const visitHeader = "X-Visit"

// siteHeader is on every page of the site.
const siteHeader = "X-Site"

// site is the site behind the waiting room. It records the arrival of requests, for the oracle.
type site struct {
	server *http.Server
	addr   string
	since  func() time.Duration

	mu       sync.Mutex
	arrivals map[string]time.Duration // first arrival of each request
}

func openSite(addr string, since func() time.Duration) (*site, error) {
	l, err := net.Listen("tcp", addr+":0")
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
	id := r.Header.Get(visitHeader)
	s.mu.Lock()
	if _, again := s.arrivals[id]; !again {
		s.arrivals[id] = s.since()
	}
	s.mu.Unlock()
	w.Header().Set(siteHeader, "1")
	w.Header().Set("Content-Type", "text/plain")
	if _, err := w.Write([]byte("You are in.\n")); err != nil {
		return // the edge went away: its visitor reports it
	}
}

// arrived returns the arrival of a request, 0 for never.
func (s *site) arrived(stay, request int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrivals[visitID(stay, request)]
}

func visitID(stay, request int) string { return strconv.Itoa(stay) + "." + strconv.Itoa(request) }
