package wire

import (
	"slices"

	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
)

// Durable is the state that an aggregator's successor needs: the parent that the data centre has promised to follow,
// and the edges that may hold sessions only they can report. It is stored before any action that relies on it. A
// Durable and the rooms of its roster are immutable once returned.
type Durable struct {
	Version uint64 // grows with every change within a term
	Promise Term
	Life    uint32        // seconds: the longest life of a ticket that may have been stamped and may still be valid
	Roster  []RosterEntry // sorted by name and instance ID

	Members uint64 // newest known version of the membership list

	// Membership is the one under which the ledger was adopted; 0 for unknown. It is read as unknown if a release wrote the
	// Durable that does not know the field.
	Membership Membership

	ClusterID uint64 // cluster ID: tells this data centre from others of its name; 0 before it is made

	// HoldUntil is the Unix second of fleet time until which no permit is freed, because this data centre's fleet time
	// is a guess; 0 for none.
	HoldUntil int64

	// MovedIn is a Unix second after which no ticket of another data centre is valid whose session moved here; 0 for
	// unknown.
	MovedIn int64

	// Rooms are the rooms by ID. They are read as none if a release wrote the Durable that does not know the field.
	Rooms []StoredRoom

	// FloorsUntil is the Unix second of fleet time until which the floors of Rooms bind global: before, it voids no
	// allocation. 0 for no longer.
	FloorsUntil int64

	// Ceilings are the edges whose ceilings Rooms have, sorted by name and instance ID: a successor counts so many
	// sessions and permits of R for one that it does not hear. It relies on them before the Unix second of fleet time
	// CeilingsUntil; 0 for no longer.
	Ceilings      []CeilingEdge
	CeilingsUntil int64

	Unknown []byte // fields of a newer version, preserved on rewrite
}

// StoredRoom is the part of one room that a successor needs.
type StoredRoom struct {
	Room  room.ID
	Bound PermitCounts // see RoomGrant.Bound; 0 for unknown
	Floor PermitCounts // the data centre holds at least these, until a lower floor is stored

	// Ceilings are, by Durable.Ceilings: the edge can have no more sessions or permits of R, until higher ones are stored.
	Ceilings []PermitCounts
}

// CeilingEdge is an instance of an edge with ceilings. The zero value stands for one that has none any more.
type CeilingEdge struct {
	Edge     string
	Instance uint64
}

// RosterEntry is one instance of an edge.
type RosterEntry struct {
	Edge       string
	Instance   uint64
	LeaseEpoch uint64
	Dead       bool         // the entry is final
	Rooms      []RosterRoom // of a dead instance

	Left   bool       // a dead instance that said goodbye: its numbers are exact
	Leased int64      // Unix second after which it certainly had no lease; 0 for unknown
	Until  int64      // Unix second after which no ticket stamped under its lease is valid; 0 for unknown
	Ended  int64      // Unix second by which its process had certainly ended; 0 for unknown
	Stored uint64     // newest known Report.Stored; 0 if the edge's data folder settles nothing
	Waited uint32     // seconds of its silence in which other edges reported
	Gone   []GoneEdge // of the entry Gone: the instances summed in it

	Unknown []byte
}

// Keep copies the unknown fields of the same instance, written by a newer release.
func (e *RosterEntry) Keep(old *RosterEntry) {
	e.Unknown = old.Unknown
	known := map[room.ID][]byte{}
	for i := range old.Rooms {
		if u := old.Rooms[i].Unknown; u != nil {
			known[old.Rooms[i].Room] = u
		}
	}
	for i := range e.Rooms {
		e.Rooms[i].Unknown = known[e.Rooms[i].Room]
	}
}

// GoneEdge is an instance: its sessions were added to those of other dead instances.
type GoneEdge struct {
	Edge     string
	Instance uint64
	Until    int64 // Unix second after which none of its sessions is valid
}

// Reserved roster names, invalid for an edge.
const (
	// Gone is the entry of edges that are gone for good: the sum of their sessions.
	Gone = "(gone)"

	// UnknownPast stands for edges that may have existed.
	UnknownPast = stop.UnknownEdge
)

// RosterRoom is the state that a dead instance left in one room.
type RosterRoom struct {
	Room          room.ID
	Sessions      []Expiry
	Reserved      int64 // reserved sessions, counted until ReservedUntil
	ReservedUntil int64 // Unix second
	Silent        bool  // the edge may still renew them: they do not age
	ReservedRate  int64 // permits of R possibly used in its last 60 s
	RateUntil     int64 // Unix second after which none of them counts; 0 for unknown

	// Rates are those of ReservedRate with a known end; at most MaxRates.
	Rates []RosterRate

	// Left are the sessions that left the data centre, or may have: no edge renews their old tickets. Only the entry of the
	// data centre's moves has them; at most MaxLeft.
	Left []Stay

	Unknown []byte
}

// RosterRate is a number of permits of R that count until a Unix second.
type RosterRate struct{ Until, N int64 }

// Bounds of RosterRoom.
const (
	MaxRates = 64
	MaxLeft  = 1 << 14 // so that a section has space for them
)

// Clone returns a copy with a roster that may be changed.
func (d Durable) Clone() Durable {
	d.Roster = slices.Clone(d.Roster)
	return d
}

// LoseTrack puts the unknown past on the roster, because part of the stored state is lost.
func (d *Durable) LoseTrack() {
	d.Version = max(d.Version, 1)
	d.FloorsUntil = 0
	d.Ceilings, d.CeilingsUntil = nil, 0
	d.Rooms = slices.Clone(d.Rooms)
	for i := range d.Rooms {
		d.Rooms[i].Ceilings = nil
	}
	// An existing entry may have been waited for already.
	d.Roster = slices.DeleteFunc(slices.Clone(d.Roster), func(r RosterEntry) bool { return r.Edge == UnknownPast })
	d.Roster = append(d.Roster, RosterEntry{Edge: UnknownPast})
}
