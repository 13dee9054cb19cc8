package region

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/share"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// roomLedger is the ledger of the data centre in one room: the loan of global, the account of each edge, the counted
// sessions, and the changes to send to global and the edges. Sessions that a silent edge may have admitted are in its
// account.
//
// Invariant: permits lent to reporting edges, counted sessions and reserved ones sum to no more than the loan. Any
// difference is a debt, and nothing is lent until it is gone.
type roomLedger struct {
	ledger.RoomConfig        // from rooms.set; kept until the room is dropped
	home              uint32 // the data centre's number in tickets
	gone              bool   // not in the room set: nothing is lent, and idle permits are returned

	removed bool // as in the newest report to global: see mayDrop

	stopped bool // edges must not stamp tickets; written by stop alone

	// From global: applyGrant writes them. An aggregator without a ledger reconstructs the loan.
	loan   loan
	bound  wire.PermitCounts // of the loans of all data centres
	voided bool              // permits in use may have been voided with an earlier membership: see uncovered
	passes passes            // of a paused room

	storedBound wire.PermitCounts // bound in the newest Durable; from storeRooms

	accounts accounts // by name and instance of their edges

	// Sessions and permits of R in use. Reports change them; advance moves them with time.
	counts       counts     // sessions by the second in which their tickets expire
	ids          sessionIDs // the newest ticket of each session
	copied       uint64     // tickets seen in two places, cumulative
	copies       copies
	terminations terminations
	moves        moves
	moverEdge    func() *edge  // the pseudo-edge of sessions that moved
	overcommit   overcommit    // sessions that may be valid beyond those counted
	life         ticketLife    // from rooms.set
	rates        reservedRates // permits of R that ended edges may have used

	// The view of global or, under isolation, the own one: ownView computes it from the fields below.
	view     *wire.View         // nil until global sends one
	viewed   fleettime.Mono     // time of the newest own view
	flow     share.Flow         // sampled with every report to global
	rounds   share.Rounds       // of own views
	progress share.Progresses   // of the edges
	waiting  estimate.Histogram // at the edges, as of the newest report to global

	waitingForR bool // at the last division a long-polled visitor waited, and no permit of R was free

	// Work to do. Every change of the ledger sets stale, dirty or both. Grants divides the permits of a stale room.
	// Report returns surplus permits, and reports a dirty room until global acknowledges changedAt.
	stale            bool   // changed since permits were last divided
	divided          bool   // divided since the last search for permits to return, or that search left some
	reservedAtReturn bool   // sessions were reserved at that search; they end by time alone
	dirty            bool   // changed since the last report to global
	changedAt        uint64 // first report to global that carried the newest change
}

// ticketLife is the life of the tickets of a room.
type ticketLife struct {
	secs uint32         // of new tickets; 0 for unknown
	most uint32         // of the longest-lived tickets that may be valid
	till fleettime.Mono // until then
}

// set changes the life of new tickets. Tickets with a longer life, which an edge may stamp until it gets the change,
// count until they expire.
func (l *ticketLife) set(now fleettime.Mono, secs uint32) {
	if secs == l.secs {
		return
	}
	if now >= l.till {
		l.most = 0
	}
	if l.secs > secs {
		l.most = max(l.most, l.secs)
		l.till = max(l.till, now.Add(time.Duration(l.secs)*time.Second+time.Minute))
	}
	l.secs = secs
}

// longest returns the longest life of a ticket that may be valid.
func (l *ticketLife) longest(now fleettime.Mono) int64 {
	if now >= l.till {
		return int64(l.secs)
	}
	return int64(max(l.secs, l.most))
}

// unknown returns the longest life of a ticket of a room that was removed before this term: its setting is unknown.
func (l *ticketLife) unknown() int64 {
	if l.secs != 0 {
		return 0
	}
	return int64(wire.Life(room.MaxSession))
}

// account returns the account of an edge, and opens it if needed.
func (b *roomLedger) account(e *edge) *account {
	inEdge, ok := slices.BinarySearchFunc(e.accounts, b.ID, compareRoom)
	if ok {
		return e.accounts[inEdge]
	}
	acc := &account{edge: e, ledger: b}
	inRoom, _ := slices.BinarySearchFunc(b.accounts, e, func(acc *account, e *edge) int { return compareEdges(acc.edge, e) })
	e.accounts = slices.Insert(e.accounts, inEdge, acc)
	b.accounts = slices.Insert(b.accounts, inRoom, acc)
	acc.markChanged()
	acc.markViewChanged()
	return acc
}

// tally returns the progress of the room in this data centre.
func (b *roomLedger) tally() share.Tally {
	return b.progress.Tally(time.Duration(b.life.secs)*time.Second, uint64(max(0, b.active())))
}

// lostWait returns lost_after; the default if the room was removed before this term.
func (b *roomLedger) lostWait() time.Duration {
	switch {
	case b.LostWait > 0:
		return b.LostWait
	case b.gone:
		return room.DefaultLost
	}
	return math.MaxInt64
}

// stop stops stamping under partition_policy cap while the lease of global has lapsed, because global lends these
// permits to others. After the lease begins again, stamping resumes once the ledger covers the permits of all edges:
// they may have been voided.
func (b *roomLedger) stop(leased, known bool) {
	switch {
	case b.Cap && !leased:
		b.stopped = true
	case b.stopped && known && b.covered():
		b.stopped = false
	}
}

// covered reports whether the loan covers the unspent permits of the edges.
func (b *roomLedger) covered() bool {
	t, rate := b.unallocated()
	credit, lent := b.accounts.lent()
	return (credit == 0 || t >= 0) && (lent == 0 || rate >= 0)
}

// unallocated returns the permits of T and of R that no session and no edge holds and that are not reserved.
func (b *roomLedger) unallocated() (t, rate int64) {
	credit, lent := b.accounts.lent()
	return b.loan.permits.Sessions.Held() - b.active() - credit, b.loan.permits.Rate.Held() - lent - b.rates.sum()
}

// beyond returns the permits of T and of R that the data centre does not use while global is not heard, because all
// data centres together may hold more than a lowered limit: each uses the same part of what it holds.
func (b *roomLedger) beyond() (t, rate int64) {
	if b.Unbound {
		return 0, 0
	}
	held := &b.loan.permits
	return beyond(held.Sessions.Held(), b.bound.Sessions, b.Total), beyond(held.Rate.Held(), b.bound.Rate, b.Rate)
}

// beyond returns the part of held that exceeds the limit if all data centres together hold bound.
func beyond(held, bound int64, limit uint64) int64 {
	if held <= 0 || bound <= int64(limit) {
		return 0
	}
	hi, lo := bits.Mul64(uint64(held), limit)
	part, _ := bits.Div64(hi, lo, uint64(bound))
	return held - int64(part)
}

// active returns the number of counted and reserved sessions.
func (b *roomLedger) active() int64 {
	n := b.counts.total()
	for _, acc := range b.accounts {
		n += acc.reserved.count(&b.counts)
	}
	return n
}

// ownView makes the view of the room from the data centre's own numbers; free and rateFree are its free permits.
func (b *roomLedger) ownView(
	now fleettime.Mono, ft fleettime.Time, term wire.Term, free, rateFree int64, since fleettime.Time,
) {
	if now.Sub(b.viewed) < share.ViewGap {
		return
	}
	idle, ridle := b.accounts.idle()
	n, m := b.beyond()
	x := share.Prospect{
		Flow: &b.flow, Rounds: &b.rounds, Lines: []estimate.Histogram{b.waiting},
		Supply: max(0, free+idle), Rate: max(0, rateFree+ridle),
		Total: b.loan.permits.Sessions.Held() - n, Limit: b.loan.permits.Rate.Held() - m, Tally: b.tally(), Own: true,
		Random: b.Random, Lot: share.Lot{Term: term, Room: b.ID},
	}
	var heldJoined [][]fleettime.Time
	for _, acc := range b.accounts {
		if acc.edge.state == alive {
			x.Wanted += float64(acc.demand.Want + acc.demand.HeldPeople)
			x.Pending = append(x.Pending, acc.pending())
			heldJoined = append(heldJoined, acc.demand.HeldJoined)
			x.Held += float64(acc.demand.HeldPeople)
			x.Overdue += float64(acc.demand.Overdue)
		}
	}
	x.HeldJoined = share.MergeTimes(heldJoined, math.MaxInt)
	v := x.View(now, ft)
	v.Since = since
	v.Version = b.view.Version + 1
	b.viewed = now
	if !share.SameView(b.view, v) {
		b.setView(v)
	}
}

// setView sets the view of the room and queues it for the edges.
func (b *roomLedger) setView(v *wire.View) {
	b.view = v
	for _, acc := range b.accounts {
		acc.markViewChanged()
		acc.edge.urgent = acc.edge.urgent || acc.demand.HeldPeople > 0
	}
}
