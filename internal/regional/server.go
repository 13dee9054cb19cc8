// Package regional is the shell of a data centre's regional: it stands for
// leadership, and while it leads it drives the aggregator, the parent of the
// edges and the child of global.
//
// While it leads, one goroutine owns the aggregator: it takes messages from a
// bounded inbox, sends what the aggregator says, and has stored what must be
// stored before the aggregator goes on. Leading is being inside lead; leaving
// it undoes everything.
//
// Lock: Server.mu guards the aggregator so that /status and metrics can look at
// it between two steps of that goroutine.
package regional

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vestibule/internal/fleet"
	"vestibule/internal/node"
	"vestibule/internal/slots"
	"vestibule/internal/wire"
)

// Options are what a server is made of.
type Options struct {
	Config   Config
	Params   wire.Params
	Edges    wire.Bus  // to the edges
	Global   wire.Bus  // to global; may be the same
	Desk     wire.Desk // where operators ask, on the edges' side
	Docs     node.Documents
	Lease    wire.Leadership
	Promises wire.PromiseStore
	Clock    *node.Clock // the one that Lease reads
	Reg      prometheus.Registerer
	Log      *slog.Logger
}

// Server is one regional.
type Server struct {
	Options
	log       *slog.Logger
	fleet     *node.Fleet
	metrics   *metrics
	candidate *node.Candidate

	mu    sync.Mutex
	agg   *slots.Aggregator // nil while not leading
	twins uint64            // edges of one name that were told of

	waits  []slots.Wait // what was said to be waited for
	looked fleet.Mono   // when it was last looked

	fresh   bool    // that the data centre is new was said, and believed; until something is stored
	unsaved trouble // with storing promises

	// What was to be stored when this process led last, for a store that was lost since.
	own     wire.Durable
	ownTerm uint64
}

// New returns a server; it leads and answers once it Runs.
func New(o Options) (*Server, error) {
	s := &Server{
		Options: o,
		log:     o.Log.With(slog.String("regional", o.Config.Name), slog.String("dc", o.Config.DataCenter)),
	}
	s.metrics = newMetrics(o.Reg, s)
	s.candidate = node.NewCandidate(node.CandidateOptions{
		Lease: o.Lease, Clock: o.Clock, Log: s.log, Inbox: 4096, Dropped: s.metrics.dropped, Regressions: s.metrics.regressions,
	})
	var err error
	s.fleet, err = node.NewFleet(o.Config.DataDir, o.Docs, s.log, o.Reg, s.candidate.Changed)
	return s, err
}

// Run stands for leadership, and leads, until ctx ends; where the cause is
// [node.ErrTerminated], until edges that were told to end as well have said goodbye, for 20 s
// at most.
func (s *Server) Run(ctx context.Context) error {
	asked := ctx
	ctx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	stop, err := s.fleet.Hand(s.Global, s.Config.DataCenter, node.KeysDocument, node.MembersDocument, node.RoomsDocument)
	if err != nil {
		return err
	}
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return node.IgnoreEnd(ctx, s.fleet.Run(ctx)) })
	g.Go(func() error { return s.candidate.Run(ctx, s.fleet, s.lead) })
	g.Go(func() error {
		select {
		case <-asked.Done():
			s.seeOff(asked, ctx)
			end(context.Cause(asked))
		case <-ctx.Done():
		}
		return nil
	})
	return g.Wait()
}

const (
	// leaveNotice is within what time after us edges are told to end that are stopped
	// together with us, and have said so.
	leaveNotice = time.Second

	// leaveMost is longer than edges take to end whose drain_delay is not very long.
	leaveMost = 20 * time.Second
)

// seeOff waits for the goodbyes of edges that were told to end as well: what they leave
// behind would be presumed by the next leader. Without one that says so it waits for
// leaveNotice, and leads meanwhile.
func (s *Server) seeOff(asked, ctx context.Context) {
	if !errors.Is(context.Cause(asked), node.ErrTerminated) {
		return
	}
	began, told := s.Clock.Now(), false
	s.mu.Lock()
	if s.agg != nil {
		s.agg.Leave(began)
	}
	s.mu.Unlock()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		reporting, leaving := s.Leaving()
		past := s.Clock.Now().Sub(began)
		if reporting == 0 || (leaving == 0 && past >= leaveNotice) || past >= leaveMost {
			return
		}
		if leaving > 0 && !told {
			told = true
			s.log.Info("edges stop too: their goodbyes are waited for", slog.Int("edges", leaving))
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// Leaving returns how many edges report here, and how many of them are about to end; none
// where this regional does not lead. It is safe for concurrent use.
func (s *Server) Leaving() (reporting, leaving int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agg == nil {
		return 0, 0
	}
	return s.agg.Leaving()
}

// Status is the state of a regional, for /status.
type Status struct {
	Leading bool
	Region  slots.RegionStatus
	Waits   []slots.Wait
	Rooms   map[string]slots.RegionLedger
}

// Status returns the state of the regional.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Leading: s.agg != nil, Rooms: map[string]slots.RegionLedger{}}
	if s.agg == nil {
		return st
	}
	st.Region, st.Waits = s.agg.Status(s.Clock.Now()), s.agg.Waits(s.Clock.Now())
	for _, r := range s.fleet.Set().Rooms() {
		st.Rooms[r.Name] = s.agg.Ledger(r.ID)
	}
	return st
}
