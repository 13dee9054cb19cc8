package sim

import "testing"

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
	if f := measured(func(f *Finding) { releasesInPeace(f, 6) }); !f.Met || f.Fault != "" {
		t.Errorf("%s: %s", f.Seen, f.Fault)
	}
}
