// Package global is the shell of the coordinator: it campaigns for leadership. While it leads, it drives the allocator
// and publishes rooms and keys.
//
// In a term one goroutine owns the allocator: it takes reports from a bounded inbox and sends grants. A candidate
// leads while lead runs; returning from lead undoes everything. The ledger is not stored: a new leader rebuilds it
// from the data centres' reports.
//
// Lock: Server.mu guards the allocator, so that /status and metrics can read it between two steps of that goroutine.
package global

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/stop"
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
	Secrets Secrets            // of draws
	Own     wire.DocumentStore // of globals alone: webhooks and undelivered notices; nil for no notices
	Audit   *audit.Journal     // nil for none
	History history.Store      // nil for none
	// EnsurePushes makes the streams of notifications if they do not exist; nil for none.
	EnsurePushes func(ctx context.Context) error

	// Outbox returns since when the oldest notification waits, if any does; nil for none.
	Outbox func(ctx context.Context) (oldest time.Time, err error)
	Lease  wire.Leadership
	Clock  *node.Clock // the clock that Lease reads

	Certificates *node.CertificateEnds // nil for none

	Reg prometheus.Registerer
	Log *slog.Logger
}

// Server is one candidate for global.
type Server struct {
	Options
	Orders    *Orders // of operators, to regionals
	log       *slog.Logger
	fleet     *node.Fleet
	rooms     *roomstore.Store
	heard     atomic.Pointer[copies] // by the publisher, while it leads
	restoring atomic.Bool            // the publisher gets rooms back from the nodes
	metrics   *metrics
	candidate *node.Candidate
	times     *node.Timekeeper

	mu      sync.Mutex
	leading *leadership // nil for none

	history    *history.History
	poster     *notices.Poster
	sender     atomic.Pointer[notices.Sender] // while it leads
	late       atomic.Pointer[string]         // alarm about notifications; empty or nil for none
	numbers    numbers                        // of all rooms, for the API
	expiry     atomic.Pointer[control.Expiry] // of the token that ends next; nil for none
	candidates candidates                     // shown by the API
}

// New returns a server. It can lead once it Runs.
func New(o Options) (*Server, error) {
	s := &Server{Options: o, log: o.Log.With(slog.String("global", o.Config.Name))}
	s.metrics = newMetrics(o.Reg, s)
	if o.Config.Rooms == "" {
		s.metrics.roomsValid.Set(1) // nothing is refused
	}
	s.rooms = roomstore.New(roomstore.Options{
		Docs: o.Docs, Copy: filepath.Join(o.Config.DataDir, roomstore.OwnedDocument+".json"), File: o.Config.Rooms, Log: s.log, Floor: s.newestRooms, Restoring: s.restoring.Load, Keep: node.WriteFile, Journal: o.Audit,
	})
	s.candidate = node.NewCandidate(node.CandidateOptions{
		Lease: o.Lease, Clock: o.Clock, Log: s.log, Inbox: 1024, Dropped: s.metrics.dropped, Regressions: s.metrics.regressions,
	})
	var err error
	s.fleet, err = node.NewFleet(o.Config.DataDir, watched{o.Docs, s.rooms}, s.log, o.Reg, s.candidate.Changed)
	if err != nil {
		return nil, err
	}
	s.fleet.Tell(s.clock)
	s.Orders = &Orders{bus: o.Bus, log: s.log, waiting: map[string]chan wire.OrderDone{}}
	if o.History != nil {
		s.history = history.New(o.History, s.log)
	}
	networks, err := o.Config.Notices.networks()
	if err != nil {
		return nil, err
	}
	s.poster = notices.NewPoster(networks)
	s.times = node.NewTimekeeper(o.Config.DataDir, o.Clock, s.log)
	return s, nil
}

// newestRooms returns the newest version of the rooms that a node is known to have.
func (s *Server) newestRooms() uint64 {
	v := s.fleet.Set().Version()
	if heard := s.heard.Load(); heard != nil {
		v = max(v, heard.roomsVersion())
	}
	return v
}

// time returns fleet time if this process leads and knows it, else the machine's estimate of it.
func (s *Server) time() fleettime.Time {
	t, _ := s.clock()
	return t
}

// clock returns time and its uncertainty: that close to a phase change of an event, a coordinator uses the smaller
// limits.
func (s *Server) clock() (fleettime.Time, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var alloc *root.Allocator
	if s.leading != nil {
		alloc = s.leading.alloc
	}
	return alloc.Clock(s.Clock.Now(), fleettime.TimeOf(time.Now()))
}

// known returns fleet time for the data folder; the zero value if this process does not lead or know it.
func (s *Server) known(now fleettime.Mono) fleettime.Known {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leading == nil {
		return fleettime.Known{}
	}
	return s.leading.alloc.Known(now)
}

// hear has the messages of a subject taken, and logs those that take refuses. end unsubscribes.
func (s *Server) hear(subject string, take func(data []byte, now time.Time) error) (end func(), err error) {
	return s.Bus.Subscribe(subject, func(_ string, data []byte) {
		if err := take(data, time.Now()); err != nil {
			s.log.Warn("message refused", slog.String("subject", subject), slog.Any("error", err))
		}
	})
}

// Run campaigns for leadership, and leads when elected, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	own := &node.OwnCopy{Document: ownedCopy, Version: s.rooms.KnownVersion, Encode: s.rooms.EncodeKnown}
	stop, err := s.fleet.Hand(s.Bus, node.Holder{DC: wire.Root, Name: s.Config.Name, Own: own},
		node.KeysDocument, node.MembersDocument, node.RoomsDocument, node.ControlsDocument, node.DrawsDocument)
	if err != nil {
		return err
	}
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return node.IgnoreEnd(ctx, s.fleet.Run(ctx)) })
	g.Go(func() error { return node.IgnoreEnd(ctx, s.rooms.Run(ctx)) })
	g.Go(func() error {
		s.Certificates.Run(ctx)
		return nil
	})
	g.Go(func() error { return s.numbers.run(ctx, s) })
	g.Go(func() error { return s.candidates.run(ctx, s) })
	g.Go(func() error { return s.Orders.run(ctx) })
	g.Go(func() error { return s.tellCalls(ctx) })
	g.Go(func() error { return s.hearHistory(ctx) })
	g.Go(func() error {
		s.times.Run(ctx, s.known)
		return nil
	})
	g.Go(func() error { return s.candidate.Run(ctx, s.fleet, s.lead) })
	return g.Wait()
}

// Status is the state of a candidate for global, for /status.
type Status struct {
	Leading bool                   `json:"leading"`
	Term    wire.Term              `json:"term"`
	Time    fleettime.Time         `json:"time"`
	Skew    time.Duration          `json:"skew_seconds"` // of fleet time from this machine's clock
	Rooms   map[string]root.Ledger `json:"rooms"`
}

// Leaving reports whether a regional has announced its shutdown; false if this global does not lead. It is safe for
// concurrent use.
func (s *Server) Leaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leading != nil && s.leading.alloc.Leaving(s.Clock.Now())
}

// Status returns the state of the candidate.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leading
	if l == nil {
		return Status{Rooms: map[string]root.Ledger{}}
	}
	st := Status{Leading: true, Term: l.term, Skew: l.skew, Rooms: map[string]root.Ledger{}, Time: l.alloc.Time(s.Clock.Now())}
	for _, r := range s.fleet.Set().Rooms() {
		st.Rooms[r.Name] = l.alloc.Ledger(r.ID)
	}
	return st
}

// Ready reports whether this candidate leads or is a healthy standby.
func (s *Server) Ready() node.Readiness {
	c := s.census()
	r := node.Readiness{Ready: true, Alarms: slices.Concat(node.LeaseAlarms(s.Lease), s.fleet.Alarms(), s.metrics.trouble.alarms(), c.alarms(), c.waits(), s.beyond())}
	for _, why := range s.stops() {
		if r.Add(why); why.Reason == stop.Uninitialized {
			r.Ready, r.Reasons = false, append(r.Reasons, why.Advice())
		}
	}
	if m := s.fleet.Members(); m != nil {
		for _, name := range s.Config.DataCenters {
			if m.Find(name) < 0 {
				r.Alarms = append(r.Alarms, fmt.Sprintf("data_centers of this global names %s, which the fleet's list does not: correct it", name))
			}
		}
	}
	if why := s.rooms.Alarm(); why != "" {
		r.Alarms = append(r.Alarms, "the store's rooms.owned is not used: "+why)
	}
	if why := s.rooms.Untold(); why != "" {
		r.Alarms = append(r.Alarms, "the audit entry of a change of rooms is not in the stream yet: "+why)
	}
	r.Alarms = append(r.Alarms, s.lateDraws()...)
	if late := s.late.Load(); late != nil && *late != "" {
		r.Alarms = append(r.Alarms, *late)
	}
	if e := s.expiry.Load(); e.Soon(time.Now()) {
		r.Alarms = append(r.Alarms, fmt.Sprintf("API token %s (%s) ends on %s: create another with: vestibule tokens create", e.Name, e.ID, e.At.Format(time.DateOnly)))
	}
	if sender := s.sender.Load(); sender != nil {
		r.Alarms = append(r.Alarms, sender.Alarms()...)
	}
	if s.fleet.Set() == nil {
		r.Ready, r.Reasons = false, append(r.Reasons, "no room set published yet")
	}
	return r
}
