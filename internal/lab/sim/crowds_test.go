package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"vestibule/internal/core/room"
)

// crowds runs every crowd several times, and compares the forecasts with the outcomes.
func crowds(f *Finding, seeds int) {
	worst, cover, vain, rises := 0.0, 0.0, 0, 0
	for _, x := range Crowds() {
		all := f.words(&x, x.Name, seeds)
		worst, cover = max(worst, all.Error()), max(cover, math.Abs(all.Covered()-0.8))
		wait, ahead := all.Rises()
		vain, rises = vain+all.NextInVain(), rises+wait+ahead
		all.Judge(x.Name, f.judge)
	}
	f.add("", "%.3f, %.2f, %d, %d", worst, cover, vain, rises)
}

// takeovers are crowds in which all leaders are replaced while no session has ended yet, or in the middle. Nobody
// moves: a new regional counts the sessions that moved away again until their tickets expire.
func takeovers() []Crowd {
	var out []Crowd
	for _, x := range Crowds() {
		x.Move = 0
		switch {
		case strings.HasPrefix(x.Name, "rush"):
			x.Takeover = 15 * time.Second
		case strings.HasPrefix(x.Name, "steady"), strings.HasPrefix(x.Name, "cold"):
			x.Takeover = x.From + 15*time.Second
		default:
			continue
		}
		out = append(out, x)
	}
	return out
}

// wordsAfterTakeovers compares the first forecasts after a takeover with the outcomes.
func wordsAfterTakeovers(f *Finding, seeds int) {
	worst, vain := 0.0, 0
	for _, x := range takeovers() {
		all := f.words(&x, x.Name, seeds)
		worst, vain = max(worst, all.Error()), vain+all.NextInVain()
	}
	f.judge(takeoverError, "", worst)
	f.judge(nextInVain, "", float64(vain))
	f.add("", "%.2f, %d", worst, vain)
}

// rushes are crowds that wait for minutes while the first sessions of a room reach their life.
func rushes() []Crowd {
	x := Crowd{
		Total: 40, Rate: 6000, Session: 20 * time.Second, Pages: 3, Think: 4 * time.Second, Move: 0.2,
		People: 250, Over: 15 * time.Second,
	}
	y := x
	y.Total, y.People, y.Over = 150, 1000, 30*time.Second
	out := []Crowd{x, y}
	for _, z := range []Crowd{x, y} { // longer, and more seldom on one page alone
		z.Session, z.Pages, z.Think = 40*time.Second, 4, 5*time.Second
		out = append(out, z)
	}
	for i := range out {
		out[i].Name = fmt.Sprintf("rush of %d, T %d, sessions of %v", out[i].People, out[i].Total, out[i].Session)
	}
	return out
}

// flashesTold counts the people that a forecast misleads if all come within a second.
func flashesTold(f *Finding, seeds int) {
	worst, soon := 0.0, 0.0
	for _, x := range Flashes() {
		all := f.words(&x, x.Name, seeds)
		worst, soon = max(worst, all.Error()), max(soon, all.MisledSoon())
		f.judge(firstError, x.Name, all.Error())
		f.judge(misledSoon, x.Name, 100*all.MisledSoon())
	}
	f.add("", "%.3f; %.1f %%", worst, 100*soon)
}

// rushesTold counts the people that a forecast misleads in a rush.
func rushesTold(f *Finding, seeds int) {
	worst, most, least := 0.0, 0.0, 0.0
	for _, x := range rushes() {
		all := f.words(&x, x.Name, seeds)
		twice, half := all.Misled()
		worst, most, least = max(worst, all.Error()), max(most, twice), max(least, half)
	}
	f.judge("rushes: median error", "", worst)
	f.judge(toldTwice, "", 100*most)
	f.judge(toldHalf, "", 100*least)
	f.add("", "%.3f; %.1f %% / %.1f %%", worst, 100*most, 100*least)
}

// orderOfCrowds compares the order of admission with that of the line.
func orderOfCrowds(f *Finding, seeds int) {
	for _, kind := range []string{"rush of", "steady", "cold", "T changed", "R changed", "session changed", "draw"} {
		all := &Words{}
		for _, x := range append(Crowds(), rushes()...) {
			if strings.HasPrefix(x.Name, kind) {
				all.Add(f.words(&x, "", seeds))
			}
		}
		f.judge(behindOrder, kind, all.Late())
		f.add(", ", "%s %.2f", strings.TrimSuffix(kind, " of"), all.Late())
	}
}

// words runs a crowd several times, and returns its forecasts. It notes that under a name, if there is one.
func (f *Finding) words(x *Crowd, name string, seeds int) *Words {
	all := &Words{}
	for seed := range uint64(seeds) {
		f.gather(x, seed+1, all)
	}
	if name != "" {
		f.note("%s: %s", name, all)
	}
	return all
}

// gather runs a crowd, and adds its forecasts.
func (f *Finding) gather(x *Crowd, seed uint64, all *Words) {
	w := x.gather(seed)
	if r := w.result(); r.Fault != "" {
		r.Fault = x.Name + ": " + r.Fault
		f.take(r)
	}
	all.Add(w.meters.words)
}

// anyRoom is a kind of room with crowds drawn at random.
type anyRoom struct {
	name string
	draw func(*Crowd, *rand.Rand) // changes a rush that T limits
}

// anyRooms returns the kinds of rooms.
func anyRooms() []anyRoom {
	byRate := func(x *Crowd, _ *rand.Rand) { x.Total, x.Rate = 2*x.People, x.Total }
	// steady has a little more demand than the room can admit, and is measured from its second turnover on.
	steady := func(x *Crowd, rng *rand.Rand, pace float64, stay time.Duration) {
		x.From, x.Over = 2*stay, 5*stay
		x.People = int(pace * between(rng, 1.1, 1.4) * x.Over.Seconds())
	}
	stay := func(x *Crowd) time.Duration { return x.Session + time.Duration((x.Pages-1)*float64(x.Think)) }
	byTotal := func(x *Crowd, rng *rand.Rand) {
		x.Total /= 2
		steady(x, rng, float64(x.Total)/stay(x).Seconds(), stay(x))
	}
	factor := func(rng *rand.Rand) float64 {
		return []float64{between(rng, 0.5, 0.8), between(rng, 1.25, 2)}[rng.IntN(2)]
	}
	halfway := func(x *Crowd) time.Duration { return (x.From + x.Over) / 2 }
	return []anyRoom{
		{"rush, T", func(*Crowd, *rand.Rand) {}},
		{"rush, R", byRate},
		{"cold, sessions of a minute", func(x *Crowd, rng *rand.Rand) {
			x.Session, x.Over = time.Minute, time.Duration(between(rng, 1, 2)*float64(time.Minute))
		}},
		{"cold, short sessions", func(x *Crowd, rng *rand.Rand) {
			x.Session, x.Over = time.Duration(10+rng.IntN(15))*time.Second,
				time.Duration(between(rng, 1, 2)*float64(time.Minute))
		}},
		{"steady, T", byTotal},
		{"steady, R", func(x *Crowd, rng *rand.Rand) {
			x.Rate = x.Total
			steady(x, rng, float64(x.Rate)/60, time.Minute)
			x.Total = 100 * x.Rate
		}},
		{"T changed", func(x *Crowd, rng *rand.Rand) {
			byTotal(x, rng)
			x.Changes = []Change{{At: halfway(x), Total: int(factor(rng) * float64(x.Total))}}
		}},
		{"R changed", func(x *Crowd, rng *rand.Rand) {
			x.Rate = x.Total
			steady(x, rng, float64(x.Rate)/60, time.Minute)
			x.Total = 100 * x.Rate
			x.Changes = []Change{{At: halfway(x), Rate: int(factor(rng) * float64(x.Rate))}}
		}},
		{"sessions changed", func(x *Crowd, rng *rand.Rand) {
			byTotal(x, rng)
			x.Changes = []Change{{At: halfway(x), Session: time.Duration(factor(rng) * float64(x.Session))}}
		}},
		{"draw", func(x *Crowd, _ *rand.Rand) { x.Draw = true }},
		{"random, rush", func(x *Crowd, _ *rand.Rand) { x.Method = room.MethodRandom }},
		{"random, steady", func(x *Crowd, rng *rand.Rand) {
			byTotal(x, rng)
			x.Method = room.MethodRandom
		}},
	}
}

// crowd draws a crowd. In every second one, visitors move between the data centres.
func (k *anyRoom) crowd(seed uint64) Crowd {
	rng := rand.New(rand.NewPCG(seed, 0x63726f77))
	x := Crowd{
		Name: k.name, Move: 0.2 * float64(seed%2), Total: 100 + rng.IntN(400),
		Session: time.Duration(15+rng.IntN(45)) * time.Second,
	}
	x.Pages, x.Think = between(rng, 2, 6), time.Duration(between(rng, 2, 10)*float64(time.Second))
	x.People, x.Over = int(float64(x.Total)*between(rng, 1.5, 4)), time.Duration(15+rng.IntN(45))*time.Second
	x.Rate = 30 * x.Total
	k.draw(&x, rng)
	return x
}

// anyCrowds runs crowds in rooms of every kind. In the first rush of a room session lengths are unknown: the range is
// right if it is on average over many rooms.
func anyCrowds(f *Finding, seeds int) {
	for _, k := range anyRooms() {
		var all Words
		for seed := range uint64(seeds) {
			x := k.crowd(seed)
			f.gather(&x, seed+1, &all)
		}
		f.judge("rooms drawn at random: waits inside the range", k.name, all.Covered())
		f.add(", ", "%s %.2f", k.name, all.Covered())
		f.note("%s: %s", k.name, &all)
	}
}

// firstComes is the time of the first arrival: not at the beginning of a cell of places.
const firstComes = 10*time.Second + 400*time.Millisecond

// gather runs the crowd.
func (x *Crowd) gather(seed uint64) *World {
	c := Defaults()
	c.Seed, c.Probation = seed, room.DefaultProbation
	c.Centres, c.Edges = 2, 2
	c.Total, c.Rate, c.Session, c.Random = x.Total, x.Rate, x.Session, x.Method == room.MethodRandom
	c.People = People{Pages: x.Pages, Think: x.Think, Stay: 0.8, Move: x.Move}
	c.Network.WAN = 5 * time.Millisecond
	c.Demand = Demand{Spikes: []Spike{{At: firstComes, Length: x.Over, PerMinute: float64(x.People) / x.Over.Minutes()}}}
	w := New(c)
	w.in(firstComes+x.From, w.meters.listen)
	if x.Takeover > 0 {
		w.in(firstComes+x.Takeover, func() {
			const pause = 1500 * time.Millisecond
			w.globals.end(pause)
			for _, r := range w.centres.all {
				w.centres.end(r, pause)
			}
			w.in(pause+Heard, func() {
				w.meters.listen()
				w.hearAnew()
			})
		})
	}
	for _, change := range x.Changes {
		w.in(firstComes+change.At, func() { w.change(&change) })
	}
	if x.Draw {
		start := firstComes + x.Start()
		w.expect(start, &room.Event{ID: eventID, End: int64(epoch.Add(start + time.Hour)), Shuffle: true})
	}
	last := x.Over
	if x.Draw {
		last = x.Start()
	}
	w.runFor(firstComes + last)
	w.letIn(time.Hour)
	return w
}

// listen begins to evaluate what newcomers are shown.
func (m *meters) listen() { m.words, m.hears = &Words{}, true }

// change applies an operator's change of the limits.
func (w *World) change(c *Change) {
	w.cfg.Total, w.cfg.Rate, w.cfg.Session = c.Of(w.cfg.Total, w.cfg.Rate, w.cfg.Session)
	w.operator.edited()
	w.hearAnew()
}

// hearAnew has earlier forecasts replaced by the first one after [Heard].
func (w *World) hearAnew() {
	for i := range w.visitors.all {
		if h := w.visitors.all[i].heard; h != nil {
			h.Anew(time.Duration(w.now) + Heard)
		}
	}
}
