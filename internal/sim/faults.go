package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Faults is what goes wrong. The zero value is a fleet in which nothing does.
type Faults struct {
	Every time.Duration // mean time between two faults; 0 for none
	Last  time.Duration // mean length of a cut, a stop, or the time until a restart
	Until time.Duration // no fault begins or lasts beyond it; 0 for the end of the run

	// Which faults there are.
	CrashEdge, CrashRegion, CrashGlobal bool
	Zombies                             bool // a leader that is replaced lives on for a while and believes to lead
	CutEdge, CutRegion                  bool // in one direction or both
	Stop                                bool // processes stand still and go on
	Limits                              bool // T and R are lowered and raised
	Disk                                bool // stores are slow
	Clocks                              bool // wall clocks are off by up to five minutes, monotonic ones drift at the bound

	Astray float64       // share of messages that arrive twice
	Tardy  float64       // share of messages that are late
	Late   time.Duration // by at most so much
}

func (f *Faults) drift() float64 {
	if f.Clocks {
		return 100e-6 // either way: 200 ppm between two
	}
	return 50e-6
}

// wall draws how far a machine's wall clock is off.
func (f *Faults) wall(rng *rand.Rand) time.Duration {
	if !f.Clocks {
		return 0
	}
	return time.Duration((rng.Float64()*2 - 1) * float64(5*time.Minute))
}

func (f *Faults) astray(rng *rand.Rand) bool { return f.Astray > 0 && rng.Float64() < f.Astray }

func (f *Faults) late(rng *rand.Rand) bool { return f.Tardy > 0 && rng.Float64() < f.Tardy }

// slowDisk draws by how much a write takes longer.
func (w *World) slowDisk() int64 {
	if !w.cfg.Faults.Disk || w.chaos.IntN(4) > 0 {
		return 0
	}
	return w.chaos.Int64N(int64(3 * time.Second))
}

func (w *World) tell(format string, args ...any) {
	if w.trace != nil {
		w.trace("%10.3f  %s\n", float64(w.now)/1e9, fmt.Sprintf(format, args...))
	}
}

func (w *World) beginFaults() {
	if w.cfg.Faults.Every > 0 {
		w.in(5*time.Second+w.pause(w.cfg.Faults.Every), w.fault)
	}
}

// in lets something happen after d.
func (w *World) in(d time.Duration, do func()) {
	w.plan(event{at: w.now + int64(d), kind: evDo, msg: do})
}

// pause draws a time with the given mean.
func (w *World) pause(mean time.Duration) time.Duration {
	return time.Duration(w.chaos.ExpFloat64() * float64(mean))
}

// last draws how long a fault lasts, and until when.
func (w *World) last() (d time.Duration, until int64) {
	d = min(w.pause(w.cfg.Faults.Last), 10*w.cfg.Faults.Last)
	until = w.now + int64(d)
	if end := w.cfg.Faults.Until; end > 0 && until > int64(end) {
		until = max(int64(end), w.now)
		d = time.Duration(until - w.now)
	}
	return d, until
}

// fault lets one thing go wrong and plans the next.
func (w *World) fault() {
	f := &w.cfg.Faults
	if f.Until > 0 && w.now > int64(f.Until) {
		return
	}
	w.in(w.pause(f.Every), w.fault)
	var kinds []func()
	for _, k := range []struct {
		on bool
		do func()
	}{
		{f.CrashEdge, w.crashEdge},
		{f.CrashRegion, w.crashRegion},
		{f.CrashGlobal, w.crashGlobal},
		{f.CutEdge, w.cutEdge},
		{f.CutRegion, w.cutRegion},
		{f.Stop, w.stop},
		{f.Limits, w.changeLimits},
	} {
		if k.on {
			kinds = append(kinds, k.do)
		}
	}
	if len(kinds) > 0 {
		kinds[w.chaos.IntN(len(kinds))]()
	}
}

func (w *World) crashEdge() {
	i := int32(w.chaos.IntN(len(w.edges)))
	n := w.edges[i]
	if n.down {
		return
	}
	d, _ := w.last()
	w.tell("%s of %s crashes for %v", n.name, w.regions[n.region].name, d)
	n.down = true
	for k := range w.visitors { // whom it held lose their connection and ask again
		if v := &w.visitors[k]; v.hold != nil && v.edge == i {
			v.hold = nil
			v.gen++
			w.plan(event{at: w.now + int64(time.Second), kind: evVisit, node: int32(k), gen: v.gen})
		}
	}
	w.in(d, func() {
		w.tell("%s of %s starts anew", n.name, w.regions[n.region].name)
		w.startEdge(i)
	})
}

// takeover is how long after a leader was lost the next one leads.
func (w *World) takeover() time.Duration {
	return 1300*time.Millisecond + time.Duration(w.chaos.Int64N(int64(700*time.Millisecond)))
}

func (w *World) crashRegion() {
	i := int32(w.chaos.IntN(len(w.regions)))
	n := w.regions[i].newest()
	if n.gone {
		return
	}
	w.replace(&n.proc, w.regions[i].name+"'s aggregator", func() { w.startRegion(i, false) })
}

func (w *World) crashGlobal() {
	n := w.newest()
	if n.gone {
		return
	}
	w.replace(&n.proc, "the coordinator", func() { w.startGlobal(false) })
}

// replace ends a leader, at once or long after its successor has begun.
func (w *World) replace(p *proc, who string, next func()) {
	d, _ := w.last()
	if w.cfg.Faults.Zombies && w.chaos.IntN(5) < 3 {
		w.tell("%s is replaced and lives on for %v", who, d)
		w.in(d, func() { p.gone = true })
	} else {
		w.tell("%s crashes", who)
		p.gone = true
	}
	after := w.takeover()
	if w.chaos.IntN(4) == 0 { // nobody stands by
		after += d
	}
	w.in(after, func() {
		w.tell("a successor of %s begins", who)
		next()
	})
}

// oneWay draws which directions of a link are cut.
func (w *World) oneWay() (up, down bool) {
	k := w.chaos.IntN(3)
	return k != 1, k != 2
}

func (w *World) cutEdge() {
	n := w.edges[w.chaos.IntN(len(w.edges))]
	d, until := w.last()
	up, down := w.oneWay()
	w.tell("%s of %s is cut off for %v (up %v, down %v)", n.name, w.regions[n.region].name, d, up, down)
	if up {
		n.cutUp = max(n.cutUp, until)
	}
	if down {
		n.cutDown = max(n.cutDown, until)
	}
}

func (w *World) cutRegion() {
	r := w.regions[w.chaos.IntN(len(w.regions))]
	d, until := w.last()
	up, down := w.oneWay()
	w.tell("%s is cut off for %v (up %v, down %v)", r.name, d, up, down)
	if up {
		r.cutUp = max(r.cutUp, until)
	}
	if down {
		r.cutDown = max(r.cutDown, until)
	}
}

// stop lets a process stand still for a while and go on as if nothing had been.
func (w *World) stop() {
	d, until := w.last()
	switch w.chaos.IntN(4) {
	case 0:
		w.tell("the coordinator stands still for %v", d)
		w.newest().asleep = until
	case 1:
		r := w.regions[w.chaos.IntN(len(w.regions))]
		w.tell("%s's aggregator stands still for %v", r.name, d)
		r.newest().asleep = until
	default:
		n := w.edges[w.chaos.IntN(len(w.edges))]
		w.tell("%s of %s stands still for %v", n.name, w.regions[n.region].name, d)
		n.asleep = until
	}
}

// changeLimits lowers or raises T and R, to between half and twice what they
// were at first.
func (w *World) changeLimits() {
	first := w.judge.first
	w.cfg.Total = max(1, int(float64(first.total)*(0.5+1.5*w.chaos.Float64())))
	w.cfg.Rate = max(1, int(float64(first.rate)*(0.5+1.5*w.chaos.Float64())))
	w.tell("T is now %d, R %d", w.cfg.Total, w.cfg.Rate)
	w.judge.total = max(w.judge.total, w.cfg.Total)
	w.judge.limit = max(w.judge.limit, w.cfg.Rate)
	w.judge.rateSince = 0
	for _, g := range w.globals {
		if !g.gone {
			g.core.SetRooms(g.clock.read(w.now), w.rooms())
		}
	}
	for _, r := range w.regions {
		for _, n := range r.procs {
			if !n.gone {
				n.core.SetRooms(n.clock.read(w.now), w.rooms())
				w.wakeRegion(n.id)
			}
		}
	}
	for i, g := range w.globals {
		if !g.gone {
			w.wakeGlobal(int32(i))
		}
	}
}

// VaryFaults returns an experiment drawn from seed in which things go wrong.
// Each seed draws which faults there are at all.
func VaryFaults(seed uint64) Config {
	c := Vary(seed)
	rng := rand.New(rand.NewPCG(seed, 0x6661756c74))
	some := func(p float64) bool { return rng.Float64() < p }
	c.Cap = some(0.7)
	if !c.Cap {
		// Under serve, visitors who leave a cut-off edge may exceed T, and by how
		// much is known; who stays cannot.
		c.People.Stay, c.People.Parallel = 1, 0
	}
	c.Length += 2 * time.Minute
	f := &c.Faults
	f.Every = time.Duration(3+rng.IntN(30)) * time.Second
	f.Last = []time.Duration{300 * time.Millisecond, 3 * time.Second, 15 * time.Second, time.Minute}[rng.IntN(4)]
	f.CrashEdge, f.CrashRegion, f.CrashGlobal = some(0.6), some(0.6), some(0.6)
	f.Zombies, f.CutEdge, f.CutRegion = some(0.5), some(0.5), some(0.5)
	f.Stop, f.Limits, f.Disk, f.Clocks = some(0.4), some(0.3), some(0.4), some(0.4)
	if some(0.5) {
		f.Astray, f.Tardy, f.Late = rng.Float64()*0.1, rng.Float64()*0.1, time.Duration(1+rng.IntN(10000))*time.Millisecond
	}
	if some(0.3) {
		c.Params.RegionalLease = 10 * time.Second
	}
	return c
}
