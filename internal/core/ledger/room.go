package ledger

import (
	"math"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// RoomConfig has the settings of a room that the ledger needs.
type RoomConfig struct {
	ID       room.ID
	Total    uint64        // T
	Rate     uint64        // R
	Session  time.Duration // session_duration
	Cap      bool          // partition_policy cap
	LostWait time.Duration // lost_after

	Unbound bool // queueing_method passthrough: sessions and admissions are counted, and no limit binds
	Random  bool // queueing_method random: visitors are called by chance
	Shut    bool // nobody is admitted, or visitors may be gathering for an event: only a release calls visitors

	Release Release // the newest of a room that is paused

	Coming []Change // of the limits by events, in order; none during an event
}

// Change is a later change of T and R, such as the start of an event. If one is 0, nobody enters from then on.
type Change struct {
	At          fleettime.Time
	Total, Rate uint64
}

// ConfigOf returns the settings of r that the ledger needs.
func ConfigOf(r *room.Room) RoomConfig {
	shut := r.Closed || r.State() != room.Admitting
	c := RoomConfig{
		ID: r.ID, Total: uint64(r.TotalActiveUsers), Rate: uint64(r.NewUsersPerMinute), Session: r.SessionDuration,
		Cap: r.PartitionPolicy == room.PolicyCap, LostWait: r.LostAfter,
		Unbound: r.QueueingMethod == room.MethodPassthrough && !shut, Shut: shut,
		Random: r.QueueingMethod == room.MethodRandom,
	}
	if k := r.Control; k != nil && k.Pause != nil && k.Pause.Release != nil {
		c.Release = releaseOf(k.Pause.Release)
	}
	if !shut && r.Phase.Kind == room.Base && (r.Control == nil || r.Control.Limits == nil) { // limits for now override events
		c.Coming = coming(r)
	}
	return c
}

// coming returns the changes of the limits of a room without an event in force.
func coming(r *room.Room) (changes []Change) {
	for _, phase := range r.Plan[min(1, len(r.Plan)):] {
		in := r.In(phase)
		next := Change{fleettime.Time(phase.From), uint64(in.TotalActiveUsers), uint64(in.NewUsersPerMinute)}
		switch {
		case phase.Kind == room.Prequeue, in.QueueingMethod == room.MethodReject:
			next.Total, next.Rate = 0, 0
		case in.QueueingMethod == room.MethodPassthrough:
			next.Total, next.Rate = math.MaxInt32, math.MaxInt32
		}
		changes = append(changes, next)
	}
	return changes
}

// Release is "let in the next N" as the store holds it.
type Release struct {
	ID     uint64    // a later one has a higher number; 0 for none
	N      uint64    // people
	Lender wire.Term // the coordinator that lends it; the zero Term before one does
}

func releaseOf(r *room.Release) Release {
	out := Release{ID: r.ID, N: uint64(r.N)}
	if l := r.Lender; l != nil {
		out.Lender = wire.Term{N: l.Term, Nonce: l.Nonce}
	}
	return out
}
