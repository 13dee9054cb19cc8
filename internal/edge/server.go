// Package edge is the shell of one edge: the HTTP server that visitors reach.
//
// One request: a front reads it, the gate decides, and the front passes it on to the
// site, answers it, or opens an event stream. One goroutine, the pump, reports to the
// regional when the engine says that it is due; grants are applied as they arrive.
package edge

import (
	"context"
	crand "crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/front"
	"vestibule/internal/edge/gate"
	"vestibule/internal/edge/http1"
	"vestibule/internal/edge/origin"
	"vestibule/internal/edge/sse"
	"vestibule/internal/node"
)

// Options are the parameters of a server.
type Options struct {
	Config Config
	Params wire.Params
	Bus    wire.Bus
	Docs   wire.DocumentFeed
	Pushes func(ctx context.Context, room, visitor uint64, record []byte) error // stores subscriptions; nil for none
	Reg    prometheus.Registerer
	Log    *slog.Logger

	Certificates *node.CertificateEnds // nil for none

	Sockets *node.Sockets   // passed to this process; nil for none
	Own     *node.Listeners // of this process: no site; nil for those of the edge alone

	Servers     func() []string // host:port of the NATS servers, which are no sites; nil for none
	MaxFiles    int             // limit of open files, 0 to ask the system
	EventsEvery time.Duration   // interval of an event stream's messages, 0 for a second
	Rand        rand.Source     // nil for one with a random seed
}

// Server is one edge.
type Server struct {
	cfg        Config
	bus        wire.Bus
	log        *slog.Logger
	fleet      *node.Fleet
	folder     *node.Folder
	times      *node.Timekeeper
	metrics    *metrics
	proxies    clientaddr.Proxies
	headers    *proxyHeaders
	gate       *gate.Gate
	streams    *streams
	monitor    *origin.Monitor
	dials      *origin.Dials
	proxy      *proxy
	preflights *preflights
	patience   patience
	pool       *http1.Pool // connections of the front to origins
	front      *front.Front
	secure     *tls.Config // nil without TLS
	files      files
	conns      *connections
	up         *uplink
	pushes     *pushes

	draining  atomic.Bool // set by drain
	after     func(time.Duration) <-chan time.Time
	listeners listenerSet
	lines     clientLines
	upgrades  sync.WaitGroup // upgraded connections; Shutdown does not wait for them
}

// New returns a server with open listeners; it answers once it Runs. It owns data_dir until Run returns.
func New(o Options) (_ *Server, err error) {
	s := &Server{
		cfg: o.Config, bus: o.Bus, metrics: newMetrics(o.Reg), after: time.After,
		log: o.Log.With(slog.String("edge", o.Config.Name), slog.String("dc", o.Config.DataCenter)),
	}
	s.patience = patience{header: s.cfg.Timeouts.Header, idle: s.cfg.Timeouts.Idle, draining: &s.draining}
	if s.proxies, err = clientaddr.ParseProxies(o.Config.Proxies); err != nil {
		return nil, fmt.Errorf("trusted_proxies: %w", err)
	}
	if s.headers, err = newProxyHeaders(&s.cfg, s.metrics, s.log); err != nil {
		return nil, err
	}
	if s.folder, err = node.OpenFolder(o.Config.DataDir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.folder.Close())
		}
	}()
	limit := o.MaxFiles
	if limit == 0 {
		if limit, err = node.MaxFiles(); err != nil {
			return nil, fmt.Errorf("limit of open files: %w", err)
		}
	}
	s.files = shareFiles(limit, o.Config.Connections.Total, o.Config.Events.Total)
	s.files.logLimit(s.log, &s.cfg)
	s.conns = newConnections(s.files.visitors, s.files.origins, s.metrics, s.log)
	hub := sse.New(sse.Options{
		Max: s.files.streams, PerPrefix: o.Config.Events.Prefix, Every: o.EventsEvery, Reg: o.Reg,
	})
	clock := node.NewClock()
	s.up = &uplink{
		cfg: &s.cfg, certificates: o.Certificates, interval: o.Params.ReportFast, bus: o.Bus, folder: s.folder,
		metrics: s.metrics, log: s.log, kick: make(chan struct{}, 1),
	}
	s.up.keeper = &keeper{
		folder: s.folder, metrics: s.metrics, log: s.log, kick: make(chan struct{}, 1), after: time.After,
	}
	s.pushes = newPushes(o.Pushes, s.log, o.Reg)
	if s.gate, err = s.newGate(o, clock, hub.Finish); err != nil {
		return nil, err
	}
	s.up.gate = s.gate
	s.up.before = newSettling(s.folder, o.Params, s.log)
	s.up.keeper.gate, s.up.keeper.before = s.gate, s.up.before
	s.times = node.NewTimekeeper(o.Config.DataDir, clock, s.log)
	s.gate.Engine.Restore(s.times.Known)
	s.streams = &streams{hub, s.gate, s.log}
	s.gate.Engine.With(func(_ fleettime.Mono, eng *admission.Engine) { s.up.storeInstances(eng.Instances()) })
	originMetrics := origin.NewMetrics(o.Reg)
	s.dials = origin.NewDials(s.files.origins, o.Config.Timeouts.Dial, originMetrics)
	s.dials.RefuseServers(o.Servers)
	s.dials.Short = func(full bool) { s.conns.shed(wantSites, full) }
	transport := origin.NewTransport(s.dials, o.Config.Timeouts.Response)
	removed := &origin.RemovedNames{Metrics: originMetrics, Log: s.log}
	s.monitor = &origin.Monitor{
		Transport: transport, Origins: s.gate.Origins, Now: clock.Now, Changed: s.gate.Pause, Metrics: originMetrics,
		Log: s.log,
	}
	s.monitor.Watch(s.dials.DialContext)
	s.proxy = &proxy{
		transport: transport, trip: transport, alone: transport.Alone(), proxies: s.proxies,
		headers: origin.NewHeaderRules(o.Config.ForwardHeaders, removed.Add), monitor: s.monitor,
		buffers: origin.NewBuffers(), quiet: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if s.preflights, err = newPreflights(s.proxy, s.gate.Asks, s.log); err != nil {
		return nil, err
	}
	s.front = s.newFront(s.dials)
	if s.fleet, err = node.NewFleet(o.Config.DataDir, o.Docs, s.log, o.Reg, func() { s.gate.Use(s.fleet) }); err != nil {
		return nil, err
	}
	// Limits are not for edges, and the engine knows when people gather: the uncertainty is not needed.
	s.fleet.Tell(func() (fleettime.Time, time.Duration) { return s.gate.Engine.Time(), 0 })
	s.gate.Use(s.fleet)
	if o.Own == nil {
		o.Own = &node.Listeners{}
	}
	if err := s.listen(o.Sockets, o.Own); err != nil {
		return nil, err
	}
	return s, nil
}

// newFront returns the front of the configuration.
func (s *Server) newFront(dials *origin.Dials) *front.Front {
	idle, ofSite := origin.MaxIdle(dials.Limit())
	s.pool = &http1.Pool{
		Dial: dials.DialContext, Handshake: origin.Handshake, MaxIdle: idle, MaxIdlePerSite: ofSite, IdleFor: origin.IdleFor,
	}
	return front.New(front.Options{
		Gate: s.gate, Proxies: s.proxies, Connections: s.conns, Draining: s.draining.Load, Handler: s, Context: withProgress,
		Log: s.log,
		Timeouts: front.Timeouts{
			Header: s.cfg.Timeouts.Header, Idle: s.cfg.Timeouts.Idle, Response: s.cfg.Timeouts.Response,
		},
		Metrics:   front.Metrics{Requests: s.metrics.byFast, HandedOver: s.metrics.handedOver, Panics: s.metrics.panics},
		HandsOver: s.cfg.Reader == frontNetHTTP, Pool: s.pool, Headers: s.proxy.headers, Monitor: s.monitor,
		Buffers: s.proxy.buffers,
	})
}

// newGate returns the gate, with an engine that resumes the state of the data folder.
func (s *Server) newGate(o Options, clock *node.Clock, finish func(sse.Place)) (*gate.Gate, error) {
	chance := o.Rand
	if chance == nil {
		var seed [32]byte
		crand.Read(seed[:]) // documented never to fail
		chance = rand.NewChaCha8(seed)
	}
	sources, err := ruleSources(&o.Config)
	if err != nil {
		return nil, err
	}
	policies, err := o.Config.TLS.policies()
	if err != nil {
		return nil, fmt.Errorf("tls.hsts: %w", err)
	}
	proofs := 0
	if o.Config.Proof.Enabled {
		proofs = o.Config.Proof.Remembered
	}
	return gate.New(gate.Options{
		Sources: sources,
		Engine: admission.Config{
			Edge: o.Config.Name, DC: o.Config.DataCenter, Params: o.Params,
			Limits: admission.Limits{
				Held: o.Config.Held.Total, Recent: o.Config.Recent, Waiting: admission.DefaultLimits().Waiting,
			},
			Rand:   rand.New(chance),
			Past:   s.folder.Succeeds(s.log),
			Ended:  s.folder.Ended(s.log),
			Stores: true,
		},
		Proofs: proofs, ToTLS: o.Config.TLS.Redirect, HSTS: policies, HeldPerPrefix: o.Config.Held.Prefix,
		NewPerPrefix: o.Config.Waiting.Prefix, Clock: clock, Wake: s.up.wake, Finish: finish, StorePush: s.pushes.add, PushServices: o.Config.PushServices,
		Reg: o.Reg, Log: s.log,
	}), nil
}

// Run serves visitors until ctx ends. If the cause is [node.ErrTerminated], it first serves for drain_delay more
// while not ready. Then it ends event streams, answers requests in flight, cuts upgraded connections, gives its
// permits back and returns.
func (s *Server) Run(ctx context.Context) error {
	asked := ctx
	defer func() {
		if err := s.folder.Close(); err != nil {
			s.log.Warn("data_dir stays locked until this process ends", slog.Any("error", err))
		}
	}()
	defer s.proxy.transport.CloseIdleConnections()
	base, cut := context.WithCancel(context.Background())
	defer cut()
	servers, err := s.servers(base)
	if err != nil {
		return errors.Join(err, s.listeners.close())
	}
	cancel, err := s.bus.Subscribe(wire.GrantSubject(s.cfg.DataCenter, s.cfg.Name), s.up.onGrant)
	if err != nil {
		return errors.Join(err, s.listeners.close())
	}
	defer cancel()
	stopHanding, err := s.fleet.Hand(s.bus, node.Holder{DC: s.cfg.DataCenter, Name: s.cfg.Name, Edge: true},
		node.KeysDocument, node.RoomsDocument, node.ControlsDocument, node.DrawsDocument)
	if err != nil {
		return errors.Join(err, s.listeners.close())
	}
	defer stopHanding()
	g, ctx := errgroup.WithContext(ctx)
	serving, halt := context.WithCancel(context.Background()) // also while it drains
	defer halt()
	pumping, stopPump := context.WithCancel(context.Background())
	defer stopPump()
	var pumps sync.WaitGroup
	pumps.Go(func() { s.up.pump(pumping) })
	pumps.Go(func() { s.pushes.run(pumping) })
	pumps.Go(func() { s.up.keeper.run(pumping) })
	g.Go(func() error { return node.IgnoreEnd(serving, s.fleet.Run(serving)) })
	serve := func(run func(context.Context)) {
		g.Go(func() error {
			run(serving)
			return nil
		})
	}
	serve(func(ctx context.Context) { s.streams.hub.Run(ctx, s.gate.Message) })
	serve(s.monitor.Run)
	serve(func(ctx context.Context) {
		s.times.Run(ctx, func(now fleettime.Mono) (k fleettime.Known) {
			s.gate.Engine.With(func(_ fleettime.Mono, eng *admission.Engine) { k = eng.Clock.Known(now) })
			return k
		})
	})
	serve(s.front.Run)
	serve(s.up.certificates.Run)
	if s.secure != nil {
		serve(s.renewSessionKeys)
	}
	serve(func(ctx context.Context) { s.conns.watchMemory(ctx, newMemoryUse()) })
	var ends []cappedListener
	for i, srv := range servers {
		l := cappedListener{s.listeners[i], s.conns, s.proxies, &queued{closed: make(chan struct{})}}
		ends = append(ends, l)
		g.Go(func() error { return s.serve(srv, l) })
	}
	s.log.Info("edge up", slog.String("url", s.URL()))
	g.Go(func() error {
		<-ctx.Done()
		s.drain(asked)
		for _, l := range ends {
			l.Stop()
		}
		s.conns.settle()
		halt() // pages reconnect by themselves, to an edge that listens
		s.gate.Engine.Drain()
		s.shutDown(servers)
		cut()
		return nil
	})
	err = g.Wait()
	s.upgrades.Wait()
	s.conns.refusing.Wait()
	stopPump()
	pumps.Wait()
	s.up.sendFinalReport()
	return err
}

// drain gives balancers time to notice that this edge is not ready before its listeners close. Visitors are still
// served, and every answer ends its connection, so that the next request goes elsewhere.
func (s *Server) drain(asked context.Context) {
	s.draining.Store(true)
	s.gate.Engine.With(func(now fleettime.Mono, eng *admission.Engine) { eng.Leaving(now) })
	s.up.wake()
	delay := s.cfg.DrainDelay
	if delay == 0 || !errors.Is(context.Cause(asked), node.ErrTerminated) {
		return
	}
	s.log.Info("draining", slog.Duration("drain_delay", delay))
	<-s.after(delay)
}

// Status returns the state of the edge, for /status and metrics.
func (s *Server) Status() gate.Status { return s.gate.Status() }

// maxSkew is the largest plausible difference between the machine's clock and fleet time.
const maxSkew = 10 * time.Second

// twinAlarm is the alarm of an edge if another process reports under its name.
const twinAlarm = "another process reports under this edge's name: give every edge a name and a data_dir of its own; both are counted, as two edges"

// Ready reports whether visitors can be served here. An edge that is cut off from the regional stays ready: admitted
// visitors go on. An edge that never got the time is not ready, since it cannot give newcomers a place.
func (s *Server) Ready() node.Readiness {
	var st admission.Status
	s.gate.Engine.With(func(now fleettime.Mono, eng *admission.Engine) { st = eng.Status(now) })
	r := node.Readiness{Isolated: !st.Leased || !st.Sure, Alarms: s.fleet.Alarms(), Reasons: s.gate.Unready()}
	explained := false
	for _, why := range s.gate.Stops() {
		r.Add(why)
		switch why.Reason {
		case stop.Draining, stop.Unlisted: // below
		case stop.Uninitialized, stop.Copy:
			explained, r.Reasons = true, append(r.Reasons, why.Advice())
		default:
			if why.Operated() || len(r.Alarms) >= node.MaxStops {
				continue
			}
			text := why.Advice()
			if why.Room != "" {
				text = "room " + why.Room + ": " + text
			}
			r.Alarms = append(r.Alarms, text)
		}
	}
	if s.draining.Load() {
		r.Reasons = append(r.Reasons, "draining")
	}
	r.Alarms = append(r.Alarms, s.monitor.Alarms()...)
	if text := s.up.keeper.trouble.Load(); text != nil {
		r.Alarms = append(r.Alarms, *text)
	}
	if a := s.conns.alarm(time.Now()); a != "" {
		r.Alarms = append(r.Alarms, a)
	}
	if st.Twin {
		r.Alarms = append(r.Alarms, twinAlarm)
	}
	if st.Synced {
		if skew := st.Time.Sub(fleettime.TimeOf(time.Now())); skew > maxSkew || skew < -maxSkew {
			r.Reasons = append(r.Reasons, fmt.Sprintf("fleet time is %v from this machine's clock", skew))
		}
	}
	switch {
	case explained, st.Standing == wire.Listed:
	case st.Standing == wire.Draining:
		r.Alarms = append(r.Alarms, "the data centre is draining: no visitor is admitted here")
	default:
		r.Reasons = append(r.Reasons,
			fmt.Sprintf("data centre %s is not in the fleet's list, no visitor is admitted here: vestibule fleet add %s",
				s.cfg.DataCenter, s.cfg.DataCenter))
	}
	r.Ready = len(r.Reasons) == 0
	return r
}
