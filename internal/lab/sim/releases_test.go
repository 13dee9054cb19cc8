package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"vestibule/internal/core/room"
)

// TestReleasesLetInNoMore: under crashes, cuts and duplicates a release admits no more than its number.
func TestReleasesLetInNoMore(t *testing.T) {
	t.Parallel()
	let := 0
	for seed := uint64(1); seed <= 2; seed++ {
		w := New(target("releases").Draw(seed))
		if r := w.Run(); r.Fault != "" {
			t.Errorf("releases, seed %d: %s", seed, r.Fault)
		}
		for _, r := range w.oracle.releases {
			let += r.in
		}
	}
	if let == 0 {
		t.Error("no release has let anybody in")
	}
}

// TestAReleaseLetsInAllOfThem: without faults, and with enough waiting visitors, a release admits its exact number, on
// virtual time within seconds.
func TestAReleaseLetsInAllOfThem(t *testing.T) {
	t.Parallel()
	f := measured(func(f *Finding) { releasesInPeace(f, 6) })
	f.check(t)
}

// quietRelease draws a room, a fleet without faults and one release from a seed: visitors come to a paused room for 75
// s, and some of those waiting are released.
func quietRelease(seed uint64) (w *World, n int) {
	rng := rand.New(rand.NewPCG(seed, 0x72656c65617365))
	c := Defaults()
	c.Seed, c.Length = seed, 80*time.Second
	c.Centres, c.Edges = 1+rng.IntN(4), 1+rng.IntN(5)
	c.Total, c.Rate = 1000, 1000
	c.Demand.PerMinute = 100 + 900*rng.Float64()
	c.People.Patience = 0
	c.Network.WAN = time.Duration(5+rng.IntN(100)) * time.Millisecond
	w, n = New(c), 1+int(c.Demand.PerMinute/2*rng.Float64())
	w.in(0, func() {
		w.operator.control.Pause = &room.Pause{Mark: room.Mark{Since: int64(w.fleetTime())}}
		w.operator.publish()
	})
	w.in(75*time.Second, func() { w.operator.releaseNext(n) })
	return w, n
}

// releasesInPeace measures whether releases without faults admit their exact number, and how long that takes from the
// write.
func releasesInPeace(f *Finding, seeds uint64) {
	fewer, took, people := 0, time.Duration(0), 0
	for seed := range seeds {
		w, n := quietRelease(seed)
		f.run(w)
		r := w.oracle.releases[1]
		people += r.in
		if took = max(took, time.Duration(r.last-r.at)); r.in != n {
			fewer++
		}
	}
	f.judge("releases that admit fewer", "", float64(fewer))
	f.judge("releases: all inside", "", took.Seconds())
	f.add("", "%d of %d let in fewer, %d people, all within %.1f s", fewer, seeds,
		people, took.Seconds())
}
