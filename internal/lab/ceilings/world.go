package ceilings

import (
	"fmt"
	"math/rand/v2"
)

// World is a data centre under faults by chance: messages that are cut, lost, late and doubled, leaders that are
// replaced and go on for a while, edges that a successor cannot hear.
type World struct {
	cfg      *Config
	rng      *rand.Rand
	now      Time
	dc       *tier
	edges    []*Child
	joins    []Time
	gone     []bool // for good
	visitors []*visitor
	ids      int
	fault    float64
	apart    float64 // chance that a successor cannot hear an edge
	trial    Trial
	backups  []store
	wants    []int // permits that each edge asks for, where chance does not say
	judge    judge
}

// visitor is a visitor and the newest ticket that it holds.
type visitor struct {
	name   string
	id     int  // of its session; 0 for none
	expiry Time // of the ticket that it holds
	newest Time // of the newest ticket of its session, which it may not have got
	held   bool // the one that it holds is a guest's
	guest  bool // the newest is a guest's
}

// Trial is what a world tries.
type Trial struct {
	Without Without
	Told    bool // the second form
	Clocks  bool // clocks differ
	Ends    bool
	Rate    bool
	Serve   bool
	Gone    bool // edges are gone for good
	Restore bool // the store comes back older, or empty
	Ticks   Time
}

// The durations of a small world, in ticks.
const (
	ticketLife = 12
	minute     = 9
	edgeLease  = 7
	leadLease  = 5
	overlap    = 6
)

// NewWorld returns the world of a seed.
func NewWorld(seed uint64, trial Trial) *World {
	r := rand.New(rand.NewPCG(seed, 26))
	cfg := &Config{
		Without: trial.Without, Lease: edgeLease, Overlap: overlap, Told: trial.Told, Ends: trial.Ends, Serve: trial.Serve,
		LostAfter: 40, Bootstrap: !trial.Restore, Allowance: 1 + r.IntN(2), Slack: 2 * r.IntN(2), Lazy: 1 + 4*r.IntN(2),
		Accounts: []Account{{Limit: 1 + r.IntN(8), Life: ticketLife}},
	}
	if trial.Rate {
		cfg.Accounts = append(cfg.Accounts, Account{Limit: 1 + r.IntN(6), Life: minute})
	}
	if trial.Clocks {
		cfg.Bound = Time(1 + r.IntN(2))
	}
	w := newWorld(cfg, r, 1+r.IntN(3))
	w.trial = trial
	w.fault, w.apart = []float64{.03, .1}[r.IntN(2)], []float64{0, .3, .6}[r.IntN(3)]
	w.dc.loss, w.dc.late = []float64{0, .1, .3}[r.IntN(3)], []int{0, 1, 3}[r.IntN(3)]
	for range 2*cfg.Accounts[0].Limit + 3 {
		w.visitors = append(w.visitors, &visitor{})
	}
	for i := range w.edges {
		if r.IntN(3) == 0 {
			w.joins[i] = Time(r.IntN(100))
		}
	}
	return w
}

// newWorld returns a world without faults.
func newWorld(cfg *Config, r *rand.Rand, edges int) *World {
	w := &World{cfg: cfg, rng: r, judge: judge{cfg: cfg}}
	w.dc = newTier(cfg, r, edges)
	w.dc.reports = func(t Time, i int) []Report { return []Report{w.edges[i].Report(w.reading(i))} }
	w.dc.apply = func(t Time, i int, g *Grant) { w.edges[i].Apply(w.reading(i), g) }
	for i := range edges {
		w.edges = append(w.edges, NewChild(cfg, i, 0))
	}
	w.joins, w.gone, w.wants = make([]Time, edges), make([]bool, edges), make([]int, edges)
	return w
}

func newTier(cfg *Config, r *rand.Rand, children int) *tier {
	x := &tier{cfg: cfg, rng: r, children: children, cut: map[link]bool{}, lead: leadLease, off: make([]Time, children), delay: make([]Time, children)}
	x.store.docs = map[Key]stored{}
	for i := range x.off {
		if b := int(cfg.Bound); b > 0 {
			x.off[i] = Time(r.IntN(2*b+1) - b)
		}
	}
	return x
}

// reading is what the clock of an edge reads.
func (w *World) reading(edge int) Time { return w.now + w.dc.off[edge] }

// Run plays the world and returns the promise that it broke, or "".
func (w *World) Run() string {
	for ; w.now < w.trial.Ticks; w.now++ {
		w.faults()
		w.tick(true)
		for range w.rng.IntN(5) {
			w.visit(w.visitors[w.rng.IntN(len(w.visitors))], w.rng.IntN(len(w.edges)))
		}
		if b := w.judge.look(w); b != "" {
			return b
		}
	}
	return ""
}

// tick lets the nodes act once; chance has edges keep silent, leaders be replaced and clocks drift.
func (w *World) tick(chance bool) {
	x := w.dc
	x.hold(w.now)
	if chance && w.now >= x.until {
		l := x.elect(w.now, Time(w.rng.IntN(3)/2)*overlap)
		for i := range w.edges {
			if w.rng.Float64() < w.apart {
				x.sever(l.term, i)
			}
		}
	}
	for i, c := range w.edges {
		if !w.present(i) {
			continue
		}
		if chance && w.cfg.Bound > 0 && w.rng.IntN(6) == 0 { // at most by one, and never backwards
			x.off[i] = min(w.cfg.Bound, x.off[i]+1)
		} else if chance && w.cfg.Bound > 0 && w.rng.IntN(6) == 0 && w.now > 0 {
			x.off[i] = max(-w.cfg.Bound, x.off[i]-1)
		}
		c.Pass(w.reading(i))
		for a := range c.accounts {
			c.accounts[a].want = w.wants[i]
			if chance {
				c.accounts[a].want = w.rng.IntN(3)
			}
		}
		if !chance || w.rng.Float64() < .8 {
			x.report(w.now, i)
		}
	}
	x.deliver(w.now)
	for _, l := range x.acting(w.now) {
		x.step(w.now, l)
	}
	x.flush(w.now)
}

func (w *World) present(i int) bool { return w.now >= w.joins[i] && !w.gone[i] }

// faults is a fault by chance.
func (w *World) faults() {
	r, x := w.rng, w.dc
	if w.trial.Restore && w.now%8 == 0 {
		w.backups = append(w.backups, x.store.clone())
	}
	if r.Float64() >= w.fault {
		return
	}
	top := x.top()
	switch k := r.Float64(); {
	case top == nil:
	case k < .45:
		term := max(1, top.term-r.IntN(2))
		x.sever(term, r.IntN(len(w.edges)+1)-1)
	case k < .75:
		clear(x.cut)
	case k < .8 && w.trial.Gone:
		w.gone[r.IntN(len(w.edges))] = true
	case k < .85 && w.trial.Restore:
		x.store = store{docs: map[Key]stored{}}
		if n := len(w.backups); r.IntN(2) == 0 {
			x.store = w.backups[max(0, n-1-r.IntN(3))].clone()
		}
	default:
		if r.IntN(2) == 0 {
			top.stays = 0 // it dies, rather than being replaced
			top.until = w.now
		}
		x.until = min(x.until, w.now+1)
	}
}

// visit lets a visitor show what it has at an edge.
func (w *World) visit(v *visitor, edge int) {
	if !w.present(edge) {
		return
	}
	switch c, now := w.edges[edge], w.reading(edge); {
	case v.id != 0 && c.Accepts(now, v.id, v.expiry):
		switch r := w.rng.Float64(); {
		case w.cfg.Ends && r < .15:
			c.End(v.id, v.expiry)
		case r < .8:
			w.renew(v, edge, w.rng.Float64() < .05)
		}
	case v.id != 0 && v.expiry > now && w.cfg.Ends && !w.denied(edge, v.id):
		w.stamp(v, edge, c.MoveIn, false)
	default:
		w.stamp(v, edge, c.Admit, true)
	}
}

func (w *World) denied(edge, id int) bool {
	_, ok := w.edges[edge].ends[id]
	return ok
}

// stamp lets a visitor in with a permit; anew says that it is another session.
func (w *World) stamp(v *visitor, edge int, by func(Time) (Time, bool), anew bool) bool {
	expiry, ok := by(w.reading(edge))
	if !ok {
		return false
	}
	if anew {
		w.ids++
		v.id, v.newest = w.ids, 0
		w.judge.admitted = append(w.judge.admitted, w.now)
	}
	v.expiry, v.newest, v.held, v.guest = expiry, max(v.newest, expiry), false, false
	return true
}

// renew renews a visitor's ticket; lost says that the answer does not arrive.
func (w *World) renew(v *visitor, edge int, lost bool) {
	expiry, guest, ok := w.edges[edge].Renew(w.reading(edge), v.expiry, v.held)
	if !ok {
		return
	}
	v.newest, v.guest = max(v.newest, expiry), guest
	if !lost {
		v.expiry, v.held = expiry, guest
	}
}

// String names the world for a report of a break.
func (w *World) String() string {
	return fmt.Sprintf("%d edges, T %d", len(w.edges), w.cfg.Accounts[0].Limit)
}
