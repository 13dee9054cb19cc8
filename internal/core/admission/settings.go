package admission

import (
	"math/rand/v2"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// Limits bound the memory of an engine. The zero value holds and remembers nothing.
type Limits struct {
	Held    int // open held requests per room
	Recent  int // tickets per room with a remembered stamp
	Waiting int // departed visitors per room, remembered for a minute
}

// DefaultLimits returns limits for an edge with a few hundred MB.
func DefaultLimits() Limits { return Limits{Held: 4096, Recent: 1 << 16, Waiting: 1 << 16} }

// Config is the configuration of an engine.
type Config struct {
	Edge   string // name of the edge, unique in the data centre
	DC     string // data centre
	Params wire.Params
	Limits Limits
	Past   []uint64 // ended instance IDs, see fleettime.Lives
	Ended  Ended    // sessions revoked under an earlier process
	Stores bool     // the shell writes snapshots: see Snapshots.Begin

	// Traffic adds the counts of a room that the shell has, for a report; nil for none.
	Traffic func(id room.ID, to history.Counts)

	Rand *rand.Rand // instance IDs, ticket IDs and jitter: seeded unpredictably in production
}

// Ended are revoked sessions by room, for the data folder. Losing some costs capacity but not safety: a new
// regional counts these sessions again until their tickets expire.
type Ended map[room.ID][]wire.End

// Room is the part of a room's settings that the engine uses.
type Room struct {
	ID    room.ID
	gone  bool // not in the room set: no admissions, permits are returned
	Epoch uint32
	Cap   bool // partition_policy cap: no renewals without a lease

	Session        time.Duration // session_duration, for sessions without a permit and for those that are not renewed
	NoRenewal      bool          // a session ends Session after its admission
	Shut           Reason        // QueuedAll or Rejected: no admissions; None: as the ledger allows
	Gather         []Span        // intervals before events without admissions, by the engine's clock
	Drawn          *draw.Record  // the newest draw, which moves visitors that joined before its close; or nil
	Draw           *draw.Notice  // of the event that visitors gather for; or nil
	OnIsolation    string        // one of room.Isolation…; "" holds
	IsolationLimit int           // admissions per isolation if OnIsolation is open

	// Probation is the ticket life after an admission, in whole seconds. The second request extends it to the full
	// session. 0 gives the full life at once.
	Probation time.Duration

	// Grace is how long an absent waiting visitor keeps the place; 0 means room.DefaultGrace. A visitor is absent a
	// minute after its last request.
	Grace time.Duration

	// Claim is how long a visitor whose place is Kept may come after the call; 0 means that no place is kept.
	Claim time.Duration
}

// Span is a time interval without Until.
type Span struct{ From, Until fleettime.Time }

// RoomOf returns the engine's settings of r.
func RoomOf(r *room.Room) Room {
	out := Room{
		ID: r.ID, Epoch: r.Epoch, Cap: r.PartitionPolicy == room.PolicyCap,
		Probation: r.Probation, Grace: r.Grace, Claim: claimOf(r), Session: r.SessionDuration, OnIsolation: r.OnIsolation,
		IsolationLimit: r.IsolationLimit, NoRenewal: r.NoRenewal, Drawn: r.Drawn.Drawn(), Draw: r.Draw,
	}
	switch r.State() {
	case room.QueuedAll:
		out.Shut = QueuedAll
	case room.Rejecting:
		out.Shut = Rejected
	case room.Admitting:
	}
	for _, span := range r.Plan.Gathers() {
		out.Gather = append(out.Gather, Span{fleettime.Time(span[0]), fleettime.Time(span[1])})
	}
	return out
}

// claimOf returns the claim time of a room, 0 for none.
func claimOf(r *room.Room) time.Duration {
	if !r.Notifies() {
		return 0
	}
	return r.Claim
}

// shut returns why an operator or an event stops admissions, or None. Event times are compared with both ends of
// the clock uncertainty, so that no edge is early.
func (r *Room) shut(m moment) Reason {
	if r.queuedAll() {
		return QueuedAll
	}
	bound := min(m.bound, fleettime.Rough) // no edge with a larger uncertainty has permits
	for _, s := range r.Gather {
		if m.time.Add(bound) >= s.From && m.time.Add(-bound) < s.Until {
			return Gathering
		}
	}
	return r.Shut
}

// queuedAll reports whether only passes admit visitors.
func (r *Room) queuedAll() bool { return r.Shut == QueuedAll }

// upTo returns the admission cutoff.
func (r *Room) upTo(view *wire.View) fleettime.Time {
	if r.queuedAll() {
		if view == nil {
			return 0
		}
		return view.Called
	}
	return cutoff(view)
}

// lastCalled returns the turn up to which held visitors can use a permit: in a random room that of the last called
// one. A visitor that is held and not called must not count as one that was called.
func (r *Room) lastCalled(view *wire.View) fleettime.Time {
	if view == nil || len(view.Rounds) == 0 || r.queuedAll() {
		return estimate.Open
	}
	return view.Rounds.Called()
}

// turn returns the place that decides when a waiting visitor is called: its own or, in a random room, that of a
// round. Passes of a paused room use the own place.
func (r *Room) turn(view *wire.View, t *ticket.Ticket) fleettime.Time {
	if view == nil || len(view.Rounds) == 0 || r.queuedAll() {
		return t.Place()
	}
	return view.Rounds.Place(t.ID, t.Place())
}

// gathersUntil returns the end of the current or next interval in which visitors gather; 0 if there is none.
func (r *Room) gathersUntil(ft fleettime.Time) fleettime.Time {
	for _, s := range r.Gather {
		if ft < s.Until {
			return s.Until
		}
	}
	return 0
}

// gathersAt reports whether visitors gather at ft.
func (r *Room) gathersAt(ft fleettime.Time) bool {
	for _, s := range r.Gather {
		if s.From <= ft && ft < s.Until {
			return true
		}
	}
	return false
}

// cutoff returns the admission cutoff of a view.
func cutoff(v *wire.View) fleettime.Time {
	if v == nil {
		return estimate.Open
	}
	return v.Cutoff
}
