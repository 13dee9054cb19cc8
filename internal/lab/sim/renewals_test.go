package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"vestibule/internal/core/wire"
)

// TestNobodyIsPutOutOfAFullRoomOfShortSessions uses a room in which the renewal ceiling, as a fraction of the permits,
// rounded to nothing.
func TestNobodyIsPutOutOfAFullRoomOfShortSessions(t *testing.T) {
	t.Parallel()
	for _, total := range []int{50, 100, 200, 400} {
		c := Defaults()
		c.Seed, c.Length, c.Centres = uint64(total), 3*time.Minute, 1
		c.Total, c.Rate, c.Session = total, 100_000, 10*time.Second
		c.People.Pages, c.People.Think = 30, 4*time.Second
		c.Demand.PerMinute = float64(total) * 4
		w := New(c)
		w.in(time.Minute, w.meters.begin)
		if r := w.Run(); w.meters.early > 0 || r.UseT < 0.98 || r.Fault != "" {
			t.Errorf("T %d: %d people put out, use of T %.4f, want 0 and 0.98 or more; %s", total, w.meters.early, r.UseT,
				r.Fault)
		}
	}
}

// TestCopiesAtEdgesOfTheirOwn: each edge sees one copy of a ticket, which behaves like a browser.
func TestCopiesAtEdgesOfTheirOwn(t *testing.T) {
	t.Parallel()
	var f Finding
	if seen := (copying{clients: 4}).inside(&f); seen[2] != 1 || seen[3] != 1 || f.Fault != "" {
		t.Errorf("inside after 15 s / 30 s / 60 s / 120 s: %v, want one from 60 s on; %s", seen, f.Fault)
	}
}

// TestCopiesOfASessionAtAnyEdge: each edge sees a part of the requests, and the regional only learns of renewed
// versions.
func TestCopiesOfASessionAtAnyEdge(t *testing.T) {
	for _, clients := range []int{4, 12} {
		var f Finding
		if seen := (copying{clients: clients, roam: true, session: true}).inside(&f); seen[0] != clients || seen[3] != 1 ||
			f.Fault != "" {
			t.Errorf("of %d clients inside after 15 s / 30 s / 60 s / 120 s: %v, want one in the end; %s", clients, seen,
				f.Fault)
		}
	}
}

// TestABrowserWithManyTabsStaysInside has four edges, behind a balancer that picks any of them per request.
func TestABrowserWithManyTabsStaysInside(t *testing.T) {
	t.Parallel()
	for _, session := range []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute} {
		var f Finding
		out, twice, _ := tabs(&f, 7, session)
		if life := time.Duration(wire.Life(session)) * time.Second; out > 0 || twice > life || f.Fault != "" {
			t.Errorf("sessions of %v: put out %d times, counted twice for %v, want never, and %v at most; %s", session, out,
				twice, life, f.Fault)
		}
	}
}

// TestCopiesInAnyRhythm: one of many clients with one ticket stays, however they time their renewals.
func TestCopiesInAnyRhythm(t *testing.T) {
	t.Parallel()
	const every = 5 * time.Second
	for i, next := range []func(now int64, client, clients int, rng *rand.Rand) time.Duration{
		func(now int64, _, _ int, rng *rand.Rand) time.Duration {
			return every - time.Duration(now)%every + time.Duration(rng.Int64N(int64(4900*time.Millisecond)))
		},
		func(now int64, client, clients int, _ *rand.Rand) time.Duration {
			return every - time.Duration(now)%every + every*time.Duration(client)/time.Duration(clients)
		},
		func(_ int64, _, _ int, rng *rand.Rand) time.Duration {
			return time.Duration(rng.Int64N(int64(2 * every)))
		},
	} {
		var f Finding
		seen := copying{clients: 8, roam: true, life: 5 * time.Minute, next: next}.inside(&f)
		if seen[3] != 1 || f.Fault != "" {
			t.Errorf("rhythm %d: %d of 8 clients are inside in the end, want 1; %s", i, seen[3], f.Fault)
		}
	}
}
