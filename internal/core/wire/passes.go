package wire

import (
	"vestibule/internal/core/wire/pb"
)

// Passes are a child's passes of one release ("let in the next N" of a paused room). A pass admits one visitor, once,
// in addition to a permit of T and one of R, and never returns. The counters start with the release, or with the
// parent's term or the child's instance if those began later.
type Passes struct {
	Release uint64 // number of the release; later ones are higher, 0 for none
	Allocation
	Spent uint64 // admissions with passes; written by the child
}

// Unused returns the passes that the child has not used, as far as known.
func (p *Passes) Unused() uint64 { return p.Allocation.Unused(p.Spent) }

// Hand is the child's side of its passes.
//
// Invariant: Returned+Spent <= Granted. Passes of a finished release, or of a former parent, do not count: that parent
// never grants them to others.
type Hand struct {
	Passes
	from Term // the parent that granted them
}

// Take applies a grant of the followed parent. It reports whether anything changed, and whether the counters start
// anew, for a later release or another parent.
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

// Surplus returns the passes to return: all unused ones if none is set.
func (h *Hand) Surplus(none bool) uint64 {
	if none {
		return h.Unused()
	}
	return h.Allocation.Surplus(h.Unused())
}

// Tell returns the passes to report to a parent: none if another parent granted them.
func (h *Hand) Tell(to Term) Passes {
	if to != h.from {
		return Passes{}
	}
	return Passes{Release: h.Release, Allocation: h.Reported(), Spent: h.Spent}
}

var passesFields = pb.Message[Passes]{
	pb.Int(1, func(p *Passes) *uint64 { return &p.Release }),
	pb.Int(2, func(p *Passes) *uint64 { return &p.Granted }),
	pb.Int(3, func(p *Passes) *uint64 { return &p.Returned }),
	pb.Int(4, func(p *Passes) *uint64 { return &p.Spent }),
	pb.Int(5, func(p *Passes) *uint64 { return &p.Keep }),
}

func granted(p *Passes) bool { return p.Release != 0 }
