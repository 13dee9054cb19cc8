package slots

import (
	"slices"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// unknownEdge notes an edge whose incarnation nobody knows, and that all the same
// holds rights or sessions that may still be valid. The roster tells of every
// edge before its first lease: so either the store has lost what was stored, or the
// edge was declared lost and was alive. Whatever it holds was counted nowhere
// until now.
func (r *roster) unknownEdge(m *wire.Report, watermark fleet.Time) bool {
	past := max(earliest(m), watermark)
	for i := range m.Rooms {
		rr := &m.Rooms[i]
		// A report that was under way for long tells of rights that are gone.
		held := rr.Granted > rr.Spent+rr.Returned && past == earliest(m)
		for _, s := range rr.Sessions {
			held = held || (s.Stamped > s.Consumed && int64(s.Until)*1000 > int64(past))
		}
		if held {
			r.unknownEdges++
			r.lastUnknown = m.From
			return true
		}
	}
	return false
}

// lateName stands for incarnations that were forgotten and are heard. No edge can be
// called so.
const lateName = "(late word)"

// lateWord counts the sessions of an incarnation that was forgotten, because it was
// thought to have ended, and is alive. It is told to begin anew, and its books were
// closed when the last second of them was freed: whatever it tells of since was counted
// nowhere.
func (l *lives) lateWord(m *wire.Report) {
	e := l.roster.find(lateName, m.Inc)
	if e == nil {
		if !l.roster.unknownEdge(m, l.rooms.watermark) || mutant.On(mutant.LateWordUncounted) {
			return
		}
		e = l.roster.add(lateName, m.Inc)
		e.become(left)
	}
	news := false
	for i := range m.Rooms {
		b := l.rooms.open(m.Rooms[i].Room)
		b.excess.found(m.Inc)
		b.counts.begin(max(earliest(m), l.rooms.watermark))
		acc := b.account(e)
		before := acc.sessions
		acc.takeSessions(&b.counts, m.Rooms[i].Sessions)
		news = news || !slices.Equal(before, acc.sessions)
		b.dirty, b.stale = true, true
	}
	if news {
		l.enrol(e)
	}
}

// witness takes note of whom an edge followed. Where the store is empty, the process that
// led last knows everything that was stored, unless a rival led since: in a store that is
// lost now, where it adopted edges and lent to them. It cannot have without their
// promise, which they tell. So where each edge that may have had a lease tells that it
// followed us last, and nobody turns up who followed somebody newer, there is no unknown
// past. Nor is there one where the operator says that the data centre is new, until an
// edge turns up that followed somebody.
func (r *roster) witness(now fleet.Mono, m *wire.Report, s *stored) {
	switch {
	case r.rival || (r.ownTerm == 0 && !r.begins):
	case m.Seen.N > r.ownTerm:
		if r.rival = true; r.find(wire.UnknownPast, 0) == nil && (r.recoveredEdges > 0 || r.begins) {
			// Taken for none already.
			r.add(wire.UnknownPast, 0).recv = now
			s.change(func(d *wire.Durable) { d.LoseTrack() })
			r.unknownEdges++
			r.lastUnknown = m.From
		}
	case m.Seen.N == r.ownTerm:
		r.witnesses = slices.DeleteFunc(r.witnesses, func(w wire.GoneEdge) bool { return w.Edge == m.From && w.Inc == m.Inc })
	}
}

// forgetPast takes the unknown past off the roster once it is known. Before that, edges that
// nobody here knows have the time to turn up: late says that it is over.
func (r *roster) forgetPast(late bool) {
	if r.recoveredEdges == 0 || r.rival || len(r.witnesses) > 0 || !late {
		return
	}
	if e := r.find(wire.UnknownPast, 0); e != nil && !e.lostHold {
		e.become(left)
	}
}
