// Package wire is what nodes say to each other: a child sends a [Report] up,
// a parent sends a [Grant] down, and nothing else exists.
//
// Both carry state, never changes: every number in them is cumulative, so a
// message that is lost, doubled, late or out of order does no harm. The newest
// message supersedes all others, and a room that has not changed since the
// other side acknowledged it is left out. The counters of
// an [Allocation] have exactly one writer and only grow.
//
// The structs here are what the cores work with; their encoding is versioned
// protobuf (see Encode and Decode). The one knob is [MaxMessage].
package wire

import (
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/ticket/reuse"
)

// Version is the protocol's version. A message of another version is refused;
// within a version fields are only added.
const Version = 1

// Term is a parent's fencing number. A higher N wins; an equal N with another
// nonce is another parent whose store lost its memory, and is refused.
type Term struct {
	N     uint64
	Nonce uint64
}

// Zero reports whether the term names no parent.
func (t Term) Zero() bool { return t == Term{} }

// Fences reports whether who leads under o must stop once somebody follows t: t is higher, or
// another one that was won with the same number.
func (t Term) Fences(o Term) bool { return t.N > o.N || (t.N == o.N && t != o) }

// Report is what a child says to its parent: an edge to its regional, a
// regional to global.
type Report struct {
	From      string         // name of the edge or of the data centre
	Inc       uint64         // incarnation: new with every start of the process
	Tenure    uint64         // lease tenure within the incarnation; 0 before the first
	Seq       uint64         // grows with every report of the incarnation
	Part      uint32         // this message's place among those of the same Seq, from 0
	Parts     uint32         // how many messages carry this Seq
	Sent      fleettime.Mono // the child's monotonic clock at sending: echoed, never compared
	AsOf      fleettime.Time // the child's fleet time, read after everything that is reported; 0 where it knows none
	AsOfBound time.Duration  // what it may be wrong by
	Seen      Term           // the parent that the child has promised to follow
	Acked     uint64         // newest Grant.Seq of that parent that was applied
	Join      bool           // complete state for a parent that has not adopted the child
	Final     bool           // edges: the lease has lapsed, nothing is admitted under this tenure any more
	Bye       bool           // edges: the process ends; implies Final
	Leaving   bool           // the process was told to end, and goes on for a while
	Blank     bool           // regionals: the books were lost with a predecessor; the numbers of T and R in Rooms mean nothing
	Rooms     []RoomReport

	// CountsSince is since when those who wait have been counted by every process below that counts any; 0 for
	// unknown. Whoever was counted last before that is in no count.
	CountsSince fleettime.Time

	// Recovering says that edges of a predecessor are still awaited (regionals):
	// whatever is lent now lies unused until they are heard or given up.
	Recovering bool

	// Members is the newest version of the list of data centres that is stored
	// for the data centre (regionals); 0 where none is known.
	Members uint64

	// Site tells data centres of one name apart: it is made once for the store of a
	// data centre, and its nodes remember it. 0 where it is not known.
	Site uint64

	// Succeeds lists incarnations of the same edge that ended before this one
	// began, as its data folder proves, newest last, at most MaxSucceeds. Told
	// until the report is taken (edges).
	Succeeds []uint64

	// What follows is for people to look at: nothing is decided by it, and the shells fill it in.

	Build  string     // release of the process
	Edges  []ToldEdge // of the data centre, in some reports; at most MaxToldEdges (regionals)
	EdgesN uint32     // how many there are

	TellsEdges bool // Edges and EdgesN mean something
}

// ToldEdge is an edge as its regional sees it.
type ToldEdge struct {
	Name  string
	Build string
	State string
	Heard time.Duration // how long ago
	Lease time.Duration // how much of its lease is left at most
}

// RoomReport is a child's state in one room.
type RoomReport struct {
	Room room.ID
	Gen  uint64 // regionals: generation of the books, see RoomGrant.Gen

	// Reconstructed says that what Permits were granted is reckoned from what the
	// edges hold and count, because nobody knows the books: an upper bound of
	// what the data centre may hold. Nothing is used again until Confirmed.
	Reconstructed bool

	// Permits has what was granted, as of the newest grant applied, and what was returned.
	Permits  Permits
	Spent    uint64 // edges: permits of T used, one per admission
	Idle     uint64 // regionals: permits of T that no session and no edge uses
	RateIdle uint64 // permits of R held and not used in the last 60 s
	RateOwed uint64 // edges: permits of R used in the last 60 s under earlier tenures, which Permits.Rate lacks

	// RateUsed tells a new regional when the permits of R were used that are neither idle nor
	// returned: how many of them so many whole seconds ago; at most MaxRateUsed. Edges that join
	// tell it.
	RateUsed []uint32

	// Sessions, edges only.
	Renewed   uint64 // renewals made
	RenewCeil uint64 // newest RoomGrant.RenewCeil applied
	Sessions  []Expiry
	FirstMove uint64 // number of Moves[0], counted from 1 per incarnation and room
	Moves     []Move
	Ends      []End  // told until acknowledged
	Copied    []Line // tickets found to be copied, and the line that is followed there; told until acknowledged

	// Policy: who wants in.
	Movers     uint64           // visitors inside whose session another data centre holds, waiting for a right here
	Want       uint64           // rights that the demand of the next interval needs
	HeldJoined []fleettime.Time // join times of the oldest held visitors, ascending, at most MaxHeld
	HeldPeople uint64           // all held visitors; of a room that is paused, those for whom a pass is there
	Callable   uint64           // held visitors whom a pass would let in, of a room that is paused

	Passes Passes // zero under a parent that has lent none

	// Advisory: what is shown and shared by.
	Active   uint64             // regionals: sessions counted
	Excess   uint64             // regionals: sessions that may be valid beyond what is counted
	Admitted uint64             // cumulative admissions
	Joined   uint64             // cumulative tickets that began to count as waiting
	Entered  uint64             // cumulative admissions of tickets that counted as waiting
	Waiting  estimate.Histogram // live, returned tickets by join time
	Pending  estimate.Histogram // people expected to return for the first time, by join time; where they return to other edges, single slices may be below zero
	Outcomes estimate.Outcomes  // what became of forecasts, cumulative
	Arrivals []Minute           // distinct visitors of the last minutes
}

// Bounds of a report, so that no message grows without limit.
const (
	MaxHeld     = 128 // join times in RoomReport.HeldJoined
	MaxRateUsed = 64  // seconds in RoomReport.RateUsed
	MaxMoves    = 4096
	MaxSlices   = 256  // slices of a line in a report or view
	MaxEnds     = 4096 // ends of a room in a report or grant, and that are remembered
	MaxMinutes  = 5
	MaxSucceeds = fleettime.MaxLives

	// MaxMessage bounds an encoded message, in bytes; a report or grant that
	// would be larger goes out in parts.
	MaxMessage = 200 << 10

	// MaxToldEdges bounds the edges of which a report tells. With them a message may be a tenth
	// larger than MaxMessage.
	MaxToldEdges = 100

	maxShown = 64 // bytes of a text that people look at
)

// Expiry counts the tickets of one expiry second.
type Expiry struct {
	Until    uint32 // Unix second at which the tickets stop being valid
	Stamped  uint64 // P: tickets stamped with it, cumulative
	Consumed uint64 // N: of those, renewed away, cumulative
}

// Move is one stamping of a ticket: an admission (From 0) or a renewal.
type Move struct {
	ID    uint64
	From  uint32 // expiry second of the ticket presented
	Until uint32 // expiry second of the ticket issued

	Shown reuse.Version // of a renewal: the version that was shown; the zero Version where it is not known
}

// Line says which of the copies of a session's ticket goes on: what descends from the
// version Stamp.
type Line struct {
	ID    uint64
	Stamp uint32
}

// EndMargin is how long after its tickets expired every node keeps an End: the clocks of
// others may be wrong as far as they may.
const EndMargin = 4 * fleettime.MaxError

// End says that a session ends before its tickets expire: the tickets with this
// ID and home that are valid until Until or less.
type End struct {
	ID    uint64
	Home  uint32 // ticket.DC that holds the session's right
	Until uint32 // Unix second
	Kind  EndKind
	Shown uint32 // Unix second in which a ticket of the session expires that was shown when it ended; 0 for unknown
}

// HomeOf returns the number of the data centre called name in tickets and ends.
func HomeOf(name string) uint32 { return uint32(ticket.DCOf(name)) }

// EndKind is why a session ends. The set is closed.
type EndKind uint8

// The kinds.
const (
	// Moved: the session took a right at another data centre. Its old tickets
	// are served until they expire and renewed no more.
	Moved EndKind = iota + 1
	// Left: the visitor left, or was put out. The tickets are accepted nowhere.
	Left
	// Cleared answers Left, up to global and down to the home: no edge accepts
	// the tickets any more.
	Cleared
)

// Minute counts the distinct visitors of one UTC minute.
type Minute struct {
	Start fleettime.Time
	N     uint64
}

// Grant is what a parent says to a child.
type Grant struct {
	To     string
	Inc    uint64 // the child's incarnation that is meant
	Tenure uint64 // the tenure that the child has in the parent's books
	From   Term
	Seq    uint64 // grows with every grant of the term to this child
	Part   uint32 // as in Report
	Parts  uint32

	Acked     uint64         // newest Report.Seq that was taken whole
	Echo      fleettime.Mono // Report.Sent of the newest report received; 0 for none
	Dwell     time.Duration  // since that report was received
	At        fleettime.Time // the parent's fleet time
	AtBound   time.Duration  // its error bound
	Guess     bool           // it is the parent's machine's: nobody in the fleet knew the time
	Lease     time.Duration  // the child may act until Echo + Lease, once all parts have arrived; 0 extends nothing
	Baseline  bool           // a blank regional starts from the numbers in Rooms; a room not named holds nothing
	Adoption  Adoption
	Watermark fleettime.Time // every live child has reported past it
	Members   uint64         // version of the list of data centres that global goes by; 0 where it goes by its configuration
	Standing  Standing       // of the child's data centre in that list
	Twin      bool           // another child bears the same name, and both live
	Site      uint64         // of the data centre that is meant, or that the edge belongs to; 0 for unknown
	Copied    bool           // to edges: the data centre is, or may be, a copy: sessions of its home are another's
	Rooms     []RoomGrant
}

// Standing is how a data centre stands in the fleet's list. A value that a node
// does not know means that nobody is let in there.
type Standing uint32

// The standings.
const (
	Listed   Standing = iota // it may be lent rights; also where nothing is told
	Draining                 // nobody is let in; its rights go back as its sessions end
	Unlisted                 // it is not in the list: the same, until it is
)

func (s Standing) String() string {
	switch s {
	case Listed:
		return "active"
	case Draining:
		return "draining"
	case Unlisted:
		return "unlisted"
	}
	return "unknown"
}

// Adoption is how the child stands in the parent's books.
type Adoption uint8

// What it may be. The set is closed: a child that hears another one ignores the
// message.
const (
	Adopted Adoption = iota // the numbers in Rooms hold
	Promise                 // promise to follow From first, then join; Rooms is empty
	Fenced                  // the tenure lapsed: report Final
	Dead                    // the incarnation is forgotten: start a new one
)

func (v Adoption) String() string {
	switch v {
	case Adopted:
		return "adopted"
	case Promise:
		return "promise"
	case Fenced:
		return "fenced"
	case Dead:
		return "dead"
	}
	return "unknown"
}

// RoomGrant is what a child holds and may do in one room.
type RoomGrant struct {
	Room      room.ID
	Gen       uint64 // to regionals: a higher one than the books have voids them; it is applied once
	Confirmed bool   // to regionals: these books are known, or the limits are kept with the reconstructed ones
	RenewCeil uint64 // renewals that may ever be made
	Life      uint32 // seconds for which an edge stamps a ticket

	// Permits has what was granted and the idle targets. To regionals it has what global has seen
	// returned as well, so that a blank one begins with the numbers of global.
	Permits Permits

	Ends  []End  // told until acknowledged
	Lines []Line // of copied tickets, to edges: nobody else goes on with them; told until acknowledged

	Passes Passes // of the newest release; zero for none

	View *View // nil where nothing changed since the child's Acked
}

// View is what the whole room looks like from the coordinator: the same for
// every node. It must not be changed once sent.
type View struct {
	Version uint64
	At      fleettime.Time
	Horizon fleettime.Time // who joined before it may enter; line.Open when nobody queues
	Park    fleettime.Time // who joined before it may be held at the edge for their turn
	Slots   int64          // T minus active, negative when T was lowered
	Active  uint64
	Mu      float64 // people admitted per second, of late
	Theta   float64 // share of those waiting who give up per second
	Line    *estimate.Digest
	Paces   []estimate.Pace // how fast people will be admitted; at most line.MaxPaces
	Joining float64         // people who join per second, of late: those that reports have yet to tell of
	Ranges  estimate.Ranges // between what waits are, by what was forecast
	Since   fleettime.Time  // as Report.CountsSince has it, of the whole fleet; 0 for unknown
	Called  fleettime.Time  // of a room that is paused: who joined before it may enter by a pass; 0 for nobody
	Changed fleettime.Time  // when T, R or the session duration was changed last; 0 for not known

	// Of a room whose method is random. Nobody is ordered by the time of joining there.
	Rounds draw.Rounds    // the last ones; none where the order is fifo
	Waits  estimate.Waits // of those who wait and were not called; zero for not known
}
