package region

import (
	"vestibule/internal/core/ledger/share"
	"vestibule/internal/core/wire"
)

// lendPasses divides what was lent to the data centre among its edges. What nobody needs here goes
// back with the next report, and it reports whether anything does. lends says that anybody is to be
// let in.
func (b *books) lendPasses(accounts []*account, lends bool) (back bool) {
	if b.passes.Release == 0 {
		return false
	}
	b.passes.N = b.hand.Granted - b.hand.Returned
	to := make([]*share.PassLoan, len(accounts))
	for i, acc := range accounts {
		to[i] = &acc.passes
	}
	most := b.hand.Keep
	if !lends {
		most = 0
	}
	news, push := b.passes.Lend(to, most)
	for i, acc := range accounts {
		if news[i] {
			acc.news()
		}
		acc.edge.push = acc.edge.push || push[i]
	}
	lent := uint64(0)
	for _, l := range to {
		lent += l.Unused()
	}
	if free := b.passes.Free(); free > 0 && free+lent > b.hand.Keep {
		n := min(free, free+lent-b.hand.Keep)
		b.hand.Returned += n
		b.passes.N -= n
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
		b.passes = share.Passes{Release: b.hand.Release}
	}
	for _, acc := range b.accounts {
		if anew {
			acc.passes = share.PassLoan{Callable: acc.passes.Callable, Joined: acc.passes.Joined}
		}
		acc.news()
	}
}

// tellPasses writes into a report to global what became of its passes, and who waits for any.
func (b *books) tellPasses(to wire.Term, r *wire.RoomReport) {
	b.hand.Spent = b.passes.Spent
	r.Passes = b.hand.Tell(to)
	for _, acc := range b.accounts {
		if acc.edge.state == alive {
			r.Callable += acc.passes.Callable
		}
	}
}
