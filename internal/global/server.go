// Package global is the shell of the coordinator: it campaigns for leadership. While it leads, it drives the allocator
// and publishes rooms and keys.
//
// In a term one goroutine owns the allocator: it takes reports from a bounded inbox and sends grants. A candidate
// leads while lead runs; returning from lead undoes everything. The ledger is not stored: a new leader rebuilds it
// from the data centres' reports.
//
// Lock: currentTerm.mu guards the allocator, so that /status and metrics can read it between two steps of that goroutine.
package global

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control"
	"vestibule/internal/global/history"
	"vestibule/internal/global/notices"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/node"
)

// Options are the parts of a server.
type Options struct {
	Config  Config
	Params  wire.Params
	Bus     wire.Bus
	Docs    wire.Documents
	Own     wire.DocumentStore // of globals alone: secrets of draws, webhooks, undelivered notices; nil for none of these
	Audit   *audit.Journal     // nil for none
	History history.Store      // nil for none
	// EnsurePushes makes the streams of notifications if they do not exist; nil for none.
	EnsurePushes func(ctx context.Context) error

	// Outbox returns since when the oldest notification waits, if any does; nil for none.
	Outbox func(ctx context.Context) (oldest time.Time, err error)
	Lease  wire.Leadership
	Clock  *node.Clock // the clock that Lease reads

	Certificates *node.CertificateEnds // nil for none

	Listeners *node.Listeners // of this process; nil for none but that of the API
	Servers   func() []string // host:port of the NATS servers; nil for none

	Reg prometheus.Registerer
	Log *slog.Logger
}

// Server is one candidate for global.
type Server struct {
	Options
	Orders    *Orders // of operators, to regionals
	log       *slog.Logger
	rooms     *roomstore.Store
	heard     atomic.Pointer[copies] // by the publisher, while it leads
	restoring atomic.Bool            // the publisher gets rooms back from the nodes
	metrics   *metrics
	candidate *node.Candidate
	times     *node.Timekeeper

	currentTerm

	history    *history.History
	poster     *notices.Poster
	sender     atomic.Pointer[notices.Sender] // while it leads
	late       atomic.Pointer[string]         // alarm about notifications; empty or nil for none
	numbers    numbers                        // of all rooms, for the API
	loss       atomic.Pointer[string]         // alarm about a lost store; nil or "" for none
	expiry     atomic.Pointer[control.Expiry] // of the token that ends next; nil for none
	candidates candidates                     // shown by the API
}

// newestRooms returns the newest version of the rooms that a node is known to have.
func (s *Server) newestRooms() uint64 {
	v := s.fleet.Set().Version()
	if heard := s.heard.Load(); heard != nil {
		v = max(v, heard.roomsVersion())
	}
	return v
}

// hear has the messages of a subject taken, and logs those that take refuses. end unsubscribes.
func (s *Server) hear(subject string, take func(data []byte, now time.Time) error) (end func(), err error) {
	return s.Bus.Subscribe(subject, func(_ string, data []byte) {
		if err := take(data, time.Now()); err != nil {
			s.log.Warn("message refused", slog.String("subject", subject), slog.Any("error", err))
		}
	})
}

// tell publishes a message in JSON. Without a connection nobody gets it.
func (s *Server) tell(subject string, message any) {
	data, err := json.Marshal(message)
	if err == nil {
		err = s.Bus.Publish(subject, data)
	}
	if err != nil && !errors.Is(err, wire.ErrDown) {
		s.log.Warn("message not published", slog.String("subject", subject), slog.Any("error", err))
	}
}

// Listens returns the addresses of the listeners of this process and of its NATS servers.
func (s *Server) Listens() []string {
	all := strings.Fields(node.Listens(s.Listeners.All()))
	if s.Servers != nil {
		all = append(all, s.Servers()...)
	}
	return all
}

// listens returns the addresses of the listeners of the fleet: those of this process, and those that nodes told.
func (s *Server) listens() []string { return append(s.Listens(), s.candidates.listens()...) }

// ownSites returns the sites that are listeners of the fleet, with these.
func (s *Server) ownSites(ctx context.Context, sites []string) map[string]string {
	return node.OwnSites(ctx, sites, s.listens(), net.DefaultResolver.LookupNetIP)
}

// Status is the state of a candidate for global, for /status.
type Status struct {
	Leading bool                   `json:"leading"`
	Term    wire.Term              `json:"term"`
	Time    fleettime.Time         `json:"time"`
	Skew    time.Duration          `json:"skew_seconds"` // of fleet time from this machine's clock
	Rooms   map[string]root.Ledger `json:"rooms"`
}

// Status returns the state of the candidate.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leading
	if l == nil {
		return Status{Rooms: map[string]root.Ledger{}}
	}
	st := Status{
		Leading: true, Term: l.term, Skew: l.skew, Rooms: map[string]root.Ledger{}, Time: l.alloc.Time(s.Clock.Now()),
	}
	for _, r := range s.fleet.Set().Rooms() {
		st.Rooms[r.Name] = l.alloc.Ledger(r.ID)
	}
	return st
}
