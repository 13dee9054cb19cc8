package wire

import (
	"slices"

	"vestibule/internal/room"
)

// Durable is what an aggregator's successor must know: whom the data centre
// has promised to follow, and which edges may still hold sessions that only
// their own reports can account for. It is stored before anything is done that
// relies on it. A Durable that was handed out is never changed.
type Durable struct {
	Version uint64 // grows with every change within a term
	Promise Term
	Life    uint32        // seconds: the longest life of a ticket that an edge may have stamped and that may not be over
	Roster  []RosterEntry // by name and incarnation

	// Members is the newest version of the list of data centres that was known;
	// Changed says that it is not what every configuration of global lists, so
	// that a leader who tells no version is not to be followed.
	Members uint64
	Changed bool
}

// RosterEntry is one incarnation of an edge.
type RosterEntry struct {
	Edge   string
	Inc    uint64
	Tenure uint64
	Dead   bool         // nothing more will come of it than is written here
	Rooms  []RosterRoom // of a dead one
}

// RosterRoom is what a dead incarnation left behind in one room.
type RosterRoom struct {
	Room         room.ID
	Sessions     []Expiry
	Phantom      int64 // sessions presumed, counted until PhantomUntil
	PhantomUntil int64 // Unix second
	Silent       bool  // the edge may still be renewing them: they do not age
	RatePhantom  int64 // rights of R that it may have used in its last 60 s
}

// Clone returns a copy whose roster may be changed.
func (d Durable) Clone() Durable {
	d.Roster = slices.Clone(d.Roster)
	return d
}
