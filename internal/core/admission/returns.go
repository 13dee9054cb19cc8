package admission

import (
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
)

// pendingReturns knows how many people joined in each of the last seconds, and how many of
// them have returned since. Only who returned is counted as waiting: a flood of
// visitors without cookies is nobody. But people who join in a rush would all be
// told of an empty line until they return; so those who are to be expected are
// told of, in the share in which others returned a moment before.
//
// Visitors who return to another edge are missed here and surplus there: the sum
// over all edges is right, second by second.
type pendingReturns struct {
	newest int64 // second of the newest cell
	cells  [returnCells]returnCell
}

type returnCell struct{ issued, returned uint32 }

const (
	// Who keeps a cookie is back within so many seconds, or is not expected.
	returnWait = 4
	// Of those who joined so many seconds before that the share is taken.
	returnTrial = 12
	returnCells = returnWait + returnTrial

	// Before anybody joined everybody is expected, with the weight of ten who did. The
	// weight fades as people join: in a flood of who does not return it would be people
	// at every edge whom nobody ever saw.
	returnPrior = 10
)

// advance moves the book to now, and reports whether there is anything in it.
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

// joined returns the cell of those who joined then; of somebody who joined too long
// ago, one that nobody looks at.
func (p *pendingReturns) joined(now, then fleettime.Time) *returnCell {
	p.advance(now)
	if s := then.Second(); s <= p.newest && s > p.newest-returnCells {
		return p.cell(s)
	}
	return &returnCell{}
}

// issued notes that somebody joined then, a moment ago.
func (p *pendingReturns) issued(now, joined fleettime.Time) { p.joined(now, joined).issued++ }

// returned notes that somebody who joined then has returned.
func (p *pendingReturns) returned(now, joined fleettime.Time) { p.joined(now, joined).returned++ }

// expected returns how many people have joined and are yet to return, and by join
// time: below zero where more returned here than joined here.
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
		n := share*float64(c.issued) - float64(c.returned)
		if n == 0 {
			continue
		}
		slice := estimate.Slice{Start: fleettime.Time((p.newest - i) * 1000), Width: 1000, N: n}
		if i == 0 { // in coarse steps, so that the sums of many edges stay short
			const step = 250
			slice.Width = min(1000, max(0, int64(now-slice.Start))/step*step+step)
		}
		h = append(h, slice)
	}
	return h
}
