// Package wire defines the messages between nodes: a child sends a [Report] up, a parent sends a [Grant] down.
//
// Both carry state, never changes. Every number is cumulative, so lost, duplicated, late and reordered messages do no
// harm. The newest message supersedes all others, and a room that has not changed since the last acknowledgement is
// left out. The counters of an [Allocation] have exactly one writer and only grow.
//
// The cores work with the structs of this package; the encoding is versioned protobuf (see Encode and Decode). The one
// knob is [MaxMessage].
package wire

import (
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/ticket/reuse"
)

// Version is the protocol version. Messages of another version are refused; within a version fields are only added.
const Version = 1

// Term is a parent's fencing number. A higher N wins. An equal N with another nonce belongs to a parent whose store
// lost its memory, and is refused.
type Term struct {
	N     uint64 `json:"number"`
	Nonce uint64 `json:"nonce"`
}

// Zero reports whether the term names no parent.
func (t Term) Zero() bool { return t == Term{} }

// Fences reports whether a leader of term o must stop once a child follows t: t is higher, or has the same number and
// another nonce.
func (t Term) Fences(o Term) bool { return t.N > o.N || (t.N == o.N && t != o) }

// Report is the message of a child to its parent: of an edge to its regional, of a regional to global.
type Report struct {
	From       string         // name of the edge or of the data centre
	Instance   uint64         // instance ID: new with every start of the process
	LeaseEpoch uint64         // lease epoch within the instance; 0 before the first
	Seq        uint64         // grows with every report of the instance
	Part       uint32         // index of this message among those of Seq, from 0
	Parts      uint32         // number of messages of Seq
	Sent       fleettime.Mono // the child's monotonic clock at sending: echoed, never compared
	AsOf       fleettime.Time // the child's fleet time, read after the reported state; 0 for unknown
	AsOfBound  time.Duration  // its uncertainty
	Seen       Term           // the parent that the child has promised to follow
	Acked      uint64         // newest Grant.Seq of that parent that was applied
	Join       bool           // complete state for a parent that has not adopted the child
	Final      bool           // edges: the lease has lapsed, nothing is admitted under this epoch any more
	Bye        bool           // edges: the process ends; implies Final
	Leaving    bool           // the process is shutting down but still serves
	Blank      bool           // regionals: the ledger is lost; the numbers of T and R in Rooms are void
	Rooms      []RoomReport

	// CountsSince is the time since when every process below has counted its waiting visitors; 0 for unknown. Visitors
	// last counted before it are in no count.
	CountsSince fleettime.Time

	// Recovering: a regional still awaits edges of a predecessor. Newly allocated permits lie unused until they report
	// or are given up.
	Recovering bool

	// Members is the newest stored version of the membership list (regionals); 0 for unknown.
	Members uint64

	// Membership is the one under which the ledger of the data centre was adopted, as stored (regionals).
	Membership Membership

	// ClusterID is the cluster ID: it tells data centres of one name apart. It is made once for the store of a data
	// centre, and its nodes remember it. 0 for unknown.
	ClusterID uint64

	// Succeeds lists instances of the same edge that ended before this one began, as its data folder proves, newest
	// last, at most MaxSucceeds. It is repeated until acknowledged (edges).
	Succeeds []uint64

	// Stored is the number of the newest snapshot in the edge's data folder, by which its successor can report how the
	// process ended; 0 if the folder settles nothing (edges).
	Stored uint64

	// Settles: the last report of an instance that was killed. Its successor made it from the snapshot Stored in the data
	// folder. It counts every ticket that the instance may have stamped since (edges).
	Settles bool

	// Reads are the forms that the child reads.
	Reads Forms

	// The following fields are for display. The shells fill them in.

	Build  string       // release of the process
	Edges  []EdgeStatus // of the data centre, in some reports; at most MaxReportedEdges (regionals)
	EdgesN uint32       // number of edges

	TellsEdges bool // Edges and EdgesN are set

	Stop stop.Stop // why nobody enters any room of the data centre (regionals)

	CertificateEnd int64 // when the first certificate of the process ends, in Unix seconds; 0 for none

	Listens string // addresses of the process's listeners, separated by blanks: no site
}

// Membership is one time that a data centre is in the list: one more than the version that added it; 0 for unknown.
type Membership uint64

// EdgeStatus is the state of an edge as its regional sees it.
type EdgeStatus struct {
	Name  string
	Build string
	State string
	Heard time.Duration // time since its last report
	Lease time.Duration // upper bound of the rest of its lease

	CertificateEnd int64 // when its first certificate ends, in Unix seconds; 0 for none

	Listens string // addresses of its listeners, separated by blanks
}

// RoomReport is a child's state in one room.
type RoomReport struct {
	Room room.ID
	Gen  uint64 // regionals: allocation epoch, see RoomGrant.Gen

	// Reconstructed: the granted permits are computed from the counts of the edges, because the ledger is lost. They
	// are an upper bound of the data centre's permits. None is reused until Confirmed.
	Reconstructed bool

	// Permits has the granted permits, as of the newest applied grant, and the returned ones.
	Permits Permits
	Bound   PermitCounts // regionals: newest RoomGrant.Bound applied; 0 for unknown

	// Uncovered are the permits of T and R that sessions and edges hold beyond Permits (regionals).
	Uncovered PermitCounts

	Spent    uint64 // edges: permits of T used, one per admission
	Idle     uint64 // regionals: permits of T used by no session and no edge
	RateIdle uint64 // unused permits of R, not used in the last 60 s
	RateOwed uint64 // edges: permits of R used in the last 60 s under earlier epochs, missing in Permits.Rate

	// RateUsed tells a new parent when permits of R were used: element i is the number used i whole seconds ago and
	// not returned; at most MaxRateUsed. Set by edges that join, and by regionals that await no edge until a coordinator
	// has acknowledged it.
	RateUsed []uint32

	// Sessions, edges only.
	Renewed   uint64 // renewals made
	RenewCeil uint64 // newest RoomGrant.RenewCeil applied
	Sessions  []Expiry
	FirstMove uint64 // number of Moves[0], counted from 1 per instance and room
	Moves     []Move
	Ends      []End  // repeated until acknowledged
	Copied    []Line // copied tickets, and the version that continues; repeated until acknowledged

	// Sessions that change data centres: see package region. They are complete lists, at most MaxAsks each.
	Asks      []Ask      // visitors inside whose session is counted elsewhere
	Stays     []Stay     // edges that join: the marks that they know
	Transfers []Transfer // regionals: sessions that left with their permits, and are not known to have arrived
	Taken     []Taken    // regionals: the transfers that arrived

	// Policy: demand.
	Movers     uint64           // visitors with a session of another data centre that wait for a permit here
	Want       uint64           // permits needed for the demand of the next interval
	HeldJoined []fleettime.Time // join times of the oldest long-polled visitors, ascending, at most MaxHeld
	HeldPeople uint64           // all long-polled visitors; in a random room those that are called, in a paused one those with a pass available
	Callable   uint64           // long-polled visitors of a paused room that a pass would admit
	Overdue    int64            // visitors called ten seconds ago that have not asked since; negative if counted elsewhere
	SiteDown   uint64           // edges at which the site does not answer
	SiteDownAt []string         // the first of them by name, at most MaxNamed (regionals)

	Passes Passes // zero under a parent that has granted none

	// Advisory: for display and for sharing.
	Active     uint64             // regionals: counted sessions
	Overcommit uint64             // regionals: possible overcommit, sessions that may be valid but are not counted
	Admitted   uint64             // cumulative admissions
	Joined     uint64             // cumulative tickets that began to wait
	Entered    uint64             // cumulative admissions of tickets that waited
	Waiting    estimate.Histogram // live, returned tickets by join time
	Pending    estimate.Histogram // expected first returns, by join time; negative if at other edges
	Outcomes   estimate.Outcomes  // outcomes of forecasts, cumulative
	Counts     history.Counts     // cumulative, for the history
	Arrivals   []Minute           // distinct visitors of the last minutes

	// Removed: the room is not in the child's set, and the child has nothing of it: no permit, session or visitor. See
	// RoomGrant.Drop.
	Removed bool

	// Forwarded are the sums of an edge that joins as global gets them from other regionals: this one counts from there.
	// It is nil for unknown.
	Forwarded *Sums
}

// Sums are cumulative counts of visitors.
type Sums struct {
	Admitted, Joined, Entered uint64
	Counts                    history.Counts
}

// Sums returns the sums of the report.
func (r *RoomReport) Sums() Sums { return Sums{r.Admitted, r.Joined, r.Entered, r.Counts} }

// Bounds of a report, so that no message grows without limit.
const (
	MaxHeld     = 128 // join times in RoomReport.HeldJoined
	MaxRateUsed = 64  // seconds in RoomReport.RateUsed
	MaxMoves    = 4096
	MaxSlices   = 256  // slices of a line in a report or view
	MaxEnds     = 4096 // ends of a room in a report or grant, and remembered ends
	MaxMinutes  = 5
	MaxAsks     = 2048 // asks, stays or transfers of a room in a message
	MaxTaken    = 256  // streams of transfers of a room in a message
	MaxSucceeds = fleettime.MaxLives

	// MaxMessage bounds an encoded message, in bytes; a larger report or grant is sent in parts.
	MaxMessage = 200 << 10

	// MaxReportedEdges bounds the listed edges of a report. They add at most a tenth of MaxMessage.
	MaxReportedEdges = 100

	MaxNamed = 3  // edges that a report names of those at which a site does not answer
	maxShown = 64 // bytes of a text for display
)

// Expiry counts the tickets of one expiry second.
type Expiry struct {
	Until    uint32 // Unix second at which the tickets stop being valid
	Stamped  uint64 // P: tickets stamped with this second, cumulative
	Consumed uint64 // N: those of them renewed to a later second, cumulative
}

// Move is one stamping of a ticket: an admission (From 0) or a renewal.
type Move struct {
	ID    uint64
	From  uint32 // expiry second of the ticket presented
	Until uint32 // expiry second of the ticket issued

	Shown reuse.Version // of a renewal: the presented version; zero for unknown
}

// Line selects one of the copies of a session's ticket: only descendants of version Stamp are renewed.
type Line struct {
	ID    uint64
	Stamp uint32
}

// Ask says that the visitor of a session is in another data centre than the session. The home is to send the session
// there. It is repeated until the session has arrived, or Until is over.
type Ask struct {
	ID    uint64
	Home  uint32 // ticket.DC that is asked
	For   uint32 // ticket.DC of the visitor
	Shown uint32 // expiry second of the ticket that the visitor presented
	Until uint32 // Unix second until which the session is to last: as if the request had renewed it
}

// Transfer is a session that left its home with its session permit. From and To number the transfers between them in a
// stream, which Tag names. The session counts until Until, which is later than the expiry of all of its tickets.
type Transfer struct {
	ID       uint64
	From, To uint32 // ticket.DC
	Tag, N   uint64 // a higher Tag starts the numbers anew; N is at least 1
	Until    uint32 // Unix second
}

// Taken says that all transfers of a stream up to N have arrived, or are over.
type Taken struct {
	From, To uint32
	Tag, N   uint64
}

// Stay tells an edge where a session is counted.
type Stay struct {
	ID    uint64
	Home  uint32 // ticket.DC
	Until uint32 // Unix second until which it is counted there; 0 for unknown

	// Marked: tickets of the data centre that receives the message that expire then or earlier are not renewed. 0 if it
	// has the session.
	Marked uint32
}

// EndMargin is how long every node keeps an End after its tickets expired, to cover clock errors.
const EndMargin = 4 * fleettime.MaxError

// End revokes a session: the tickets with this ID and home that are valid until Until or earlier.
type End struct {
	ID    uint64
	Home  uint32 // ticket.DC that holds the session permit
	Until uint32 // Unix second
	Kind  EndKind
	Shown uint32 // Unix second: expiry of a ticket presented at the revocation; 0 for unknown
}

// HomeOf returns the number of a data centre in tickets and ends.
func HomeOf(name string) uint32 { return uint32(ticket.DCOf(name)) }

// EndKind is the reason of a revocation. The set is closed.
type EndKind uint8

// The kinds of revocation.
const (
	// Moved: the session took a permit of another data centre. Its old tickets are served until they expire, but not
	// renewed.
	Moved EndKind = iota + 1
	// Left: the visitor left or was revoked. The tickets are refused everywhere.
	Left
	// Cleared answers Left, up to global and down to the home: no edge accepts the tickets any more.
	Cleared
)

// Minute counts the distinct visitors of one UTC minute.
type Minute struct {
	Start fleettime.Time
	N     uint64
}

// Grant is the message of a parent to a child.
type Grant struct {
	To         string
	Instance   uint64 // the child's instance ID
	LeaseEpoch uint64 // the child's lease epoch in the parent's ledger
	From       Term
	Seq        uint64 // grows with every grant of the term to this child
	Part       uint32 // as in Report
	Parts      uint32

	Acked     uint64         // newest complete Report.Seq
	Forwarded uint64         // to edges: newest Report.Seq whose sums global gets from this regional; 0 for unknown
	Echo      fleettime.Mono // Report.Sent of the newest report received; 0 for none
	Dwell     time.Duration  // time since that report was received
	At        fleettime.Time // the parent's fleet time
	AtBound   time.Duration  // its uncertainty
	Guess     bool           // At is the clock of the parent's machine: no node of the fleet knew the time
	Lease     time.Duration  // the child may act until Echo + Lease, once all parts have arrived; 0 extends nothing
	Baseline  bool           // a blank regional starts from the numbers in Rooms; a missing room has no permits
	Handshake Handshake
	Watermark fleettime.Time // every live child has reported past it
	Members   uint64         // version of the membership list that global uses; 0 if it uses its configuration

	// Membership is the receiving data centre's in that list; 0 for none, or while its cluster ID is not in the list. The
	// permits that it got under an earlier one are void.
	Membership Membership

	Standing  Standing  // membership state of the child's data centre
	Twin      bool      // another live child has the same name
	ClusterID uint64    // cluster ID of the receiving data centre, or of the edge's; 0 for unknown
	Folder    Folder    // to edges: the use of the edge's data folder
	Reads     Forms     // forms that the parent reads
	Stop      stop.Stop // why nobody enters any room of the data centre; for display, filled in by the shells
	Rooms     []RoomGrant
}

// Folder is the use that a regional makes of an edge's data folder.
type Folder uint32

// The uses of a data folder. An edge takes an unknown value as FolderUnknown.
const (
	FolderUnknown Folder = iota // the regional is of an older release: it settles no instance by a folder
	FolderVoid                  // the roster says that the folder settles nothing
	FolderSettles               // a successor with the folder may settle the instance
)

// Standing is the membership state of a data centre. A state unknown to a node admits nobody.
type Standing uint32

// The membership states.
const (
	Listed   Standing = iota // it may be granted permits; also the default
	Draining                 // nobody is admitted; permits return as sessions end
	Unlisted                 // not in the list: as Draining, until it is added
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

// Handshake is the state of the handshake between parent and child.
type Handshake uint8

// The handshake states. The set is closed: a child ignores a message with another value.
const (
	Adopted Handshake = iota // the numbers in Rooms are valid
	Promise                  // promise to follow From first, then join; Rooms is empty
	Fenced                   // the lease epoch lapsed: report Final
	Dead                     // the instance is forgotten: start a new one
)

func (v Handshake) String() string {
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

// RoomGrant is a child's permits and orders for one room.
type RoomGrant struct {
	Room      room.ID
	Gen       uint64 // allocation epoch, to regionals: a higher one voids the child's counters; it is applied once
	Confirmed bool   // to regionals: this ledger is known, or the reconstructed one keeps the limits
	RenewCeil uint64 // cumulative ceiling of renewals
	Life      uint32 // seconds: ticket life that an edge stamps

	// Bound is, to regionals, a bound of the permits that all data centres hold together: the limits, or more after a
	// limit was lowered. It outlives global: a leader without all ledgers learns it from the data centres.
	Bound PermitCounts

	// Permits has the granted permits and the idle targets. To regionals it also has the returned permits seen by
	// global, so that a blank one starts with global's numbers.
	Permits Permits

	Ends  []End  // repeated until acknowledged
	Lines []Line // of copied tickets, to edges: other copies are refused; repeated until acknowledged

	// Sessions that change data centres. To edges: Stays, repeated until acknowledged. To regionals: what others ask of
	// this data centre, the transfers to it, and what became of its own. A blank regional also gets its own transfers
	// and what it had taken.
	Asks      []Ask
	Stays     []Stay
	Transfers []Transfer
	Taken     []Taken

	Passes Passes // of the newest release; zero for none

	// Drop tells the child to drop the room with its counters, if it is still Removed there. Otherwise the child keeps
	// them and reports the room. So the first complete report after this grant decides: a room in it has the counters
	// of that report, any other none. Until then the parent grants nothing of the room to the child.
	Drop bool

	View *View // nil if unchanged since the child's Acked
}

// View is the state of the whole room as seen by the coordinator: the same for every node. It must not be changed once
// sent.
type View struct {
	Version uint64         `json:"version"`
	At      fleettime.Time `json:"at"`
	// admission cutoff: visitors that joined before it may enter; estimate.Open without a queue
	Cutoff fleettime.Time   `json:"cutoff"`
	Park   fleettime.Time   `json:"held_up_to"`   // visitors that joined before it may be long-polled for their turn
	Free   int64            `json:"permits_free"` // T minus active; negative after T was lowered
	Active uint64           `json:"sessions"`
	Mu     float64          `json:"entering_per_second"`       // recent admissions per second
	Theta  float64          `json:"giving_up_per_second_each"` // fraction of waiting visitors that abandon per second
	Line   *estimate.Digest `json:"-"`
	Paces  []estimate.Pace  `json:"paces"` // forecast admission rates; at most estimate.MaxPaces
	// recent joins per second, to account for unreported visitors
	Joining float64         `json:"people_joining_per_second"`
	Ranges  estimate.Ranges `json:"ranges"` // ranges of the wait by forecast class
	Since   fleettime.Time  `json:"since"`  // Report.CountsSince of the whole fleet; 0 for unknown
	// of a paused room: visitors that joined before it may enter by a pass; 0 for nobody
	Called  fleettime.Time `json:"called"`
	Changed fleettime.Time `json:"changed"` // last change of T, R or the session duration; 0 for unknown

	// For a room with the method random, which ignores join times.
	Rounds draw.Rounds    `json:"rounds"` // the last rounds; none if the order is fifo
	Waits  estimate.Waits `json:"waits"`  // of waiting visitors that were not called; zero for unknown
}
