package sim

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/room"
)

// Crowd is a crowd in a room of its own, in two data centres of two edges, with goals for its forecasts. The simulator
// and internal/lab/crowd, with real clients, use the same crowds.
type Crowd struct {
	Name        string
	Total, Rate int
	Session     time.Duration
	Pages       float64       // mean number of pages per session
	Think       time.Duration // mean time between two pages
	People      int
	Over        time.Duration // duration of their arrival, evenly
	From        time.Duration // earlier visitors are not measured
	Method      string        // queueing_method, "" for fifo
	Changes     []Change      // by the operator, ascending
	Draw        bool          // an event begins with a draw as soon as possible after all have arrived
	Error       float64       // goal of the median error of the first estimate
}

// Change is an operator's change of a room's limits.
type Change struct {
	At          time.Duration // after the first arrival
	Total, Rate int           // 0 for no change
	Session     time.Duration
}

// Of returns the room's limits after the change.
func (c *Change) Of(total, rate int, session time.Duration) (int, int, time.Duration) {
	return cmp.Or(c.Total, total), cmp.Or(c.Rate, rate), cmp.Or(c.Session, session)
}

// Heard is the time until all answers reflect a change.
const Heard = 3 * time.Second

// Start returns when the event of a draw begins, after the first arrival: a draw is announced at least a minute before.
func (x *Crowd) Start() time.Duration { return max(x.Over+draw.Lead+2*time.Second, 65*time.Second) }

// Crowds returns all crowds. In a rush the doors have just opened; a cold room has had no ended session recently; the
// other crowds come a little faster than they can be admitted.
func Crowds() []Crowd {
	const s = time.Second
	const steady, cold, opening, changed, byLot, drawn = 0.05, 0.10, 0.12, 0.10, 0.15, 0.10
	base := Crowd{Total: 100, Rate: 6000, Session: 20 * s, Pages: 3, Think: 4 * s}
	var out []Crowd
	add := func(name string, people int, over time.Duration, goal float64, change func(*Crowd)) {
		x := base
		x.Name, x.People, x.Over, x.Error = name, people, over, goal
		change(&x)
		out = append(out, x)
	}
	add("rush of 250 in 15 s, bound by T", 250, 15*s, opening, func(x *Crowd) {})
	add("rush of 250 in 15 s, bound by R", 250, 15*s, opening, func(x *Crowd) { x.Total, x.Rate, x.Session, x.Pages = 2000, 100, 30*s, 2 })
	add("rush of 1,000 in 30 s, bound by T", 1000, 30*s, opening, func(x *Crowd) { x.Total = 300 })
	add("rush of 2,000 in 60 s, bound by T", 2000, 60*s, opening, func(x *Crowd) { x.Total, x.Rate = 500, 12000 })
	add("steady, bound by T", 1350, 150*s, steady, func(x *Crowd) { x.Total, x.From = 200, 60*s })
	add("steady, bound by R", 900, 150*s, steady, func(x *Crowd) { x.Total, x.Rate, x.Session, x.Pages, x.From = 4000, 300, 15*s, 2, 60*s })
	add("cold, bound by T", 500, 60*s, cold, func(x *Crowd) { x.Total = 150 })
	add("cold, bound by T, people stay long", 400, 60*s, cold, func(x *Crowd) { x.Total, x.Pages, x.Think = 150, 5, 5*s })
	add("T changed: 200, 120, 240", 1300, 135*s, changed, func(x *Crowd) {
		x.Total, x.From, x.Changes = 200, 30*s, []Change{{At: 50 * s, Total: 120}, {At: 95 * s, Total: 240}}
	})
	add("R changed: 300, 180, 420", 1300, 135*s, changed, func(x *Crowd) {
		x.Total, x.Rate, x.Session, x.Pages, x.From, x.Changes = 4000, 300, 15*s, 2, 30*s, []Change{{At: 50 * s, Rate: 180}, {At: 95 * s, Rate: 420}}
	})
	add("session changed: 20 s, 35 s", 1100, 100*s, changed, func(x *Crowd) {
		x.Total, x.From, x.Changes = 200, 30*s, []Change{{At: 60 * s, Session: 35 * s}}
	})
	add("random, rush", 250, 15*s, byLot, func(x *Crowd) { x.Method = room.MethodRandom })
	add("random, steady", 900, 135*s, byLot, func(x *Crowd) { x.Total, x.From, x.Method = 120, 45*s, room.MethodRandom })
	add("draw", 290, 20*s, drawn, func(x *Crowd) { x.Draw = true })
	return out
}

// crowds runs every crowd several times, and compares the forecasts with the outcomes.
func crowds(seeds int) Finding {
	f := Finding{Met: true}
	worst, cover, vain, rises := 0.0, 0.0, 0, 0
	for _, x := range Crowds() {
		var all Words
		for seed := range uint64(seeds) {
			w := x.gather(seed + 1)
			if r := w.result(); r.Fault != "" {
				return Finding{Fault: fmt.Sprintf("%s, seed %d: %s", x.Name, seed+1, r.Fault)}
			}
			all.Add(w.meters.words)
		}
		wait, ahead := all.Rises()
		worst, cover = max(worst, all.Error()/x.Error), max(cover, math.Abs(all.Covered()-0.8))
		vain, rises = vain+all.NextInVain(), rises+wait+ahead
		f.Met = f.Met && all.Error() <= x.Error && math.Abs(all.Covered()-0.8) <= 0.08 && all.NextInVain() == 0 && wait+ahead == 0
		f.Bound += fmt.Sprintf("%s (goal %.2f): %s\n    ", x.Name, x.Error, &all)
	}
	f.Seen = fmt.Sprintf("%.2f, %.2f, %d, %d", worst, cover, vain, rises)
	f.Bound = strings.TrimSuffix(f.Bound, "\n    ")
	return f
}

// anyCrowd draws a rush into a room. T limits two of three.
func anyCrowd(seed uint64) (x Crowd, byRate bool) {
	rng := rand.New(rand.NewPCG(seed, 0x63726f77))
	x = Crowd{Total: 100 + rng.IntN(400), Session: time.Duration(15+rng.IntN(45)) * time.Second}
	x.Pages, x.Think = between(rng, 2, 6), time.Duration(between(rng, 2, 10)*float64(time.Second))
	x.People, x.Over = int(float64(x.Total)*between(rng, 1.5, 4)), time.Duration(15+rng.IntN(45))*time.Second
	x.Rate, byRate = 30*x.Total, seed%3 == 2
	if byRate {
		x.Total, x.Rate = 2*x.People, x.Total
	}
	return x, byRate
}

// anyCrowds runs crowds in rooms of every kind. In the first rush of a room session lengths are unknown: the range is
// right if it is on average over many rooms.
func anyCrowds(seeds int) Finding {
	var byT, byR Words
	for seed := range uint64(seeds) {
		x, byRate := anyCrowd(seed)
		w := x.gather(seed + 1)
		if r := w.result(); r.Fault != "" {
			return Finding{Fault: fmt.Sprintf("seed %d: %s", seed, r.Fault)}
		}
		if byRate {
			byR.Add(w.meters.words)
		} else {
			byT.Add(w.meters.words)
		}
	}
	return Finding{
		Seen:  fmt.Sprintf("%.2f / %.2f", byT.Covered(), byR.Covered()),
		Met:   math.Abs(byT.Covered()-0.8) <= 0.08 && math.Abs(byR.Covered()-0.8) <= 0.08,
		Bound: fmt.Sprintf("bound by T: %s\n    bound by R: %s", &byT, &byR),
	}
}

// firstComes is the time of the first arrival.
const firstComes = 10 * time.Second

// gather runs the crowd.
func (x *Crowd) gather(seed uint64) *World {
	c := Defaults()
	c.Seed, c.Probation = seed, room.DefaultProbation
	c.Centres, c.Edges = 2, 2
	c.Total, c.Rate, c.Session, c.Random = x.Total, x.Rate, x.Session, x.Method == room.MethodRandom
	c.People = People{Pages: x.Pages, Think: x.Think, Stay: 0.8}
	c.Network.WAN = 5 * time.Millisecond
	c.Demand = Demand{Spikes: []Spike{{At: firstComes, Length: x.Over, PerMinute: float64(x.People) / x.Over.Minutes()}}}
	w := New(c)
	w.in(firstComes+x.From, func() { w.meters.words = &Words{} })
	for _, change := range x.Changes {
		w.in(firstComes+change.At, func() { w.change(&change) })
	}
	if x.Draw {
		w.in(time.Second, func() {
			start := epoch.Add(firstComes + x.Start())
			w.giveEvent(&room.Event{
				ID: "25756b2dfe6e378a06b033b670413757", Name: "launch", Shuffle: true,
				Prequeue: int64(epoch.Add(5 * time.Second)), Start: int64(start), End: int64(start.Add(time.Hour)),
			})
			w.oracle.raise(w)
			w.publish()
		})
	}
	last := x.Over
	if x.Draw {
		last = x.Start()
	}
	w.runFor(firstComes + last)
	w.cfg.Demand = Demand{}
	w.arrivals.begin(w)
	for w.oracle.waiting > 0 && w.now < int64(time.Hour) && !w.oracle.broken() {
		w.runFor(10 * time.Second)
	}
	return w
}

// change applies an operator's change of the limits. Earlier forecasts are replaced by the first one after it.
func (w *World) change(c *Change) {
	w.cfg.Total, w.cfg.Rate, w.cfg.Session = c.Of(w.cfg.Total, w.cfg.Rate, w.cfg.Session)
	w.oracle.raise(w)
	w.publish()
	for i := range w.visitors {
		if h := w.visitors[i].heard; h != nil {
			h.Anew(time.Duration(w.now) + Heard)
		}
	}
}
