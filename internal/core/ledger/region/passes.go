package region

import (
	"vestibule/internal/core/ledger/share"
	"vestibule/internal/core/wire"
)

// passes are the passes of one paused room.
type passes struct {
	fromGlobal wire.Hand    // the passes that global lends
	toEdges    share.Passes // the passes that edges are lent
}

// applyGrant applies the passes that global lends. It reports whether they changed.
func (p *passes) applyGrant(from wire.Term, g *wire.Passes, to accounts) bool {
	news, anew := p.fromGlobal.Take(from, g)
	if !news {
		return false
	}
	if anew {
		p.toEdges = share.Passes{Release: p.fromGlobal.Release}
	}
	for _, acc := range to {
		if anew {
			acc.passes = share.PassLoan{Callable: acc.passes.Callable, Joined: acc.passes.Joined}
		}
		acc.markChanged()
	}
	return true
}

// lend divides the passes among edges. lends says that visitors may be admitted. Passes that no edge needs are
// returned with the next report: lend reports whether there are any.
func (p *passes) lend(accounts []*account, lends bool) (back bool) {
	if p.toEdges.Release == 0 {
		return false
	}
	p.toEdges.N = uint64(p.fromGlobal.Held())
	to := make([]*share.PassLoan, len(accounts))
	for i, acc := range accounts {
		to[i] = &acc.passes
	}
	most := p.fromGlobal.Keep
	if !lends {
		most = 0
	}
	news, push := p.toEdges.Lend(to, most)
	for i, acc := range accounts {
		if news[i] {
			acc.markChanged()
		}
		acc.edge.urgent = acc.edge.urgent || push[i]
	}
	lent := uint64(0)
	for _, l := range to {
		lent += l.Unused()
	}
	if free := p.toEdges.Free(); free > 0 && free+lent > p.fromGlobal.Keep {
		n := min(free, free+lent-p.fromGlobal.Keep)
		p.fromGlobal.Returned += n
		p.toEdges.N -= n
		return true
	}
	return false
}

// addToReport adds the used and returned passes, and the visitors that wait for more, to a report to global.
func (p *passes) addToReport(to wire.Term, r *wire.RoomReport, from accounts) {
	p.fromGlobal.Spent = p.toEdges.Spent
	r.Passes = p.fromGlobal.Tell(to)
	for _, acc := range from {
		if acc.edge.state == alive {
			r.Callable += acc.passes.Callable
		}
	}
}
