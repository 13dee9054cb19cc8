package wire

import (
	"slices"

	"vestibule/internal/core/room"
)

// Durable is what an aggregator's successor must know: whom the data centre
// has promised to follow, and which edges may still hold sessions that only
// their own reports can account for. It is stored before anything is done that
// relies on it. A Durable that was handed out is never changed, nor is any room
// of its roster.
type Durable struct {
	Version uint64 // grows with every change within a term
	Promise Term
	Life    uint32        // seconds: the longest life of a ticket that an edge may have stamped and that may not be over
	Roster  []RosterEntry // by name and incarnation

	Members uint64 // newest version of the list of data centres that was known
	Site    uint64 // tells this data centre from others of its name; 0 before it is made

	// HoldUntil is the Unix second of fleet time up to which nothing is freed,
	// because nobody knew fleet time and this one was a guess; 0 for none.
	HoldUntil int64

	// MovedIn is a Unix second after which no ticket of another data centre is valid whose session
	// moved here; 0 where that is not known.
	MovedIn int64

	Unknown []byte // fields of a newer version, kept when it is written again
}

// RosterEntry is one incarnation of an edge.
type RosterEntry struct {
	Edge   string
	Inc    uint64
	Tenure uint64
	Dead   bool         // nothing more will come of it than is written here
	Rooms  []RosterRoom // of a dead one

	Left   bool       // a dead one that said goodbye: its numbers are exact
	Leased int64      // Unix second after which it certainly had no lease; 0 where that is not known
	Until  int64      // Unix second after which no ticket that it stamped under a lease is valid; 0 where that is not known
	Ended  int64      // Unix second by which its process had certainly ended; 0 where that is not known
	Waited uint32     // seconds of its silence in which other edges were heard
	Gone   []GoneEdge // of the entry called Gone: whose sessions are summed in it

	Unknown []byte
}

// Keep takes over what only a newer release knows of the same incarnation.
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

// GoneEdge is an incarnation whose sessions were added to those of others that are
// gone.
type GoneEdge struct {
	Edge  string
	Inc   uint64
	Until int64 // Unix second after which none of its sessions is valid
}

// Names on a roster that no edge can have.
const (
	// Gone is the entry of edges that are gone for good: the sum of their sessions.
	Gone = "(gone)"

	// UnknownPast stands for edges that there may have been.
	UnknownPast = "(unknown past)"
)

// RosterRoom is what a dead incarnation left behind in one room.
type RosterRoom struct {
	Room          room.ID
	Sessions      []Expiry
	Presumed      int64 // sessions, counted until PresumedUntil
	PresumedUntil int64 // Unix second
	Silent        bool  // the edge may still be renewing them: they do not age
	PresumedRate  int64 // rights of R that it may have used in its last 60 s
	RateUntil     int64 // Unix second after which none of those counts; 0 where that is not known

	// Rates are those of PresumedRate of which it is known when they end; at most MaxRates.
	Rates []RosterRate

	Unknown []byte
}

// RosterRate are rights of R that count until a Unix second.
type RosterRate struct{ Until, N int64 }

// MaxRates bounds RosterRoom.Rates.
const MaxRates = 64

// Clone returns a copy whose roster may be changed.
func (d Durable) Clone() Durable {
	d.Roster = slices.Clone(d.Roster)
	return d
}

// LoseTrack puts the unknown past on the roster: part of what was stored is lost.
func (d *Durable) LoseTrack() {
	d.Version = max(d.Version, 1)
	// One that is there was perhaps waited for already.
	d.Roster = slices.DeleteFunc(slices.Clone(d.Roster), func(r RosterEntry) bool { return r.Edge == UnknownPast })
	d.Roster = append(d.Roster, RosterEntry{Edge: UnknownPast})
}
