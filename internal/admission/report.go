package admission

import (
	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// Due returns when the next report is to be made. It may be in the past, and
// comes nearer with Arrive, Hold, GiveUp and Apply.
func (e *Engine) Due() fleet.Mono {
	if e.link.busy {
		return min(e.link.due, e.link.reported.Add(e.cfg.Params.ReportFast))
	}
	return e.link.due
}

// Report returns what the regional is to be told: everything that changed
// since what it acknowledged. Rights that are not to be kept are returned in
// the same step. It may be called at any time; the messages of one call share
// a Seq.
func (e *Engine) Report(now fleet.Mono) []wire.Report { return e.report(now, false) }

// Leave returns the last report of the process: all rights go back and the
// regional need presume nothing. The caller has stopped asking the engine for
// decisions.
func (e *Engine) Leave(now fleet.Mono) []wire.Report {
	e.link.retired = true
	return e.report(now, true)
}

func (e *Engine) report(now fleet.Mono, bye bool) []wire.Report {
	l := &e.link
	ft := e.clock.Now(now)
	leased := l.leased(now)
	l.seq++
	l.reported = now
	l.due = now.Add(e.cfg.Params.ReportIdle)
	if !l.joined {
		l.due = now.Add(e.cfg.Params.ReportFast)
	}
	head := wire.Report{
		From: e.cfg.Edge, Inc: l.inc, Tenure: l.tenure, Seq: l.seq, Sent: now, AsOf: ft, AsOfErr: e.clock.Err(now),
		Seen: l.seen, Acked: l.grants.Done(), Join: !l.joined, Final: l.retired, Bye: bye, Site: l.site,
	}
	if !l.joined {
		head.Succeeds = e.past
	}
	active := false
	pack := wire.NewReportPacker(head)
	for _, r := range e.order {
		if r.wait.advance(ft) {
			r.dirty = true
		}
		if r.young.advance(ft) {
			r.dirty = true
		}
		if r.movers.prune(now, ft) {
			r.dirty = true
		}
		if want := r.demand.sampleAt(now, e.cfg.Params.ReportFast); want != r.want {
			r.want, r.dirty = want, true
		}
		if mutant.On(mutant.ChargeLate) {
			r.spent = r.admitted
		}
		r.giveBack(now, leased, l.retired)
		if !leased {
			r.sessions.fold(ft.Second() - keptAlone)
		}
		if r.dirty {
			r.changedAt, r.dirty = l.seq, false
		}
		active = active || r.changedAt == l.seq || len(r.parked) > 0
		if l.joined && r.changedAt <= l.acked {
			continue
		}
		pack.Add(r.report(now, ft, l))
	}
	l.busy = active
	return pack.Reports()
}

// giveBack returns the rights that the regional does not want kept; all of
// them once the lease has lapsed, because nothing can be admitted with them.
func (r *roomState) giveBack(now fleet.Mono, leased, retired bool) {
	keep, rateKeep := r.keep, r.rateKeep
	if r.gone || retired {
		keep, rateKeep = 0, 0
	} else if !leased {
		return // never had a lease: nothing to give
	}
	if n := sub(r.credit(), keep); n > 0 {
		r.returned += n
		r.dirty = true
	}
	if n := sub(r.rate.idle(now), rateKeep); n > 0 {
		r.rate.returned += n
		r.dirty = true
	}
}

func (r *roomState) report(now fleet.Mono, ft fleet.Time, l *link) wire.RoomReport {
	seq := l.seq
	r.renewedSaid = r.renewed
	next := r.firstMove + uint64(len(r.moves))
	if n := len(r.sentMoves); n == 0 || r.sentMoves[n-1].next != next {
		if n == maxMarks { // the parent has been silent for long: let the oldest mark go
			r.sentMoves = r.sentMoves[:copy(r.sentMoves, r.sentMoves[1:])]
		}
		r.sentMoves = append(r.sentMoves, moveMark{seq: seq, next: next})
	}
	out := wire.RoomReport{
		Room:    r.ID,
		Granted: r.granted, Returned: r.returned, Spent: r.spent,
		RateGranted: r.rate.granted, RateReturned: r.rate.returned, RateIdle: r.rate.idle(now),
		RateOwed: r.past.owed(now),
		Renewed:  r.renewed, RenewCeil: r.renewCeil,
		Sessions:  r.sessions.report(),
		FirstMove: r.firstMove,
		Ends:      r.ends.Take(seq, l.acked),
		Copied:    r.found.Take(seq, l.acked),
		Want:      r.want, ParkedN: uint64(len(r.tabs)), Movers: uint64(len(r.movers)),
		Active:   uint64(max(0, r.sessions.live)),
		Admitted: r.admitted, Joined: r.joined, Entered: r.entered,
		Waiting: r.wait.histogram(), Outcomes: r.outcomes.Outcomes(),
	}
	out.Unseen, out.Young = r.young.expected(ft)
	if len(r.moves) > 0 {
		out.Moves = append([]wire.Move(nil), r.moves...)
	}
	if r.paused { // a right here would serve nobody
		out.Want, out.ParkedN = 0, 0
	} else if len(r.parked) > 0 {
		out.Parked = r.parked.oldest(nil, wire.MaxParked)
	}
	if !l.joined {
		// A new regional knows only what its edges remember.
		out.Ends = r.ended.list(out.Ends, wire.MaxEnds)
	}
	for _, m := range r.arrivals {
		if m.N > 0 {
			out.Arrivals = append(out.Arrivals, m)
		}
	}
	return out
}

// keptAlone is for how many seconds after its end an edge without a lease keeps
// a second apart: what ended before is over by every clock, and is freed as soon
// as the edge is heard again.
const keptAlone = 60

// maxMarks bounds how many unanswered reports are told apart.
const maxMarks = 64

// Apply takes what the regional said. A grant of a lower term, of another
// incarnation or tenure, or older than one applied changes nothing. The caller
// then calls Release.
func (e *Engine) Apply(now fleet.Mono, g wire.Grant) {
	l := &e.link
	if g.To != e.cfg.Edge || g.Inc != l.inc {
		return
	}
	if was := l.retired; !l.leased(now) && l.retired != was {
		// The answer came too late: only the final report lets us go on.
		l.hurry(now, e.cfg.Params.ReportGap)
	}
	before := l.seen
	if !l.follow(g.From) {
		return
	}
	if before != l.seen {
		l.hurry(now, 0) // the promise is worth a report of its own
	}
	fresh, complete := l.grants.Take(g.Seq, g.Part, g.Parts)
	if !fresh {
		return
	}
	if g.Echo != 0 {
		e.clock.Sync(now, g.Echo, g.Dwell, g.At, g.AtErr)
	}
	if !mutant.On(mutant.ClockBehindWatermark) {
		e.clock.Floor(g.Watermark)
	}
	l.acked = max(l.acked, g.Acked)
	l.twin = g.Twin
	for i := range g.Rooms { // under whatever tenure: the grant is acknowledged as taken
		if r := e.rooms[g.Rooms[i].Room]; r != nil {
			for _, end := range g.Rooms[i].Ends {
				r.end(end)
			}
			for _, o := range g.Rooms[i].Lines {
				r.lines.Decide(uint32(e.Time(now).Second()), o.ID, o.Stamp, g.Rooms[i].Life)
			}
		}
	}

	switch g.Verdict {
	case wire.Promise:
		return
	case wire.Dead:
		e.reborn(now)
		return
	case wire.Fenced:
		if g.Tenure > l.tenure && l.retired {
			e.revive(now, g.Tenure) // we never heard of it, and never shall act under it
		}
		l.retired = true
		l.left(now)
		l.hurry(now, e.cfg.Params.ReportGap)
		return
	case wire.Adopted:
	default:
		return // a verdict of a newer version: act on nothing that comes with it
	}
	if g.Tenure > l.tenure && l.retired {
		e.revive(now, g.Tenure)
	}
	if (g.Tenure != l.tenure && !mutant.On(mutant.TenureIgnored)) || l.retired {
		return
	}
	l.joined, l.standing, l.copied = true, g.Standing, g.Copied
	if g.Site != 0 {
		l.site = g.Site
	}
	for i := range g.Rooms {
		e.applyRoom(now, &g.Rooms[i])
	}
	if complete && g.Lease > 0 && g.Echo != 0 { // not before every restriction that came with it
		from := g.Echo
		if mutant.On(mutant.LeaseFromReceipt) {
			from = now
		}
		l.leaseEnd = max(l.leaseEnd, from.Add(fleet.Shrink(g.Lease)))
		if now < l.leaseEnd {
			e.rejoined()
		}
	}
	for _, r := range e.order {
		r.sessions.forget(g.Watermark)
		r.ackMoves(l.acked)
		r.ends.Acked(l.acked)
		r.found.Acked(l.acked)
		r.ended.forget(g.Watermark)
	}
}

func (e *Engine) applyRoom(now fleet.Mono, g *wire.RoomGrant) {
	r := e.rooms[g.Room]
	if r == nil {
		return // not in our set yet; the regional repeats it until we report the room
	}
	if g.Granted > r.granted || g.RateGranted > r.rate.granted || g.RenewCeil > r.renewCeil {
		r.dirty = true // tell what we hold
	}
	r.granted = max(r.granted, g.Granted)
	r.rate.granted = max(r.rate.granted, g.RateGranted)
	r.renewCeil = max(r.renewCeil, g.RenewCeil)
	r.keep, r.rateKeep = g.Keep, g.RateKeep
	r.life = g.Life
	if g.View != nil {
		r.view = g.View
	}
	if r.credit() > r.keep || r.rate.idle(now) > r.rateKeep {
		// Somebody else wants them. Held visitors are served first: the report
		// comes after Release.
		e.link.hurry(now, e.cfg.Params.ReportGap)
	}
}

// ackMoves forgets the moves that the regional has taken.
func (r *roomState) ackMoves(acked uint64) {
	n := 0
	for n < len(r.sentMoves) && r.sentMoves[n].seq <= acked {
		n++
	}
	if n == 0 {
		return
	}
	next := r.sentMoves[n-1].next
	r.sentMoves = r.sentMoves[:copy(r.sentMoves, r.sentMoves[n:])]
	if next > r.firstMove {
		r.moves = r.moves[:copy(r.moves, r.moves[next-r.firstMove:])]
		r.firstMove = next
	}
}

// revive begins a new tenure after one that lapsed: the regional has our exact
// numbers. Rights of T go on; those of R stayed behind with the old tenure,
// where they age.
func (e *Engine) revive(now fleet.Mono, tenure uint64) {
	e.link.tenure, e.link.retired, e.link.leaseEnd = tenure, false, 0
	for _, r := range e.order {
		r.rate.owe(&r.past, now)
		r.dirty = true
	}
}

// reborn starts a new incarnation: the regional has forgotten this one, and
// everything it counted has aged out.
func (e *Engine) reborn(now fleet.Mono) {
	e.link.left(now)
	e.past = e.Incarnations()
	e.link.born(e.cfg.Rand)
	for _, r := range e.order {
		r.granted, r.spent, r.returned = 0, 0, 0
		r.renewed, r.renewCeil, r.renewedSaid = 0, 0, 0
		r.rate.owe(&r.past, now)
		r.sessions = sessions{}
		r.moves, r.firstMove, r.sentMoves = nil, 1, nil
		r.ends.Again()
		r.found.Again()
		r.admitted, r.joined, r.entered = 0, 0, 0
		r.dirty, r.changedAt = true, 0
	}
	e.link.hurry(now, 0)
}

// Lapse gives the lease up: the machine was asleep, so that the clock cannot
// be believed. A new tenure begins with the next exchange.
func (e *Engine) Lapse(now fleet.Mono) {
	if e.link.leaseEnd != 0 {
		e.link.retired = true
		e.link.left(now)
		e.link.hurry(now, 0)
	}
}

// Drain takes everybody back who is held, undecided, to go on waiting: the
// process is about to end.
func (e *Engine) Drain(now fleet.Mono) []*Visit {
	var out []*Visit
	for _, r := range e.order {
		for len(r.parked) > 0 {
			v := r.parked[0]
			e.GiveUp(now, v)
			out = append(out, v)
		}
	}
	return out
}
