// Package root is the coordinator of a fleet: an [Allocator] lends the permits of every room to the data centres.
//
// The centres list the data centres and decide how much may be lent to each. The pool of a room has the loans of the
// data centres. The clock keeps fleet time. An Allocator belongs to one goroutine.
package root

import (
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
)

// Allocator is the root of the tree: it lends the permits of every room to the data centres. It starts without
// memory. Until it knows the ledger of every data centre, it lends only permits that were returned to it, so that it
// need not trust stored data of a predecessor.
//
// It dispatches messages to its parts: centres, pools and clock.
type Allocator struct {
	ledger.Leadership
	fleet
	due   fleettime.Mono // of the next Grants; every message and change sets it to now
	round lendingRound   // reused memory
}

// fleet is what the coordinator knows of the fleet. Its methods answer questions and change nothing.
type fleet struct {
	cfg     Config // constant
	clock   rootClock
	centres centres // the listed data centres, and others that report
	pools   pools   // the permits of every room
}

// New returns the allocator of a new term. Until SetLease it sends nothing.
func New(now fleettime.Mono, cfg Config) *Allocator {
	a := &Allocator{fleet: fleet{cfg: cfg}, due: now}
	a.clock.restored.Restore(now, cfg.Time)
	a.centres = centres{cfg: &a.cfg, started: now, bootstrap: cfg.Bootstrap}
	a.pools = pools{cfg: &a.cfg, centres: &a.centres, byID: map[room.ID]*pool{}}
	var m ledger.Members
	for _, name := range cfg.Centres {
		m.List = append(m.List, ledger.Member{Name: name})
	}
	a.SetMembers(now, m)
	return a
}

// SetRooms replaces the room set. The pool of a removed room stays until all data centres have dropped the room.
func (a *Allocator) SetRooms(now fleettime.Mono, rooms []ledger.RoomConfig) {
	for _, p := range a.pools.list {
		p.gone, p.stale = true, true
	}
	for _, r := range rooms {
		a.pools.open(r.ID).set(now, r)
	}
	a.due = now
}

// Churn returns the learned durations of sessions, by room.
func (f *fleet) Churn() map[room.ID]estimate.Churn {
	out := map[room.ID]estimate.Churn{}
	for _, p := range f.pools.list {
		if !p.gone {
			out[p.ID] = p.flow.Churn()
		}
	}
	return out
}

// Recall adds the durations of sessions that a predecessor learned.
func (a *Allocator) Recall(churn map[room.ID]estimate.Churn) {
	a.pools.churn = churn
	for _, p := range a.pools.list {
		p.flow.Restore(churn[p.ID])
	}
}

// RecallSilence says for how long a data centre had been silent when the term of a predecessor ended, so that
// lost_after is not waited for anew with each term. It is ignored once the data centre is heard. Under
// partition_policy cap it changes nothing: it proves nothing about the time between the terms.
func (a *Allocator) RecallSilence(name string, silent time.Duration) {
	for _, d := range a.centres.named(name) {
		if d.listed && !d.heard {
			d.before = max(0, silent)
		}
	}
}

// SetTime offers the machine's wall time. It is called about once a second. A running fleet keeps its own time, which
// its data centres report (see rootClock.syncFromReport); it is slewed toward the machine's. A new fleet takes the
// machine's time once every data centre had a chance to report. SetTime returns the difference of fleet time and the
// machine's.
func (a *Allocator) SetTime(now fleettime.Mono, wall fleettime.Time) time.Duration {
	off, set := a.clock.set(now, wall, &a.centres)
	if set {
		a.due = now
	}
	return off
}

// Known returns fleet time for the data folder of the process; the zero value for unknown.
func (f *fleet) Known(now fleettime.Mono) fleettime.Known {
	k := f.clock.Known(now)
	k.Guess = f.clock.guessed
	return k
}

// Begin declares, on an operator's word, that nobody was ever admitted in the fleet: a guessed fleet time is the
// fleet's.
func (a *Allocator) Begin() { a.clock.guessed = false }
