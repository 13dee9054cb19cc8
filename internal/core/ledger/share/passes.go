package share

import (
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// This file is the ledger of passes: "let in the next N" of a room that is paused. It stands beside those
// of T and R and knows one direction only. A pass that was lent is out until its holder, who is heard,
// tells that it came back unused; of a holder that is replaced or gone nothing comes back.
//
// Invariant, per release: what is free and what is out sum to N, and nobody is let in but by a pass that
// is out. So a release lets in no more than N, whatever dies, and N where nothing does.
//
// It rests on these rules (decision 85):
//
//   - A coordinator lends a release only where the store says that it is marked for its own term. So no
//     other one ever lends it, and a successor knows without asking that it has nothing to lend.
//   - What a child tells of passes counts only if it was lent under this term, to this incarnation, of
//     this release, and once.
//   - An edge uses a pass once, beside a right of T and one of R, in the step in which it admits.
//   - Passes are lent only to children that tell of somebody held whom a pass would let in.

// Passes are those of one release as who lends them knows it: global, or an aggregator that was lent some.
type Passes struct {
	Release uint64
	N       uint64 // to lend in all
	out     uint64 // lent, ever
	back    uint64 // of those, given back
	Spent   uint64 // of those, used, as far as told
}

// Free returns how many passes are lent to nobody.
func (p *Passes) Free() uint64 {
	if held := p.out - p.back; held < p.N {
		return p.N - held
	}
	return 0
}

// PassLoan is what one child was lent of the passes of a release, and what it said of them.
type PassLoan struct {
	release         uint64
	granted         uint64
	returned, spent uint64
	Keep            uint64
	Callable        uint64           // people held there whom a pass would let in
	Joined          []fleettime.Time // join times of the first of them
}

// Unused returns how many passes lie at the child, as far as known.
func (l *PassLoan) Unused() uint64 { return l.granted - l.returned - l.spent }

// Told returns what the child is to be told.
func (l *PassLoan) Told(p *Passes) wire.Passes {
	l.Of(p.Release)
	return wire.Passes{Release: p.Release, Granted: l.granted, Keep: l.Keep}
}

// Of begins the books of a release, unless they have begun.
func (l *PassLoan) Of(release uint64) {
	if l.release != release {
		*l = PassLoan{release: release, Callable: l.Callable, Joined: l.Joined}
	}
}

// Forget takes what the child was lent for gone: it is another one now.
func (l *PassLoan) Forget() {
	*l = PassLoan{}
}

// Take takes what a child tells of its passes and of who waits for any.
func (p *Passes) Take(l *PassLoan, r *wire.RoomReport) {
	l.Callable, l.Joined = r.Callable, r.HeldJoined[:min(uint64(len(r.HeldJoined)), r.Callable)]
	t := &r.Passes
	if l.Of(p.Release); t.Release != p.Release || t.Returned > l.granted || t.Spent > l.granted-t.Returned {
		return // of another release, or of what was lent to somebody else
	}
	back := ledger.Growth(&l.returned, t.Returned)
	p.back += back
	p.Spent += ledger.Growth(&l.spent, t.Spent)
}

// Lend divides the passes among those at whom people are held, in the order in which they joined: at most
// so many in all, and to a child in what is free. It returns what changed for whom.
func (p *Passes) Lend(to []*PassLoan, most uint64) (news, push []bool) {
	news, push = make([]bool, len(to)), make([]bool, len(to))
	held, heldN := make([][]fleettime.Time, len(to)), make([]uint64, len(to))
	all, callable := p.Free(), uint64(0)
	for i, l := range to {
		l.Of(p.Release)
		held[i], heldN[i] = l.Joined, l.Callable
		all += l.Unused()
		callable += l.Callable
	}
	nobody := make([]float64, len(to))
	for i, n := range PlaceHeld(int(min(all, callable, most)), held, heldN, make([]estimate.Histogram, len(to)), nobody) {
		l, keep := to[i], uint64(n)
		if keep != l.Keep {
			l.Keep, news[i] = keep, true
			push[i] = keep < l.Unused()
		}
		if give := min(keep-min(keep, l.Unused()), p.Free()); give > 0 {
			l.granted += give
			p.out += give
			news[i], push[i] = true, true
		}
	}
	return news, push
}
