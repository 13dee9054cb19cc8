package global

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// checkEvery is the interval at which this machine's clock is offered as the source of fleet time, and the list of
// data centres is checked.
const checkEvery = time.Second

// lead drives an allocator of its own for one term.
func (s *Server) lead(ctx context.Context, t *node.Term) error {
	fresh := s.Config.Bootstrap && !t.Before && s.fleet.Members() == nil
	if s.Config.Bootstrap && !fresh {
		s.log.Warn("bootstrap is ignored: the fleet had a leader before, or a list of data centres exists")
	}
	now := s.Clock.Now()
	alloc := root.New(now, root.Config{
		Time: s.times.Known(now), Term: t.Term, Centres: s.Config.DataCenters, Params: s.Params, Bootstrap: fresh,
	})
	t.Brief(alloc)
	l := &leadership{s: s, alloc: alloc, term: t.Term, began: now, reports: map[string]*centreReport{}}
	defer l.recordHistory(ctx)()
	s.setLeading(l)
	defer s.setLeading(nil)
	stop, err := s.Bus.Subscribe(wire.Reports(wire.Root), func(_ string, data []byte) {
		m, err := wire.DecodeReport(data)
		if err != nil {
			s.metrics.invalid.Inc()
			s.log.Warn("report refused", slog.Any("error", err))
			return
		}
		t.Offer(func() { l.observe(m) })
	})
	if err != nil {
		return err
	}
	defer stop()
	stopPublishing, err := l.publish(ctx, fresh)
	if err != nil {
		return err
	}
	defer stopPublishing()

	defer l.tellOperators(ctx)()
	l.setTime()
	checked := s.Clock.Now()
	return t.Drive(ctx, alloc, &s.mu, func() (time.Duration, error) {
		now := s.Clock.Now()
		if now.Sub(checked) >= checkEvery {
			l.setTime()
			l.logMembers()
			checked = now
		}
		return min(l.pump(), checkEvery-now.Sub(checked)), nil
	})
}

// publish keeps rooms, keys and the list of data centres in the store correct, concurrently with the ledger, until
// stop returns.
func (l *leadership) publish(ctx context.Context, fresh bool) (stop func(), err error) {
	s := l.s
	heard := &copies{log: s.log, offers: map[string]offer{}}
	unsubscribe, err := s.Bus.Subscribe(wire.Copies, heard.receive)
	if err != nil {
		return nil, err
	}
	s.heard.Store(heard)
	p := &publisher{
		refill: refill{s: s, copies: heard, fresh: fresh}, lender: l.lender(), file: roomsFile{name: s.Config.Rooms},
		draws: s.drawer(), churn: l.churn(), census: s.census, begun: l.begun, recallSilence: l.recallSilence, letIn: l.letIn,
	}
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx, func() fleettime.Time { return fleettime.TimeOf(time.Now()) }) })
	return func() {
		s.heard.Store(nil)
		unsubscribe()
		end()
		running.Wait()
		s.restoring.Store(false)
	}, nil
}

// observe takes a report of a data centre.
func (l *leadership) observe(m *wire.Report) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	now := l.s.Clock.Now()
	if l.alloc.Observe(now, *m) && l.history != nil {
		l.history.Observe(m) // not that of a replaced aggregator
	}
	if m.Build != "" || m.TellsEdges {
		l.storeCentreReport(now, m)
	}
}

// begun tells the allocator that nobody was ever admitted in the fleet.
func (l *leadership) begun() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.alloc.Begin()
}

// recallSilence tells the allocator for how long a data centre had been silent in the term of the predecessor.
func (l *leadership) recallSilence(dc string, silent time.Duration) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.alloc.RecallSilence(dc, silent)
}

// setTime offers this machine's clock as the source of fleet time.
func (l *leadership) setTime() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	now, wall := l.s.Clock.Read()
	l.skew = l.alloc.SetTime(now, fleettime.TimeOf(wall))
}

// pump sends the due grants and returns the time until the next one.
func (l *leadership) pump() time.Duration {
	l.s.mu.Lock()
	now := l.s.Clock.Now()
	var grants []wire.Grant
	if l.alloc.GrantsDue() <= now {
		grants = l.alloc.Grants(now)
	}
	for i := range grants {
		grants[i].Stop = l.stopOf(grants[i].To)
	}
	due := l.alloc.GrantsDue()
	l.s.mu.Unlock()
	node.SendGrants(l.s.Bus, wire.Root, grants, l.s.sent)
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
