package wire

import (
	"vestibule/internal/core/wire/wirepb"
)

// Passes are what a child was lent of one release: "let in the next N" of a room that is paused. A pass
// lets one person in, once, beside a right of T and one of R, and never comes again. As with rights
// every number is cumulative and has one writer; they count from the beginning of the release, or of
// the parent's term or of the child's incarnation where those began later.
type Passes struct {
	Release  uint64 // a later one has a higher number; 0 for none
	Granted  uint64 // ever lent, written by the parent
	Returned uint64 // given back unused, written by the child
	Spent    uint64 // admissions by them, written by the child
	Keep     uint64 // in grants: how many unused ones may stay
}

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
	news = anew || g.Granted > h.Granted || g.Keep != h.Keep
	h.Granted, h.Keep = max(h.Granted, g.Granted), g.Keep
	return news, anew
}

// Unused returns how many passes are in hand.
func (h *Hand) Unused() uint64 {
	if used := h.Returned + h.Spent; used < h.Granted {
		return h.Granted - used
	}
	return 0
}

// Surplus returns how many more are in hand than may stay; all where none may.
func (h *Hand) Surplus(none bool) uint64 {
	n := h.Unused()
	if none {
		return n
	}
	return n - min(n, h.Keep)
}

// Tell returns what a parent is told: nothing of what another one lent.
func (h *Hand) Tell(to Term) Passes {
	if to != h.from {
		return Passes{}
	}
	told := h.Passes
	told.Keep = 0
	return told
}

func packPasses(p *Passes) *wirepb.Passes {
	if p.Release == 0 {
		return nil
	}
	return &wirepb.Passes{Release: p.Release, Granted: p.Granted, Returned: p.Returned, Spent: p.Spent, Keep: p.Keep}
}

func unpackPasses(p *wirepb.Passes) Passes {
	return Passes{Release: p.GetRelease(), Granted: p.GetGranted(), Returned: p.GetReturned(), Spent: p.GetSpent(), Keep: p.GetKeep()}
}
