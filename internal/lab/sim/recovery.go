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

// calmDown ends all faults: cuts are healed, dead nodes are back except lost ones, and of concurrent leaders one is
// left.
func (w *World) calmDown() {
	w.tracef("nothing goes wrong any more")
	w.calm = true
	w.recovery.began = w.now
	w.net.pairs = nil
	first := w.oracle.first
	w.cfg.Total, w.cfg.Rate, w.cfg.Session, w.operator.removed = first.total, first.rate, first.session, false
	w.operator.operatorState = operatorState{}
	w.operator.edited()
	w.members.mend()

	w.globals.pending, w.globals.older = 0, 0
	if g := w.globals.newest(); g.gone || g.doomed {
		w.globals.start(false)
	}
	for i := range w.globals.all[:len(w.globals.all)-1] {
		w.globals.all[i].gone = true
	}
	for i, r := range w.centres.all {
		if r.copied {
			w.centres.endCopy(int32(i))
		}
		r.failing = 0
		if r.cutUp, r.cutDown = 0, 0; r.lost {
			continue
		}
		if n := r.newest(); n.gone || n.doomed {
			w.centres.start(int32(i), false)
		}
		for _, n := range r.procs[:len(r.procs)-1] {
			n.gone = true
		}
		w.centres.rejoin(int32(i))
	}
	for i, n := range w.edges.all {
		n.cutUp, n.cutDown = 0, 0
		w.edges.revive(int32(i))
	}
	// More visitors than the limits can take.
	stay := time.Duration(w.cfg.People.Pages*float64(w.cfg.People.Think)) + w.cfg.Session
	w.visitors.demand(Demand{PerMinute: max(w.cfg.Demand.PerMinute, 2*min(float64(w.cfg.Total)/stay.Minutes(), float64(w.cfg.Rate))+4)})
	w.visitors.planArrival()
	w.recover()

	life := w.oracle.longestLife()
	w.in(handshake, w.atHome)
	// If an edge, its regional and the coordinator ended together, the edge's counts are unknown until all of them have
	// expired.
	deadline := handshake + life + wire.RateWindow + 3*time.Second
	w.in(deadline, func() { w.wholeBy(deadline) })
	w.in(handshake, func() { // an operator reacts to alarms
		for i := range w.centres.all {
			w.centres.rejoin(int32(i))
		}
	})
	w.in(handshake+life, func() { w.measure(fullDemand) })
	w.in(handshake+life+fullDemand, w.goQuiet)
	for s := range 6 {
		w.in(recoveryLength(w.oracle.longest(), w.cfg.Faults.Vague)-time.Second-time.Duration(s)*time.Second, w.settleUp)
	}
	w.in(recoveryLength(w.oracle.longest(), w.cfg.Faults.Vague)-500*time.Millisecond, func() {
		if !w.recovery.settled && !w.timeLost() {
			w.fail("all visitors are gone, and %s", w.recovery.wrong)
		}
	})
}

// wholeBy demands that all ledgers are known by this time after the last fault, or after an operator has confirmed a
// data centre as the listed one.
func (w *World) wholeBy(deadline time.Duration) {
	if w.recovery.whole != 0 || w.timeLost() {
		return
	}
	if by := w.centres.rejoined + int64(deadline); by > w.now {
		w.in(time.Duration(by-w.now), func() { w.wholeBy(deadline) })
		return
	}
	w.fail("%v after the last fault %s", time.Duration(w.now-w.recovery.began), w.recovery.wrong)
}

// atHome demands a lease for every edge. After a rollback of the coordinators' lease, each leader with an old term ends
// when a data centre reports a newer one, one data centre after the other. No edge gets a lease before the final leader
// begins, so its start counts; so does that of an aggregator whose data centre an operator has confirmed. Edges that do
// not know the time are exempt, since the coordinator may be waiting for it (see hearLastWord).
func (w *World) atHome() {
	if w.recovery.recovered != 0 || w.timeLost() {
		return
	}
	by := max(w.globals.newest().began, w.centres.rejoined) + int64(handshake)
	if last := w.recovery.lastWord; last != 0 {
		by = max(by, last+int64(lastWait))
	}
	if by > w.now {
		w.in(time.Duration(by-w.now), w.atHome)
		return
	}
	w.fail("%v after the last fault %s", time.Duration(w.now-w.recovery.began), w.recovery.wrong)
}

// hearLastWord records a late report of an ended data centre to a coordinator that does not know the time. By the
// report the data centre knew it, so the coordinator waits for it, as for any that reported so recently.
func (w *World) hearLastWord(from *regionProc, m *wire.Report) {
	g, knew := w.globals.newest(), m.AsOf > 0 && m.AsOfBound <= fleettime.Rough
	if w.calm && w.centres.all[from.region].lost && knew && g.core.Time(g.clock.read(w.now)) == 0 {
		w.recovery.lastWord = w.now
	}
}

// longest returns the longest session_duration of the run.
func (j *oracle) longest() time.Duration {
	if j.cfg.Faults.Session {
		return 2 * j.first.session
	}
	return j.first.session
}

func (j *oracle) longestLife() time.Duration {
	return time.Duration(wire.Life(j.longest())) * time.Second
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
		if !e.lost && wrong(e.core.Time(e.clock.read(fl.now))) {
			return true
		}
	}
	return false
}

// recover checks whether every node has recovered.
func (w *World) recover() {
	m := &w.recovery
	since := time.Duration(w.now - m.began)
	if m.recovered == 0 {
		if m.wrong = w.homeless(); m.wrong != "" {
			w.in(20*time.Millisecond, w.recover)
			return
		}
		m.recovered = w.now
		w.tracef("every edge has a lease again, %v after the last fault", since)
	}
	if m.wrong = w.unknown(); m.wrong != "" {
		w.in(100*time.Millisecond, w.recover)
		return
	}
	m.whole = w.now
	w.tracef("the books of all data centres are known again, %v after the last fault", since)
}

// homeless returns an edge without a lease; "" for none.
func (w *World) homeless() string {
	for _, e := range w.edges.all {
		st := e.core.Status(e.clock.read(w.now))
		if n := w.centres.all[e.region].newest(); !e.lost && (!st.Leased || !st.Sure || st.Follows.N != n.term) {
			return fmt.Sprintf("%s has no lease from aggregator %d", e, n.term)
		}
	}
	return ""
}

// unknown returns a data centre without a known ledger; "" for none.
func (w *World) unknown() string {
	g := w.globals.newest()
	lost := false
	for _, r := range w.centres.all[:w.cfg.Centres] {
		if lost = lost || r.lost; r.lost {
			continue
		}
		n := r.newest()
		st := n.core.Status(n.clock.read(w.now))
		if w.holdsForLost(st) {
			lost = true
			continue
		}
		if n.gone || g.gone || st.Follows.N != g.term || !st.Joined || !st.Leased {
			return fmt.Sprintf("%s has no lease from coordinator %d", r.name, g.term)
		}
	}
	if l := g.core.Ledger(w.room); !lost && !l.Complete {
		return "the coordinator does not know all ledgers"
	}
	return ""
}

// holdsForLost reports whether a data centre without a known ledger waits until lost_after for an edge that may be
// renewing alone.
func (w *World) holdsForLost(st region.Status) bool {
	return (!w.cfg.Cap || w.cfg.Faults.Remove) && slices.ContainsFunc(st.Edges, func(e region.EdgeStatus) bool { return e.State == "lost" })
}

// measure samples the use of the effective limit, once a second.
func (w *World) measure(left time.Duration) {
	if left <= 0 || w.visitors.quiet {
		return
	}
	w.oracle.tick()
	m := &w.recovery
	m.seconds++
	m.use += max(float64(w.oracle.active)/float64(w.cfg.Total), float64(w.oracle.rate(w.now))/float64(w.cfg.Rate))
	w.in(time.Second, func() { w.measure(left - time.Second) })
}

// goQuiet sends all visitors away.
func (w *World) goQuiet() {
	w.tracef("everybody goes; %.2f of the limits were used", w.recovery.use/float64(max(1, w.recovery.seconds)))
	w.visitors.quiet = true
	w.visitors.demand(Demand{Skew: w.cfg.Demand.Skew, Spikes: w.cfg.Demand.Spikes})
	for i := range w.visitors.all {
		v := &w.visitors.all[i]
		if v.hold == nil {
			continue
		}
		if n := w.edges.all[v.edge]; n.core.GiveUp(n.clock.read(w.now), v.hold) {
			v.hold = nil
			w.oracle.setWaiting(v, false)
			w.visitors.end(int32(i))
			w.edges.wake(v.edge)
		}
	}
}

// settleUp checks whether all permits are idle and usable.
func (w *World) settleUp() {
	if w.recovery.settled {
		return
	}
	w.recovery.wrong = w.leftOver()
	w.recovery.settled = w.recovery.wrong == ""
}

// leftOver describes permits that are neither idle nor in the right place.
func (w *World) leftOver() string {
	root := w.globals.newest().core.Ledger(w.room)
	lost, reserved, lostHold := false, false, false
	held, rate := int64(0), int64(0)
	for _, r := range w.centres.all[:w.cfg.Centres] {
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
		l := r.newest().core.Ledger(w.room)
		idle, rateIdle, silent := max(0, l.Free), max(0, l.RateFree), false
		for _, k := range r.edges {
			e := w.edges.all[k]
			silent = silent || e.lost || e.misjudged // reserved until its real end
			if !e.lost {
				credit, ridle := e.core.Spendable(e.clock.read(w.now), w.room)
				idle += int64(credit)
				rateIdle += int64(ridle)
			}
		}
		granted, rateGranted := int64(l.Granted)-int64(l.Returned), int64(l.RateGranted)-int64(l.RateReturned)
		st := r.newest().core.Status(r.newest().clock.read(w.now))
		lostHold = lostHold || w.holdsForLost(st)
		for _, e := range st.Edges {
			silent = silent || e.State == "dead" || e.State == "lost" // or an old process reported late, and may exist
		}
		// Under serve a lost edge may still be alive; the same holds in a room unknown to an aggregator, because it was
		// removed.
		kept := silent && (!w.cfg.Cap || w.cfg.Faults.Remove) && idle+l.Reserved >= granted
		if kept {
			reserved = reserved || l.Reconstructed // may exceed all permits; blocked until lost_after
		}
		if (idle != granted && !kept) || rateIdle != rateGranted {
			return fmt.Sprintf("%s has %d/%d permits, %d/%d of them usable (counted %d, of which reserved %d)", r.name, granted, rateGranted, idle, rateIdle, l.Active, l.Reserved)
		}
		held += granted
		rate += rateGranted
	}
	if reserved || ((lost || lostHold) && !root.Complete) {
		return ""
	}
	if held+root.Free != int64(w.cfg.Total) || rate+root.RateFree != int64(w.cfg.Rate) {
		return fmt.Sprintf("%d/%d of %d/%d permits are accounted for (complete %v)", held+root.Free, rate+root.RateFree, w.cfg.Total, w.cfg.Rate, root.Complete)
	}
	return ""
}
