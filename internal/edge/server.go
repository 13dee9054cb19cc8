// Package edge is the shell of one edge: the HTTP server that visitors reach.
//
// One request: the room is found by host and path, the ticket is opened, the
// engine decides from memory, and the request goes to the origin or is answered
// with the waiting page. No request waits for the network but those held for a
// right, which a grant ends. One goroutine, the pump, reports to the regional
// when the engine says that it is due; grants are applied as they arrive.
//
// Locks: Server.mu guards the engine and nothing else; it is held for the time
// of one decision, report or grant, never across I/O. streams.mu guards who has
// an event stream; neither is taken under the other.
package edge

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vestibule/internal/admission"
	"vestibule/internal/fleet"
	"vestibule/internal/node"
	"vestibule/internal/room"
	"vestibule/internal/ticket"
	"vestibule/internal/waiting"
	"vestibule/internal/wire"
)

var inf = math.Inf(1)

// Options are what a server is made of.
type Options struct {
	Config Config
	Params wire.Params
	Bus    wire.Bus
	Docs   node.Documents
	Reg    prometheus.Registerer
	Log    *slog.Logger

	MaxFiles int // that may be open, 0 to ask the system
}

// Server is one edge.
type Server struct {
	cfg     Config
	params  wire.Params
	bus     wire.Bus
	log     *slog.Logger
	clock   *node.Clock
	fleet   *node.Fleet
	folder  *node.Folder
	lives   []uint64 // incarnations that the folder tells of; the pump's, after New
	metrics *metrics
	clients *clients
	streams *streams
	files   files
	conns   *connections
	proxy   *proxy
	scratch sync.Pool
	langs   waiting.Picker

	mu    sync.Mutex
	eng   *admission.Engine
	jumps uint64 // of the clock, as of the last time under mu

	site    atomic.Pointer[site]
	kick    chan struct{} // the pump is to look at the engine
	told    atomic.Bool   // fleet time was known well enough once: places are kept since
	granted atomic.Int64  // reading of the clock at the newest grant, 0 before

	listeners []listener
	upgrades  sync.WaitGroup // connections that were upgraded; Shutdown does not wait for those
}

type listener struct {
	net.Listener
	tls bool
}

// New returns a server whose listeners are open; it answers once it Runs. The data_dir
// is its own until Run returns.
func New(o Options) (_ *Server, err error) {
	proxies, err := parsePrefixes(o.Config.Proxies)
	if err != nil {
		return nil, fmt.Errorf("trusted_proxies: %w", err)
	}
	var seed [32]byte
	if _, err := crand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("random seed: %w", err)
	}
	s := &Server{
		cfg: o.Config, params: o.Params, bus: o.Bus, clock: node.NewClock(),
		log:     o.Log.With(slog.String("edge", o.Config.Name), slog.String("dc", o.Config.DataCenter)),
		metrics: newMetrics(o.Reg), kick: make(chan struct{}, 1),
	}
	if s.folder, err = node.OpenFolder(o.Config.DataDir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.folder.Close())
		}
	}()
	s.scratch.New = func() any {
		var seed [32]byte
		if _, err := crand.Read(seed[:]); err != nil {
			panic(err) // documented never to happen
		}
		return &scratch{ticket: ticket.NewScratch(seed)}
	}
	s.eng = admission.New(admission.Config{
		Edge: o.Config.Name, DC: o.Config.DataCenter, Params: o.Params,
		Limits: admission.Limits{Held: o.Config.Held.Total, Recent: o.Config.Recent, Waiting: admission.DefaultLimits().Waiting},
		Rand:   rand.New(rand.NewChaCha8(seed)),
		Past:   s.folder.Succeeds(s.log),
	})
	s.keepLives(s.eng.Incarnations())
	now, wall := s.clock.Read()
	s.eng.Guess(now, fleet.TimeOf(wall))
	if s.clients, err = newClients(proxies, o.Config.Held.Prefix, o.Config.Events.Prefix); err != nil {
		return nil, err
	}
	limit := o.MaxFiles
	if limit == 0 {
		if limit, err = node.MaxFiles(); err != nil {
			return nil, fmt.Errorf("limit of open files: %w", err)
		}
	}
	s.files = shareFiles(limit, o.Config.Connections.Total, o.Config.Events.Total)
	s.files.tell(s.log, &s.cfg)
	s.conns = newConnections(s.files.visitors, s.metrics, s.log)
	s.streams = newStreams(s.files.streams, s.clients.streams, s.metrics)
	s.proxy = newProxy(o.Config.Timeouts, s.files.origins, newHeaderRules(o.Config.ForwardHeaders), s.metrics, s.log, s.originAnswers, s.originFails)
	s.site.Store(&site{})
	if s.fleet, err = node.NewFleet(o.Config.DataDir, o.Docs, s.log, o.Reg, s.refresh); err != nil {
		return nil, err
	}
	s.refresh()
	o.Reg.MustRegister(newCollector(s))
	if err := s.listen(); err != nil {
		return nil, err
	}
	return s, nil
}

// keepLives stores which incarnations use the folder, before the regional hears of the
// newest. Where it cannot be stored, the next process proves nothing about it.
func (s *Server) keepLives(incs []uint64) {
	if slices.Equal(s.lives, incs) {
		return
	}
	s.lives = incs
	if err := s.folder.Keep(incs); err != nil {
		s.log.Warn("what this process holds when it is killed will count until lost_after: its data_dir cannot be written", slog.Any("error", err))
	}
}

// listen opens the listeners.
func (s *Server) listen() error {
	for _, l := range []struct {
		addr string
		tls  bool
	}{{s.cfg.Listen, false}, {s.cfg.TLS.Listen, true}} {
		if l.addr == "" {
			continue
		}
		ln, err := net.Listen("tcp", l.addr)
		if err != nil {
			return errors.Join(fmt.Errorf("listen: %w", err), s.closeListeners())
		}
		s.listeners = append(s.listeners, listener{ln, l.tls})
	}
	return nil
}

func (s *Server) closeListeners() error {
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// URL returns where visitors reach this edge.
func (s *Server) URL() string {
	l := s.listeners[0]
	if l.tls {
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}

// refresh takes over rooms and keys that have changed.
func (s *Server) refresh() {
	next := buildSite(s.fleet, s.metrics, s.site.Load(), s.log)
	rooms := make([]admission.Room, len(next.rooms))
	for i, r := range next.rooms {
		rooms[i] = admission.Room{
			ID: r.ID, Epoch: r.Epoch, Cap: r.PartitionPolicy == room.PolicyCap,
			Probation: r.Probation, Grace: r.Grace, Session: r.SessionDuration, OnIsolation: r.OnIsolation, IsolationLimit: r.IsolationLimit,
		}
	}
	s.site.Store(next)
	s.mu.Lock()
	s.eng.SetRooms(s.clock.Now(), rooms)
	s.mu.Unlock()
	s.pauseRooms()
}

// wake makes the pump look at the engine.
func (s *Server) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// lock locks the engine and returns the present. A machine that was asleep
// does not believe its lease any more.
func (s *Server) lock() fleet.Mono {
	s.mu.Lock()
	now := s.clock.Now()
	if j := s.clock.Jumps(); j != s.jumps {
		s.jumps = j
		s.metrics.clockJumps.Inc()
		s.eng.Lapse(now)
	}
	return now
}

// Run serves visitors until ctx ends; then it answers what is in flight, cuts
// the connections that were upgraded, gives its rights back and returns.
func (s *Server) Run(ctx context.Context) error {
	defer s.closeFolder()
	defer s.proxy.transport.CloseIdleConnections()
	base, cut := context.WithCancel(context.Background())
	defer cut()
	servers, err := s.servers(base)
	if err != nil {
		return errors.Join(err, s.closeListeners())
	}
	cancel, err := s.bus.Subscribe(wire.GrantSubject(s.cfg.DataCenter, s.cfg.Name), s.onGrant)
	if err != nil {
		return errors.Join(err, s.closeListeners())
	}
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	pumping, stopPump := context.WithCancel(context.Background())
	defer stopPump()
	pumped := make(chan struct{})
	go func() {
		defer close(pumped)
		s.pump(pumping)
	}()
	g.Go(func() error { return node.IgnoreEnd(ctx, s.fleet.Run(ctx)) })
	g.Go(func() error {
		s.streams.run(ctx, s.tell)
		return nil
	})
	g.Go(func() error {
		s.watchOrigins(ctx)
		return nil
	})
	for i, srv := range servers {
		l := s.listeners[i]
		g.Go(func() error {
			var err error
			capped := cappedListener{l, s.conns}
			if l.tls {
				err = srv.ServeTLS(patientListener{capped}, "", "")
			} else {
				err = srv.Serve(capped)
			}
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		})
	}
	s.log.Info("edge up", slog.String("url", s.URL()))
	g.Go(func() error {
		<-ctx.Done()
		s.releaseAll()
		grace, cancel := context.WithTimeout(context.Background(), s.cfg.Timeouts.Shutdown)
		defer cancel()
		for _, srv := range servers {
			if err := srv.Shutdown(grace); err != nil {
				s.log.Warn("requests were cut off", slog.Any("error", err))
				if err := srv.Close(); err != nil {
					s.log.Debug("close", slog.Any("error", err))
				}
			}
		}
		cut()
		return nil
	})
	err = g.Wait()
	s.upgrades.Wait()
	s.conns.refusing.Wait()
	stopPump()
	<-pumped
	s.sayGoodbye()
	return err
}

func (s *Server) closeFolder() {
	if err := s.folder.Close(); err != nil {
		s.log.Warn("data_dir stays locked until this process ends", slog.Any("error", err))
	}
}

// servers returns one server per listener; what they serve ends with base.
func (s *Server) servers(base context.Context) ([]*http.Server, error) {
	var out []*http.Server
	for _, l := range s.listeners {
		srv := &http.Server{
			Handler:           s,
			ReadHeaderTimeout: s.cfg.Timeouts.Header,
			IdleTimeout:       s.cfg.Timeouts.Idle,
			ConnState:         s.conns.state,
			BaseContext:       func(net.Listener) context.Context { return base },
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100},
		}
		if l.tls {
			cert, err := newCertificate(s.cfg.TLS, s.log, time.Now)
			if err != nil {
				return nil, err
			}
			srv.TLSConfig = tlsConfig(cert)
		}
		out = append(out, srv)
	}
	return out, nil
}

// pump reports to the regional whenever the engine says that it is time. A report
// that is not answered is soon followed by another, so that a new regional hears of
// an idle edge before the lease lapses.
func (s *Server) pump(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	isolated, twin := false, false
	var reported fleet.Mono // when the newest report was made
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.kick:
		}
		now := s.lock()
		var reports []wire.Report
		again := reported.Add(s.params.ReportFast)
		silent := fleet.Mono(s.granted.Load()) < reported
		if s.eng.Due() <= now || silent && again <= now {
			reports = s.eng.Report(now)
			reported, silent = now, true
			again = now.Add(s.params.ReportFast)
		}
		due := s.eng.Due()
		if silent {
			due = min(due, again)
		}
		was := isolated
		isolated = s.eng.Isolated(now)
		hadTwin := twin
		twin = s.eng.Status(now).Twin
		incs := s.lives
		if len(reports) > 0 {
			incs = s.eng.Incarnations()
		}
		s.mu.Unlock()
		s.keepLives(incs)
		if isolated != was {
			s.tellIsolation(isolated)
		}
		if twin && !hadTwin {
			s.log.Error(twinAlarm)
		} else if hadTwin && !twin {
			s.log.Info("no other process reports under this edge's name any more")
		}
		s.send(reports)
		timer.Reset(max(time.Millisecond, due.Sub(now)))
	}
}

// tellIsolation logs that an isolation began or ended, and what it means for
// newcomers.
func (s *Server) tellIsolation(isolated bool) {
	st := s.Status()
	policies, letIn := map[string]int{}, uint64(0)
	for _, r := range s.site.Load().rooms {
		policies[r.OnIsolation]++
		letIn += st.Rooms[r.Name].LetIn
	}
	log := s.log.With(
		slog.Int("rooms_hold", policies[room.IsolationHold]), slog.Int("rooms_open", policies[room.IsolationOpen]),
		slog.Int("rooms_closed", policies[room.IsolationClosed]), slog.Uint64("let_in_without_a_right", letIn))
	if isolated {
		log.Warn("isolated: without a lease for longer than a moment")
	} else {
		log.Info("no longer isolated")
	}
}

func (s *Server) send(reports []wire.Report) {
	for i := range reports {
		data, err := wire.EncodeReport(&reports[i])
		if err == nil {
			err = s.bus.Publish(wire.ReportSubject(s.cfg.DataCenter, s.cfg.Name), data)
		}
		switch {
		case err == nil:
			s.metrics.reports.WithLabelValues("sent").Inc()
		case errors.Is(err, wire.ErrDown):
			s.metrics.reports.WithLabelValues("down").Inc()
		default:
			s.metrics.reports.WithLabelValues("failed").Inc()
			s.log.Warn("report not sent", slog.Any("error", err))
		}
	}
}

// onGrant applies what the regional says, and answers the held visitors who
// may enter now.
func (s *Server) onGrant(_ string, data []byte) {
	g, err := wire.DecodeGrant(data)
	if err != nil {
		s.metrics.grants.WithLabelValues("invalid").Inc()
		s.log.Warn("grant refused", slog.Any("error", err))
		return
	}
	s.metrics.grants.WithLabelValues("applied").Inc()
	now := s.apply(g)
	s.granted.Store(int64(max(now, 1)))
	if g.Echo != 0 && now >= g.Echo {
		s.metrics.sync.Observe((now.Sub(g.Echo) - g.Dwell).Seconds())
	}
	s.wake()
}

func (s *Server) apply(g *wire.Grant) fleet.Mono {
	now := s.lock()
	defer s.mu.Unlock()
	s.eng.Apply(now, *g)
	if !s.told.Load() && s.eng.TimeError(now) <= fleet.Rough {
		s.told.Store(true)
	}
	for _, v := range s.eng.Release(now, nil) {
		close(v.Data.(chan struct{}))
	}
	return now
}

// releaseAll sends everybody who is held back to the waiting page: the edge
// stops.
func (s *Server) releaseAll() {
	s.mu.Lock()
	held := s.eng.Drain(s.clock.Now())
	s.mu.Unlock()
	for _, v := range held {
		close(v.Data.(chan struct{}))
	}
}

// sayGoodbye gives all rights back, so that nothing has to be presumed of this
// edge.
func (s *Server) sayGoodbye() {
	now := s.lock()
	reports := s.eng.Leave(now)
	s.mu.Unlock()
	s.send(reports)
	s.log.Info("edge down")
}

// Status is the state of the edge, for /status and metrics.
type Status struct {
	admission.Status
	LeaseRemaining time.Duration
	TimeError      time.Duration
	SyncAge        time.Duration // since the newest grant; since the start before the first
	Rooms          map[string]admission.Ledger
}

// Status returns the state of the edge.
func (s *Server) Status() Status {
	site := s.site.Load()
	st := Status{Rooms: make(map[string]admission.Ledger, len(site.rooms))}
	for rooms := range slices.Chunk(site.rooms, statusChunk) { // visitors are waiting for the lock
		now := s.lock()
		for _, r := range rooms {
			st.Rooms[r.Name] = s.eng.Ledger(now, r.ID)
		}
		s.mu.Unlock()
	}
	now := s.lock()
	defer s.mu.Unlock()
	st.Status, st.TimeError = s.eng.Status(now), s.eng.TimeError(now)
	if st.Leased {
		st.LeaseRemaining = st.LeaseEnd.Sub(now)
	}
	st.SyncAge = now.Sub(fleet.Mono(s.granted.Load()))
	return st
}

// statusChunk is how many rooms are looked at in one go.
const statusChunk = 256

// maxSkew is how far the machine's clock may be from fleet time before
// something is wrong with one of them.
const maxSkew = 10 * time.Second

// twinAlarm is what an edge says that is told of another one with its name.
const twinAlarm = "another process reports under this edge's name: give every edge a name and a data_dir of its own; both are counted, as two edges"

// Ready tells whether visitors can be served here. Being cut off from the
// regional does not make an edge unready: who is inside goes on. But one that has
// never been told the time gives newcomers no place, and others may.
func (s *Server) Ready() node.Readiness {
	site := s.site.Load()
	now := s.lock()
	st := s.eng.Status(now)
	s.mu.Unlock()
	r := node.Readiness{Isolated: !st.Leased || !st.Sure, Alarms: s.fleet.Alarms()}
	if st.Twin {
		r.Alarms = append(r.Alarms, twinAlarm)
	}
	if site.set == nil {
		r.Reasons = append(r.Reasons, "no room set yet")
	}
	if len(s.fleet.Ring().Keys) == 0 {
		r.Reasons = append(r.Reasons, "no keys yet")
	}
	if !s.told.Load() {
		r.Reasons = append(r.Reasons, "fleet time was never told: no place can be kept")
	}
	if !site.ready && len(r.Reasons) == 0 {
		r.Reasons = append(r.Reasons, "keys cannot be used")
	}
	if st.Synced {
		if skew := st.Time.Sub(fleet.TimeOf(time.Now())); skew > maxSkew || skew < -maxSkew {
			r.Reasons = append(r.Reasons, fmt.Sprintf("fleet time is %v from this machine's clock", skew))
		}
	}
	switch st.Standing {
	case wire.Listed:
	case wire.Draining:
		r.Alarms = append(r.Alarms, "the data centre drains: nobody is let in here")
	default:
		r.Reasons = append(r.Reasons, fmt.Sprintf("data centre %s is not in the fleet's list, nobody is let in here: vestibule fleet add %s", s.cfg.DataCenter, s.cfg.DataCenter))
	}
	r.Ready = len(r.Reasons) == 0
	return r
}
