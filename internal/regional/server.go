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
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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
	log     *slog.Logger
	fleet   *node.Fleet
	metrics *metrics
	changed chan struct{} // the room set has changed

	mu    sync.Mutex
	agg   *slots.Aggregator // nil while not leading
	twins uint64            // edges of one name that were told of

	waits  []slots.Wait // what was said to be waited for
	looked fleet.Mono   // when it was last looked

	minTerm atomic.Uint64
	fresh   bool    // that the data centre is new was said, and believed; until something is stored
	unsaved trouble // with storing promises

	// What was to be stored when this process led last, for a store that was lost since.
	own     wire.Durable
	ownTerm uint64
}

// New returns a server; it leads and answers once it Runs.
func New(o Options) (*Server, error) {
	s := &Server{
		Options: o, changed: make(chan struct{}, 1),
		log: o.Log.With(slog.String("regional", o.Config.Name), slog.String("dc", o.Config.DataCenter)),
	}
	s.metrics = newMetrics(o.Reg, s)
	var err error
	s.fleet, err = node.NewFleet(o.Config.DataDir, o.Docs, s.log, o.Reg, func() {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	})
	return s, err
}

// Run stands for leadership, and leads, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	stop, err := s.fleet.Hand(s.Global, s.Config.DataCenter, node.KeysDocument, node.MembersDocument, node.RoomsDocument)
	if err != nil {
		return err
	}
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return node.IgnoreEnd(ctx, s.fleet.Run(ctx)) })
	g.Go(func() error {
		return node.IgnoreEnd(ctx, s.Lease.Run(ctx, s.minTerm.Load, func(ctx context.Context, l wire.Leading) {
			if err := s.lead(ctx, l); err != nil && ctx.Err() == nil {
				s.log.Warn("leading ended", slog.Any("error", err))
			}
		}))
	})
	return g.Wait()
}

// message is one entry of the inbox.
type message struct {
	report *wire.Report
	grant  *wire.Grant
}

// inboxSize bounds the messages waiting for the aggregator. Beyond it they are
// dropped and counted: the next report says the same.
const inboxSize = 4096

// errClock says that the machine was asleep while leading.
var errClock = errors.New("the machine was asleep: its lease cannot be believed")

// errRejoins says that an operator wants the data centre to go on as the one of the list.
var errRejoins = errors.New("the data centre goes on as the one of the list")

// newSite draws a number that tells data centres apart.
func newSite() (site uint64) {
	for site == 0 {
		site = rand.Uint64()
	}
	return site
}

// lead drives an aggregator of its own for one term.
func (s *Server) lead(ctx context.Context, l wire.Leading) error {
	if l.Behind {
		s.metrics.regressions.Inc()
	}
	jumps := s.Clock.Jumps()
	if !l.Before {
		s.fresh = s.Config.Bootstrap // it stays true where the promises cannot be opened under this lease
	}
	if l.Rival { // what was stored since is not known here
		s.own, s.ownTerm = wire.Durable{}, 0
	}
	stored, err := s.Promises.Open(ctx, l.Term)
	if !errors.Is(err, wire.ErrFenced) && ctx.Err() == nil {
		s.unsaved.note(err)
	}
	if err != nil {
		if by, ok := errors.AsType[*wire.FencedError](err); ok {
			s.minTerm.Store(max(by.Term, s.minTerm.Load())) // the leases are behind the promises
		}
		return fmt.Errorf("open promises: %w", err)
	}
	// What was said of a data centre that begins is true until something is stored.
	s.fresh = s.Config.Bootstrap && stored.Version == 0 && (!l.Before || s.fresh)
	if s.Config.Bootstrap && stored.Version == 0 && !s.fresh {
		s.log.Error("bootstrap is not believed: somebody led this data centre before, and what was stored of it is lost")
	}
	if stored.Version == 0 && !s.fresh {
		s.log.Warn("nothing is stored of this data centre: nobody is let in until every session that may exist has ended, or every edge tells that it followed nobody since this process led",
			slog.Bool("led", s.own.Version > 0))
	}
	agg := slots.NewAggregator(s.Clock.Now(), slots.AggregatorConfig{
		DC: s.Config.DataCenter, Term: l.Term, Params: s.Params, Bootstrap: s.fresh,
		Own: s.own, OwnTerm: s.ownTerm, Site: newSite(),
	}, stored)
	defer func() { s.own, s.ownTerm = agg.Durable(), l.Term.N }()
	agg.SetLease(l.Until)
	s.tellDocuments(agg)
	s.mu.Lock()
	s.agg, s.twins, s.waits = agg, 0, nil
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.agg = nil
		s.mu.Unlock()
	}()

	inbox := make(chan message, inboxSize)
	offer := func(m message) {
		select {
		case inbox <- m:
		default:
			s.metrics.dropped.Inc()
		}
	}
	stopReports, err := s.Edges.Subscribe(wire.Reports(s.Config.DataCenter), func(_ string, data []byte) {
		if m, err := wire.DecodeReport(data); s.understood("report", err) {
			offer(message{report: m})
		}
	})
	if err != nil {
		return err
	}
	defer stopReports()
	stopGrants, err := s.Global.Subscribe(wire.GrantSubject(wire.Root, s.Config.DataCenter), func(_ string, data []byte) {
		if g, err := wire.DecodeGrant(data); s.understood("grant", err) {
			offer(message{grant: g})
		}
	})
	if err != nil {
		return err
	}
	defer stopGrants()
	stopDesk, err := s.Desk.Answer(wire.ForgetSubject(s.Config.DataCenter), func(question []byte) []byte { return s.forget(agg, question) })
	if err != nil {
		return err
	}
	defer stopDesk()
	stopRejoin, err := s.Desk.Answer(wire.RejoinSubject(s.Config.DataCenter), func([]byte) []byte { return s.rejoin(agg) })
	if err != nil {
		return err
	}
	defer stopRejoin()

	store := newStorer(ctx, s.Promises, &s.unsaved, s.log)
	defer store.stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			// What the edges said last as they stopped is worth storing.
			store.stop()
			s.drain(agg, inbox)
			return s.flush(agg)
		case until := <-l.Extends:
			agg.SetLease(until)
		case m := <-inbox:
			s.step(agg, m)
		case <-s.changed:
			s.mu.Lock()
			s.tellDocuments(agg)
			s.mu.Unlock()
		case <-timer.C:
		case r := <-store.results:
			if r.err != nil {
				return fmt.Errorf("store promises: %w", r.err)
			}
			s.fresh = false
			s.mu.Lock()
			agg.Saved(s.Clock.Now(), r.version)
			s.mu.Unlock()
		}
		if s.Clock.Jumps() != jumps {
			return errClock
		}
		if by, fenced := agg.Fenced(); fenced {
			s.minTerm.Store(max(by, s.minTerm.Load()))
			return wire.ErrFenced
		}
		if s.rejoins(agg) {
			store.stop()
			return errors.Join(errRejoins, s.flush(agg))
		}
		timer.Reset(s.pump(agg, store))
	}
}

// tellDocuments gives the aggregator the rooms and the list of data centres.
func (s *Server) tellDocuments(agg *slots.Aggregator) {
	agg.SetRooms(s.Clock.Now(), node.LedgerRooms(s.fleet.Set()))
	if m := s.fleet.Members(); m != nil {
		agg.SetMembers(s.Clock.Now(), m.Ledger())
	}
}

func (s *Server) understood(what string, err error) bool {
	if err == nil {
		return true
	}
	s.metrics.invalid.WithLabelValues(what).Inc()
	s.log.Warn("message refused", slog.Any("error", err))
	return false
}

func (s *Server) step(agg *slots.Aggregator, m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Clock.Now()
	if m.report != nil {
		before, _ := agg.Surprises()
		agg.Observe(now, *m.report)
		if n, edge := agg.Surprises(); n != before {
			s.metrics.surprises.Inc()
			s.log.Error("an edge came with sessions or rights that nothing stored tells of: the store lost writes, or the edge was declared lost and was alive",
				slog.String("edge", edge))
		}
		return
	}
	agg.Apply(now, *m.grant)
	if g := m.grant; g.Echo != 0 && now >= g.Echo {
		s.metrics.heard.Store(int64(now))
		s.metrics.sync.Observe((now.Sub(g.Echo) - g.Dwell).Seconds())
	}
}

// pump sends what is due, hands over what is to be stored, and returns how long
// nothing will be due.
func (s *Server) pump(agg *slots.Aggregator, store *storer) time.Duration {
	s.mu.Lock()
	now := s.Clock.Now()
	var grants []wire.Grant
	var reports []wire.Report
	if agg.GrantsDue() <= now {
		grants = agg.Grants(now)
		if n, names := agg.Twins(); n != s.twins {
			s.twins = n
			s.log.Error("two processes bear one edge's name, and neither has succeeded the other: they are counted as two edges; give one of them another name, and remove its data_dir if that was copied",
				slog.Any("edges", names))
		}
	}
	s.tellWaits(now, agg)
	if agg.ReportDue() <= now {
		reports = agg.Report(now)
	}
	if d, ok := agg.Unsaved(); ok {
		store.offer(d)
	}
	due := min(agg.GrantsDue(), agg.ReportDue())
	s.mu.Unlock()
	for i := range grants {
		data, err := wire.EncodeGrant(&grants[i])
		if err == nil {
			err = s.Edges.Publish(wire.GrantSubject(s.Config.DataCenter, grants[i].To), data)
		}
		s.metrics.count("grant", err, s.log)
	}
	for i := range reports {
		data, err := wire.EncodeReport(&reports[i])
		if err == nil {
			err = s.Global.Publish(wire.ReportSubject(wire.Root, s.Config.DataCenter), data)
		}
		s.metrics.count("report", err, s.log)
	}
	return max(time.Millisecond, due.Sub(now))
}

// forget answers an operator who says that an edge has ended.
func (s *Server) forget(agg *slots.Aggregator, question []byte) []byte {
	var ask wire.ForgetAsk
	var out wire.ForgetAnswer
	err := json.Unmarshal(question, &ask)
	if err == nil && (!ask.All || ask.Edge != "") {
		err = wire.CheckName(ask.Edge)
	}
	if err == nil {
		var f slots.Forgotten
		s.mu.Lock()
		f, err = agg.Forget(s.Clock.Now(), ask.Edge, ask.Inc)
		s.mu.Unlock()
		who := ask.Edge
		if ask.All {
			who = "edges that are not heard"
		}
		out.Done = fmt.Sprintf("%d processes of %s have ended; what they held (%d sessions are known of) counts for %v at most", len(f.Incs), who, f.Sessions, f.Within.Round(time.Second))
	}
	if err != nil {
		out = wire.ForgetAnswer{Error: err.Error()}
		s.log.Warn("an edge was not forgotten", slog.Any("error", err))
	} else {
		s.log.Warn("an operator declared an edge ended", slog.String("edge", ask.Edge), slog.Bool("all", ask.All), slog.String("result", out.Done))
	}
	answer, err := json.Marshal(out)
	if err != nil {
		s.log.Error("answer not written", slog.Any("error", err))
	}
	return answer
}

// rejoin answers an operator who says that this data centre is the one of the list.
func (s *Server) rejoin(agg *slots.Aggregator) []byte {
	s.mu.Lock()
	err := agg.Rejoin()
	s.mu.Unlock()
	out := wire.ForgetAnswer{Done: fmt.Sprintf("%s goes on as the data centre of the list; what was out counts until it ends", s.Config.DataCenter)}
	if err != nil {
		out = wire.ForgetAnswer{Error: err.Error()}
	}
	s.log.Warn("an operator said that this is the data centre of the list", slog.Any("error", err))
	answer, err := json.Marshal(out)
	if err != nil {
		s.log.Error("answer not written", slog.Any("error", err))
	}
	return answer
}

func (s *Server) rejoins(agg *slots.Aggregator) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return agg.Rejoins()
}

// drain takes what is in the inbox.
func (s *Server) drain(agg *slots.Aggregator, inbox chan message) {
	for {
		select {
		case m := <-inbox:
			s.step(agg, m)
		default:
			return
		}
	}
}

// flush stores what is not stored yet, as the last act of a term.
func (s *Server) flush(agg *slots.Aggregator) error {
	s.mu.Lock()
	d, ok := agg.Unsaved()
	s.mu.Unlock()
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for {
		err := s.Promises.Put(ctx, d)
		if err == nil {
			s.fresh = false
		}
		if err == nil || errors.Is(err, wire.ErrFenced) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("store promises as the last act: %w", err)
		case <-time.After(storeSoon):
		}
	}
}

// storeAgain is how often promises are stored that are stored already: a store
// that was emptied or put back meanwhile is to know them again before a successor
// needs them.
const storeAgain = 5 * time.Second

// storeTime bounds one attempt.
const storeTime = 5 * time.Second

// trouble is why something does not work that is tried again, and since when. It is
// safe for concurrent use.
type trouble struct {
	mu    sync.Mutex
	since time.Time
	last  time.Time // when it failed last
	why   string
}

// troubleFor is how long after the last failure there still is trouble: somebody else
// may lead since.
const troubleFor = 30 * time.Second

// note takes note of an outcome, nil for success, and reports whether that is news.
func (t *trouble) note(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.since, t.why = time.Time{}, ""
		return false
	}
	if t.since.IsZero() {
		t.since = time.Now()
	}
	t.last = time.Now()
	news := t.why != err.Error()
	t.why = err.Error()
	return news
}

// now returns for how long there has been trouble, 0 for none, and why.
func (t *trouble) now() (time.Duration, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() || time.Since(t.last) > troubleFor {
		return 0, ""
	}
	return time.Since(t.since), t.why
}

// A write that failed is tried again soon, and ever less often.
const (
	storeSoon = 50 * time.Millisecond
	storeLate = 2 * time.Second
)

// storer writes promises one at a time, always the newest.
type storer struct {
	trouble *trouble
	want    chan wire.Durable
	results chan stored
	offered uint64
	last    wire.Durable // stored, and stored again from time to time
	cancel  context.CancelFunc
	done    chan struct{}
}

type stored struct {
	version uint64
	err     error
}

func newStorer(ctx context.Context, store wire.PromiseStore, trouble *trouble, log *slog.Logger) *storer {
	ctx, cancel := context.WithCancel(ctx)
	w := &storer{trouble: trouble, want: make(chan wire.Durable, 1), results: make(chan stored, 1), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		again := time.NewTicker(storeAgain)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case d := <-w.want:
				w.write(ctx, store, d, log)
			case <-again.C:
				if w.last.Version > 0 {
					w.write(ctx, store, w.last, log)
				}
			}
		}
	}()
	return w
}

// write stores d, trying until it is stored, overtaken by a newer one, or the
// term is over.
func (w *storer) write(ctx context.Context, store wire.PromiseStore, d wire.Durable, log *slog.Logger) {
	for wait := storeSoon; ; wait = min(2*wait, storeLate) {
		try, cancel := context.WithTimeout(ctx, storeTime)
		err := store.Put(try, d)
		cancel()
		if err == nil || errors.Is(err, wire.ErrFenced) {
			w.trouble.note(nil)
			w.last = d
			select {
			case w.results <- stored{d.Version, err}:
			case <-ctx.Done():
			}
			return
		}
		if ctx.Err() != nil {
			return // the term ends; its last act is to store what is left
		}
		if w.trouble.note(err) {
			log.Warn("promises not stored yet: no edge that is new gets a lease", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		select {
		case d = <-w.want: // something newer by now
		default:
		}
	}
}

// offer hands over what is to be stored; an older one that was not begun is
// replaced.
func (w *storer) offer(d wire.Durable) {
	if d.Version <= w.offered {
		return
	}
	w.offered = d.Version
	select {
	case <-w.want:
	default:
	}
	w.want <- d
}

func (w *storer) stop() {
	w.cancel()
	<-w.done
	w.trouble.note(nil) // the next leader's
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

// Ready tells whether this regional leads, or stands by to lead.
func (s *Server) Ready() node.Readiness {
	var st slots.RegionStatus
	var twins []string
	var waits []slots.Wait
	s.mu.Lock()
	leading := s.agg != nil
	if leading {
		st = s.agg.Status(s.Clock.Now())
		_, twins = s.agg.Twins()
		waits = s.agg.Waits(s.Clock.Now())
	}
	s.mu.Unlock()
	r := node.Readiness{Isolated: st.Isolated, Alarms: append(node.LeaseAlarms(s.Lease), s.fleet.Alarms()...)}
	for _, name := range twins {
		r.Alarms = append(r.Alarms, fmt.Sprintf("two processes bear the name of edge %s: give one of them another name, and remove its data_dir if that was copied", name))
	}
	if s.fleet.Set() == nil {
		r.Reasons = append(r.Reasons, "no room set yet")
	}
	standing := st.Standing
	if m := s.fleet.Members(); !leading && m != nil {
		list := m.Ledger()
		standing = list.Find(s.Config.DataCenter)
	}
	switch {
	case st.Copy != 0:
		r.Reasons = append(r.Reasons, fmt.Sprintf("another data centre bears the name %s (site %016x, this one is %016x), nobody is let in here: give one of them another name; if this is the one of the list and its store was lost: vestibule fleet rejoin %s",
			s.Config.DataCenter, st.Copy, st.Site, s.Config.DataCenter))
	case standing == wire.Listed:
	case standing == wire.Draining:
		r.Alarms = append(r.Alarms, "the data centre drains: nobody is let in here")
	default:
		r.Reasons = append(r.Reasons, fmt.Sprintf("data centre %s is not in the fleet's list, nobody is let in here: vestibule fleet add %s", s.Config.DataCenter, s.Config.DataCenter))
	}
	if t := st.Refused; !t.Zero() {
		r.Alarms = append(r.Alarms, fmt.Sprintf("global of term %d is not followed: it knows no list of data centres, and the list was changed", t.N))
	}
	for _, w := range waits {
		r.Alarms = append(r.Alarms, s.waitAlarm(&w))
	}
	if d, why := s.unsaved.now(); d > time.Second {
		r.Alarms = append(r.Alarms, fmt.Sprintf("promises have not been stored for %v, edges that are new get no lease: %s", d.Round(time.Second), why))
	}
	r.Ready = len(r.Reasons) == 0
	return r
}

// waitAlarm says what is waited for, until when, and what would end it.
func (s *Server) waitAlarm(w *slots.Wait) string {
	dc := s.Config.DataCenter
	until := "until "
	if w.Until != 0 {
		until += time.UnixMilli(int64(w.Until)).UTC().Format("15:04:05") + " UTC at most, or until "
	}
	what := "nobody is let in here"
	if !w.Closed {
		what = fmt.Sprintf("%d slots stay unused", w.Sessions)
	}
	edge := fmt.Sprintf("edge %s (incarnation %d)", w.Edge, w.Inc)
	end := fmt.Sprintf("; if it has ended: vestibule fleet forget %s --dc %s", w.Edge, dc)
	if w.Edge == wire.UnknownPast {
		edge, end = "any edge that the store has lost", fmt.Sprintf("; if every edge that lives is heard: vestibule fleet forget --all --dc %s", dc)
	}
	if w.Ended {
		end = "; it has ended, and this is for what it let in before"
	}
	switch w.Why {
	case slots.WaitTime:
		return what + ": neither global nor an edge has told fleet time"
	case slots.WaitBooks:
		return what + ": global has not told yet what this data centre holds, see the alarms of its /readyz"
	case slots.WaitEdge:
		return fmt.Sprintf("%s %s%s is heard: nobody else knows what it counted%s", what, until, edge, end)
	case slots.WaitSessions:
		return fmt.Sprintf("%s %s%s is heard: it may go on renewing sessions%s", what, until, edge, end)
	}
	return fmt.Sprintf("%s, for reason %d", what, w.Why)
}

// lookEvery is how often it is looked whether there is something new to wait for.
const lookEvery = time.Second

// tellWaits logs what is waited for when that changes.
func (s *Server) tellWaits(now fleet.Mono, agg *slots.Aggregator) {
	if s.looked != 0 && now.Sub(s.looked) < lookEvery {
		return
	}
	s.looked = now
	waits := agg.Waits(now)
	key := func(w slots.Wait) slots.Wait { return slots.Wait{Why: w.Why, Edge: w.Edge, Inc: w.Inc, Ended: w.Ended} }
	for i := range waits {
		if !slices.Contains(s.waits, key(waits[i])) {
			s.log.Warn("waiting", slog.String("alarm", s.waitAlarm(&waits[i])))
		}
	}
	if len(waits) == 0 && len(s.waits) > 0 {
		s.log.Info("nothing is waited for any more")
	}
	s.waits = s.waits[:0]
	for _, w := range waits {
		s.waits = append(s.waits, key(w))
	}
}

// now is for metrics.
func (s *Server) now() fleet.Mono { return s.Clock.Now() }
