package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/ticket"
)

// rhythms are the times of the requests of clients with copies: the next one of a client, every so often.
var rhythms = []struct {
	name string
	most int // clients that may stay
	next func(round int, client, clients int, every time.Duration, rng *rand.Rand) time.Duration
}{
	{"in step", 1, func(round, _, _ int, every time.Duration, rng *rand.Rand) time.Duration {
		return time.Duration(round)*every + time.Duration(rng.Int64N(int64(every*9/10)))
	}},
	{"at once", 1, func(round, _, _ int, every time.Duration, _ *rand.Rand) time.Duration {
		return time.Duration(round) * every
	}},
	{"at random", 1, func(round, _, _ int, every time.Duration, rng *rand.Rand) time.Duration {
		return time.Duration(round)*every + time.Duration(rng.Int64N(int64(every)))
	}},
	{"in turns", 2, func(round, client, clients int, every time.Duration, _ *rand.Rand) time.Duration {
		return time.Duration(round)*every + every*time.Duration(client)/time.Duration(clients)
	}},
}

// copiers are clients with copies of one session or place. Each keeps every cookie that it is given, also one that an
// answer deletes, and asks the edge that is next to it, or any.
type copiers struct {
	clients, edges, total int
	place, roam           bool
	rhythm                int
}

// served returns the most clients that were served with the ticket in one round, from 45 s after the first copy was
// served on, for ten minutes; of two clients at several edges from 75 s on.
func (o copiers) served() (most int, fault string) {
	const every, length = 5 * time.Second, 10 * time.Minute
	found := 45 * time.Second
	if o.clients == 2 && o.edges > 1 {
		found = 75 * time.Second // the regional does not see the renewals of two versions at one edge in one second
	}
	c := Defaults()
	c.Centres, c.Edges, c.Total, c.Rate, c.Session, c.Demand.PerMinute = 1, o.edges, o.total, 6000, time.Minute, 0
	c.Length = time.Minute + found + length + every
	w := New(c)
	rng := rand.New(rand.NewPCG(uint64(o.clients), 0x636f7079))
	id, begun := uint64(0), time.Duration(0)
	type jar struct{ session, place ticket.Ticket }
	jars := make([]jar, o.clients)
	rounds := map[int]int{}
	ask := func(i int) {
		n := w.edges.all[i%o.edges]
		if o.roam {
			n = w.edges.all[rng.IntN(o.edges)]
		}
		was := &jars[i]
		d := n.core.Return(n.clock.read(w.now), w.room, was.session, was.place)
		w.edges.wake(n)
		switch {
		case d.Enters():
			w.oracle.issued(&visitor{edge: n}, d)
			if d.Ticket.ID != id {
				break
			}
			if begun == 0 {
				begun = time.Duration(w.now)
			}
			if now := time.Duration(w.now); now >= begun+found {
				rounds[int(now/every)]++
			}
		case d.Verdict == admission.Hold:
			w.hold(n, d.Ticket, was.place, 500*time.Millisecond)
			return // the answer is lost
		}
		if d.Reseal && d.Ticket.IsAdmitted() {
			was.session = d.Ticket
		} else if d.Reseal {
			was.place = d.Ticket
		}
	}
	start := time.Minute
	w.in(start, func() {
		first := w.foreign()
		first.Epoch = w.operator.epoch
		if id = first.ID; !o.place {
			if d := w.ask(w.edges.all[0], first); d.Enters() {
				first = d.Ticket
			}
		}
		for i := range jars {
			if first.IsAdmitted() {
				jars[i].session = first
			} else {
				jars[i].place = first
			}
			for round := range int((found + length) / every) {
				w.in(rhythms[o.rhythm].next(round, i, o.clients, every, rng), func() { ask(i) })
			}
		}
	})
	r := w.Run()
	for _, n := range rounds {
		most = max(most, n)
	}
	if begun == 0 {
		fault = "nobody was served; "
	}
	return most, fault + r.Fault
}

// TestCopiesStayOut: once the copies are found, one client is served with a copied session or place, for ten minutes, whatever
// cookies the clients keep; of clients in turns two at most.
func TestCopiesStayOut(t *testing.T) {
	t.Parallel()
	n := 0
	for _, clients := range []int{2, 8, 50, 1000} {
		for _, edges := range []int{1, 4, 8} {
			for rhythm := range rhythms {
				n++
				if testing.Short() && (clients > 50 || n%5 != 0) {
					continue
				}
				o := copiers{clients: clients, edges: edges, total: 1000, rhythm: rhythm, place: n%2 == 0, roam: n/2%3 == 0}
				if n/4%2 == 0 {
					o.total = 5
				}
				t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
					if most, fault := o.served(); most > rhythms[rhythm].most || fault != "" {
						t.Errorf("%s: up to %d are served, want %d; %s", rhythms[rhythm].name, most, rhythms[rhythm].most, fault)
					}
				})
			}
		}
	}
}
