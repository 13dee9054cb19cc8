package sim

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSmallWorldsBreakNoPromiseAndRecover(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) { // `make sim` runs thousands
		v := Variant{Profile: Profiles[2], Seed: seed}
		if r := New(v.Config()).Run(); r.Fault != "" {
			t.Errorf("%s\nreplay: %s", r.Fault, v.Command())
		}
	}
}

// TestRecoveryAllowsForTheLastWord: a report of an ended data centre that knew the time makes a coordinator without it
// wait. The check of recovery allows for that, and for no more.
func TestRecoveryAllowsForTheLastWord(t *testing.T) {
	t.Parallel()
	w := New(Small(1))
	began := w.globals.newest().began
	for _, step := range []struct {
		now, last time.Duration // since the coordinator began
		judged    bool
	}{
		{now: handshake, last: handshake - time.Second},
		{now: handshake - time.Second + lastWait - 1, last: handshake - time.Second},
		{now: handshake - 1},
		{now: handshake - time.Second + lastWait, last: handshake - time.Second, judged: true},
	} {
		w.now, w.recovery.lastWord = began+int64(step.now), 0
		if step.last != 0 {
			w.recovery.lastWord = began + int64(step.last)
		}
		if w.recovery.atHome(); (w.fault != "") != step.judged {
			t.Errorf("%v after the coordinator began, %v after the last word: judged %q", step.now, step.now-step.last, w.fault)
		}
	}
}

// TestShrinkingFindsAShorterStory uses an oracle that is too strict: it fails at T sessions. Most faults of a run do
// not matter for that.
func TestShrinkingFindsAShorterStory(t *testing.T) {
	t.Parallel()
	strict := Profile{"--small", func(seed uint64) Config {
		c := Small(seed)
		c.below = 1
		return c
	}}
	full := uint64(0) // the first seed with a full room
	for ; New(strict.Draw(full)).Run().Fault == ""; full++ {
		if full == 50 {
			t.Fatal("no world is ever full")
		}
	}
	v := Variant{Profile: strict, Seed: full}
	before := v.Config()
	found, ok := Shrink(v, 60, nil)
	after := found.Config()
	r := New(after).Run()
	drawn := len(before.drawFaults())
	if !ok || !strings.Contains(r.Fault, "sessions are valid") {
		t.Fatalf("found %v, which breaks %q", ok, r.Fault)
	}
	if len(found.Only) >= drawn || after.Length >= before.Length {
		t.Errorf("%d of %d faults are left, and %v of %v", len(found.Only), drawn, after.Length, before.Length)
	}
	if _, ok := Shrink(Variant{Profile: Profiles[2], Seed: full}, 60, nil); ok {
		t.Error("a run that breaks no promise was shrunk")
	}
}

func TestWhatIsLeftOutDoesNotHappen(t *testing.T) {
	t.Parallel()
	drawn := make([][]string, 40) // the parts of each seed
	for seed := range drawn {
		drawn[seed] = partsOf(Small(uint64(seed)))
	}
	for _, name := range Enemies() {
		found := false
		for seed, had := range drawn {
			if !slices.Contains(had, name) {
				continue // it cannot be left out
			}
			found = true
			v := Variant{Profile: Profiles[2], Seed: uint64(seed), Without: []string{name}}
			if has := partsOf(v.Config()); slices.Contains(has, name) {
				t.Errorf("seed %d without %s: %v", seed, name, has)
			}
		}
		if never := []string{"encode", "spikes"}; !found && !slices.Contains(never, name) {
			t.Errorf("no small world has %s", name)
		}
	}
	if err := CheckEnemies([]string{"loss", "rain"}); err == nil || !strings.Contains(err.Error(), `got "rain"`) {
		t.Errorf("rain: %v", err)
	}
}

func partsOf(c Config) []string {
	_, with, _ := strings.Cut(c.Describe(), "with: ")
	return strings.Fields(with)
}

// TestNobodyComesToADataCentreThatWasTakenOut: arrivals avoid data centres that were left out.
func TestNobodyComesToADataCentreThatWasTakenOut(t *testing.T) {
	t.Parallel()
	for _, profile := range Profiles {
		for seed := range uint64(50) {
			v := Variant{Profile: profile, Seed: seed, Centres: 1}
			c := v.Config()
			for _, s := range c.Demand.Spikes {
				if s.Centre > c.Centres {
					t.Errorf("%s, seed %d: a spike comes to data centre %d of %d", profile.Flags, seed, s.Centre, c.Centres)
				}
			}
			if c.Listed > c.Centres {
				t.Errorf("%s, seed %d: %d data centres of %d are listed", profile.Flags, seed, c.Listed, c.Centres)
			}
		}
	}
}

func TestNumbersOfFaults(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"none", "3", "3,7,12"} {
		ns, err := ParseNumbers(text)
		if err != nil || FormatNumbers(ns) != text {
			t.Errorf("%q: %v, %v", text, ns, err)
		}
	}
	for _, text := range []string{"", "x", "3,", "-1"} {
		if ns, err := ParseNumbers(text); err == nil {
			t.Errorf("%q is read as %v", text, ns)
		}
	}
}
