package region

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
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
	num      edgeNum // short ID for the table of sessions; never reused

	strict bool // see Config.Strict

	state      edgeState // written by become alone
	leaseEpoch uint64    // of the report that joined it; raised by revive

	// Its newest report; openEdge and receive write it.
	parts      wire.Parts
	receivedAt fleettime.Mono // arrival, or the start of the wait for the first one
	echo       fleettime.Mono // Sent
	acked      uint64         // newest grant that it has applied; never falls
	since      fleettime.Time // since when it counts waiting visitors; 0 for unknown
	leaving    bool           // it is shutting down
	reads      wire.Reader

	// Its newest complete report; openEdge and advance write it. The times never fall, and the watermark does not move
	// past asOf of a reporting edge.
	asOf          fleettime.Time // it has reported everything up to here, by its own clock
	earliest      fleettime.Time // lower bound of that time
	latest        fleettime.Time // upper bound of the time of that report
	timed         bool           // it knew the time then
	ackedReported uint64         // acked then

	// Its silence; clearSilence clears them. A successor continues the stored ones: see wire.RosterEntry.
	silent               time.Duration // since its lease lapsed, while other edges reported
	waited               uint32        // the same in seconds, as stored
	leased, until, ended int64         // the stored ends of the wait for it
	reservedLost         bool          // lost after a takeover; the sessions that it may be renewing are reserved

	// Its ceilings. Of a missing edge those that a predecessor stored; nil for unknown. A reporting edge is listed in the
	// stored Durable, and in the newest one.
	ceilings           map[room.ID]wire.PermitCounts
	listed, listedNext bool

	forwarded   uint64 // its newest report while global answered: the next report to global has its sums
	recovered   bool   // it existed before this aggregator
	unconfirmed bool   // revived, and has not reported in the new lease epoch: it may continue without a lease

	// Other processes of its name. A process that used the same data folder later has succeeded it. Any other
	// process is another edge. Each is written once.
	succeeds      []uint64       // instances that ended before it began
	first         uint64         // number of the newest grant when it joined
	endedAtGrant  uint64         // the same when another process reported its end; 0 for none
	endedAtTime   fleettime.Time // upper bound of the time of that report
	declaredEnded bool           // an operator declared that it has ended
	contradicted  bool           // it has reported since its end was reported

	// Its data folder, by which a successor settles it.
	folder      uint64 // newest Report.Stored; 0 if the folder settles nothing
	folderNeeds uint64 // version of Durable that says that it settles nothing
	settled     bool   // a successor makes its last report: its own reports count only if contradicted

	storeVersion uint64          // version of Durable with its newest roster entry: joining lasts until it is stored
	summary      []wire.GoneEdge // of wire.Gone: the edges whose sessions it sums

	// By room. roomLedger.account and account.close change it together with roomLedger.accounts.
	accounts []*account

	// What is sent to it. grant clears replyDue and urgent.
	replyDue bool       // a reply to its report is due
	urgent   bool       // a change cannot wait for its next report
	changed  []*account // those with changes to send; see account.queued
	dropping int        // its accounts in rooms that it has to drop
}

// enqueue adds an account to the list of accounts with changes to send.
func (e *edge) enqueue(a *account) {
	if !a.queued {
		a.queued = true
		e.changed = append(e.changed, a)
	}
}

// account returns the account of the edge in a room; nil for none.
func (e *edge) account(id room.ID) *account {
	i, ok := slices.BinarySearchFunc(e.accounts, id, compareRoom)
	if !ok {
		return nil
	}
	return e.accounts[i]
}

func compareRoom(acc *account, id room.ID) int { return cmp.Compare(acc.ledger.ID, id) }

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

// clearSilence handles the report of an edge that begins a lease epoch.
func (e *edge) clearSilence() {
	e.leased, e.until, e.ended = 0, 0, 0
	e.waited, e.silent = 0, 0
}

// hasSilent reports whether the edge may be renewing sessions of any room.
func (e *edge) hasSilent() bool {
	return slices.ContainsFunc(e.accounts, func(acc *account) bool { return acc.reserved.silent })
}

// counted reports whether sessions or permits of the edge still count.
func (e *edge) counted() bool { return slices.ContainsFunc(e.accounts, (*account).counts) }

// close deletes the accounts of the edge.
func (e *edge) close() {
	all := e.accounts
	e.accounts, e.changed = nil, nil // not one by one: there may be 10,000
	for _, acc := range all {
		acc.close()
	}
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
