// Package regional is the shell of a data centre's regional: it stands for leadership, and while leading drives the
// aggregator, the parent of the edges and the child of global.
//
// While leading, one goroutine owns the aggregator. It takes messages from a bounded inbox, sends the aggregator's
// messages, and stores its promises before it goes on. Leading is one call of lead, and its return undoes
// everything.
//
// Lock: Server.mu guards the aggregator, so that /status and metrics can read it between two steps of that
// goroutine.
package regional

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// Options configure a server.
type Options struct {
	Config   Config
	Params   wire.Params
	Edges    wire.Bus  // to the edges
	Global   wire.Bus  // to global; may be the same
	Desk     wire.Desk // for operators' requests, on the edges' side
	Docs     wire.DocumentFeed
	Lease    wire.Leadership
	Promises wire.PromiseStore
	Clock    *node.Clock // the clock of Lease

	Certificates *node.CertificateEnds // nil for none
	Listens      string                // addresses of this process's listeners, separated by blanks

	Reg prometheus.Registerer
	Log *slog.Logger
}

// Server is one regional.
type Server struct {
	Options
	log       *slog.Logger
	fleet     *node.Fleet
	metrics   *metrics
	candidate *node.Candidate
	times     *node.Timekeeper

	mu      sync.Mutex
	leading *leadership // nil for none

	fresh   bool    // bootstrap is set and accepted, until something is stored
	unsaved trouble // of storing promises

	memory *memory
}

// New returns a server. Run makes it stand and lead.
func New(o Options) (*Server, error) {
	s := &Server{
		Options: o,
		log:     o.Log.With(slog.String("regional", o.Config.Name), slog.String("dc", o.Config.DataCenter)),
	}
	s.metrics = newMetrics(o.Reg, s)
	s.candidate = node.NewCandidate(node.CandidateOptions{
		Lease: o.Lease, Clock: o.Clock, Log: s.log, Dropped: s.metrics.dropped,
		Regressions: s.metrics.regressions,
	})
	var err error
	s.fleet, err = node.NewFleet(o.Config.DataDir, o.Docs, s.log, o.Reg, s.candidate.Changed)
	if err != nil {
		return nil, err
	}
	s.fleet.Tell(func() (fleettime.Time, time.Duration) { return s.time(), 0 })
	s.times = node.NewTimekeeper(o.Config.DataDir, o.Clock, s.log)
	s.memory = newMemory(o.Config.DataDir, s.log)
	return s, nil
}

// time returns fleet time while leading, if known, otherwise the machine's time.
func (s *Server) time() fleettime.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leading != nil {
		if t, known := s.leading.agg.Clock(s.Clock.Now()); known {
			return t
		}
	}
	return fleettime.TimeOf(time.Now())
}

// known returns fleet time for the data folder, or the zero value if this process does not lead or know it.
func (s *Server) known(now fleettime.Mono) fleettime.Known {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leading == nil {
		return fleettime.Known{}
	}
	return s.leading.agg.Known(now)
}

// Run stands for leadership, and leads, until ctx ends. If the cause is [node.ErrTerminated], it waits for the
// final reports of edges that stop too, for at most 20 s.
func (s *Server) Run(ctx context.Context) error {
	ctx, end := node.Outlive(ctx, seeOffMost, s.edges, s.log)
	defer end()
	stop, err := s.fleet.Hand(s.Global, node.Holder{DC: s.Config.DataCenter, Name: s.Config.Name},
		node.KeysDocument, node.MembersDocument, node.RoomsDocument, node.ControlsDocument, node.DrawsDocument)
	if err != nil {
		return err
	}
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return node.IgnoreEnd(ctx, s.fleet.Run(ctx)) })
	g.Go(func() error {
		s.times.Run(ctx, s.known)
		return nil
	})
	g.Go(func() error {
		s.Certificates.Run(ctx)
		return nil
	})
	g.Go(func() error {
		if !s.memory.led && s.fleet.Set() != nil { // the folder is not new
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(standLate):
			}
		}
		return s.candidate.Run(ctx, s.fleet, func(term context.Context, t *node.Term) error {
			return s.lead(term, t, func() bool { return ctx.Err() != nil })
		})
	})
	return errors.Join(g.Wait(), s.memory.close())
}

// standLate is how much later a process stands if the one before it in the data folder did not lead at its end: the
// leader of then, which may start at the same time, knows the contents of a lost store.
const standLate = 2 * time.Second

// seeOffMost is longer than the shutdown of edges without a very long drain_delay.
const seeOffMost = 20 * time.Second

// edges returns how many edges report here, and how many of them are stopping; none while not leading. It tells
// global that this process is stopping.
func (s *Server) edges() (reporting, leaving int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leading == nil {
		return 0, 0
	}
	s.leading.agg.Leave(s.Clock.Now())
	e := s.leading.agg.Edges()
	return e.Reporting, e.Leaving
}

// Status is the state of a regional, for /status.
type Status struct {
	Leading bool                     `json:"leading"`
	Region  region.Status            `json:"region"`
	Waits   []region.Wait            `json:"waits"`
	Rooms   map[string]region.Ledger `json:"rooms"`
}

// Status returns the state of the regional.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Leading: s.leading != nil, Rooms: map[string]region.Ledger{}}
	if s.leading == nil {
		return st
	}
	st.Region, st.Waits = s.leading.agg.Status(s.Clock.Now()), s.leading.agg.Waits(s.Clock.Now())
	for _, r := range s.fleet.Set().Rooms() {
		st.Rooms[r.Name] = s.leading.agg.Ledger(r.ID)
	}
	return st
}
