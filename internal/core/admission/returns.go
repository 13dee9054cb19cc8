package admission

import (
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
)

// pendingReturns counts the visitors that joined in each cell of the last seconds, and how many of them have returned.
// Only a returned visitor is counted as waiting: a flood of clients without cookies counts as nobody. But in a rush
// all would be shown an empty queue until they return, so the expected returns are added, at the rate of a moment
// before.
//
// A visitor that returns to another edge is missing here and surplus there: the sum over all edges is right for
// each cell.
type pendingReturns struct {
	newest int64 // number of the newest cell; see cellOf
	last   int64 // newest cell in which a visitor joined; 0 for none
	cells  [returnCells]returnCell
}

type returnCell struct{ issued, returned uint32 }

const (
	// returnWait is within how many cells a client with cookies returns, or is not expected.
	returnWait = 4 * perSecond
	// returnTrial is the age in cells of the visitors that define the rate.
	returnTrial = 12 * perSecond
	returnCells = returnWait + returnTrial

	// returnPrior is the weight of the prior rate of 1. It decays as visitors join: in a flood of clients without
	// cookies every edge would otherwise show visitors that nobody saw.
	returnPrior = 10
)

// advance moves the book to now, and reports whether it is not empty.
func (p *pendingReturns) advance(now fleettime.Time) bool {
	last := cellOf(now)
	p.newest = max(p.newest, last-returnCells)
	for p.newest < last {
		p.newest++
		*p.cell(p.newest) = returnCell{}
	}
	return p.last > max(0, p.newest-returnWait)
}

func (p *pendingReturns) cell(number int64) *returnCell {
	return &p.cells[(number%returnCells+returnCells)%returnCells]
}

// joined returns the cell of a join time, or for an older one a cell that is never read.
func (p *pendingReturns) joined(now, then fleettime.Time) *returnCell {
	p.advance(now)
	if at := cellOf(then); at <= p.newest && at > p.newest-returnCells {
		return p.cell(at)
	}
	return &returnCell{}
}

// issued counts a visitor that just joined.
func (p *pendingReturns) issued(now, joined fleettime.Time) {
	p.joined(now, joined).issued++
	p.last = max(p.last, min(cellOf(joined), p.newest))
}

// returned counts the return of a visitor that joined then.
func (p *pendingReturns) returned(now, joined fleettime.Time) { p.joined(now, joined).returned++ }

// expected returns how many visitors have joined and not returned yet, by join time: negative if more returned here
// than joined here.
func (p *pendingReturns) expected(now fleettime.Time) estimate.Histogram {
	p.advance(now)
	issued, returned := 0.0, 0.0
	for i := int64(returnWait); i < returnCells; i++ {
		c := p.cell(p.newest - i)
		issued += float64(c.issued)
		returned += float64(c.returned)
	}
	prior := returnPrior * returnPrior / (returnPrior + issued)
	share := min(1, (returned+prior)/(issued+prior))
	var h estimate.Histogram
	for i := int64(returnWait) - 1; i >= 0; i-- {
		c := p.cell(p.newest - i)
		if n := share*float64(c.issued) - float64(c.returned); n != 0 {
			h = append(h, slice(p.newest-i, n))
		}
	}
	return h
}
