package admission

import (
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Due returns when the next report is due. It may be in the past. Arrive, Hold, GiveUp and Apply may bring it
// forward.
func (e *Engine) Due() fleettime.Mono {
	l := e.up
	if l.busy {
		return min(l.due, l.reported.Add(e.edge.cfg.Params.ReportFast))
	}
	return l.due
}

// Report returns the messages for the regional: all changes since the last acknowledgement. Surplus permits are
// returned in the same step. It may be called at any time; the messages of one call share a Seq.
func (e *Engine) Report(now fleettime.Mono) []wire.Report {
	l, c := e.up, e.Clock
	ft := c.fleet.Now(now)
	leased := l.check(now)
	l.seq++
	l.reported = now
	l.due = now.Add(e.edge.cfg.Params.ReportIdle)
	if !l.joined {
		l.due = now.Add(e.edge.cfg.Params.ReportFast)
	}
	head := wire.Report{
		From: e.edge.cfg.Edge, Instance: l.instance, LeaseEpoch: l.leaseEpoch, Seq: l.seq, Sent: now, AsOf: ft,
		AsOfBound: c.Bound(now), Seen: l.seen, Acked: l.grants.Done(), Join: !l.joined, Final: l.retired, Bye: l.bye,
		Leaving: l.leaving, ClusterID: l.clusterID, CountsSince: c.since, Stored: e.Snapshots.settles(),
		Reads: wire.Read,
	}
	if s := e.Snapshots; s.void && s.voidSeq == 0 {
		s.voidSeq = l.seq
	}
	if !l.joined {
		head.Succeeds = l.past
	}
	active := false
	pack := wire.NewReportPacker(head)
	for _, r := range e.Rooms.order {
		r.prepare(now, ft, leased)
		active = active || r.changedAt == l.seq || len(r.line.held.visits) > 0
		if l.joined && r.changedAt <= l.acked {
			continue
		}
		pack.Add(r.report(now, ft))
	}
	l.busy = active
	return pack.Reports()
}

// Leaving records that the process will exit and call Leave soon: the regional must wait for that.
func (e *Engine) Leaving(now fleettime.Mono) {
	e.up.leaving = true
	e.edge.reportSoon(now)
}

// Leave returns the last report of the process: it returns all permits, and the regional need not reserve any. The
// caller has stopped asking the engine for decisions.
func (e *Engine) Leave(now fleettime.Mono) []wire.Report {
	e.up.retired, e.up.bye, e.Snapshots.last = true, true, true
	return e.Report(now)
}

// prepare advances the room to now and returns the permits above the idle target of the regional, or all once the
// lease has lapsed, since they cannot be used.
func (r *roomState) prepare(now fleettime.Mono, ft fleettime.Time, leased bool) {
	l, a, q := &r.edge.up, &r.account, &r.line.queue
	q.advance(ft)
	if r.line.callAsleep(ft) {
		r.dirty = true
	}
	a.prepare(now, ft, leased, r.settings.gone || l.retired)
	if removed := r.mayDrop(now); removed != r.removed {
		r.removed, r.dirty = removed, true
	}
	if r.dirty || q.changed || a.changed {
		r.changedAt, r.dirty, q.changed, a.changed = l.seq, false, false, false
	}
}

// report returns the room's part of a report.
func (r *roomState) report(now fleettime.Mono, ft fleettime.Time) wire.RoomReport {
	l := &r.edge.up
	callable := r.settings.lastCalled(r.line.view)
	out := wire.RoomReport{Room: r.settings.ID, HeldPeople: r.line.held.called(callable), Removed: r.removed}
	r.account.addToReport(now, &out)
	r.line.queue.addToReport(ft, &out)
	if out.Waiting = r.line.asleep.addTo(out.Waiting); len(out.Waiting) > wire.MaxSlices {
		out.Waiting = out.Waiting.Compact(wire.MaxSlices)
	}
	out.Overdue = r.line.overdue(ft)
	if r.paused {
		out.SiteDown = 1
	}
	switch shut := r.settings.shut(r.edge.clock.at(now)); {
	case r.paused || shut != None && shut != QueuedAll: // a permit here would serve nobody
		out.Want, out.HeldPeople = 0, 0
	case shut == QueuedAll: // or only visitors with a pass
		out.Want, out.Callable = 0, out.HeldPeople
		out.HeldPeople = min(out.HeldPeople, r.account.passes.Unused())
	}
	if out.HeldPeople+out.Callable > 0 {
		out.HeldJoined = r.line.held.visits.oldest(wire.MaxHeld, callable)
	}
	if r.forwarded.at == 0 || !l.joined {
		r.forwarded.pending, r.forwarded.at = out.Sums(), l.seq
	}
	if !l.joined { // a new regional learns them only from its edges
		out.Forwarded = new(r.forwarded.known)
	}
	return out
}
