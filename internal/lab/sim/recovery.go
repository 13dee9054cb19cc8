package sim

import (
	"fmt"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/wire"
)

// recovery is the second half of a run: no new faults, and the fleet must recover completely.
type recovery struct {
	*fleet
	oracle   *oracle
	visitors *visitors
	arrivals *arrivals
	operator *operator
	members  *membership

	began     int64
	recovered int64 // when every edge had a lease again; 0 for not yet
	whole     int64 // when every data centre had one too, and all ledgers were known
	lastWord  int64 // last report of an ended node that knew the time, to a coordinator that did not
	use       float64
	seconds   int
	settled   bool // no permit is left over
	wrong     string
}

// handshake is the time from the last fault until every edge has a lease again: the longest wait for an edge of a
// predecessor, plus two seconds.
const handshake = 9 * time.Second

// lastWait is the time from the last report of an ended data centre until every edge has a lease again: a new
// coordinator's wait for one that knows the time, plus two seconds.
const lastWait = 7 * time.Second

// recoveryLength returns the duration of the second half: until all visitors have left, sessions have come and gone
// under full demand, and all have ended again.
func recoveryLength(longest, vague time.Duration) time.Duration {
	life := time.Duration(wire.Life(longest)) * time.Second
	return handshake + fullDemand + life + max(life, wire.RateWindow) + 12*time.Second + 6*vague
}

// fullDemand is how long the use of the limits is measured, once old sessions have ended.
const fullDemand = 10 * time.Second

// begin ends all faults: cuts are healed, dead nodes are back except lost ones, and of concurrent leaders one is
// left.
func (rc *recovery) begin() {
	rc.tracef("nothing goes wrong any more")
	rc.calm = true
	rc.began = rc.now
	rc.net.pairs = nil
	first := rc.oracle.first
	rc.cfg.Total, rc.cfg.Rate, rc.cfg.Session = first.total, first.rate, first.session
	*rc.doc = roomDoc{k: rc.kernel, edition: rc.doc.edition, epoch: rc.doc.epoch}
	rc.operator.edited()
	rc.members.mend()

	rc.globals.pending, rc.globals.older = 0, 0
	if g := rc.globals.newest(); g.gone || g.doomed {
		rc.globals.start(false)
	}
	for i := range rc.globals.all[:len(rc.globals.all)-1] {
		rc.globals.all[i].gone = true
	}
	for _, r := range rc.centres.all {
		if r.copied {
			rc.centres.endCopy(r)
		}
		r.failing = 0
		if r.cutUp, r.cutDown = 0, 0; r.lost {
			continue
		}
		if n := r.newest(); n.gone || n.doomed {
			rc.centres.start(r, false)
		}
		for _, n := range r.procs[:len(r.procs)-1] {
			n.gone = true
		}
		rc.centres.rejoin(r)
	}
	for _, n := range rc.edges.all {
		n.cutUp, n.cutDown = 0, 0
		rc.edges.revive(n)
	}
	// More visitors than the limits can take.
	stay := time.Duration(rc.cfg.People.Pages*float64(rc.cfg.People.Think)) + rc.cfg.Session
	rc.arrivals.demand(Demand{PerMinute: max(rc.cfg.Demand.PerMinute,
		2*min(float64(rc.cfg.Total)/stay.Minutes(), float64(rc.cfg.Rate))+4)})
	rc.arrivals.await()
	rc.watch()

	life := rc.oracle.life
	rc.in(handshake, rc.atHome)
	// If an edge, its regional and the coordinator ended together, the edge's counts are unknown until all of them have
	// expired.
	deadline := handshake + life + wire.RateWindow + 3*time.Second
	rc.in(deadline, func() { rc.wholeBy(deadline) })
	rc.in(handshake, func() { // an operator reacts to alarms
		for _, r := range rc.centres.all {
			rc.centres.rejoin(r)
		}
	})
	rc.in(handshake+life, func() { rc.measure(fullDemand) })
	rc.in(handshake+life+fullDemand, rc.goQuiet)
	for s := range 6 {
		rc.in(recoveryLength(rc.oracle.longest, rc.cfg.Faults.Vague)-time.Second-time.Duration(s)*time.Second, rc.settleUp)
	}
	rc.in(recoveryLength(rc.oracle.longest, rc.cfg.Faults.Vague)-500*time.Millisecond, func() {
		if !rc.settled && !rc.timeLost() {
			rc.fail("all visitors are gone, and %s", rc.wrong)
		}
	})
}

// wholeBy demands that all ledgers are known by this time after the last fault, or after an operator has confirmed a
// data centre as the listed one.
func (rc *recovery) wholeBy(deadline time.Duration) {
	if rc.whole != 0 || rc.timeLost() {
		return
	}
	rc.failBy(rc.centres.rejoined+int64(deadline), func() { rc.wholeBy(deadline) })
}

// failBy fails if it is later than by; otherwise it calls again then.
func (rc *recovery) failBy(by int64, again func()) {
	if by > rc.now {
		rc.in(time.Duration(by-rc.now), again)
		return
	}
	rc.fail("%v after the last fault %s", time.Duration(rc.now-rc.began), rc.wrong)
}

// atHome demands a lease for every edge. After a rollback of the coordinators' lease, each leader with an old term ends
// when a data centre reports a newer one, one data centre after the other. No edge gets a lease before the final leader
// begins, so its start counts; so does that of an aggregator whose data centre an operator has confirmed. Edges that do
// not know the time are exempt, since the coordinator may be waiting for it (see hearLastWord).
func (rc *recovery) atHome() {
	if rc.recovered != 0 || rc.timeLost() {
		return
	}
	by := max(rc.globals.newest().began, rc.centres.rejoined) + int64(handshake)
	if last := rc.lastWord; last != 0 {
		by = max(by, last+int64(lastWait))
	}
	rc.failBy(by, rc.atHome)
}

// hearLastWord records a late report of an ended data centre to a coordinator that does not know the time. By the
// report the data centre knew it, so the coordinator waits for it, as for any that reported so recently.
func (rc *recovery) hearLastWord(from *regionProc, m *wire.Report) {
	g, knew := rc.globals.newest(), m.AsOf > 0 && m.AsOfBound <= fleettime.Rough
	if rc.calm && from.centre.lost && knew && g.core.Time(g.clock.read(rc.now)) == 0 {
		rc.lastWord = rc.now
	}
}

// timeLost reports whether a node uses a wrong fleet time: if all nodes that knew it ended at once, a leader's wrong
// clock is all there is. Values ahead of it freeze until the others catch up, and nodes behind it wait longer until no
// older ticket can be valid. Both keep every promise, and neither is a complete recovery.
func (fl *fleet) timeLost() bool {
	off := time.Second + 3*fl.cfg.Faults.Vague
	wrong := func(t fleettime.Time) bool { return t > fl.fleetTime().Add(off) || t < fl.fleetTime().Add(-off) }
	if !fl.cfg.Faults.Clocks {
		return false
	}
	if g := fl.globals.newest(); wrong(g.core.Time(g.clock.read(fl.now))) {
		return true
	}
	for _, r := range fl.centres.all {
		if n := r.newest(); !r.lost && !r.copied && wrong(n.core.Status(n.clock.read(fl.now)).Time) {
			return true
		}
	}
	for _, e := range fl.edges.all {
		if !e.lost && wrong(e.core.Clock.Time(e.clock.read(fl.now))) {
			return true
		}
	}
	return false
}

// watch checks whether every node has recovered.
func (rc *recovery) watch() {
	since := time.Duration(rc.now - rc.began)
	if rc.recovered == 0 {
		if rc.wrong = rc.homeless(); rc.wrong != "" {
			rc.in(20*time.Millisecond, rc.watch)
			return
		}
		rc.recovered = rc.now
		rc.tracef("every edge has a lease again, %v after the last fault", since)
	}
	if rc.wrong = rc.unknown(); rc.wrong != "" {
		rc.in(100*time.Millisecond, rc.watch)
		return
	}
	rc.whole = rc.now
	rc.tracef("the books of all data centres are known again, %v after the last fault", since)
}

// homeless returns an edge without a lease; "" for none.
func (rc *recovery) homeless() string {
	for _, e := range rc.edges.all {
		st := e.core.Status(e.clock.read(rc.now))
		if n := e.centre.newest(); !e.lost && (!st.Leased || !st.Sure || st.Follows.N != n.term) {
			return fmt.Sprintf("%s has no lease from aggregator %d", e, n.term)
		}
	}
	return ""
}

// unknown returns a data centre without a known ledger; "" for none.
func (rc *recovery) unknown() string {
	g := rc.globals.newest()
	lost := false
	for _, r := range rc.centres.all[:rc.cfg.Centres] {
		if lost = lost || r.lost; r.lost {
			continue
		}
		n := r.newest()
		st := n.core.Status(n.clock.read(rc.now))
		if rc.holdsForLost(st) {
			lost = true
			continue
		}
		if n.gone || g.gone || st.Follows.N != g.term || !st.Joined || !st.Leased {
			return fmt.Sprintf("%s has no lease from coordinator %d", r.name, g.term)
		}
	}
	if l := g.core.Ledger(rc.room); !lost && !l.Complete {
		return "the coordinator does not know all ledgers"
	}
	return ""
}

// holdsForLost reports whether a data centre without a known ledger waits until lost_after for an edge that may be
// renewing alone.
func (rc *recovery) holdsForLost(st region.Status) bool {
	return (!rc.cfg.Cap || rc.cfg.Faults.Remove) &&
		slices.ContainsFunc(st.Edges, func(e region.EdgeStatus) bool { return e.State == "lost" })
}

// measure samples the use of the effective limit, once a second.
func (rc *recovery) measure(left time.Duration) {
	if left <= 0 || rc.visitors.quiet {
		return
	}
	rc.oracle.tick()
	rc.seconds++
	rc.use += max(rc.oracle.use())
	rc.in(time.Second, func() { rc.measure(left - time.Second) })
}

// goQuiet sends all visitors away.
func (rc *recovery) goQuiet() {
	rc.tracef("everybody goes; %.2f of the limits were used", rc.use/float64(max(1, rc.seconds)))
	rc.visitors.quiet = true
	rc.arrivals.demand(Demand{Skew: rc.cfg.Demand.Skew, Spikes: rc.cfg.Demand.Spikes})
	for i := range rc.visitors.all {
		v := &rc.visitors.all[i]
		if v.hold == nil {
			continue
		}
		if n := v.edge; n.core.Rooms.GiveUp(n.clock.read(rc.now), v.hold) {
			v.hold = nil
			rc.oracle.setWaiting(v, false)
			rc.visitors.end(int32(i))
			rc.edges.wake(n)
		}
	}
}

// settleUp checks whether all permits are idle and usable.
func (rc *recovery) settleUp() {
	if !rc.settled {
		rc.wrong = rc.leftOver()
		rc.settled = rc.wrong == ""
	}
}

// leftOver describes permits that are neither idle nor in the right place.
func (rc *recovery) leftOver() string {
	root := rc.globals.newest().core.Ledger(rc.room)
	lost, reserved, lostHold := false, false, false
	held, rate := int64(0), int64(0)
	for _, r := range rc.centres.all[:rc.cfg.Centres] {
		// The permits of an ended data centre return when it is reclaimed; it may be unlisted. So do those granted to
		// its copy before the two were told apart.
		for _, c := range root.Centres {
			if c.Name == r.name && (r.lost || c.Standing == wire.Unlisted) {
				held += c.Held
				rate += c.RateHeld
			}
		}
		if r.lost {
			lost = true
			continue
		}
		l := r.newest().core.Ledger(rc.room)
		idle, rateIdle, silent := max(0, l.Free), max(0, l.RateFree), false
		for _, e := range r.edges {
			silent = silent || e.lost || e.misjudged // reserved until its real end
			if !e.lost {
				credit, ridle := e.core.Ledger(e.clock.read(rc.now), rc.room).Spendable()
				idle += int64(credit)
				rateIdle += int64(ridle)
			}
		}
		granted, rateGranted := int64(l.Granted)-int64(l.Returned), int64(l.RateGranted)-int64(l.RateReturned)
		st := r.newest().core.Status(r.newest().clock.read(rc.now))
		lostHold = lostHold || rc.holdsForLost(st)
		for _, e := range st.Edges {
			silent = silent || e.State == "dead" || e.State == "lost" // or an old process reported late, and may exist
		}
		// Under serve a lost edge may still be alive; the same holds in a room unknown to an aggregator, because it was
		// removed.
		kept := silent && (!rc.cfg.Cap || rc.cfg.Faults.Remove) && idle+l.Reserved >= granted
		if kept {
			reserved = reserved || l.Reconstructed // may exceed all permits; blocked until lost_after
		}
		if (idle != granted && !kept) || rateIdle != rateGranted {
			return fmt.Sprintf("%s has %d/%d permits, %d/%d of them usable (counted %d, of which reserved %d)", r.name, granted,
				rateGranted, idle, rateIdle, l.Active, l.Reserved)
		}
		// What it has in use of voided permits is kept back from the others.
		held += granted + l.Uncovered.Sessions
		rate += rateGranted + l.Uncovered.Rate
	}
	if reserved || ((lost || lostHold) && !root.Complete) {
		return ""
	}
	if held+root.Free != int64(rc.cfg.Total) || rate+root.RateFree != int64(rc.cfg.Rate) {
		return fmt.Sprintf("%d/%d of %d/%d permits are accounted for (complete %v)", held+root.Free, rate+root.RateFree,
			rc.cfg.Total, rc.cfg.Rate, root.Complete)
	}
	return ""
}
