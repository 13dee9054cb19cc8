package slots

import (
	"slices"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// surprised notes an edge whose incarnation nobody knows, and that all the same
// holds rights or sessions that may still be valid. The roster tells of every
// edge before its first lease: so either the store has lost what was stored, or the
// edge was declared lost and was alive. Whatever it holds was counted nowhere
// until now.
func (a *Aggregator) surprised(m *wire.Report) bool {
	past := max(least(m), a.watermark)
	for i := range m.Rooms {
		r := &m.Rooms[i]
		// A report that was under way for long tells of rights that are gone.
		held := r.Granted > r.Spent+r.Returned && past == least(m)
		for _, s := range r.Sessions {
			held = held || (s.Stamped > s.Consumed && int64(s.Until)*1000 > int64(past))
		}
		if held {
			a.surprises++
			a.surprise = m.From
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
func (a *Aggregator) lateWord(m *wire.Report) {
	e := a.find(lateName, m.Inc)
	if e == nil {
		if !a.surprised(m) || mutant.On(mutant.LateWordUncounted) {
			return
		}
		e = a.newEdge(lateName, m.Inc)
		e.state = left
	}
	news := false
	for i := range m.Rooms {
		b := a.books(m.Rooms[i].Room)
		b.found(m.Inc)
		b.counts.begin(max(least(m), a.watermark))
		acc := b.account(e)
		before := acc.sessions
		acc.takeSessions(&b.counts, m.Rooms[i].Sessions)
		news = news || !slices.Equal(before, acc.sessions)
		b.dirty, b.stale = true, true
	}
	if news {
		a.enrol(e)
	}
}

// Surprises returns how many edges came with sessions or rights that nothing
// stored tells of, and the last of them. The shell is to raise an alarm.
func (a *Aggregator) Surprises() (n uint64, edge string) { return a.surprises, a.surprise }

// witness takes note of whom an edge followed. Where the store is empty, the process that
// led last knows everything that was stored, unless a rival led since: in a store that is
// lost now, where it adopted edges and lent to them. It cannot have without their
// promise, which they tell. So where each edge that may have had a lease tells that it
// followed us last, and nobody turns up who followed somebody newer, there is no unknown
// past. Nor is there one where the operator says that the data centre is new, until an
// edge turns up that followed somebody.
func (a *Aggregator) witness(now fleet.Mono, m *wire.Report) {
	switch {
	case a.rival || (a.cfg.OwnTerm == 0 && !a.begins):
	case m.Seen.N > a.cfg.OwnTerm:
		if a.rival = true; a.find(wire.UnknownPast, 0) == nil && (a.heirs > 0 || a.begins) {
			// Taken for none already.
			a.newEdge(wire.UnknownPast, 0).recv = now
			a.durable = a.durable.Clone()
			a.durable.LoseTrack()
			a.durable.Version++
			a.surprises++
			a.surprise = m.From
		}
	case m.Seen.N == a.cfg.OwnTerm:
		a.witnesses = slices.DeleteFunc(a.witnesses, func(w wire.GoneEdge) bool { return w.Edge == m.From && w.Inc == m.Inc })
	}
}

// forgetPast takes the unknown past off the roster once it is known. Before that, edges that
// nobody here knows have the time to turn up.
func (a *Aggregator) forgetPast(now fleet.Mono) {
	if a.heirs == 0 || a.rival || len(a.witnesses) > 0 || now.Sub(a.started) <= a.patience() {
		return
	}
	if e := a.find(wire.UnknownPast, 0); e != nil && !e.vigil {
		e.state = left
	}
}
