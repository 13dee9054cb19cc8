package sim

import (
	"cmp"
	"fmt"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/room"
)

// Crowd is a crowd in a room of its own, in two data centres of two edges. The simulator
// and TestCrowds in internal/lab/e2e, with real clients, use the same crowds.
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
	Takeover    time.Duration // when global and all regionals are replaced, after the first arrival; 0 for never
	Move        float64       // share of requests before which a visitor moves to any data centre
	Draw        bool          // an event begins with a draw as soon as possible after all have arrived
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

// Flashes returns crowds that come within a second, as at the opening of a sale.
func Flashes() (out []Crowd) {
	for _, session := range []time.Duration{20 * time.Second, 40 * time.Second} {
		for _, n := range []int{250, 1000} {
			out = append(out, Crowd{
				Name: fmt.Sprintf("flash of %d, sessions of %v", n, session), Total: n * 3 / 20, Rate: 6000, Session: session,
				Pages: 3, Think: 4 * time.Second, Move: 0.2, People: n, Over: time.Second,
			})
		}
	}
	return out
}

// Crowds returns all crowds. In a rush the doors have just opened; a cold room has had no ended session recently; the
// other crowds come a little faster than they can be admitted.
func Crowds() []Crowd {
	const s = time.Second
	base := Crowd{Total: 100, Rate: 6000, Session: 20 * s, Pages: 3, Think: 4 * s, Move: 0.2}
	var out []Crowd
	add := func(name string, people int, over time.Duration, change func(*Crowd)) {
		x := base
		x.Name, x.People, x.Over = name, people, over
		change(&x)
		out = append(out, x)
	}
	add("rush of 250 in 15 s, bound by T", 250, 15*s, func(x *Crowd) {})
	add("rush of 250 in 15 s, bound by R", 250, 15*s,
		func(x *Crowd) { x.Total, x.Rate, x.Session, x.Pages = 2000, 100, 30*s, 2 })
	add("rush of 1,000 in 30 s, bound by T", 1000, 30*s, func(x *Crowd) { x.Total = 300 })
	add("rush of 2,000 in 60 s, bound by T", 2000, 60*s, func(x *Crowd) { x.Total, x.Rate = 500, 12000 })
	add("steady, bound by T", 1350, 150*s, func(x *Crowd) { x.Total, x.From = 200, 60*s })
	add("steady, bound by R", 900, 150*s,
		func(x *Crowd) { x.Total, x.Rate, x.Session, x.Pages, x.From = 4000, 300, 15*s, 2, 60*s })
	add("cold, bound by T", 500, 60*s, func(x *Crowd) { x.Total = 150 })
	add("cold, bound by T, people stay long", 400, 60*s, func(x *Crowd) { x.Total, x.Pages, x.Think = 150, 5, 5*s })
	add("T changed: 200, 120, 240", 1300, 135*s, func(x *Crowd) {
		x.Total, x.From, x.Changes = 200, 30*s, []Change{{At: 50 * s, Total: 120}, {At: 95 * s, Total: 240}}
	})
	add("R changed: 300, 180, 420", 1300, 135*s, func(x *Crowd) {
		x.Total, x.Rate, x.Session, x.Pages, x.From, x.Changes = 4000, 300, 15*s, 2, 30*s,
			[]Change{{At: 50 * s, Rate: 180}, {At: 95 * s, Rate: 420}}
	})
	add("session changed: 20 s, 35 s", 1100, 100*s, func(x *Crowd) {
		x.Total, x.From, x.Changes = 200, 30*s, []Change{{At: 60 * s, Session: 35 * s}}
	})
	add("random, rush", 250, 15*s, func(x *Crowd) { x.Method = room.MethodRandom })
	add("random, steady", 900, 135*s, func(x *Crowd) { x.Total, x.From, x.Method = 120, 45*s, room.MethodRandom })
	add("draw", 250, 20*s, func(x *Crowd) { x.Total, x.Draw = 40, true })
	return out
}
