package admission

import (
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
)

// pendingReturns counts the visitors that joined in each of the last seconds, and how many of them have returned.
// Only a returned visitor is counted as waiting: a flood of clients without cookies counts as nobody. But in a rush
// all would be shown an empty queue until they return, so the expected returns are added, at the rate of a moment
// before.
//
// A visitor that returns to another edge is missing here and surplus there: the sum over all edges is right for
// each second.
type pendingReturns struct {
	newest int64 // second of the newest cell
	cells  [returnCells]returnCell
}

type returnCell struct{ issued, returned uint32 }

const (
	// returnWait is within how many seconds a client with cookies returns, or is not expected.
	returnWait = 4
	// returnTrial is the age in seconds of the visitors that define the rate.
	returnTrial = 12
	returnCells = returnWait + returnTrial

	// returnPrior is the weight of the prior rate of 1. It decays as visitors join: in a flood of clients without
	// cookies every edge would otherwise show visitors that nobody saw.
	returnPrior = 10
)

// advance moves the book to now, and reports whether it is not empty.
func (p *pendingReturns) advance(now fleettime.Time) bool {
	s := now.Second()
	if s-p.newest > returnCells {
		p.newest = s - returnCells
	}
	for p.newest < s {
		p.newest++
		*p.cell(p.newest) = returnCell{}
	}
	return p.issuedSince(returnWait) > 0
}

func (p *pendingReturns) issuedSince(seconds int64) (n uint32) {
	for i := range seconds {
		n += p.cell(p.newest - i).issued
	}
	return n
}

func (p *pendingReturns) cell(second int64) *returnCell {
	return &p.cells[(second%returnCells+returnCells)%returnCells]
}

// joined returns the cell of a join time, or for an older one a cell that is never read.
func (p *pendingReturns) joined(now, then fleettime.Time) *returnCell {
	p.advance(now)
	if s := then.Second(); s <= p.newest && s > p.newest-returnCells {
		return p.cell(s)
	}
	return &returnCell{}
}

// issued counts a visitor that just joined.
func (p *pendingReturns) issued(now, joined fleettime.Time) { p.joined(now, joined).issued++ }

// returned counts the return of a visitor that joined then.
func (p *pendingReturns) returned(now, joined fleettime.Time) { p.joined(now, joined).returned++ }

// expected returns how many visitors have joined and not returned yet, in total and by join time: negative if more
// returned here than joined here.
func (p *pendingReturns) expected(now fleettime.Time) (float64, estimate.Histogram) {
	p.advance(now)
	issued, returned := 0.0, 0.0
	for i := int64(returnWait); i < returnCells; i++ {
		c := p.cell(p.newest - i)
		issued += float64(c.issued)
		returned += float64(c.returned)
	}
	prior := returnPrior * returnPrior / (returnPrior + issued)
	share := min(1, (returned+prior)/(issued+prior))
	sum := 0.0
	var h estimate.Histogram
	for i := int64(returnWait) - 1; i >= 0; i-- {
		c := p.cell(p.newest - i)
		n := share*float64(c.issued) - float64(c.returned)
		if sum += n; n == 0 {
			continue
		}
		slice := estimate.Slice{Start: fleettime.Time((p.newest - i) * 1000), Width: 1000, N: n}
		if i == 0 { // in coarse steps, so that sums over many edges stay short
			const step = 250
			slice.Width = min(1000, max(0, int64(now-slice.Start))/step*step+step)
		}
		h = append(h, slice)
	}
	return max(0, sum), h
}
