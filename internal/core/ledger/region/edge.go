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
//	from      to        when                                                             by
//	awaiting  joining   it reports, and has promised to follow this term                 join
//	          lost      its wait is over                                                 advance
//	          dead      the predecessor's roster lists it as dead                        restore
//	          left      the same; or its summary was made, or the unknown past is closed restore, closeUnknownPast, compact
//	joining   alive     its roster entry is stored                                       activateStored
//	          dead      its lease lapsed                                                 lapse
//	          joining   it reported its final numbers and begins a lease epoch           revive
//	          left      it said goodbye                                                  leave
//	alive     dead, joining, left as from joining
//	dead      joining, left       as from joining
//	lost      joining   it reports after all                                             join
//	          left      nothing is reserved for it any more                              closeLost, reserveLost
//	          awaiting  the fleet time of its wait was a wrong guess                     guessCorrected
//	left      joining   it is alive after all, and reported its final numbers            revive
type edgeState uint8

const (
	awaiting edgeState = iota // listed by a predecessor; has not reported yet
	joining                   // reports; its roster entry is being stored
	alive                     // reports, may hold a lease
	dead                      // its lease lapsed: its permits are counted as spent
	lost                      // its wait is over; its sessions are unknown
	left                      // said goodbye or aged out; only its counted sessions remain
)

// transitions lists the states that may follow each state. Staying in a state is no transition.
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

// edge is one instance of an edge.
type edge struct {
	name     string
	instance uint64
	num      edgeNum // short ID for the table of sessions

	strict bool // see Config.Strict

	state        edgeState
	leaseEpoch   uint64
	parts        wire.Parts     // of its reports
	asOf         fleettime.Time // it has reported everything up to here, by its own clock
	earliest     fleettime.Time // lower bound of that time
	latest       fleettime.Time // upper bound of the time of its last report
	timed        bool           // it knew the time in that report
	receivedAt   fleettime.Mono // arrival of its newest report, or start of the wait for it
	echo         fleettime.Mono // Sent of that report
	silent       time.Duration  // since its lease lapsed, while other edges reported
	reservedLost bool           // lost after a takeover; the sessions that it may be renewing are reserved

	// The ends of its waits while it does not report: see wire.RosterEntry. A successor continues them.
	leased, until, ended int64
	waited               uint32 // as stored in the roster

	since         fleettime.Time // since when it counts waiting visitors, as reported; 0 for unknown
	told          uint64         // its newest report while global answered: the next report to global has its sums
	acked         uint64         // newest grant that it has applied
	ackedReported uint64         // the same as of its last complete report
	recovered     bool           // it existed before this aggregator
	unconfirmed   bool           // it has not reported in this lease epoch: it may continue without a lease

	// Other processes of its name. A process that used the same data folder later has succeeded it. Any other
	// process is another edge.
	succeeds      []uint64       // instances that ended before it began
	first         uint64         // number of the newest grant when it joined
	endedAtGrant  uint64         // the same when another process reported its end; 0 for none
	endedAtTime   fleettime.Time // upper bound of the time of that report
	declaredEnded bool           // an operator declared that it has ended
	contradicted  bool           // it has reported since
	leaving       bool           // it is shutting down
	folder        uint64         // newest Report.Stored; 0 if its data folder settles nothing
	folderNeeds   uint64         // version of Durable that says that it settles nothing
	settled       bool           // its successor has made its last report
	storeVersion  uint64         // version of Durable to store before it gets a lease
	replyDue      bool           // a reply to its report is due

	urgent  bool            // a change cannot wait for its next report
	summary []wire.GoneEdge // of wire.Gone: the edges whose sessions it sums

	changed  []*account // its accounts with news for it; see account.news
	dropping int        // its accounts that it was told to drop
}

// enqueue adds an account to the list of accounts with changes to send.
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

// compare orders an edge and the given name and instance.
func (e *edge) compare(name string, instance uint64) int {
	if c := strings.Compare(e.name, name); c != 0 {
		return c
	}
	return cmp.Compare(e.instance, instance)
}

// over reports whether the lease epoch has ended: the lease lapsed, or the edge said goodbye.
func (e *edge) over() bool { return e.state == dead || e.state == left }

// missing reports whether the edge has not reported since a predecessor led.
func (e *edge) missing() bool { return e.state == awaiting || e.state == lost }

// reporting reports whether the edge reports to this aggregator.
func (e *edge) reporting() bool { return e.state == alive || e.state == joining }

// States of edges in [EdgeStatus]: with a lease, silent, and after a goodbye.
const (
	Alive = "alive"
	Dead  = "dead"
	Left  = "left"
)

var edgeStates = map[edgeState]string{
	awaiting: "awaiting", joining: "joining", alive: Alive, dead: Dead, lost: "lost", left: Left,
}
