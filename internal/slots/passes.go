package slots

import (
	"vestibule/internal/fleet"
	"vestibule/internal/line"
	"vestibule/internal/mutant"
	"vestibule/internal/room"
	"vestibule/internal/wire"
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
//   - Passes are lent only to who tells that somebody is held whom they would let in. Who knows no
//     passes, as nodes of release 0.1.0, tells of nobody and is lent none.

// Release is "let in the next N" as the store holds it.
type Release struct {
	ID     uint64    // a later one has a higher number; 0 for none
	N      uint64    // people
	Lender wire.Term // the coordinator that lends it; the zero Term before one does
}

func releaseOf(r *room.Release) Release {
	out := Release{ID: r.ID, N: uint64(r.N)}
	if l := r.Lender; l != nil {
		out.Lender = wire.Term{N: l.Term, Nonce: l.Nonce}
	}
	return out
}

// passes are those of one release as who lends them knows it: global, or an aggregator that was lent some.
type passes struct {
	release uint64
	n       uint64 // to lend in all
	out     uint64 // lent, ever
	back    uint64 // of those, given back
	spent   uint64 // of those, used, as far as told
}

// free returns how many passes are lent to nobody.
func (p *passes) free() uint64 {
	if held := p.out - p.back; held < p.n {
		return p.n - held
	}
	return 0
}

// passLoan is what one child was lent of the passes of a release, and what it said of them.
type passLoan struct {
	release         uint64
	granted         uint64
	returned, spent uint64
	keep            uint64
	callable        uint64       // people held there whom a pass would let in
	joined          []fleet.Time // join times of the first of them
}

// unused returns how many passes lie at the child, as far as known.
func (l *passLoan) unused() uint64 { return l.granted - l.returned - l.spent }

// told returns what the child is to be told.
func (l *passLoan) told(p *passes) wire.Passes {
	l.of(p.release)
	return wire.Passes{Release: p.release, Granted: l.granted, Keep: l.keep}
}

// of begins the books of a release, unless they have begun.
func (l *passLoan) of(release uint64) {
	if l.release != release {
		*l = passLoan{release: release, callable: l.callable, joined: l.joined}
	}
}

// forget takes what the child was lent for gone: it is another one now.
func (l *passLoan) forget() {
	if !mutant.On(mutant.PassesOfThePredecessor) {
		*l = passLoan{}
	}
}

// take takes what a child tells of its passes and of who waits for any.
func (p *passes) take(l *passLoan, r *wire.RoomReport) {
	l.callable, l.joined = r.Callable, r.HeldJoined[:min(uint64(len(r.HeldJoined)), r.Callable)]
	t := &r.Passes
	if l.of(p.release); t.Release != p.release || t.Returned > l.granted || t.Spent > l.granted-t.Returned {
		return // of another release, or of what was lent to somebody else
	}
	back := growth(&l.returned, t.Returned)
	if mutant.On(mutant.PassesBackTwice) {
		back = min(t.Returned, p.out-p.back)
	}
	p.back += back
	p.spent += growth(&l.spent, t.Spent)
}

// lend divides the passes among those at whom people are held, in the order in which they joined: at most
// so many in all, and to a child in what is free. It returns what changed for whom.
func (p *passes) lend(to []*passLoan, most uint64) (news, push []bool) {
	news, push = make([]bool, len(to)), make([]bool, len(to))
	held, heldN := make([][]fleet.Time, len(to)), make([]uint64, len(to))
	all, callable := p.free(), uint64(0)
	for i, l := range to {
		l.of(p.release)
		held[i], heldN[i] = l.joined, l.callable
		all += l.unused()
		callable += l.callable
	}
	nobody := make([]float64, len(to))
	for i, n := range PlaceHeld(int(min(all, callable, most)), held, heldN, make([]line.Histogram, len(to)), nobody) {
		l, keep := to[i], uint64(n)
		if keep != l.keep {
			l.keep, news[i] = keep, true
			push[i] = keep < l.unused()
		}
		if give := min(keep-min(keep, l.unused()), p.free()); give > 0 {
			l.granted += give
			p.out += give
			news[i], push[i] = true, true
		}
	}
	return news, push
}

// open reports whether the release is one that this coordinator lends now: it is marked for its term, and
// the room lets nobody in otherwise.
func (p *pool) open() bool {
	r := &p.Release
	return !p.gone && p.Shut && r.ID != 0 && r.ID == p.passes.release
}

// begin takes a release that the store says is this coordinator's to lend. One that was begun stays as it is.
func (p *pool) begin() {
	r := &p.Release
	mine := r.Lender == p.cfg.Term || r.Lender.Zero() && mutant.On(mutant.ReleaseUnmarked) || !r.Lender.Zero() && mutant.On(mutant.ReleaseMarkedTwice)
	if r.ID > p.passes.release && mine {
		p.passes = passes{release: r.ID, n: r.N}
		for _, d := range p.centres.all {
			p.loan(d).dirty = true
		}
	}
}

// lendPasses lends the passes of the open release to where people are held, and calls back all where
// none is open.
func (p *pool) lendPasses(s *survey) {
	if p.passes.release == 0 {
		return
	}
	var to []*passLoan
	var of []int
	for i, l := range s.loans {
		if s.how[i] == lendAll {
			to, of = append(to, &l.passes), append(of, i)
		} else if l.passes.keep > 0 {
			l.passes.keep, l.dirty = 0, true
		}
	}
	most := uint64(0)
	if p.open() {
		most = p.passes.n
	}
	news, push := p.passes.lend(to, most)
	for k, i := range of {
		s.loans[i].dirty = s.loans[i].dirty || news[k]
		s.homes[i].push = s.homes[i].push || push[k]
	}
}

// callable returns how many people may be called to enter by a pass, where rights of T and of R are as
// many, and the join times of the first of them.
func (p *pool) callable(s *survey) (n int64, joined []fleet.Time) {
	if !p.open() {
		return 0, nil
	}
	all := p.passes.free()
	var lists [][]fleet.Time
	for i, l := range s.loans {
		if l.passes.of(p.passes.release); s.how[i] == lendAll {
			all += l.passes.unused()
			lists = append(lists, l.passes.joined)
		}
	}
	return min(int64(all), s.supply, s.rate), mergeTimes(lists, int(min(all, 1<<20)))
}

// callStep is how far apart the times are up to which everybody is called.
const callStep = 10_000 // ms

// calledUpTo returns up to which join time people may enter by a pass, where so many are called.
func calledUpTo(n int64, joined []fleet.Time, ft fleet.Time) fleet.Time {
	switch {
	case n <= 0:
		return 0
	case n <= int64(len(joined)):
		return joined[n-1]
	}
	return ft - ft%callStep + 2*callStep // there are more than are held, or than are named
}

// lendPasses divides what was lent to the data centre among its edges. What nobody needs here goes
// back with the next report, and it reports whether anything does. lends says that anybody is to be
// let in.
func (b *books) lendPasses(accounts []*account, lends bool) (back bool) {
	if b.passes.release == 0 {
		return false
	}
	b.passes.n = b.hand.Granted - b.hand.Returned
	to := make([]*passLoan, len(accounts))
	for i, acc := range accounts {
		to[i] = &acc.passes
	}
	most := b.hand.Keep
	if !lends {
		most = 0
	}
	news, push := b.passes.lend(to, most)
	for i, acc := range accounts {
		if news[i] {
			acc.news()
		}
		acc.edge.push = acc.edge.push || push[i]
	}
	lent := uint64(0)
	for _, l := range to {
		lent += l.unused()
	}
	if free := b.passes.free(); free > 0 && free+lent > b.hand.Keep {
		n := min(free, free+lent-b.hand.Keep)
		b.hand.Returned += n
		b.passes.n -= n
		b.dirty = true
		return true
	}
	return false
}

// takePasses takes what global lends.
func (b *books) takePasses(from wire.Term, g *wire.Passes) {
	news, anew := b.hand.Take(from, g)
	if !news {
		return
	}
	b.dirty, b.stale = true, true
	if anew {
		b.passes = passes{release: b.hand.Release}
	}
	for _, acc := range b.accounts {
		if anew {
			acc.passes = passLoan{callable: acc.passes.callable, joined: acc.passes.joined}
		}
		acc.news()
	}
}

// tellPasses writes into a report to global what became of its passes, and who waits for any.
func (b *books) tellPasses(to wire.Term, r *wire.RoomReport) {
	b.hand.Spent = b.passes.spent
	r.Passes = b.hand.Tell(to)
	for _, acc := range b.accounts {
		if acc.edge.state == alive {
			r.Callable += acc.passes.callable
		}
	}
}
