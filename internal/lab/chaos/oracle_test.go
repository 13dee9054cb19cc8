//go:build linux

package main

import (
	"math"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/judge"
	"vestibule/internal/lab/testkit"
)

// at returns a time in seconds.
func at(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// asked is a request to edge 0, answered within 20 ms, with a ticket of a length in seconds, 0 for none.
func asked(o outcome, seconds, life float64) request {
	r := request{outcome: o, sent: at(seconds), received: at(seconds + .02)}
	if life > 0 {
		r.until = at(seconds + life).Truncate(time.Second)
	}
	if o == page {
		r.arrived = at(seconds + .01)
	}
	if o == failed {
		r.detail = "status 502"
	}
	return r
}

func joined(r request, second int64) request {
	r.joined = time.Unix(second, 0)
	return r
}

func stayOf(requests ...request) stay { return stay{requests} }

// TestJudge checks short stories with known verdicts. A session lasts 10 s, its cookie 11 s; T is 2, R is 3.
func TestJudge(t *testing.T) {
	lost := func(r request) request { // the answer is lost, but the site was reached
		r.outcome, r.detail, r.arrived = failed, "EOF", r.sent+at(.01)
		return r
	}
	slow := func(r request, by float64) request { // on its way to the site
		r.arrived += at(by)
		r.received += at(by)
		return r
	}
	from := func(r request, edge int) request {
		r.edge = edge
		return r
	}
	for _, c := range []struct {
		name    string
		stays   []stay
		outages []judge.Span // of edge 0
		stalls  []judge.Span
		planned bool
		broken  []string
		check   func(v verdict) bool
	}{
		{
			name: "two at a time, one after another",
			stays: []stay{
				stayOf(asked(page, 1, 11)), stayOf(asked(page, 2, 11)),
				stayOf(asked(waiting, 3, 0), asked(page, 13.5, 11)),
			},
			check: func(v verdict) bool { return v.peak == 2 && v.rate == 3 && v.admitted == 3 && v.waits == 1 },
		},
		{
			name:  "a place that is kept",
			stays: []stay{stayOf(joined(asked(waiting, 1, 0), 1), asked(waiting, 3, 0), joined(asked(waiting, 5, 0), 1))},
		},
		{
			name:   "a place that is lost",
			stays:  []stay{stayOf(joined(asked(waiting, 1, 0), 1), joined(asked(waiting, 3, 0), 3))},
			broken: []string{"stay 0: lost its place at 3.020 s"},
		},
		{
			name:   "a third while two are in",
			stays:  []stay{stayOf(asked(page, 1, 11)), stayOf(asked(page, 2, 11)), stayOf(asked(page, 9, 11))},
			broken: []string{"3 sessions were valid at 9.010 s"},
		},
		{
			name: "a renewal keeps the permit",
			stays: []stay{
				stayOf(asked(page, 1, 11), asked(page, 9, 11)), stayOf(asked(page, 2, 11)), stayOf(asked(page, 13.5, 11)),
				stayOf(asked(page, 14, 11)),
			},
			broken: []string{"3 sessions were valid at 14.010 s", "4 visitors were admitted"},
		},
		{
			name: "requests at once with one cookie are one session",
			stays: []stay{stayOf(asked(page, 1, 11), asked(page, 2, 11), asked(page, 2, 11), asked(page, 2, 11),
				asked(page, 2, 11))},
			check: func(v verdict) bool { return v.peak == 1 && v.rate == 1 },
		},
		{
			name: "four in just more than a minute",
			stays: []stay{
				stayOf(asked(page, 1, 11)), stayOf(asked(page, 20, 11)), stayOf(asked(page, 40, 11)), stayOf(asked(page, 61.1, 11)),
			},
			check: func(v verdict) bool { return v.rate == 3 },
		},
		{
			name: "a delay on the way explains the fourth of a minute",
			stays: []stay{
				stayOf(slow(asked(page, 0, 11), 3)), stayOf(asked(page, 20, 11)), stayOf(asked(page, 40, 11)),
				stayOf(asked(page, 61, 11)),
			},
			outages: []judge.Span{{From: at(.005), To: at(3)}},
			check:   func(v verdict) bool { return v.rate == 3 },
		},
		{
			name: "without a reason the same delay explains nothing",
			stays: []stay{
				stayOf(slow(asked(page, 0, 11), 3)), stayOf(asked(page, 20, 11)), stayOf(asked(page, 40, 11)),
				stayOf(asked(page, 61, 11)),
			},
			broken: []string{"4 visitors were admitted in the minute from 2.510 s"},
		},
		{
			name:   "put out inside the session",
			stays:  []stay{stayOf(asked(page, 1, 11), asked(page, 4, 0), asked(waiting, 6, 0))},
			broken: []string{"stay 0: the waiting page at 6.020 s"},
		},
		{
			name:  "put out early by an edge that might not renew",
			stays: []stay{stayOf(asked(page, 1, 11), asked(page, 9, 0), asked(waiting, 12.5, 0))},
			check: func(v verdict) bool { return len(v.unrenewed) == 1 },
		},
		{
			name:  "put out after the session",
			stays: []stay{stayOf(asked(page, 1, 11), asked(waiting, 20, 0))},
			check: func(v verdict) bool { return len(v.unrenewed) == 0 },
		},
		{
			name:   "an error inside the session, from an edge that was well",
			stays:  []stay{stayOf(asked(page, 1, 11), from(asked(failed, 6, 0), 1))},
			broken: []string{"stay 0: status 502 at 6.020 s from edge 1"},
		},
		{
			name:    "an error of a dead edge",
			stays:   []stay{stayOf(asked(page, 1, 11), asked(failed, 6, 0))},
			outages: []judge.Span{{From: at(5), To: 0}},
			check:   func(v verdict) bool { return v.excused == 1 },
		},
		{
			name:  "an error while waiting is told, and breaks nothing",
			stays: []stay{stayOf(asked(failed, 6, 0))},
			check: func(v verdict) bool { return v.errors["status 502"] == 1 },
		},
		{
			name:    "where nodes are only replaced, nobody is put out early and nobody sees an error",
			planned: true,
			stays:   []stay{stayOf(asked(page, 1, 11), asked(page, 9, 0), asked(waiting, 12.5, 0)), stayOf(asked(failed, 6, 0))},
			broken: []string{
				"stay 0: put out at 12.520 s by edge 0, 3.520 s after its last page",
				"stay 1: status 502 at 6.020 s from edge 0, which was well",
			},
		},
		{
			name: "an answer that is lost is a session and an admission all the same",
			stays: []stay{
				stayOf(lost(asked(page, 1, 0))), stayOf(asked(page, 2, 11)), stayOf(asked(page, 3, 11)),
			},
			outages: []judge.Span{{From: at(1), To: at(2)}},
			broken:  []string{"3 sessions were valid at 3.010 s"},
		},
		{
			name: "the time between it and the admission that was answered is nobody's",
			stays: []stay{
				stayOf(lost(asked(page, 1, 0)), asked(page, 30, 11)), stayOf(asked(page, 15, 11)), stayOf(asked(page, 16, 11)),
			},
			outages: []judge.Span{{From: at(1), To: at(2)}},
			check:   func(v verdict) bool { return v.peak == 2 },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			planned := time.Duration(0)
			if c.planned {
				planned = math.MaxInt64
			}
			o := oracle{
				total: 2, rate: 3, outages: [][]judge.Span{c.outages, nil}, stalls: c.stalls,
				planned: planned,
			}
			v := o.judge(c.stays, 10*time.Second)
			if len(v.broken) != len(c.broken) {
				t.Fatalf("broken: %q, want %q", v.broken, c.broken)
			}
			for i, b := range c.broken {
				if !strings.HasPrefix(v.broken[i], b) {
					t.Errorf("broken: %q, want %q", v.broken[i], b)
				}
			}
			if c.check != nil && !c.check(v) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestTheEndOfASessionIsInItsTicket: the browser keeps the cookie of a session that changes data centre for longer.
func TestTheEndOfASessionIsInItsTicket(t *testing.T) {
	c := crowdOfPeople{d: &deployment{bus: bus{fleet: &fleet{zero: time.Unix(1_600_000_000, 0)}}}}
	c.keys = testkit.Must(ticket.Keyring{}.Rotate(0, ticket.MinRotation, rand.NewChaCha8([32]byte{})))(t)
	codec := testkit.Must(ticket.NewCodec(c.keys, room.IDOf(shop), ticket.CookieName(shop, false)))(t)
	set := func(x ticket.Ticket, maxAge uint32) *http.Cookie {
		value := codec.Seal(nil, fleettime.Time(1<<50), &x, ticket.NewScratch([32]byte{}))
		return &http.Cookie{Name: ticket.CookieName(shop, false), Value: string(value), MaxAge: int(maxAge)}
	}
	session := ticket.Ticket{ID: 7, Admitted: 1_600_000_001, Until: 1_600_000_020}
	for name, x := range map[string]struct {
		cookie *http.Cookie
		want   time.Duration
	}{
		"a session":                 {set(session, 20), at(20)},
		"one that changes place":    {set(session, 35), at(20)},
		"a place":                   {set(ticket.Ticket{ID: 7}, 60), 0},
		"an answer without cookies": {nil, 0},
	} {
		if got := c.end(nil, x.cookie); got != x.want {
			t.Errorf("%s: it ends at %v, want %v", name, got, x.want)
		}
	}
	if c.keys = (ticket.Keyring{}); c.end(nil, set(session, 20)) != 0 || c.unopened.Load() != 1 {
		t.Errorf("%d tickets are under unknown keys, want 1", c.unopened.Load())
	}
}

// TestPlan checks the short run of CI: at least twenty faults, equal for equal seeds, and every kind in some run.
func TestPlan(t *testing.T) {
	drawn, killed := map[string]int{}, map[string]int{}
	for seed := range uint64(200) {
		draw := func() []fault {
			return plan(rand.New(rand.NewPCG(seed, 1)), stormLength, firstGap, places, true)
		}
		faults := draw()
		if !reflect.DeepEqual(faults, draw()) {
			t.Fatalf("seed %d: another plan", seed)
		}
		if len(faults) < 20 {
			t.Errorf("seed %d: %d faults", seed, len(faults))
		}
		for _, f := range faults {
			drawn[f.kind.name]++
			if f.wipe {
				drawn["wipe"]++
			} else if f.kind.name == "kill" {
				killed[f.role]++
			}
			if f.kind.name == "cut" && f.place == f.to {
				t.Errorf("seed %d: a cut from %s to itself", seed, f.place)
			}
		}
	}
	if len(drawn) != len(kinds)+len(changes)+1 || len(killed) != 4 {
		t.Errorf("drawn %v, killed %v: something never happens", drawn, killed)
	}
}

func TestQuantile(t *testing.T) {
	var values []time.Duration
	for i := range 50 {
		values = append(values, time.Duration(i+1))
	}
	for q, want := range map[float64]time.Duration{.5: 25, .99: 50, .02: 1, 0: 1, 1: 50} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v: %d, want %d", q, got, want)
		}
	}
}

// TestClosuresHaveGoals: docs/figures.json has a goal for each closure and place that is judged.
func TestClosuresHaveGoals(t *testing.T) {
	for i := range closures {
		c := &closures[i]
		for place, goal := range closureGoals {
			if _, err := figures.GoalOf(goal, c.name); c.judges(place) && err != nil {
				t.Error(err)
			}
		}
	}
}
