package ceilings

import (
	"fmt"
	"math/rand/v2"
)

// Tree is global above data centres: the same lender twice. A regional is a lender of its edges and a child of
// global. What it holds there is the limit that it lends by.
type Tree struct {
	cfg      *Config // of the data centres
	rng      *rand.Rand
	now      Time
	root     *tier
	centres  []*centre
	visitors []*visitor
	home     map[*visitor]int
	ids      int
	fault    float64
	apart    float64
	ticks    Time
	used     float64
}

// centre is one data centre.
type centre struct {
	*tier
	edges []*Child
}

// NewTree returns the tree of a seed.
func NewTree(seed uint64, trial Trial) *Tree {
	r := rand.New(rand.NewPCG(seed, 27))
	t := &Tree{rng: r, home: map[*visitor]int{}, ticks: trial.Ticks}
	t.cfg = &Config{
		Without: trial.Without, Lease: edgeLease, Overlap: overlap, Told: true, Bootstrap: true, Allowance: 1 + r.IntN(2),
		Slack: 2 * r.IntN(2), Lazy: 1 + 4*r.IntN(2), Accounts: []Account{{Limit: 1 + r.IntN(8), Life: ticketLife}},
	}
	if trial.Clocks {
		t.cfg.Bound = Time(1 + r.IntN(2))
	}
	global := *t.cfg
	global.Centre = true
	t.root = newTier(&global, r, 1+r.IntN(3))
	t.root.loss, t.root.late = []float64{0, .1, .3}[r.IntN(3)], []int{0, 1, 3}[r.IntN(3)]
	t.fault, t.apart = []float64{.03, .1}[r.IntN(2)], []float64{0, .3, .6}[r.IntN(3)]
	for range t.root.children {
		t.centres = append(t.centres, t.centre(1+r.IntN(2)))
	}
	t.root.reports = t.reports
	t.root.apply = func(_ Time, dc int, g *Grant) {
		for _, l := range t.centres[dc].acting(t.now) {
			l.up.Apply(t.now+l.off, g)
		}
	}
	for range 2*t.cfg.Accounts[0].Limit + 3 {
		t.visitors = append(t.visitors, &visitor{})
	}
	return t
}

// centre adds a data centre.
func (t *Tree) centre(edges int) *centre {
	x := &centre{tier: newTier(t.cfg, t.rng, edges)}
	x.loss, x.late = t.root.loss, t.root.late
	for i := range edges {
		x.edges = append(x.edges, NewChild(t.cfg, i, 0))
	}
	x.reports = func(_ Time, i int) []Report { return []Report{x.edges[i].Report(t.now + x.off[i])} }
	x.apply = func(_ Time, i int, g *Grant) { x.edges[i].Apply(t.now+x.off[i], g) }
	id := len(t.centres)
	x.elected = func(_ Time, l *leader) {
		l.up = NewChild(t.root.cfg, id, l.term)
		l.up.blank = true
	}
	return x
}

// reports are those of every regional of a data centre that leads, or believes to.
func (t *Tree) reports(_ Time, dc int) (list []Report) {
	for _, l := range t.centres[dc].acting(t.now) {
		if !l.Leads() {
			continue
		}
		l.up.Pass(t.now + l.off)
		h := &l.up.accounts[0]
		l.now = t.now + l.off
		l.SetLimit(0, h.credit)
		free := l.Free(0)
		l.covered = l.covered || (free >= 0 && !l.up.blank)
		if n := min(free, h.credit); n > 0 && !l.up.blank && t.rng.IntN(4) == 0 {
			h.credit -= 1 + t.rng.IntN(n) // it returns what is idle
		}
		h.want = t.rng.IntN(3)
		r := l.up.Report(t.now + l.off)
		if !l.covered && t.cfg.Without.keeps(OutReported) {
			r.Lines[0].Out = l.limits[0] - free // a predecessor may have lent more than it is told
		}
		list = append(list, r)
	}
	return list
}

// Run plays the tree and returns the promise that it broke, or "".
func (t *Tree) Run() string {
	for ; t.now < t.ticks; t.now++ {
		t.faults(t.root)
		t.play(t.root)
		for _, c := range t.centres {
			t.faults(c.tier)
			t.play(c.tier)
		}
		for range t.rng.IntN(5) {
			t.visit(t.visitors[t.rng.IntN(len(t.visitors))])
		}
		if b := t.look(); b != "" {
			return b
		}
	}
	return ""
}

// play lets one tier act once.
func (t *Tree) play(x *tier) {
	x.hold(t.now)
	if t.now >= x.until {
		l := x.elect(t.now, Time(t.rng.IntN(3)/2)*overlap)
		for i := range x.children {
			if t.rng.Float64() < t.apart {
				x.sever(l.term, i)
			}
		}
	}
	for i := range x.children {
		if x != t.root {
			for _, c := range t.centres {
				if c.tier == x {
					c.edges[i].Pass(t.now + x.off[i])
					c.edges[i].accounts[0].want = t.rng.IntN(3)
				}
			}
		}
		if t.rng.Float64() < .8 {
			x.report(t.now, i)
		}
	}
	x.deliver(t.now)
	for _, l := range x.acting(t.now) {
		if l.up != nil {
			l.up.Pass(t.now + l.off)
			l.SetLimit(0, l.up.accounts[0].credit)
			l.SetLease(max(1, l.up.lease))
		}
		x.step(t.now, l)
	}
	x.flush(t.now)
}

// faults is a fault of a tier by chance.
func (t *Tree) faults(x *tier) {
	top := x.top()
	if top == nil || t.rng.Float64() >= t.fault {
		return
	}
	switch k := t.rng.Float64(); {
	case k < .45:
		x.sever(max(1, top.term-t.rng.IntN(2)), t.rng.IntN(x.children+1)-1)
	case k < .75:
		clear(x.cut)
	default:
		if t.rng.IntN(2) == 0 {
			top.stays, top.until = 0, t.now
		}
		x.until = min(x.until, t.now+1)
	}
}

// visit lets a visitor show what it has somewhere. A session of another data centre takes a permit.
func (t *Tree) visit(v *visitor) {
	dc := t.rng.IntN(len(t.centres))
	x := t.centres[dc]
	i := t.rng.IntN(len(x.edges))
	e, now := x.edges[i], t.now+x.off[i]
	var expiry Time
	var ok bool
	switch {
	case v.id != 0 && v.expiry > now && t.home[v] == dc:
		expiry, _, ok = e.Renew(now, v.expiry, false)
	case v.id != 0 && v.expiry > now:
		expiry, ok = e.MoveIn(now)
	default:
		if expiry, ok = e.Admit(now); ok {
			t.ids++
			v.id, v.newest = t.ids, 0
		}
	}
	if !ok {
		return
	}
	if v.newest = max(v.newest, expiry); t.rng.Float64() > .05 || v.newest == expiry && v.expiry <= now {
		v.expiry, t.home[v] = expiry, dc
	}
}

// look returns the promise that is broken now, or "".
func (t *Tree) look() string {
	inside := 0
	for _, v := range t.visitors {
		if v.id != 0 && v.newest > t.now+t.slowest() {
			inside++
		}
	}
	limit := t.cfg.Accounts[0].Limit
	t.used += float64(min(inside, limit)) / float64(limit) / float64(t.ticks)
	if inside > limit {
		return fmt.Sprintf("tick %d: %d sessions, T %d, %d data centres", t.now, inside, limit, len(t.centres))
	}
	return ""
}

// slowest is by how much the slowest clock of an edge is off.
func (t *Tree) slowest() (off Time) {
	off = t.cfg.Bound
	for _, c := range t.centres {
		for _, o := range c.off {
			off = min(off, o)
		}
	}
	return off
}
