package share

import (
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// This file is the ledger of passes: "let in the next N" of a room that is paused. It stands beside those
// of T and R and knows one direction only. A pass that was lent is out until its holder reports that it
// was returned unused. A holder that is replaced or gone returns none.
//
// Invariant, per release: free passes and passes that are out sum to N, and each admission uses one that
// is out. So a release lets in at most N visitors whatever fails, and N where nothing does.
//
// It rests on these rules (decision 85):
//
//   - A coordinator lends a release only where the store says that it is marked for its own term. So no
//     other one ever lends it, and a successor knows without asking that it has nothing to lend.
//   - A report about passes counts only if they were lent under this term, to this instance, of
//     this release, and once.
//   - An edge uses a pass once, beside a permit of T and one of R, in the step in which it admits.
//   - Passes are lent only to a child that reports held visitors for them.

// Passes are the passes of one release at their lender: global, or an aggregator that was lent some.
type Passes struct {
	Release uint64
	N       uint64 // to lend in all
	out     uint64 // lent, ever
	back    uint64 // of those, given back
	Spent   uint64 // of those, used, as far as told
}

// PassLoan has the passes of a release that one child was lent, and the visitors that wait for more.
type PassLoan struct {
	wire.Passes
	Callable uint64           // held visitors that a pass would let in
	Joined   []fleettime.Time // join times of the first of them
}

// Grant returns the passes as the child is granted them.
func (l *PassLoan) Grant(p *Passes) wire.Passes {
	l.Reset(p.Release)
	return wire.Passes{Release: p.Release, Allocation: l.Offered()}
}

// Clear drops the passes of a child that was replaced.
func (l *PassLoan) Clear() {
	*l = PassLoan{}
}

// ApplyReport takes the used and returned passes of a child, and its waiting visitors, from a report.
func (p *Passes) ApplyReport(l *PassLoan, r *wire.RoomReport) {
	l.Callable, l.Joined = r.Callable, r.HeldJoined[:min(uint64(len(r.HeldJoined)), r.Callable)]
	t := &r.Passes
	if l.Reset(p.Release); t.Release != p.Release || t.Returned > l.Granted || t.Spent > l.Granted-t.Returned {
		return // of another release, or of passes that were lent to another child
	}
	back := ledger.Growth(&l.Returned, t.Returned)
	p.back += back
	p.Spent += ledger.Growth(&l.Spent, t.Spent)
}

// Lend divides most passes at most among the children that hold visitors, in the order in which
// those joined. It returns which children have news, and which of them at once.
func (p *Passes) Lend(to []*PassLoan, most uint64) (news, push []bool) {
	news, push = make([]bool, len(to)), make([]bool, len(to))
	held, heldN := make([][]fleettime.Time, len(to)), make([]uint64, len(to))
	all, callable := p.Free(), uint64(0)
	for i, l := range to {
		l.Reset(p.Release)
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
			l.Granted += give
			p.out += give
			news[i], push[i] = true, true
		}
	}
	return news, push
}

// Free returns how many passes are lent to nobody.
func (p *Passes) Free() uint64 {
	if held := p.out - p.back; held < p.N {
		return p.N - held
	}
	return 0
}

// Reset drops the passes of any other release.
func (l *PassLoan) Reset(release uint64) {
	if l.Release != release {
		*l = PassLoan{Passes: wire.Passes{Release: release}, Callable: l.Callable, Joined: l.Joined}
	}
}
