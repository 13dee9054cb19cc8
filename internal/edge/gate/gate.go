// Package gate decides about the requests of visitors, independent of the transport. It finds the rooms of a
// request, opens its tickets, asks the admission engine, and returns whether the request goes to the site or how to
// answer it. HTTP servers build a [Request] and execute the [Outcome].
//
// Decisions do not wait for the network, except for visitors held for a permit: they wait for a grant, up to the
// engine's limit.
//
// engine.mu guards the admission engine only. It is held for one decision, report or grant, never across I/O.
package gate

import (
	crand "crypto/rand"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/push"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/sse"
	"vestibule/internal/node"
	"vestibule/internal/page"
)

// Options configure a gate.
type Options struct {
	Engine        admission.Config
	HeldPerPrefix int               // held requests per address prefix
	NewPerPrefix  int               // visitors counted anew as waiting, per address prefix and minute
	Proofs        int               // cached proofs for sites; 0 disables proofs
	ToTLS         bool              // redirect requests without TLS
	HSTS          map[string]string // Strict-Transport-Security by host
	Sources       Sources
	Clock         *node.Clock
	Wake          func()        // called if a report is due; must not block
	PushServices  push.Services // that visitors may subscribe with

	// StorePush stores the state of a subscription for a visitor from a prefix, without blocking; false if it cannot. nil
	// for no notifications.
	StorePush func(id room.ID, visitor uint64, from netip.Prefix, record []byte) bool
	Finish    func(sse.Place) // called when a place stops waiting; must not block
	Reg       prometheus.Registerer
	Log       *slog.Logger
}

// Gate decides for one edge. It is safe for concurrent use.
type Gate struct {
	Engine   *engine           // counts and permits of this edge
	tickets  *reader           // tickets of requests
	rulebook *rulebook         // rules that bypass rooms
	answers  *answers          // responses to visitors
	own      *ownPages         // the edge's own pages
	Asks     *Asks             // preflights
	proofs   int               // Options.Proofs
	toTLS    bool              // Options.ToTLS
	hsts     map[string]string // Options.HSTS
	loops    loopLog
	covers   func(serverName, host string) bool
	log      *slog.Logger

	warned sync.Once // of X-Forwarded-For

	rooms atomic.Pointer[snapshot]
	pool  sync.Pool // of *Outcome
}

// New returns a gate without rooms: see [Gate.Use].
func New(o Options) *Gate {
	m := newMetrics(o.Reg)
	o.Engine.Traffic = m.traffics.addTo
	e := &engine{
		params: o.Engine.Params, clock: o.Clock, wake: o.Wake, finish: o.Finish, metrics: m,
		begun: o.Clock.Now(),
		held:  clientaddr.NewQuota(o.HeldPerPrefix), counted: clientaddr.NewRate(o.NewPerPrefix),
		core: admission.New(o.Engine),
	}
	g := &Gate{
		Engine: e, tickets: &reader{e, &m.ticketCount}, rulebook: &rulebook{o.Sources, o.Clock, m, o.Log},
		answers: &answers{engine: e}, Asks: NewAsks(), proofs: o.Proofs, toTLS: o.ToTLS, hsts: o.HSTS, log: o.Log,
	}
	g.own = &ownPages{e, g.tickets, g.answers, o.PushServices, o.StorePush}
	g.pool.New = func() any {
		var seed [32]byte
		crand.Read(seed[:]) // documented never to fail
		return &Outcome{gate: g, issued: issued{engine: e, seals: ticket.NewScratch(seed)}, tools: &tools{}}
	}
	g.rooms.Store(&snapshot{})
	now, wall := e.clock.Read()
	e.core.Clock.Guess(now, fleettime.TimeOf(wall))
	o.Reg.MustRegister(newCollector(g))
	return g
}

// ServeCertificates sets what tells whether the certificate shown for a server name is for a host. It is called before
// the first request with TLS of this edge's own.
func (g *Gate) ServeCertificates(covers func(serverName, host string) bool) { g.covers = covers }

// Use switches to the rooms, keys and pages of f.
func (g *Gate) Use(f *node.Fleet) {
	next := newSnapshot(f, g.Engine.metrics, g.rooms.Load(), g.log)
	next.takeProofs(g.rooms.Load(), g.proofs, g.log)
	g.rulebook.compileAll(next, g.rooms.Load())
	rooms := make([]admission.Room, len(next.rooms))
	for i, r := range next.rooms {
		rooms[i] = admission.RoomOf(r.Room)
	}
	g.rooms.Store(next)
	g.Engine.With(func(now fleettime.Mono, eng *admission.Engine) { eng.SetRooms(now, rooms) })
	g.Pause()
}

// Pause stops admissions to the rooms with a failed origin.
func (g *Gate) Pause() {
	g.Engine.With(func(now fleettime.Mono, eng *admission.Engine) {
		for _, rm := range g.rooms.Load().rooms {
			eng.Rooms.Pause(now, rm.ID, rm.origin.Down())
		}
	})
	g.Engine.wake()
}

// countUnread counts a request whose proxy does not tell the visitor's address, and warns the first time.
func (g *Gate) countUnread(r *Request) {
	g.Engine.metrics.unread.Inc()
	g.warned.Do(func() {
		text := strings.Join(r.Unread, ", ")
		g.log.Warn("X-Forwarded-For of a trusted proxy cannot be read: all its visitors share one address, and with it the bounds by address",
			slog.String("x_forwarded_for", text[:min(len(text), 100)]), slog.String("address", clientaddr.Text(r.Client)))
	})
}

// Decides reports whether the gate has rooms and keys. Else it refuses every request.
func (g *Gate) Decides() bool { return g.rooms.Load().ready }

// Unready returns why the gate cannot decide, or nil.
func (g *Gate) Unready() []string {
	var reasons []string
	rooms := g.rooms.Load()
	if rooms.set == nil {
		reasons = append(reasons, "no room set yet")
	}
	if !rooms.keys {
		reasons = append(reasons, "no keys yet")
	}
	if !g.Engine.TimeKnown.Load() {
		reasons = append(reasons, "fleet time is unknown: no place can be kept")
	}
	if !rooms.ready && len(reasons) == 0 {
		reasons = append(reasons, "keys cannot be used")
	}
	return reasons
}

// changedFor is how long every stream gets every message after a change of the limits: forecasts change for all.
const changedFor = 10 * time.Second

// Message returns the current broadcast of a room. ok is false if the room is gone, or all its places are void.
func (g *Gate) Message(id room.ID, epoch uint32) (m sse.Message, ok bool) {
	r := g.Rooms().ByID(id)
	if r == nil || r.Epoch != epoch {
		return sse.Message{}, false
	}
	var st admission.Status
	var l admission.Ledger
	var outage admission.Reason
	g.Engine.With(func(now fleettime.Mono, eng *admission.Engine) {
		st, l, outage = eng.Status(now), eng.Ledger(now, r.ID), eng.Rooms.Outage(now, r.ID)
	})
	state := r.State()
	b := &page.Broadcast{Now: st.Time, View: l.View, Counting: l.Partial}
	b.Closed = state == room.Rejecting
	if ev := eventOf(r, st.Time); ev.Prequeue && state != room.QueuedAll {
		b.Starts = ev.Start
		if ev.Draw.Drawn {
			b.Drawn = ev.Draw.Closes
		}
		if ev.Draw.Drawn && st.Time >= ev.Draw.Counted {
			b.Entrants = ev.Draw.Entrants
		}
	}
	if b.PausedBy = page.PausedBy(outage); state == room.QueuedAll {
		b.PausedBy = page.PausedByOperator
	}
	m = sse.Message{Text: page.AppendBroadcast(nil, b), Far: estimate.Open}
	if v := l.View; v != nil && r.Draw == nil && len(v.Rounds) == 0 && st.Time.Sub(v.Changed) > changedFor {
		m.Far = max(v.Cutoff, v.Park)
	}
	return m, true
}

// Status is the state of the gate, for /status and metrics.
type Status struct {
	admission.Status
	LeaseRemaining time.Duration               `json:"lease_remaining_seconds"`
	TimeError      time.Duration               `json:"time_error_seconds"`
	SyncAge        time.Duration               `json:"sync_age_seconds"` // since the newest grant; before the first, since the start
	Rooms          map[string]admission.Ledger `json:"rooms"`
}

// statusChunk is how many rooms are read under one lock.
const statusChunk = 256

// Status returns the state of the gate.
func (g *Gate) Status() Status {
	all := g.rooms.Load().rooms
	st := Status{Rooms: make(map[string]admission.Ledger, len(all))}
	for rooms := range slices.Chunk(all, statusChunk) { // let visitors take the lock in between
		g.Engine.With(func(now fleettime.Mono, eng *admission.Engine) {
			for _, r := range rooms {
				st.Rooms[r.Name] = eng.Ledger(now, r.ID)
			}
		})
	}
	g.Engine.With(func(now fleettime.Mono, eng *admission.Engine) {
		st.Status, st.TimeError = eng.Status(now), eng.Clock.Bound(now)
		if st.Leased {
			st.LeaseRemaining = st.LeaseEnd.Sub(now)
		}
		st.SyncAge = now.Sub(g.Engine.LastGrant())
	})
	return st
}

// Stops returns why nobody enters here: for all rooms, or for those that have a reason of their own.
func (g *Gate) Stops() (out []stop.Stop) {
	rooms := g.rooms.Load()
	all := stop.Stop{}
	g.Engine.With(func(fleettime.Mono, *admission.Engine) {
		if g.Engine.above.Reason == stop.Uninitialized { // also without rooms
			all = g.Engine.above
		}
	})
	fresh := !all.OK()
	for some := range slices.Chunk(rooms.rooms, statusChunk) { // let visitors take the lock in between
		g.Engine.With(func(now fleettime.Mono, eng *admission.Engine) {
			ft := eng.Clock.Time(now)
			for _, r := range some {
				s := stop.Of(&r.Settings, r.Control, r.Phase, ft)
				if s.OK() {
					s = eng.Rooms.Stop(now, r.ID)
				}
				copied := s.Reason == stop.Unlisted && g.Engine.above.Reason == stop.Copy // the regional knows better than its grants
				if (s.OK() || s.Reason == stop.Full || copied || fresh && !s.Operated()) && !g.Engine.above.OK() {
					s = g.Engine.above
				}
				switch {
				case s.OK() || r.Suspended || r.QueueingMethod == room.MethodPassthrough && s.Reason == stop.Full:
				case s.Operated() || s.Reason == stop.SiteDown:
					s.Room = r.Name
					out = append(out, s)
				default:
					all = s
				}
			}
		})
	}
	if !all.OK() {
		out = append([]stop.Stop{all}, out...)
	}
	return out
}

// Count counts a request that no room decides. why is a label of the metric.
func (g *Gate) Count(why string) { g.Engine.metrics.count(why) }

// Rooms returns the current rooms, or nil before the first.
func (g *Gate) Rooms() *room.Set { return g.rooms.Load().set }

// Policies returns the number of rooms by isolation policy.
func (g *Gate) Policies() map[string]int {
	policies := map[string]int{}
	for _, r := range g.rooms.Load().rooms {
		policies[r.OnIsolation]++
	}
	return policies
}
