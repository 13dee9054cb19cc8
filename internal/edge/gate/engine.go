package gate

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/edge/sse"
	"vestibule/internal/node"
)

// engine is the admission core of this edge under its lock, driven by the machine's clock, and its waiting callers.
// It is safe for concurrent use.
type engine struct {
	params  wire.Params
	clock   *node.Clock
	wake    func()          // called if the core has a report due
	finish  func(sse.Place) // called when a place stops waiting
	metrics *metrics
	begun   fleettime.Mono    // the start
	held    *clientaddr.Quota // held requests per prefix
	counted *clientaddr.Rate  // visitors counted anew per prefix

	mu    sync.Mutex
	core  *admission.Engine
	jumps uint64    // of the clock, at the last lock of mu
	above stop.Stop // why nobody enters, by the regional's last grant; zero for no reason of its own

	TimeKnown atomic.Bool  //  fleet time was once known well enough to give places
	granted   atomic.Int64 // clock reading at the newest grant, 0 before
}

// lock locks the engine and returns the clock reading. After a suspend of the machine it ends the lease.
func (e *engine) lock() fleettime.Mono {
	e.mu.Lock()
	now := e.clock.Now()
	if j := e.clock.Jumps(); j != e.jumps {
		e.jumps = j
		e.metrics.clockJumps.Inc()
		e.core.Lapse(now)
	}
	return now
}

// With calls do with exclusive use of the core.
func (e *engine) With(do func(now fleettime.Mono, eng *admission.Engine)) {
	now := e.lock()
	defer e.mu.Unlock()
	do(now, e.core)
}

// withWake is With, and then calls wake if a report is due.
func (e *engine) withWake(do func(now fleettime.Mono, eng *admission.Engine)) {
	hurry := false
	e.With(func(now fleettime.Mono, eng *admission.Engine) {
		do(now, eng)
		hurry = eng.Due() <= now
	})
	if hurry {
		e.wake()
	}
}

// Time returns fleet time, or the machine's time while the uncertainty exceeds [fleettime.Rough].
func (e *engine) Time() fleettime.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, wall := e.clock.Read()
	if e.core.Clock.Bound(now) <= fleettime.Rough {
		return e.core.Clock.Time(now)
	}
	return fleettime.TimeOf(wall)
}

// now returns the core's fleet time.
func (e *engine) now() fleettime.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.Clock.Time(e.clock.Now())
}

// Apply applies a grant and answers the held visitors that may enter now. It returns the clock reading.
func (e *engine) Apply(grant *wire.Grant) fleettime.Mono {
	now := e.lock()
	defer e.mu.Unlock()
	e.core.Apply(now, *grant)
	e.above = grant.Stop
	e.updateClock(now)
	answer(e.core.Rooms.Release(now, nil))
	e.granted.Store(int64(max(now, 1)))
	return now
}

// Snapshotted records that the newest snapshot is written, and answers the held visitors that may enter now.
func (e *engine) Snapshotted() {
	now := e.lock()
	defer e.mu.Unlock()
	e.core.Snapshots.Written(now)
	answer(e.core.Rooms.Release(now, nil))
}

// Restore restores fleet time as stored by an earlier process.
func (e *engine) Restore(known func(now fleettime.Mono) fleettime.Known) {
	now := e.lock()
	defer e.mu.Unlock()
	e.core.Clock.Restore(now, known(now))
	e.updateClock(now)
}

// updateClock records when fleet time becomes known. The caller holds the lock.
func (e *engine) updateClock(now fleettime.Mono) {
	if !e.TimeKnown.Load() && e.core.Clock.Bound(now) <= fleettime.Rough {
		e.TimeKnown.Store(true)
	}
}

// answer answers held visitors that were decided about. The caller holds the lock.
func answer(decided []*admission.Visit) {
	for _, v := range decided {
		close(v.Data.(chan struct{}))
	}
}

// LastGrant returns the clock reading at the newest grant, 0 before the first.
func (e *engine) LastGrant() fleettime.Mono { return fleettime.Mono(e.granted.Load()) }

// Drain answers all held visitors with the waiting page before the edge stops.
func (e *engine) Drain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	answer(e.core.Rooms.Drain(e.clock.Now()))
}

// arrive asks the core about one request from an address prefix. With aside a new visitor gets at most a place.
// hurry reports whether a report is due. It unlocks even if the core panics: one broken request must not block all
// others.
func (e *engine) arrive(
	id room.ID, b *brought, from netip.Prefix, aside bool,
) (d admission.Decision, now fleettime.Time, hurry bool) {
	m := e.lock()
	defer e.mu.Unlock()
	minute, waits, place := int64(m)/int64(time.Minute), b.place.ID != 0, b.place
	place.Uncounted = waits && e.counted.Full(minute, from)
	if aside {
		d = e.core.Join(m, id, b.session.Network)
	} else {
		d = e.core.Return(m, id, b.session, place)
	}
	if d.Ticket.Uncounted = false; waits && d.Counted {
		e.counted.Add(minute, from)
	}
	return d, e.core.Clock.Time(m), min(e.core.Due(), e.core.Snapshots.Due()) <= m
}

const (
	// untilRenewed bounds the wait for the renewal of a session: for a snapshot, or for the next renewal ceiling. Before
	// the first grant it is until starts after the start of the process.
	untilRenewed, starts = 2 * time.Second, 20 * time.Second
	renewRetry           = 100 * time.Millisecond
	// endsSoon is the rest of a ticket below which nobody waits: the session would end meanwhile.
	endsSoon = time.Second
)

// renewed asks the core again and again about a session that may end before its duration, until it is renewed. This may
// be the visitor's last request for that time.
func (e *engine) renewed(
	ctx context.Context, id room.ID, b *brought, from netip.Prefix, d admission.Decision, now fleettime.Time,
) (admission.Decision, fleettime.Time) {
	if !e.held.Take(from) {
		return d, now
	}
	defer e.held.Give(from)
	begun := e.clock.Now()
	for d.Brief && (fleettime.Time(d.Ticket.Until)*1000).Sub(now) > endsSoon {
		timer := time.NewTimer(renewRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return d, now
		}
		m := e.clock.Now()
		if starting := e.LastGrant() == 0 && m.Sub(e.begun) < starts; !starting && m.Sub(begun) >= untilRenewed {
			break
		}
		hurry := false
		if d, now, hurry = e.arrive(id, b, from, false); hurry {
			e.wake()
		}
	}
	return d, now
}

// movesWithin is the rest of a ticket within which its session may not arrive from another data centre.
const movesWithin = 3 * time.Second

// arrived holds a request whose ticket ends before its session may have come to this data centre, until it is here. The
// request was made in time: it is served in any case.
func (e *engine) arrived(
	ctx context.Context, id room.ID, b *brought, from netip.Prefix, d admission.Decision, now fleettime.Time,
) (admission.Decision, fleettime.Time) {
	if (fleettime.Time(d.Ticket.Until)*1000).Sub(now) > movesWithin || !e.held.Take(from) {
		return d, now
	}
	defer e.held.Give(from)
	e.wake()
	for begun := e.clock.Now(); e.clock.Now().Sub(begun) < untilRenewed; {
		timer := time.NewTimer(renewRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return d, now
		}
		here := false
		e.With(func(m fleettime.Mono, eng *admission.Engine) { here = eng.Rooms.Arrived(m, id, d.Ticket) })
		if here {
			next, at, hurry := e.arrive(id, b, from, false)
			if hurry {
				e.wake()
			}
			return next, at
		}
	}
	return d, now
}

// serve serves a request of a valid session, and decides nothing about others.
func (e *engine) serve(id room.ID, session ticket.Ticket) (d admission.Decision, now fleettime.Time, hurry bool) {
	m := e.lock()
	defer e.mu.Unlock()
	d = e.core.Serve(m, id, session)
	return d, e.core.Clock.Time(m), e.core.Due() <= m
}

// navigation is the maximum hold of a page load: the browser shows nothing meanwhile, and the waiting page polls by
// itself.
const navigation = 900 * time.Millisecond

// glance bounds the hold of a poll with [PollNow].
const glance = 500 * time.Millisecond

// relayed bounds the hold of a poll whose Accept is missing: every page sends one, so a server in front has removed it,
// and may not wait long for answers.
const relayed = 4 * time.Second

// hold keeps a request with a ticket open until a permit arrives, the core's limit or most ends (0 for none), or
// the client disconnects. asks reports that a page or program polls, which shows its last state meanwhile.
func (e *engine) hold(
	ctx context.Context, id room.ID, brought ticket.Ticket, d admission.Decision, from netip.Prefix,
	most time.Duration, asks bool,
) admission.Decision {
	patience := d.Retry
	if most > 0 {
		patience = min(patience, most)
	}
	if !asks {
		patience = min(patience, navigation)
	}
	done := make(chan struct{})
	v := &admission.Visit{Room: id, Ticket: d.Ticket, Brought: brought, Data: done}
	if !e.held.Take(from) {
		e.With(func(now fleettime.Mono, eng *admission.Engine) { eng.Rooms.Decline(now, v) })
		v.Decision.Retry = e.soon() // this client polls instead
		return v.Decision
	}
	defer e.held.Give(from)
	start := e.startHold(v)
	e.wake()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	outcome, end := holdQueued, (*admission.Rooms).GiveUp
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
		outcome, end = holdLeft, (*admission.Rooms).Abandon
	}
	now, gaveUp := e.endHold(v, end)
	if !gaveUp {
		<-done // Release has decided; the channel is closed or about to be
		if v.Decision.Enters() {
			outcome = holdAdmitted
		}
	} else if !asks && v.Decision.Retry < e.params.Nearest {
		// A held client asks again at once. A browser without the page's script would reload every second while its
		// visitor is next.
		v.Decision.Retry = e.soon()
	}
	e.metrics.held[outcome].Inc()
	e.metrics.holds.Observe(now.Sub(start).Seconds())
	return v.Decision
}

// soon returns a short retry time with jitter.
func (e *engine) soon() time.Duration {
	return e.params.Nearest + rand.N(e.params.Nearest)
}

// startHold hands a visit to the core, and answers visits to its room that may enter now.
func (e *engine) startHold(v *admission.Visit) fleettime.Mono {
	now := e.lock()
	defer e.mu.Unlock()
	e.core.Rooms.Hold(now, v)
	answer(e.core.Rooms.ReleaseRoom(now, v.Room))
	return now
}

// endHold takes a visit back from the core.
func (e *engine) endHold(
	v *admission.Visit, end func(*admission.Rooms, fleettime.Mono, *admission.Visit) bool,
) (fleettime.Mono, bool) {
	now := e.lock()
	defer e.mu.Unlock()
	return now, end(e.core.Rooms, now, v)
}

// quit ends one stay, and answers its held requests.
func (e *engine) quit(st *Stay) {
	ended := false
	e.withWake(func(now fleettime.Mono, eng *admission.Engine) {
		ended = eng.Quit(now, st.Room, st.Ticket)
		answer(eng.Rooms.Left(st.Room, st.Ticket.ID))
	})
	e.finish(st.Place())
	if ended {
		e.metrics.quits.Inc()
	}
}

// goAway records a departure, and has it reported soon.
func (e *engine) goAway(id room.ID, t *ticket.Ticket, answer uint8) (gone bool) {
	e.withWake(func(now fleettime.Mono, eng *admission.Engine) { gone = eng.Away(now, id, *t, answer) })
	return gone
}

// Waits reports whether a stay is a place in the queue.
func (e *engine) Waits(st *Stay) (waits bool) {
	e.With(func(now fleettime.Mono, eng *admission.Engine) { waits = eng.Waits(now, st.Room, st.Ticket) })
	return waits
}
