package wire

import (
	"vestibule/internal/core/wire/wirepb"
)

// Passes are what a child was lent of one release: "let in the next N" of a room that is paused. A pass
// lets one visitor in, once, beside a permit of T and one of R, and never comes again. The counters
// begin with the release, or with the parent's term or the child's incarnation where those began later.
type Passes struct {
	Release uint64 // a later one has a higher number; 0 for none
	Allocation
	Spent uint64 // admissions by them; written by the child
}

// Unused returns how many passes the child has not used, as far as known.
func (p *Passes) Unused() uint64 { return p.Allocation.Unused(p.Spent) }

// Hand is a child's side of the passes that it was lent.
//
// Invariant: Returned+Spent <= Granted. Of a release that is over, or was lent by a parent that is
// followed no more, nothing counts here: whoever lent it never lends it to others.
type Hand struct {
	Passes
	from Term // the parent that lent them
}

// Take takes what the parent followed says. It reports whether that changes anything, and whether the hand
// begins anew with it: with a later release, or under another parent.
func (h *Hand) Take(from Term, g *Passes) (news, anew bool) {
	if g.Release < h.Release || g.Release == 0 {
		return false, false
	}
	if anew = g.Release != h.Release || from != h.from; anew {
		*h = Hand{Passes: Passes{Release: g.Release}, from: from}
	}
	news = anew || g.Keep != h.Keep
	more, _ := h.Apply(g.Allocation)
	return news || more, anew
}

// Surplus returns how many passes are to be returned: all unused ones where none may be kept.
func (h *Hand) Surplus(none bool) uint64 {
	if none {
		return h.Unused()
	}
	return h.Allocation.Surplus(h.Unused())
}

// Tell returns what a parent is told: nothing of what another one lent.
func (h *Hand) Tell(to Term) Passes {
	if to != h.from {
		return Passes{}
	}
	return Passes{Release: h.Release, Allocation: h.Told(), Spent: h.Spent}
}

func packPasses(p *Passes) *wirepb.Passes {
	if p.Release == 0 {
		return nil
	}
	return &wirepb.Passes{Release: p.Release, Granted: p.Granted, Returned: p.Returned, Spent: p.Spent, Keep: p.Keep}
}

func unpackPasses(p *wirepb.Passes) Passes {
	return Passes{
		Release: p.GetRelease(), Spent: p.GetSpent(),
		Allocation: Allocation{Granted: p.GetGranted(), Returned: p.GetReturned(), Keep: p.GetKeep()},
	}
}
