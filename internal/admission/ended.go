package admission

import (
	"cmp"
	"slices"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/room"
	"vestibule/internal/ticket"
	"vestibule/internal/wire"
)

// ended knows the sessions that ended before their tickets expire: it keeps a
// left one from being accepted and a moved one from being renewed. What it
// holds came from the regional, which bounds it, or from visitors who left here
// since the last report. An entry goes once the watermark has passed it.
type ended map[endKey]endMark

type endKey struct {
	id   uint64
	home ticket.DC
}

type endMark struct {
	until uint32 // tickets up to here are meant
	kind  wire.EndKind
}

// of returns how the session of a ticket ended, 0 where it did not.
func (m ended) of(t *ticket.Ticket) wire.EndKind {
	if len(m) == 0 {
		return 0
	}
	return m.covers(t.ID, t.Home, t.Until)
}

func (m ended) covers(id uint64, home ticket.DC, until uint32) wire.EndKind {
	if e, ok := m[endKey{id, home}]; ok && until <= e.until {
		return e.kind
	}
	return 0
}

// list appends the marks to out, in a fixed order, as long as there is room.
func (m ended) list(out []wire.End, limit int) []wire.End {
	if len(m) == 0 {
		return out
	}
	first := len(out)
	for k, e := range m {
		if k.home != ticket.Nobody {
			out = append(out, wire.End{ID: k.id, Home: uint32(k.home), Until: e.until, Kind: e.kind})
		}
	}
	slices.SortFunc(out[first:], func(a, b wire.End) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Home, b.Home))
	})
	return out[:min(len(out), limit)]
}

// forget drops what every live edge has reported past.
func (m ended) forget(watermark fleet.Time) {
	for k, e := range m {
		if fleet.Time(int64(e.until)*1000).Add(endMargin) <= watermark {
			delete(m, k)
		}
	}
}

// endMargin is how long after its tickets expired a mark is kept: another data
// centre's clocks may be wrong as far as they may.
const endMargin = 4 * fleet.MaxError

// end takes note of a session that ended.
func (r *roomState) end(e wire.End) {
	k := endKey{e.ID, ticket.DC(e.Home)}
	old := r.ended[k]
	if e.Until < old.until || (e.Until == old.until && e.Kind <= old.kind) {
		return
	}
	if r.ended == nil {
		r.ended = ended{}
	}
	r.ended[k] = endMark{until: e.Until, kind: e.Kind}
}

// Ended returns how the session of ticket t ended before its time, as far as this
// edge knows: wire.Left where it is refused, wire.Moved where it is served and
// not renewed, 0 otherwise.
func (e *Engine) Ended(id room.ID, t ticket.Ticket) wire.EndKind {
	r := e.rooms[id]
	if r == nil {
		return 0
	}
	return r.ended.of(&t)
}

// Quit ends what the visitor with ticket t has in the room: the session, or the
// place in the line. The ticket is accepted no more; a session's slot is free as
// soon as no edge accepts it any more. It may be called again and again with one
// ticket, and reports whether there was anything to end.
func (e *Engine) Quit(now fleet.Mono, id room.ID, t ticket.Ticket) bool {
	r := e.rooms[id]
	if r == nil || t.ID == 0 || t.Epoch != r.Epoch {
		return false
	}
	ft, err := e.time(now)
	if known := e.known(now, ft, err, r, t.ID); known > t.Until && (t.Until == 0 || t.Home == e.home) {
		t.Until, t.Home = known, e.home
	}
	if !t.Valid(ft) {
		return e.quitLine(r, ft, &t)
	}
	if r.ended.of(&t) == wire.Left || r.ends.Len() == wire.MaxEnds {
		return false
	}
	end := wire.End{ID: t.ID, Home: uint32(t.Home), Until: t.Until, Kind: wire.Left}
	if t.Home == ticket.Nobody {
		// In no books, and so nobody is told. It is enough that we refuse it.
		if len(r.ended) < 2*wire.MaxEnds {
			r.end(end)
		}
		return true
	}
	r.end(end)
	r.ends.Add(end, 0)
	r.recent.Put(t.ID, stamped{until: over})
	r.dirty = true
	e.link.hurry(now, e.cfg.Params.ReportGap)
	return true
}

// quitLine ends a place in the line.
func (e *Engine) quitLine(r *roomState, ft fleet.Time, t *ticket.Ticket) bool {
	r.wait.advance(ft)
	r.newest(t)
	if t.IsAdmitted() || t.Flags&ticket.Returned == 0 || r.ended.covers(t.ID, ticket.Nobody, t.Seen) != 0 {
		return false // nobody has counted it, or not any more
	}
	r.uncount(t)
	if len(r.ended) < 2*wire.MaxEnds {
		r.end(wire.End{ID: t.ID, Home: uint32(ticket.Nobody), Until: uint32(ft.Second() + windowsKept*windowLen), Kind: wire.Left})
	}
	r.dirty = true
	return true
}

// movers are visitors inside whose session another data centre holds and who
// wait for a right here, by ticket id. What is free is theirs before anybody
// who waits outside. Bounded: who does not fit keeps the old ticket.
type movers map[uint64]mover

// mover is when somebody who waits for a right was here last, and until when the session
// is valid elsewhere.
type mover struct {
	seen  fleet.Mono
	until uint32
}

const (
	maxMovers = 1 << 12
	// moverWait is how long a right is kept for somebody who does not come back.
	moverWait = 30 * time.Second
)

// prune lets go of those who did not come back, and of those whose session has ended
// meanwhile: it cannot move any more. It reports whether anybody went.
func (m movers) prune(now fleet.Mono, ft fleet.Time) bool {
	n := len(m)
	for id, v := range m {
		if now.Sub(v.seen) > moverWait || int64(v.until) < ft.Second() {
			delete(m, id)
		}
	}
	return len(m) != n
}

// moveIn gives the session of another data centre a right of this one, and a
// ticket until second until, as soon as there is one. From then on it is
// counted here; there it is counted until the old ticket expires, or until its
// edges know not to renew it. So it is counted twice for a while and never not
// at all: moving cannot exceed the limit, wherever it happens.
func (e *Engine) moveIn(now fleet.Mono, ft fleet.Time, err time.Duration, r *roomState, until uint32, d *Decision) {
	t := &d.Ticket
	if known := e.known(now, ft, err, r, t.ID); known >= t.Until {
		// It came a moment ago and the reply was lost, or this is another request.
		t.Home, t.Until, t.Seen = e.home, known, uint32(ft.Second())
		d.Reseal = true
		e.descend(t)
		return
	}
	if !e.link.leased(now) || r.gone || r.ended.covers(t.ID, e.home, until) != 0 {
		return
	}
	if (r.credit() == 0 && !mutant.On(mutant.MoveWithoutRight)) || !r.sessions.stamp(until) {
		if _, ok := r.movers[t.ID]; !ok && len(r.movers) < maxMovers {
			if r.movers == nil {
				r.movers = movers{}
			}
			r.dirty = true
			e.link.hurry(now, e.cfg.Params.ReportGap)
		} else if !ok {
			return
		}
		r.movers[t.ID] = mover{now, t.Until}
		return
	}
	r.spent++
	delete(r.movers, t.ID)
	r.move(wire.Move{ID: t.ID, Until: until})
	r.stamp(ft, t, until)
	end := wire.End{ID: t.ID, Home: uint32(t.Home), Until: t.Until, Kind: wire.Moved}
	r.end(end) // for the next regional: it matters if the visitor leaves soon
	r.ends.Add(end, 0)
	t.Home, t.Until, t.Seen = e.home, until, uint32(ft.Second())
	r.dirty = true
	d.Reseal = true
	e.descend(t)
	if r.credit() <= r.want/2 {
		e.link.hurry(now, e.cfg.Params.ReportGap)
	}
}
