// Package gate decides about the requests of visitors, apart from any transport: it
// finds the rooms of a request, opens the tickets that it brings, asks the engine, and
// says whether the request goes to the site or what the visitor is answered. Fronts
// (net/http in package edge) turn what they read into a [Request], and do what the
// [Outcome] says.
//
// No decision waits for the network, but those of visitors who are held for a right:
// they wait for a grant, for at most the engine's patience.
//
// engine.mu guards the engine and nothing else; it is held for the time of one decision,
// report or grant, never across I/O.
package gate

import (
	crand "crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/sse"
	"vestibule/internal/node"
)

// Options are what a gate is made of.
type Options struct {
	Engine        admission.Config
	HeldPerPrefix int // requests held for one neighbourhood of addresses
	NewPerPrefix  int // visitors of one neighbourhood who are counted anew among those who wait, per minute
	Proofs        int // proofs for sites that are remembered; 0 where none are made
	Sources       Sources
	Clock         *node.Clock
	Wake          func()          // the engine has something to report; must not wait
	Finish        func(sse.Place) // who had this place waits no more; must not wait
	Reg           prometheus.Registerer
	Log           *slog.Logger
}

// Gate decides for one edge. It is safe for concurrent use.
type Gate struct {
	*engine            // what this edge counts and may let in
	tickets  *reader   // who a visitor is
	rulebook *rulebook // whom rules let past
	answers  *answers  // what visitors are told
	own      *ownPages // what the edge answers itself
	proofs   int       // Options.Proofs
	log      *slog.Logger

	rooms atomic.Pointer[snapshot]
	pool  sync.Pool // of *Outcome
}

// New returns a gate that knows no rooms yet: see [Gate.Use].
func New(o Options) (*Gate, error) {
	held, err := clientaddr.NewQuota(o.HeldPerPrefix)
	if err != nil {
		return nil, fmt.Errorf("held.per_prefix: %w", err)
	}
	counted, err := clientaddr.NewRate(o.NewPerPrefix)
	if err != nil {
		return nil, fmt.Errorf("waiting.per_prefix: %w", err)
	}
	m := newMetrics(o.Reg)
	e := &engine{params: o.Engine.Params, clock: o.Clock, wake: o.Wake, finish: o.Finish, metrics: m, held: held, counted: counted, core: admission.New(o.Engine)}
	g := &Gate{
		engine: e, tickets: &reader{e, &m.ticketCount}, rulebook: &rulebook{o.Sources, o.Clock, m, o.Log}, answers: &answers{engine: e}, proofs: o.Proofs, log: o.Log,
	}
	g.own = &ownPages{e, g.tickets, g.answers}
	g.pool.New = func() any {
		var seed [32]byte
		if _, err := crand.Read(seed[:]); err != nil {
			panic(err) // documented never to happen
		}
		return &Outcome{gate: g, tools: &tools{seals: ticket.NewScratch(seed)}}
	}
	g.rooms.Store(&snapshot{})
	now, wall := e.clock.Read()
	e.core.Guess(now, fleettime.TimeOf(wall))
	o.Reg.MustRegister(newCollector(g))
	return g, nil
}

// Use takes over the rooms, keys and pages that f was told.
func (g *Gate) Use(f *node.Fleet) {
	next := newSnapshot(f, g.metrics, g.rooms.Load(), g.log)
	next.takeProofs(g.rooms.Load(), g.proofs, g.log)
	g.rulebook.take(next, g.rooms.Load())
	rooms := make([]admission.Room, len(next.rooms))
	for i, r := range next.rooms {
		rooms[i] = admission.RoomOf(r.Room)
	}
	g.rooms.Store(next)
	g.mu.Lock()
	g.core.SetRooms(g.clock.Now(), rooms)
	g.mu.Unlock()
	g.Pause()
}

// Pause tells the engine which rooms let nobody in because their origin is down.
func (g *Gate) Pause() {
	g.With(func(now fleettime.Mono, eng *admission.Engine) {
		for _, rm := range g.rooms.Load().rooms {
			eng.Pause(now, rm.ID, rm.origin.Down())
		}
	})
	g.wake()
}

// Unready returns why nobody can be decided about here, nil where everybody can.
func (g *Gate) Unready() []string {
	var reasons []string
	rooms := g.rooms.Load()
	if rooms.set == nil {
		reasons = append(reasons, "no room set yet")
	}
	if !rooms.keys {
		reasons = append(reasons, "no keys yet")
	}
	if !g.told.Load() {
		reasons = append(reasons, "fleet time was never told: no place can be kept")
	}
	if !rooms.ready && len(reasons) == 0 {
		reasons = append(reasons, "keys cannot be used")
	}
	return reasons
}

// Message returns what everybody who waits in a room is to be told now; ok is false
// once the room is gone, or all places in its line are void.
func (g *Gate) Message(id room.ID, epoch uint32) (msg []byte, ok bool) {
	r := g.Rooms().ByID(id)
	if r == nil || r.Epoch != epoch {
		return nil, false
	}
	return g.message(r), true
}

// Status is the state of the gate, for /status and metrics.
type Status struct {
	admission.Status
	LeaseRemaining time.Duration
	TimeError      time.Duration
	SyncAge        time.Duration // since the newest grant; since the start before the first
	Rooms          map[string]admission.Ledger
}

// statusChunk is how many rooms are looked at in one go.
const statusChunk = 256

// Status returns the state of the gate.
func (g *Gate) Status() Status {
	all := g.rooms.Load().rooms
	st := Status{Rooms: make(map[string]admission.Ledger, len(all))}
	for rooms := range slices.Chunk(all, statusChunk) { // visitors are waiting for the lock
		g.With(func(now fleettime.Mono, eng *admission.Engine) {
			for _, r := range rooms {
				st.Rooms[r.Name] = eng.Ledger(now, r.ID)
			}
		})
	}
	g.With(func(now fleettime.Mono, eng *admission.Engine) {
		st.Status, st.TimeError = eng.Status(now), eng.TimeBound(now)
		if st.Leased {
			st.LeaseRemaining = st.LeaseEnd.Sub(now)
		}
		st.SyncAge = now.Sub(g.LastGrant())
	})
	return st
}

// Count counts a request that no room decides. why is one of those that the metric knows.
func (g *Gate) Count(why string) { g.metrics.count(why) }

// Rooms returns the rooms that requests are decided by, nil before there are any.
func (g *Gate) Rooms() *room.Set { return g.rooms.Load().set }

// Policies returns how many rooms have each policy of isolation.
func (g *Gate) Policies() map[string]int {
	policies := map[string]int{}
	for _, r := range g.rooms.Load().rooms {
		policies[r.OnIsolation]++
	}
	return policies
}
