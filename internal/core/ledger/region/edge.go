package region

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// edgeState is the state of one instance of an edge.
//
//	from      to        when                                                         by
//	awaiting  joining   it is heard, and has promised to follow us                   adopt
//	          lost      its wait is over                                             advance
//	          dead      the roster of a predecessor says so                          restore
//	          left      the same; or it has ended, and its sessions are counted      restore, forgetPast, add of a sum
//	joining   alive     its place on the roster is stored                            enter
//	          dead      its lease lapsed                                             lapse
//	          joining   it told the exact numbers of its lease epoch, and begins another  revive
//	          left      it said goodbye                                              leave
//	alive     dead, joining, left as from joining
//	dead      joining, left       as from joining
//	lost      joining   it is heard after all                                        adopt
//	          left      nothing is reserved for it any more                           reap, holdLost
//	          awaiting  the time by which it was given up was a wrong guess          corrected
//	left      joining   it lives after all, and told its exact numbers               revive
type edgeState uint8

const (
	awaiting edgeState = iota // on the roster of a predecessor; not heard yet
	joining                   // heard; its place on the roster is being stored
	alive                     // reports, may hold a lease
	dead                      // its lease lapsed: its permits are counted as spent
	lost                      // its wait is over: its sessions are not known
	left                      // said goodbye, or aged out: only its counted sessions remain
)

// transitions are the states that may follow each. An edge that stays in its state makes none.
var transitions = [...][]edgeState{
	awaiting: {joining, lost, dead, left},
	joining:  {alive, dead, left},
	alive:    {joining, dead, left},
	dead:     {joining, left},
	lost:     {joining, left, awaiting},
	left:     {joining},
}

// become makes a transition.
func (e *edge) become(to edgeState) {
	if e.strict && e.state != to && !slices.Contains(transitions[e.state], to) {
		panic(fmt.Sprintf("%s %x is %s and cannot become %s", e.name, e.instance, edgeStates[e.state], edgeStates[to]))
	}
	e.state = to
}

// edge is one instance of an edge in the books of its aggregator.
type edge struct {
	name     string
	instance uint64
	num      edgeNum // short name for the table of session ids

	strict bool // see Config.Strict

	state      edgeState
	leaseEpoch uint64
	parts      wire.Parts     // of its reports
	asOf       fleettime.Time // it has reported everything up to here, by the clock that it judges by
	earliest   fleettime.Time // it was no earlier then
	latest     fleettime.Time // it was no later when it reported last
	timed      bool           // it knew the time then: it cannot have learned it since
	receivedAt       fleettime.Mono // when its newest report came; when the awaiting began
	echo       fleettime.Mono // Sent of that report
	silent     time.Duration  // since its lease lapsed, while other edges were heard
	reservedLost   bool           // given up after a takeover, and the sessions that it may go on renewing are reserved

	// The ends of its waits while it is not heard: see wire.RosterEntry. A successor goes on with them.
	leased, until, ended int64
	waited               uint32 // as it is on the roster

	since     fleettime.Time // since when it counts waiting visitors, as reported; 0 for unknown
	acked     uint64         // newest grant it has taken
	ackedReported      uint64         // the same, with all that it did before taken by us
	recovered bool           // it was there before this aggregator
	unconfirmed   bool           // since its lease epoch began: it may be going on without a lease

	// Other processes of its name. A process that used the same data folder after it has succeeded it,
	// which is a proof; any other is another edge.
	succeeds  []uint64       // instances that ended before it began
	first     uint64         // newest grant to anybody when it was adopted
	endedAtGrant   uint64         // the same when another one told that it has ended; 0 for nobody
	endedAtTime fleettime.Time // no later than then
	declaredEnded bool           // an operator told that it has ended
	contradicted    bool           // it was heard since
	twin      bool           // another one of its name lives too
	leaving   bool           // it was told to end
	storeVersion     uint64         // version of Durable to be stored before it gets a lease
	replyDue       bool           // an answer is owed

	urgent bool            // there is news that cannot wait for its next report
	summary []wire.GoneEdge // of wire.Gone: edges with their sessions in its sum

	rooms int        // in which it has an account
	changed  []*account // those with news for the edge; see account.news
}

// enqueue lists an account with news for the edge.
func (e *edge) enqueue(a *account) {
	if !a.queued {
		a.queued = true
		e.changed = append(e.changed, a)
	}
}

func compareEdges(a, b *edge) int {
	if a == b {
		return 0
	}
	return a.compare(b.name, b.instance)
}

// compare orders an edge and one of this name and instance.
func (e *edge) compare(name string, instance uint64) int {
	if c := strings.Compare(e.name, name); c != 0 {
		return c
	}
	return cmp.Compare(e.instance, instance)
}

// over reports whether its lease epoch is over: its lease lapsed, or it said goodbye.
func (e *edge) over() bool { return e.state == dead || e.state == left }

// missing reports whether nobody has heard it since a predecessor led.
func (e *edge) missing() bool { return e.state == awaiting || e.state == lost }

// reporting reports whether the edge reports, or is about to.
func (e *edge) reporting() bool { return e.state == alive || e.state == joining }

// The State of edges that have a lease, or had one a moment ago; of those that were given up; and of
// those that said goodbye.
const (
	Alive = "alive"
	Dead  = "dead"
	Left  = "left"
)

var edgeStates = map[edgeState]string{
	awaiting: "awaiting", joining: "joining", alive: Alive, dead: Dead, lost: "lost", left: Left,
}
