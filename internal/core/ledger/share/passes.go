package share

import (
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// This file is the ledger of passes: "let in the next N" of a paused room. A lent pass is out until its holder
// returns it unused. A holder that is replaced or lost returns none.
//
// Invariant, per release: free passes and passes that are out sum to N, and each admission uses one that is
// out. So a release admits at most N visitors under any fault, and N without faults.
//
// Its rules (decision 85):
//
//   - A coordinator lends a release only if the store marks it for its own term. So no other coordinator
//     lends it, and a successor has nothing to lend.
//   - A report about passes counts only if they were lent under this term, to this instance and of this
//     release, and only once.
//   - An edge uses a pass once, with a permit of T and one of R, in the step that admits a visitor.
//   - Passes are lent only to a child that reports held visitors for them.

// Passes are the passes of one release at a lender: global, or an aggregator that borrowed some.
type Passes struct {
	Release uint64
	N       uint64 // total to lend
	out     uint64 // lent, cumulative
	back    uint64 // of those, returned
	Spent   uint64 // of those, used, as reported
}

// PassLoan has the passes of a release lent to one child, and the visitors that wait for more.
type PassLoan struct {
	wire.Passes
	Callable uint64           // held visitors that a pass would admit
	Joined   []fleettime.Time // join times of the first of them
}

// Grant returns the passes for a grant to the child.
func (l *PassLoan) Grant(p *Passes) wire.Passes {
	l.Reset(p.Release)
	return wire.Passes{Release: p.Release, Allocation: l.Offered()}
}

// Clear drops the passes of a child that was replaced.
func (l *PassLoan) Clear() {
	*l = PassLoan{}
}

// ApplyReport applies the used and returned passes of a child, and its waiting visitors.
func (p *Passes) ApplyReport(l *PassLoan, r *wire.RoomReport) {
	l.Callable, l.Joined = r.Callable, r.HeldJoined[:min(uint64(len(r.HeldJoined)), r.Callable)]
	t := &r.Passes
	if l.Reset(p.Release); t.Release != p.Release || t.Returned > l.Granted || t.Spent > l.Granted-t.Returned {
		return // of another release or another instance
	}
	back := ledger.Growth(&l.Returned, t.Returned)
	p.back += back
	p.Spent += ledger.Growth(&l.Spent, t.Spent)
}

// Lend divides at most most passes among the children that hold visitors, in the order in which the visitors joined.
// It returns the children with changes, and those whose grant is urgent.
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

// Free returns the number of passes that are not lent.
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
