package region

import (
	"vestibule/internal/core/ledger/share"
	"vestibule/internal/core/wire"
)

// passes are the passes of one room, which is paused.
type passes struct {
	hand wire.Hand    // as global lends them
	lent share.Passes // the same, as edges are lent them
}

// take takes the passes that global lends. It reports whether that is news.
func (p *passes) take(from wire.Term, g *wire.Passes, to accounts) bool {
	news, anew := p.hand.Take(from, g)
	if !news {
		return false
	}
	if anew {
		p.lent = share.Passes{Release: p.hand.Release}
	}
	for _, acc := range to {
		if anew {
			acc.passes = share.PassLoan{Callable: acc.passes.Callable, Joined: acc.passes.Joined}
		}
		acc.news()
	}
	return true
}

// lend divides the passes among edges. Those that nobody needs here are returned with the next report,
// and it reports whether there are any. lends says that visitors may be let in.
func (p *passes) lend(accounts []*account, lends bool) (back bool) {
	if p.lent.Release == 0 {
		return false
	}
	p.lent.N = uint64(p.hand.Held())
	to := make([]*share.PassLoan, len(accounts))
	for i, acc := range accounts {
		to[i] = &acc.passes
	}
	most := p.hand.Keep
	if !lends {
		most = 0
	}
	news, push := p.lent.Lend(to, most)
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
	if free := p.lent.Free(); free > 0 && free+lent > p.hand.Keep {
		n := min(free, free+lent-p.hand.Keep)
		p.hand.Returned += n
		p.lent.N -= n
		return true
	}
	return false
}

// tell writes the used and returned passes, and the visitors that wait for more, into a report to global.
func (p *passes) tell(to wire.Term, r *wire.RoomReport, from accounts) {
	p.hand.Spent = p.lent.Spent
	r.Passes = p.hand.Tell(to)
	for _, acc := range from {
		if acc.edge.state == alive {
			r.Callable += acc.passes.Callable
		}
	}
}
