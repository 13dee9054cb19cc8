package regional

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// errRejoins says that an operator wants the data centre to go on as the one of the list.
var errRejoins = errors.New("the data centre goes on as the one of the list")

// newSite draws a number that tells data centres apart.
func newSite() (site uint64) {
	for site == 0 {
		site = rand.Uint64()
	}
	return site
}

// lead drives an aggregator of its own for one term. stops tells whether the term ends because the process does.
func (s *Server) lead(ctx context.Context, t *node.Term, stops func() bool) error {
	agg, err := s.open(ctx, t)
	if err != nil {
		return err
	}
	defer func() { s.own, s.ownTerm = agg.Durable(), t.Term.N }()
	t.Brief(agg)
	s.show(agg)
	defer s.show(nil)
	var heard node.Closer
	defer heard.Close(s.log)
	if err := s.listen(agg, t, &heard); err != nil {
		return err
	}
	store := newStorer(ctx, s.Promises, &s.unsaved, s.log, func(ctx context.Context, version uint64, err error) {
		t.Outcome(ctx, func() error { return s.saved(agg, version, err) })
	})
	defer store.stop()
	err = t.Drive(ctx, agg, &s.mu, func() (time.Duration, error) {
		if s.rejoins(agg) {
			store.stop()
			return 0, errors.Join(errRejoins, s.flush(agg))
		}
		return s.pump(agg, store), nil
	})
	if err != nil {
		return err
	}
	// What the edges said last as they stopped is worth storing.
	store.stop()
	s.hearOut(stops())
	t.Drain()
	return s.flush(agg)
}

// These bound how long a leader waits for what edges have said already: one that stops, and one that lost
// its lease and is to stand again. What a fleet that stops does not hear is presumed for as long as a
// session lasts once it runs again, and a machine that stops everything may be very busy.
const (
	lastWords = 3 * time.Second
	lostWords = 500 * time.Millisecond
)

// hearOut waits for what edges that have stopped before have said.
func (s *Server) hearOut(stops bool) {
	most := lostWords
	if stops {
		most = lastWords
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	switch err := s.Edges.Flush(ctx); {
	case err != nil && stops:
		s.log.Warn("what edges said last may not be heard: what they held is presumed for a while", slog.Any("error", err))
	case err != nil:
		s.log.Debug("what edges said last is not heard", slog.Any("error", err))
	}
}

// open returns the aggregator of a term, over what is stored of the data centre.
func (s *Server) open(ctx context.Context, t *node.Term) (*region.Aggregator, error) {
	if !t.Before {
		s.fresh = s.Config.Bootstrap // it stays true where the promises cannot be opened under this lease
	}
	if t.Rival { // what was stored since is not known here
		s.own, s.ownTerm = wire.Durable{}, 0
	}
	stored, err := s.Promises.Open(ctx, t.Term)
	if !errors.Is(err, wire.ErrFenced) && ctx.Err() == nil {
		s.unsaved.note(err)
	}
	if err != nil {
		if by, ok := errors.AsType[*wire.FencedError](err); ok {
			t.Above(by.Term) // the leases are behind the promises
		}
		return nil, fmt.Errorf("open promises: %w", err)
	}
	// What was said of a data centre that begins is true until something is stored.
	s.fresh = s.Config.Bootstrap && stored.Version == 0 && (!t.Before || s.fresh)
	if s.Config.Bootstrap && stored.Version == 0 && !s.fresh {
		s.log.Error("bootstrap is not believed: somebody led this data centre before, and what was stored of it is lost")
	}
	if stored.Version == 0 && !s.fresh {
		s.log.Warn("nothing is stored of this data centre: nobody is let in until every session that may exist has ended, or every edge tells that it followed nobody since this process led",
			slog.Bool("led", s.own.Version > 0))
	}
	s.mu.Lock()
	known := s.site
	s.mu.Unlock()
	now := s.Clock.Now()
	return region.New(now, region.Config{
		DC: s.Config.DataCenter, Time: s.times.Known(now), Term: t.Term, Params: s.Params, Bootstrap: s.fresh,
		Own: s.own, OwnTerm: s.ownTerm, Site: newSite(), Known: known,
	}, stored), nil
}

// siteEvery is how often a process looks which site is stored.
const siteEvery = 10 * time.Second

// lookForSite remembers which site is stored, whoever leads, until ctx ends: where the store is
// lost, and the edges that knew it have ended, whoever takes over knows it.
func (s *Server) lookForSite(ctx context.Context) {
	tick := time.NewTicker(siteEvery)
	defer tick.Stop()
	for {
		site, err := s.Promises.Site(ctx)
		switch {
		case err != nil:
			s.log.Debug("which site is stored", slog.Any("error", err))
		case site != 0:
			s.mu.Lock()
			s.site = site
			s.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// show lets /status and metrics look at an aggregator, nil for none.
func (s *Server) show(agg *region.Aggregator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agg = agg
	if agg != nil {
		s.unknown, s.twins, s.waits, s.builds, s.toldEdges, s.news, s.reported = 0, 0, node.Steady[region.Wait]{}, map[uint64]string{}, 0, false, 0
	}
}

// listen brings in what edges, global and operators say, until what it adds to c is closed.
func (s *Server) listen(agg *region.Aggregator, t *node.Term, c *node.Closer) error {
	dc := s.Config.DataCenter
	stop, err := s.Edges.Subscribe(wire.Reports(dc), func(_ string, data []byte) {
		if m, err := wire.DecodeReport(data); s.understood("report", err) {
			t.Offer(func() { s.observe(agg, m) })
		}
	})
	if err != nil {
		return err
	}
	c.Add("reports", stop)
	stop, err = s.Global.Subscribe(wire.GrantSubject(wire.Root, dc), func(_ string, data []byte) {
		if g, err := wire.DecodeGrant(data); s.understood("grant", err) {
			t.Offer(func() { s.apply(agg, g) })
		}
	})
	if err != nil {
		return err
	}
	c.Add("grants", stop)
	if stop, err = s.Desk.Answer(wire.ForgetSubject(dc), func(question []byte) []byte { return s.forget(agg, question) }); err != nil {
		return err
	}
	c.Add("desk: forget", stop)
	if stop, err = s.Desk.Answer(wire.RejoinSubject(dc), func([]byte) []byte { return s.rejoin(agg) }); err != nil {
		return err
	}
	c.Add("desk: rejoin", stop)
	return nil
}

func (s *Server) understood(what string, err error) bool {
	if err == nil {
		return true
	}
	s.metrics.invalid.WithLabelValues(what).Inc()
	s.log.Warn("message refused", slog.Any("error", err))
	return false
}

// observe takes a report of an edge.
func (s *Server) observe(agg *region.Aggregator, m *wire.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	agg.Observe(s.Clock.Now(), *m)
	s.news = s.news || len(m.Rooms) > 0
	if m.Build != "" && len(s.builds) < maxBuilds {
		s.builds[m.Inc] = m.Build
	}
	if e := agg.Edges(); e.Unknown != s.unknown {
		s.metrics.unknownEdges.Add(float64(e.Unknown - s.unknown))
		s.unknown = e.Unknown
		s.log.Error("an edge came with sessions or rights that nothing stored tells of: the store lost writes, or the edge was declared lost and was alive",
			slog.String("edge", e.LastUnknown))
	}
}

// apply takes a grant of global.
func (s *Server) apply(agg *region.Aggregator, g *wire.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Clock.Now()
	agg.Apply(now, *g)
	if g.Echo != 0 && now >= g.Echo {
		s.metrics.heard.Store(int64(now))
		s.metrics.sync.Observe((now.Sub(g.Echo) - g.Dwell).Seconds())
	}
}

// saved tells the aggregator that a version is stored, or ends the term.
func (s *Server) saved(agg *region.Aggregator, version uint64, err error) error {
	if err != nil {
		return fmt.Errorf("store promises: %w", err)
	}
	s.fresh = false
	s.mu.Lock()
	defer s.mu.Unlock()
	agg.Saved(s.Clock.Now(), version)
	return nil
}

// reportDue returns when global is to be told next: where edges told something of a room since, as soon
// as of a room in which much changes, so that what operators see is not old. The caller holds the lock.
func (s *Server) reportDue(agg *region.Aggregator) fleettime.Mono {
	if s.news {
		return min(agg.ReportDue(), s.reported.Add(s.Params.SyncFast))
	}
	return agg.ReportDue()
}

// pump sends what is due, hands over what is to be stored, and returns how long
// nothing will be due.
func (s *Server) pump(agg *region.Aggregator, store *storer) time.Duration {
	s.mu.Lock()
	now := s.Clock.Now()
	var grants []wire.Grant
	var reports []wire.Report
	if agg.GrantsDue() <= now {
		grants = agg.Grants(now)
		if e := agg.Edges(); e.Met != s.twins {
			s.twins = e.Met
			s.log.Error("two processes bear one edge's name, and neither has succeeded the other: they are counted as two edges; give one of them another name, and remove its data_dir if that was copied",
				slog.Any("edges", e.Twins))
		}
	}
	s.tellWaits(now, agg)
	if s.reportDue(agg) <= now {
		reports = agg.Report(now)
		s.news, s.reported = false, now
	}
	if len(reports) > 0 {
		s.tellEdges(now, agg, &reports[0])
	}
	if d, ok := agg.Unsaved(); ok {
		store.offer(d)
	}
	due := min(agg.GrantsDue(), s.reportDue(agg))
	s.mu.Unlock()
	node.SendGrants(s.Edges, s.Config.DataCenter, grants, func(err error) { s.metrics.count("grant", err, s.log) })
	for i := range reports {
		data, err := wire.EncodeReport(&reports[i])
		if err == nil {
			err = s.Global.Publish(wire.ReportSubject(wire.Root, s.Config.DataCenter), data)
		}
		s.metrics.count("report", err, s.log)
	}
	return max(time.Millisecond, due.Sub(now))
}

const (
	edgesEvery = 5 * time.Second // how often global is told of the edges
	maxBuilds  = 10_000
)

// tellEdges adds to a report what people look at: the release of this process, and now and then how
// the edges are: first those that are neither well nor given up. The caller holds the lock.
func (s *Server) tellEdges(now fleettime.Mono, agg *region.Aggregator, m *wire.Report) {
	m.Build = node.BuildVersion()
	if s.toldEdges != 0 && now.Sub(s.toldEdges) < edgesEvery {
		return
	}
	s.toldEdges = now
	all, builds := agg.Status(now).Edges, map[uint64]string{}
	for _, e := range all {
		if b, ok := s.builds[e.Inc]; ok {
			builds[e.Inc] = b
		}
		if e.State == region.Left {
			continue
		}
		told := wire.ToldEdge{Name: e.Name, Build: builds[e.Inc], State: e.State, Heard: now.Sub(e.Heard)}
		if e.State == region.Alive {
			told.Lease = max(0, s.Params.EdgeLease-told.Heard)
		}
		m.Edges = append(m.Edges, told)
	}
	last := map[string]int{region.Alive: 1, region.Dead: 2}
	slices.SortStableFunc(m.Edges, func(a, b wire.ToldEdge) int {
		return cmp.Or(cmp.Compare(last[a.State], last[b.State]), cmp.Compare(a.Name, b.Name))
	})
	m.TellsEdges = true
	s.builds, m.EdgesN = builds, uint32(len(m.Edges))
	m.Edges = m.Edges[:min(len(m.Edges), wire.MaxToldEdges)]
}

func (s *Server) rejoins(agg *region.Aggregator) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return agg.Rejoins()
}
