package share

import (
	"slices"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
)

// Division is one room of a data centre at the moment in which its free rights are divided
// among the edges: a snapshot of all that decides.
type Division struct {
	Free, RateFree int64 // of T and of R; below 0 is a debt
	Keep, RateKeep int64 // idle rights that global lets the data centre keep
	Reconstructed  bool  // free permits go back to global
	Closed         bool  // nobody is let in
	Cutoff         fleettime.Time
	Claims         []Claim

	// Found on the way.
	scarce      bool // global wants some back
	WaitingForT bool // a long-polled visitor waits, and the data centre has no permit for it
	WaitingForR bool // the same of rights of R
	short       bool // a held visitor waits for a right that is not in hand
	Urgent      bool // global is to hear of it soon
}

// Claim is one edge in a division: its idle permits, its demand, and its gifts.
type Claim struct {
	Idle, RateIdle int64 // permits that are idle there
	ledger.Demand

	need    int // permits that visitors held there can use now
	moving  int // permits of T for sessions that move there
	Targets [2]Target
}

// Target is the result for an edge and one kind of permit. Give is added to its permits. The edge
// returns idle permits beyond Keep: a division never takes any.
type Target struct{ Grant, Keep int64 }

// The two sides of a division.
const (
	OfT = iota
	OfR
)

// Divide decides how many permits every edge may hold. Long-polled visitors come first, with all permits
// there are. Permits that global wants back are taken from those that would be idle. It returns the
// edges that cannot wait for their next report.
func (d *Division) Divide() (push []bool) {
	free, rfree := max(0, d.Free), max(0, d.RateFree)
	if d.Reconstructed {
		free, rfree = 0, 0 // they go back to global
	}
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
	if !d.Closed { // without rights of R nobody can be let in
		held = int64(placeHeld(d.Claims, d.Cutoff, min(supply-moved, rsupply)))
	}
	d.WaitingForT, d.WaitingForR = held > min(supply-moved, rsupply), held > rsupply
	push = make([]bool, len(d.Claims))
	d.side(OfT, supply, free, d.Keep, push)
	d.side(OfR, rsupply, rfree, d.RateKeep, push)
	d.Urgent = d.WaitingForT || d.short || moving > moved || (free > 0 && supply > d.Keep) || (rfree > 0 && rsupply > d.RateKeep)
	return push
}

// side divides the permits of T or of R: the data centre has supply of them, free of those are at no
// edge, and keep may stay in the data centre without demand.
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
			g.Keep++ // nobody's first visitor shall have to wait for a question
		}
		if plenty && !d.WaitingForT && !d.scarce {
			g.Keep = max(g.Keep, min(idle, 4*g.Keep+2)) // no hurry to take back a little more than is needed
		}
		g.Grant = min(max(0, g.Keep-idle), free)
		free -= g.Grant
		d.short = d.short || idle+g.Grant < c.needs(side)
		push[i] = push[i] || (g.Grant > 0 && idle < need)
		c.Targets[side] = g
	}
	// Held visitors and starving edges cannot wait.
	for i := range d.Claims {
		c := &d.Claims[i]
		push[i] = push[i] || (c.Targets[side].Keep < c.idleOf(side) && (d.short || d.WaitingForT || d.scarce))
	}
}

// needs returns the rights of T or of R that visitors at the edge can use now.
func (c *Claim) needs(side int) int64 {
	if side == OfR {
		return int64(c.need) // a visitor that moves in was admitted elsewhere
	}
	return int64(c.need + c.moving)
}

func (c *Claim) idleOf(side int) int64 {
	if side == OfR {
		return c.RateIdle
	}
	return c.Idle
}

// placeMovers gives permits of T to sessions that move here, before any visitor outside, and returns
// their number.
func placeMovers(claims []Claim, supply int64) (n int64) {
	for i := range claims {
		c := &claims[i]
		c.moving = int(min(int64(c.Movers), supply-n))
		n += int64(c.moving)
	}
	return n
}

// placeHeld gives each of n permits to the edge that holds the visitor who joined first among those
// up to the cutoff, and returns how many visitors want one.
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
			total += int(c.HeldPeople) - listed // more are held than were named
		}
	}
	total += len(line)
	slices.SortStableFunc(line, func(a, b head) int { return int(a.joined - b.joined) })
	for _, h := range line[:min(int64(len(line)), max(0, n))] {
		claims[h.claim].need++
	}
	return total
}
