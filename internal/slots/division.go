package slots

import (
	"slices"

	"vestibule/internal/fleet"
	"vestibule/internal/line"
	"vestibule/internal/mutant"
)

// division is one room of a data centre at the moment in which its free rights are divided
// among the edges: a snapshot of all that decides.
type division struct {
	free, rateFree int64 // of T and of R; below 0 is a debt
	keep, rateKeep int64 // idle rights that global lets the data centre keep
	reconstructed  bool  // what is free goes back to global
	closed         bool  // nobody is let in
	horizon        fleet.Time
	claims         []claim

	// Found on the way.
	scarce  bool // global wants some back
	starved bool // somebody is held whom no right in the data centre serves
	unrated bool // the same of rights of R
	short   bool // a held visitor waits for a right that is not in hand
	knock   bool // global is to hear of it soon
}

// claim is what one edge has, asks for and gets.
type claim struct {
	idle, rateIdle int64        // rights that lie unused there
	want           uint64       // rights that newcomers there will want by its next report
	heldJoined     []fleet.Time // join times of visitors held there, ascending
	heldPeople     uint64       // how many those are; not all of them are named
	movers         uint64       // visitors inside who move there from another data centre

	need   int // rights that visitors held there can use now
	moving int // rights of T for those who move
	gifts  [2]gift
}

// gift is what an edge is given of T or of R. It never takes: it tells how much is to
// stay, and the edge returns the rest.
type gift struct{ give, keep int64 }

// The two sides of a division.
const (
	ofT = iota
	ofR
)

// needs returns the rights of T or of R that visitors at the edge can use now.
func (c *claim) needs(side int) int64 {
	if side == ofR {
		return int64(c.need) // who moves in was admitted already, elsewhere
	}
	return int64(c.need + c.moving)
}

// divide decides what every edge may hold. Held visitors come first, with all there is;
// what global wants back is taken from what would lie idle. It returns which edges cannot
// wait for their next report.
func (d *division) divide() (push []bool) {
	free, rfree := max(0, d.free), max(0, d.rateFree)
	if d.reconstructed && !mutant.On(mutant.ReconstructedUsed) {
		free, rfree = 0, 0 // they go back to global
	}
	supply, rsupply := free+min(0, d.free), rfree+min(0, d.rateFree)
	moving := int64(0)
	for i := range d.claims {
		c := &d.claims[i]
		supply += c.idle // a debt is paid with what lies idle at the edges
		rsupply += c.rateIdle
		moving += int64(c.movers)
	}
	supply, rsupply = max(0, supply), max(0, rsupply)
	d.scarce = d.closed || supply > d.keep || rsupply > d.rateKeep
	moved := firstInside(d.claims, supply)
	held := int64(0)
	if !d.closed { // without rights of R nobody can be let in
		held = int64(firstInLine(d.claims, d.horizon, min(supply-moved, rsupply)))
	}
	d.starved, d.unrated = held > min(supply-moved, rsupply), held > rsupply
	push = make([]bool, len(d.claims))
	d.side(ofT, supply, free, d.keep, push)
	d.side(ofR, rsupply, rfree, d.rateKeep, push)
	d.knock = d.starved || d.short || moving > moved || (free > 0 && supply > d.keep) || (rfree > 0 && rsupply > d.rateKeep)
	return push
}

// side divides the rights of T or of R: supply of them are in the data centre, free of
// those at no edge, and so many may stay if nobody needs them.
func (d *division) side(side int, supply, free, keep int64, push []bool) {
	open := d.horizon == line.Open && !d.closed
	wants := make([]int, len(d.claims))
	used, wanted := int64(0), int64(0)
	for i := range d.claims {
		if open {
			wants[i] = int(d.claims[i].want)
		}
		wanted += int64(wants[i])
		used += d.claims[i].needs(side)
	}
	rest := min(supply, keep) - used
	parts := Fill(int(max(0, rest)), wants, nil)
	plenty := open && rest-wanted >= 2*int64(len(d.claims))
	for i := range d.claims {
		c := &d.claims[i]
		g := gift{keep: c.needs(side) + int64(parts[i])}
		need, idle := g.keep, c.idleOf(side)
		if plenty {
			g.keep++ // nobody's first visitor shall have to wait for a question
		}
		if plenty && !d.starved && !d.scarce {
			g.keep = max(g.keep, min(idle, 4*g.keep+2)) // no hurry to take back a little more than is needed
		}
		g.give = min(max(0, g.keep-idle), free)
		free -= g.give
		d.short = d.short || idle+g.give < c.needs(side)
		push[i] = push[i] || (g.give > 0 && idle < need)
		c.gifts[side] = g
	}
	// Held visitors and starving edges cannot wait.
	for i := range d.claims {
		c := &d.claims[i]
		push[i] = push[i] || (c.gifts[side].keep < c.idleOf(side) && (d.short || d.starved || d.scarce))
	}
}

func (c *claim) idleOf(side int) int64 {
	if side == ofR {
		return c.rateIdle
	}
	return c.idle
}

// firstInside gives those who are inside and move here their rights of T, before
// anybody outside, and returns how many that are.
func firstInside(claims []claim, supply int64) (n int64) {
	for i := range claims {
		c := &claims[i]
		c.moving = int(min(int64(c.movers), supply-n))
		n += int64(c.moving)
	}
	return n
}

// firstInLine gives each of n rights to the edge that holds the visitor who
// joined first among those up to the horizon, and returns how many visitors
// there are to give to.
func firstInLine(claims []claim, horizon fleet.Time, n int64) int {
	type head struct {
		joined fleet.Time
		claim  int
	}
	var line []head
	total := 0
	for i, c := range claims {
		listed := 0
		for _, joined := range c.heldJoined {
			if joined > horizon {
				break
			}
			line = append(line, head{joined, i})
			listed++
		}
		if listed == len(c.heldJoined) && c.heldPeople > uint64(listed) {
			total += int(c.heldPeople) - listed // more are held than were named
		}
	}
	total += len(line)
	slices.SortStableFunc(line, func(a, b head) int { return int(a.joined - b.joined) })
	for _, h := range line[:min(int64(len(line)), max(0, n))] {
		claims[h.claim].need++
	}
	return total
}
