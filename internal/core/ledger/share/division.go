package share

import (
	"slices"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
)

// Division divides the free permits of one room of a data centre among its edges. It is a snapshot of all inputs.
type Division struct {
	Free, RateFree int64 // permits of T and of R; negative for a debt
	Keep, RateKeep int64 // idle permits that global lets the data centre keep
	Closed         bool  // no visitor may be admitted
	Cutoff         fleettime.Time
	Claims         []Claim

	// Results.
	scarce      bool // global wants permits back
	waitingForT bool // a long-polled visitor waits, and no permit of T is free
	WaitingForR bool // the same for permits of R
	short       bool // a held visitor waits for a permit that its edge does not have
	Urgent      bool // the next report to global is urgent
}

// Claim is one edge in a division: its idle permits, its demand and its targets.
type Claim struct {
	Idle, RateIdle int64 // idle permits
	ledger.Demand

	need    int // permits that held visitors can use now
	moving  int // permits of T for sessions that move to the edge
	Targets [2]Target
}

// Target is the result for an edge and one kind of permit. Grant is added to its permits. The edge returns idle
// permits beyond Keep: a division never takes permits back.
type Target struct{ Grant, Keep int64 }

// The two sides of a division.
const (
	OfT = iota
	OfR
)

// Divide computes the targets of every edge. Held visitors come first, with all available permits. Permits that
// global wants back are those that would be idle. It returns the edges whose grant is urgent.
func (d *Division) Divide() (push []bool) {
	free, rfree := max(0, d.Free), max(0, d.RateFree)
	supply, rsupply := free+min(0, d.Free), rfree+min(0, d.RateFree)
	moving := int64(0)
	for i := range d.Claims {
		c := &d.Claims[i]
		supply += c.Idle // idle permits of the edges pay a debt
		rsupply += c.RateIdle
		moving += int64(c.Movers)
	}
	supply, rsupply = max(0, supply), max(0, rsupply)
	d.scarce = d.Closed || supply > d.Keep || rsupply > d.RateKeep
	moved := placeMovers(d.Claims, supply)
	held := int64(0)
	if !d.Closed { // admissions need permits of R
		held = int64(placeHeld(d.Claims, d.Cutoff, min(supply-moved, rsupply)))
	}
	d.waitingForT, d.WaitingForR = held > min(supply-moved, rsupply), held > rsupply
	push = make([]bool, len(d.Claims))
	d.side(OfT, supply, free, d.Keep, push)
	d.side(OfR, rsupply, rfree, d.RateKeep, push)
	d.Urgent = d.waitingForT || d.short || moving > moved || (free > 0 && supply > d.Keep) ||
		(rfree > 0 && rsupply > d.RateKeep)
	return push
}

// side divides the permits of T or of R. The data centre has supply of them; free of those are at no edge, and keep
// may stay in the data centre without demand.
func (d *Division) side(side int, supply, free, keep int64, push []bool) {
	open := d.Cutoff == estimate.Open && !d.Closed
	wants := make([]int, len(d.Claims))
	used, wanted := int64(0), int64(0)
	for i := range d.Claims {
		if open {
			wants[i] = int(d.Claims[i].Want)
		}
		wanted += int64(wants[i])
		used += d.Claims[i].needs(side)
	}
	rest := min(supply, keep) - used
	parts := Fill(int(max(0, rest)), wants, nil)
	plenty := open && rest-wanted >= 2*int64(len(d.Claims))
	for i := range d.Claims {
		c := &d.Claims[i]
		g := Target{Keep: c.needs(side) + int64(parts[i])}
		need, idle := g.Keep, c.idleOf(side)
		if plenty {
			g.Keep++ // one for the first visitor at the edge
		}
		if plenty && !d.waitingForT && !d.scarce {
			g.Keep = max(g.Keep, min(idle, 4*g.Keep+2)) // do not move a few surplus permits
		}
		g.Grant = min(max(0, g.Keep-idle), free)
		free -= g.Grant
		d.short = d.short || idle+g.Grant < c.needs(side)
		push[i] = push[i] || (g.Grant > 0 && idle < need)
		c.Targets[side] = g
	}
	// Held visitors and edges without permits cannot wait.
	for i := range d.Claims {
		c := &d.Claims[i]
		push[i] = push[i] || (c.Targets[side].Keep < c.idleOf(side) && (d.short || d.waitingForT || d.scarce))
	}
}

// needs returns the permits of T or of R that visitors at the edge can use now.
func (c *Claim) needs(side int) int64 {
	if side == OfR {
		return int64(c.need) // a visitor that moves here was admitted elsewhere
	}
	return int64(c.need + c.moving)
}

func (c *Claim) idleOf(side int) int64 {
	if side == OfR {
		return c.RateIdle
	}
	return c.Idle
}

// placeMovers allots permits of T to sessions that move here, before any waiting visitor, and returns their number.
func placeMovers(claims []Claim, supply int64) (n int64) {
	for i := range claims {
		c := &claims[i]
		c.moving = int(min(int64(c.Movers), supply-n))
		n += int64(c.moving)
	}
	return n
}

// placeHeld allots each of n permits to the edge with the held visitor who joined first, among those up to the
// cutoff. It returns the number of visitors that want one.
func placeHeld(claims []Claim, cutoff fleettime.Time, n int64) int {
	type head struct {
		joined fleettime.Time
		claim  int
	}
	var line []head
	total := 0
	for i, c := range claims {
		listed := 0
		for _, joined := range c.HeldJoined {
			if joined > cutoff {
				break
			}
			line = append(line, head{joined, i})
			listed++
		}
		if listed == len(c.HeldJoined) && c.HeldPeople > uint64(listed) {
			total += int(c.HeldPeople) - listed // held visitors without a listed join time
		}
	}
	total += len(line)
	slices.SortStableFunc(line, func(a, b head) int { return int(a.joined - b.joined) })
	for _, h := range line[:min(int64(len(line)), max(0, n))] {
		claims[h.claim].need++
	}
	return total
}
