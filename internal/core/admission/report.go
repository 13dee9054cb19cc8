package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/history"
	"vestibule/internal/core/wire"
)

// Due returns when the next report is due. It may be in the past. Arrive, Hold, GiveUp and Apply may bring it
// forward.
func (e *known) Due() fleettime.Mono {
	l := &e.up
	if l.busy {
		return min(l.due, l.reported.Add(e.cfg.Params.ReportFast))
	}
	return l.due
}

// Report returns the messages for the regional: all changes since the last acknowledgement. Surplus permits are
// returned in the same step. It may be called at any time; the messages of one call share a Seq.
func (e *Engine) Report(now fleettime.Mono) []wire.Report { return e.report(now, false) }

// Leaving records that the process will exit and call Leave soon: the regional must wait for that.
func (e *Engine) Leaving(now fleettime.Mono) {
	e.up.leaving = true
	e.reportSoon(now)
}

// Leave returns the last report of the process: it returns all permits, and the regional need not reserve any. The
// caller has stopped asking the engine for decisions.
func (e *Engine) Leave(now fleettime.Mono) []wire.Report {
	e.up.retired, e.snapshots.last = true, true
	return e.report(now, true)
}

func (e *Engine) report(now fleettime.Mono, bye bool) []wire.Report {
	l := &e.up
	ft := e.clock.Now(now)
	leased := l.check(now)
	l.seq++
	l.reported = now
	l.due = now.Add(e.cfg.Params.ReportIdle)
	if !l.joined {
		l.due = now.Add(e.cfg.Params.ReportFast)
	}
	head := wire.Report{
		From: e.cfg.Edge, Instance: l.instance, LeaseEpoch: l.leaseEpoch, Seq: l.seq, Sent: now, AsOf: ft,
		AsOfBound: e.clock.Bound(now), Seen: l.seen, Acked: l.grants.Done(), Join: !l.joined, Final: l.retired, Bye: bye,
		Leaving: l.leaving, ClusterID: l.clusterID, CountsSince: e.since, Stored: e.storedSnapshot(),
	}
	if s := &e.snapshots; s.void && s.voidSeq == 0 {
		s.voidSeq = l.seq
	}
	if !l.joined {
		head.Succeeds = e.past
	}
	active := false
	pack := wire.NewReportPacker(head)
	for _, r := range e.order {
		r.prepare(now, ft, leased)
		active = active || r.changedAt == l.seq || len(r.held.visits) > 0
		if l.joined && r.changedAt <= l.acked {
			continue
		}
		pack.Add(r.report(now, ft))
	}
	l.busy = active
	return pack.Reports()
}

// prepare advances the room to now and returns the permits above the idle target of the regional, or all once the
// lease has lapsed, since they cannot be used.
func (r *roomState) prepare(now fleettime.Mono, ft fleettime.Time, leased bool) {
	l := &r.edge.up
	if r.queue.advance(ft); r.queue.changed {
		r.queue.changed, r.dirty = false, true
	}
	if r.callAsleep(ft) {
		r.dirty = true
	}
	if r.movers.prune(now, ft) {
		r.dirty = true
	}
	if r.permits.wants(now, &r.edge.cfg.Params) {
		r.dirty = true
	}
	none := r.gone || l.retired
	if (none || leased) && r.permits.giveBack(now, none) { // without any lease there is nothing to return
		r.dirty = true
	}
	if n := r.passes.Surplus(none || r.Shut != QueuedAll); n > 0 && (none || leased) {
		r.passes.Returned += n
		r.dirty = true
	}
	if removed := r.mayDrop(now); removed != r.removed {
		r.removed, r.dirty = removed, true
	}
	if !leased {
		r.ceiling.stale = r.sessions.fold(ft.Second()-keptAlone) || r.ceiling.stale
	}
	if r.dirty {
		r.changedAt, r.dirty = l.seq, false
	}
}

// report returns the room's part of a report.
func (r *roomState) report(now fleettime.Mono, ft fleettime.Time) wire.RoomReport {
	l := &r.edge.up
	out := wire.RoomReport{
		Room:       r.ID,
		Sessions:   r.sessions.report(nil),
		Ends:       r.ends.Take(l.seq, l.acked),
		Copied:     r.tickets.found.Take(l.seq, l.acked),
		HeldPeople: r.held.called(r.lastCalled(r.view)), Movers: uint64(len(r.movers)),
		Active:   uint64(max(0, r.sessions.live)),
		Admitted: r.admitted, Entered: r.entered,
		Outcomes: r.outcomes.Outcomes(), Counts: r.allCounts(nil), Removed: r.removed,
	}
	r.permits.addToReport(now, &out)
	r.queue.addToReport(ft, &out)
	if out.Waiting = r.asleep.addTo(out.Waiting); len(out.Waiting) > wire.MaxSlices {
		out.Waiting = out.Waiting.Compact(wire.MaxSlices)
	}
	out.Overdue = r.overdue(ft)
	out.FirstMove, out.Moves = r.moves.unacknowledged(l.seq)
	out.Passes = r.passes.Tell(l.seen)
	if r.paused {
		out.SiteDown = 1
	}
	switch shut := r.shut(r.edge.at(now)); {
	case r.paused || shut != None && shut != QueuedAll: // a permit here would serve nobody
		out.Want, out.HeldPeople = 0, 0
	case shut == QueuedAll: // or only visitors with a pass
		out.Want, out.Callable, out.HeldPeople = 0, out.HeldPeople, min(out.HeldPeople, r.passes.Unused())
	}
	if out.HeldPeople+out.Callable > 0 {
		out.HeldJoined = r.held.visits.oldest(wire.MaxHeld, r.lastCalled(r.view))
	}
	if r.tellsAt == 0 || !l.joined {
		r.telling, r.tellsAt = out.Sums(), l.seq
	}
	if !l.joined {
		// A new regional learns them only from its edges.
		out.Told = new(r.told)
		out.Ends = r.ended.list(out.Ends, wire.MaxEnds)
		out.RateUsed = r.permits.rate.ages(now, nil)
	}
	return out
}

// settle takes the word that global gets the sums of the reports up to seq.
func (r *roomState) settle(seq uint64) {
	if r.tellsAt != 0 && r.tellsAt <= seq {
		r.told, r.tellsAt = r.telling, 0
	}
}

// allCounts returns the counts of the room with those of the shell.
func (r *roomState) allCounts(c history.Counts) history.Counts {
	c = append(c, r.counts[:]...)
	if r.edge.cfg.Traffic != nil {
		r.edge.cfg.Traffic(r.ID, c)
	}
	return c.Trim()
}

// keptAlone is how many seconds after its end an edge without a lease keeps a second apart. Older sessions have
// expired by every clock, and are freed as soon as the edge reports again.
const keptAlone = 60
