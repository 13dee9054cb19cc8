package global

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// tellEvery is how often this machine's clock is offered as the source of fleet time, and the list of data centres
// checked.
const tellEvery = time.Second

// lead drives an allocator of its own for one term.
func (s *Server) lead(ctx context.Context, t *node.Term) error {
	fresh := s.Config.Bootstrap && !t.Before && s.fleet.Members() == nil
	if s.Config.Bootstrap && !fresh {
		s.log.Warn("bootstrap is not believed: somebody led before, or a list of data centres exists")
	}
	now := s.Clock.Now()
	alloc := root.New(now, root.Config{
		Time: s.times.Known(now), Term: t.Term, Centres: s.Config.DataCenters, Params: s.Params, Bootstrap: fresh,
	})
	t.Brief(alloc)
	s.show(alloc, t.Term)
	defer s.show(nil, wire.Term{})
	stop, err := s.Bus.Subscribe(wire.Reports(wire.Root), func(_ string, data []byte) {
		m, err := wire.DecodeReport(data)
		if err != nil {
			s.metrics.invalid.Inc()
			s.log.Warn("report refused", slog.Any("error", err))
			return
		}
		t.Offer(func() { s.observe(alloc, m) })
	})
	if err != nil {
		return err
	}
	defer stop()
	stopPublishing, err := s.publish(ctx, fresh, t.Term, alloc)
	if err != nil {
		return err
	}
	defer stopPublishing()

	s.setTime(alloc)
	told := s.Clock.Now()
	return t.Drive(ctx, alloc, &s.mu, func() (time.Duration, error) {
		now := s.Clock.Now()
		if now.Sub(told) >= tellEvery {
			s.setTime(alloc)
			s.logMembers()
			told = now
		}
		return min(s.pump(alloc), tellEvery-now.Sub(told)), nil
	})
}

// show sets the allocator that /status, metrics and the publisher read, nil for none.
func (s *Server) show(alloc *root.Allocator, term wire.Term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alloc, s.term, s.centres = alloc, term, map[string]*centreReport{}
}

// publish keeps rooms, keys and the list of data centres in the store correct, concurrently with the ledger, until
// stop returns.
func (s *Server) publish(ctx context.Context, fresh bool, term wire.Term, alloc *root.Allocator) (stop func(), err error) {
	heard := &copies{log: s.log}
	deaf, err := s.Bus.Subscribe(wire.Copies, heard.receive)
	if err != nil {
		return nil, err
	}
	s.heard.Store(heard)
	p := &publisher{
		name: s.Config.Name, lender: room.Lender{Term: term.N, Nonce: term.Nonce}, docs: s.Docs, rooms: s.rooms, draws: s.drawer(), bus: s.Bus, copies: heard, fleet: s.fleet, file: s.Config.Rooms, fresh: fresh, census: s.census, churn: s.churnOf(alloc),
		founders: s.Config.DataCenters, rotate: s.Config.KeyRotation, log: s.log, metrics: s.metrics,
	}
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx, func() fleettime.Time { return fleettime.TimeOf(time.Now()) }) })
	return func() {
		s.heard.Store(nil)
		deaf()
		end()
		running.Wait()
	}, nil
}

// observe takes a report of a data centre.
func (s *Server) observe(alloc *root.Allocator, m *wire.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Clock.Now()
	alloc.Observe(now, *m)
	if m.Build != "" || m.TellsEdges {
		s.storeCentreReport(now, m)
	}
}

// setTime offers this machine's clock as the source of fleet time.
func (s *Server) setTime(alloc *root.Allocator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, wall := s.Clock.Read()
	s.skew = alloc.SetTime(now, fleettime.TimeOf(wall))
}

// pump sends the due grants and returns the time until the next one.
func (s *Server) pump(alloc *root.Allocator) time.Duration {
	s.mu.Lock()
	now := s.Clock.Now()
	var grants []wire.Grant
	if alloc.GrantsDue() <= now {
		grants = alloc.Grants(now)
	}
	due := alloc.GrantsDue()
	s.mu.Unlock()
	node.SendGrants(s.Bus, wire.Root, grants, s.sent)
	return max(time.Millisecond, due.Sub(now))
}

// sent counts a grant by its outcome.
func (s *Server) sent(err error) {
	result := node.Result(err)
	s.metrics.sent.WithLabelValues(result).Inc()
	if result == node.Failed {
		s.log.Warn("grant not sent", slog.Any("error", err))
	}
}
