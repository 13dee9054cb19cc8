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
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// errRejoins ends a term after rejoin.
var errRejoins = errors.New("restarting as the listed data centre")

// newClusterID returns a new random cluster ID.
func newClusterID() (clusterID uint64) {
	for clusterID == 0 {
		clusterID = rand.Uint64()
	}
	return clusterID
}

// leadership is one term in which this regional leads. Server.mu guards it.
type leadership struct {
	s   *Server
	agg *region.Aggregator

	twins   []string // logged duplicate edge names
	unknown uint64   // reported edges missing in the store

	edgeNews bool           // edges sent news about a room since the last report to global
	reported fleettime.Mono // last report to global

	shown         map[uint64]wire.EdgeStatus // build and certificates of edges, by instance ID
	edgesReported fleettime.Mono             // last report about edges to global

	global    stop.Stop      // why nobody enters here, by the last grant of global
	stop      stop.Stop      // as this aggregator last knew
	stoppedAt fleettime.Mono // when it last looked

	uninit       bool                     // logged that the fleet is not initialized
	waits        node.Steady[region.Wait] // logged waits
	waitsChecked fleettime.Mono           // last check of waits
}

// lead drives a new aggregator for one term. stops reports whether the term ends with the process.
func (s *Server) lead(ctx context.Context, t *node.Term, stops func() bool) error {
	agg, err := s.open(ctx, t)
	if err != nil {
		return err
	}
	defer func() { s.memory.remember(t.Term, agg.Durable(), stops()) }()
	t.Brief(agg)
	l := &leadership{s: s, agg: agg, shown: map[uint64]wire.EdgeStatus{}}
	s.setLeading(l)
	defer s.setLeading(nil)
	var subscribed node.Closer
	defer subscribed.Close(s.log)
	if err := l.listen(t, &subscribed); err != nil {
		return err
	}
	keep := func(d *wire.Durable) error { return s.memory.keep(t.Term, d) }
	store := newStorer(ctx, s.Promises, keep, &s.unsaved, s.log, func(ctx context.Context, version uint64, err error) {
		t.Outcome(ctx, func() error { return l.onSaved(version, err) })
	})
	defer store.stop()
	err = t.Drive(ctx, agg, &s.mu, func() (time.Duration, error) {
		if l.rejoins() {
			store.stop()
			return 0, errors.Join(errRejoins, l.flush())
		}
		return l.pump(store), nil
	})
	if err != nil {
		return err
	}
	// Include the final reports of stopping edges.
	store.stop()
	s.drainEdges(stops())
	t.Drain()
	return l.flush()
}

// Limits of the wait for edges that are done reporting: for a stopping leader, and for one that lost its lease and
// will stand again. Permits of an edge whose final report is lost stay reserved for a session length, and a machine
// that stops everything may be very busy.
const (
	drainTimeout          = 3 * time.Second
	lostLeaseDrainTimeout = 500 * time.Millisecond
)

// drainEdges waits for the reports of edges that have stopped before.
func (s *Server) drainEdges(stops bool) {
	most := lostLeaseDrainTimeout
	if stops {
		most = drainTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	switch err := s.Edges.Flush(ctx); {
	case err != nil && stops:
		s.log.Warn("final reports of edges may be lost: their permits stay reserved for a session length",
			slog.Any("error", err))
	case err != nil:
		s.log.Debug("final reports of edges are lost", slog.Any("error", err))
	}
}

// open returns the aggregator of a term, with the stored promises of the data centre.
func (s *Server) open(ctx context.Context, t *node.Term) (*region.Aggregator, error) {
	if !t.Before {
		s.fresh = s.Config.Bootstrap // still valid if the promises cannot be opened under this lease
	}
	if t.Last.N > s.memory.term.N { // another candidate has led since: its writes are not known here
		s.memory.own, s.memory.term = wire.Durable{}, wire.Term{}
	}
	stored, err := s.Promises.Open(ctx, t.Term)
	if !errors.Is(err, wire.ErrFenced) && ctx.Err() == nil {
		s.unsaved.record(err)
	}
	if err != nil {
		if by, ok := errors.AsType[*wire.FencedError](err); ok {
			t.Above(by.Term) // the lease store is behind the promises
		}
		return nil, fmt.Errorf("open promises: %w", err)
	}
	// bootstrap remains valid until something is stored.
	s.fresh = s.Config.Bootstrap && stored.Version == 0 && (!t.Before || s.fresh)
	if s.Config.Bootstrap && stored.Version == 0 && !s.fresh {
		s.log.Error("bootstrap is ignored: this data centre had a leader before, and its stored promises are lost")
	}
	if stored.Version == 0 && !s.fresh {
		s.log.Warn("no promises are stored for this data centre: no visitor is admitted until a new fleet is initialized (vestibule init), every possible session has expired, or every edge reports that it followed no other leader since this process led",
			slog.Bool("led", s.memory.term.N > 0))
	}
	now := s.Clock.Now()
	return region.New(now, region.Config{
		DC: s.Config.DataCenter, Time: s.times.Known(now), Term: t.Term, Params: s.Params, Bootstrap: s.fresh,
		Own: s.memory.own, OwnTerm: s.memory.term.N, ClusterID: newClusterID(),
	}, stored), nil
}

// setLeading sets the current leadership, nil for none.
func (s *Server) setLeading(l *leadership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leading = l
}

// listen handles messages of edges, global and operators, until c is closed.
func (l *leadership) listen(t *node.Term, c *node.Closer) error {
	dc, desk := l.s.Config.DataCenter, desk{l.s, l.agg}
	var errs []error
	add := func(what string) func(stop func(), err error) {
		return func(stop func(), err error) {
			if errs = append(errs, err); err == nil {
				c.Add(what, stop)
			}
		}
	}
	add("reports")(l.s.Edges.Subscribe(wire.Reports(dc), func(_ string, data []byte) {
		if m, err := wire.DecodeReport(data); l.s.understood("report", err) {
			t.Offer(func() { l.observe(m) })
		}
	}))
	add("grants")(l.s.Global.Subscribe(wire.GrantSubject(wire.Root, dc), func(_ string, data []byte) {
		if g, err := wire.DecodeGrant(data); l.s.understood("grant", err) {
			t.Offer(func() { l.apply(g) })
		}
	}))
	add("orders")(l.s.Global.Subscribe(wire.OrderSubject(dc), func(_ string, data []byte) { desk.obey(data) }))
	add("desk: forget")(l.s.Desk.Answer(wire.ForgetSubject(dc), desk.forget))
	add("desk: rejoin")(l.s.Desk.Answer(wire.RejoinSubject(dc), func([]byte) []byte { return desk.rejoin() }))
	return errors.Join(errs...)
}

func (s *Server) understood(what string, err error) bool {
	if err == nil {
		return true
	}
	s.metrics.invalid.WithLabelValues(what).Inc()
	s.log.Warn("message refused", slog.Any("error", err))
	return false
}

// observe handles a report of an edge.
func (l *leadership) observe(m *wire.Report) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.agg.Observe(l.s.Clock.Now(), *m)
	l.edgeNews = l.edgeNews || len(m.Rooms) > 0
	if _, known := l.shown[m.Instance]; !known && m.Build != "" { // operators may make its listener a site at once
		l.edgesReported = min(l.edgesReported, l.s.Clock.Now().Add(newEdgesEvery-edgesEvery))
	}
	if m.Build != "" && len(l.shown) < maxShown {
		l.shown[m.Instance] = wire.EdgeStatus{Build: m.Build, CertificateEnd: m.CertificateEnd, Listens: m.Listens}
	}
	if e := l.agg.Edges(); e.Unknown != l.unknown {
		l.s.metrics.unknownEdges.Add(float64(e.Unknown - l.unknown))
		l.unknown = e.Unknown
		l.s.log.Error("an edge reported sessions or permits unknown to the store: the store lost writes, or the edge was declared lost while running",
			slog.String("edge", e.LastUnknown))
	}
}

// apply handles a grant of global.
func (l *leadership) apply(g *wire.Grant) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	now := l.s.Clock.Now()
	l.agg.Apply(now, *g)
	l.global = g.Stop
	if g.Echo != 0 && now >= g.Echo {
		l.s.metrics.heard.Store(int64(now))
		l.s.metrics.sync.Observe((now.Sub(g.Echo) - g.Dwell).Seconds())
	}
}

// onSaved notifies the aggregator of a stored version, or ends the term.
func (l *leadership) onSaved(version uint64, err error) error {
	if err != nil {
		return fmt.Errorf("store promises: %w", err)
	}
	l.s.fresh = false
	l.s.metrics.stored.Inc()
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.agg.Saved(l.s.Clock.Now(), version)
	return nil
}

// reportDue returns when the next report to global is due: after news from edges about a room, as soon as for a
// busy room, so that operators see current numbers. The caller holds the lock.
func (l *leadership) reportDue() fleettime.Mono {
	if l.edgeNews {
		return min(l.agg.ReportDue(), l.reported.Add(l.s.Params.SyncFast))
	}
	return l.agg.ReportDue()
}

// pump sends due messages, hands promises to the store, and returns the time until the next due message.
func (l *leadership) pump(store *storer) time.Duration {
	l.s.mu.Lock()
	now := l.s.Clock.Now()
	var grants []wire.Grant
	var reports []wire.Report
	if l.agg.GrantsDue() <= now {
		grants = l.agg.Grants(now)
		twins := l.agg.Edges().Twins
		if len(twins) > len(l.twins) {
			l.s.log.Error("two processes use one edge's name, and neither succeeded the other: they count as two edges; give one of them another name, and remove its data_dir if that was copied",
				slog.Any("edges", twins))
		}
		l.twins = twins
	}
	for i := range grants {
		grants[i].Stop = l.stopped(now)
	}
	l.logWaits(now)
	if l.reportDue() <= now {
		reports = l.agg.Report(now)
		l.edgeNews, l.reported = false, now
	}
	if len(reports) > 0 {
		reports[0].CertificateEnd, reports[0].Listens = l.s.Certificates.First(), l.s.Listens
		l.addEdgeStates(now, &reports[0])
	}
	if d, ok := l.agg.Unsaved(); ok {
		store.offer(d)
	}
	due := min(l.agg.GrantsDue(), l.reportDue())
	l.s.mu.Unlock()
	node.SendGrants(l.s.Edges, l.s.Config.DataCenter, grants, func(err error) { l.s.metrics.count("grant", err, l.s.log) })
	for i := range reports {
		err := l.s.Global.Publish(wire.ReportSubject(wire.Root, l.s.Config.DataCenter), wire.EncodeReport(&reports[i]))
		l.s.metrics.count("report", err, l.s.log)
	}
	return max(time.Millisecond, due.Sub(now))
}

// stopEvery is the interval at which a leader looks why nobody enters: messages are more frequent.
const stopEvery = 250 * time.Millisecond

// own returns why nobody enters here, as far as this data centre knows. The caller holds the lock.
func (l *leadership) own(now fleettime.Mono) stop.Stop {
	if l.stoppedAt == 0 || now.Sub(l.stoppedAt) >= stopEvery {
		l.stop, l.stoppedAt = l.agg.Stop(now), now
		if len(l.s.fleet.Ring().Keys) == 0 && l.agg.Uninitialized() {
			l.stop = stop.Stop{Reason: stop.Uninitialized, Centre: l.s.Config.DataCenter, Since: l.stop.Since}
		}
	}
	return l.stop
}

// stopped returns why nobody enters here, as far as this data centre or global knows: global alone knows which data
// centre is awaited. The caller holds the lock.
func (l *leadership) stopped(now fleettime.Mono) stop.Stop {
	if own := l.own(now); !own.OK() && (own.Reason != l.global.Reason || own.Reason != stop.AwaitsCentre) {
		return own
	}
	return l.global
}

const (
	edgesEvery    = 5 * time.Second // interval of reports about the edges to global
	newEdgesEvery = time.Second     // while new ones come
	maxShown      = 10_000
)

// addEdgeStates adds monitoring data to a report: the version of this process and, periodically, the state of the
// edges, abnormal ones first. The caller holds the lock.
func (l *leadership) addEdgeStates(now fleettime.Mono, m *wire.Report) {
	m.Build, m.Stop = node.ShortBuild(), l.own(now)
	if l.edgesReported != 0 && now.Sub(l.edgesReported) < edgesEvery {
		return
	}
	l.edgesReported = now
	all, shown := l.agg.Status(now).Edges, map[uint64]wire.EdgeStatus{}
	for _, e := range all {
		status, ok := l.shown[e.Instance]
		if ok {
			shown[e.Instance] = status
		}
		if e.State == region.Left {
			continue
		}
		status.Name, status.State, status.Heard = e.Name, e.State, now.Sub(e.Heard)
		if e.State == region.Alive {
			status.Lease = max(0, l.s.Params.EdgeLease-status.Heard)
		}
		m.Edges = append(m.Edges, status)
	}
	last := map[string]int{region.Alive: 1, region.Dead: 2}
	slices.SortStableFunc(m.Edges, func(a, b wire.EdgeStatus) int {
		return cmp.Or(cmp.Compare(last[a.State], last[b.State]), cmp.Compare(a.CertificateEnd, b.CertificateEnd),
			cmp.Compare(a.Name, b.Name))
	})
	m.TellsEdges = true
	l.shown, m.EdgesN = shown, uint32(len(m.Edges))
	m.Edges = m.Edges[:min(len(m.Edges), wire.MaxReportedEdges)]
}

func (l *leadership) rejoins() bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.agg.Rejoins()
}
