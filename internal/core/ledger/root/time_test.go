package root

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// TestADataCentreThatForgotTheTimeGetsIt: it had another time than the leader's
// guess; then its aggregator was replaced by one that knows none.
func TestADataCentreThatForgotTheTimeGetsIt(t *testing.T) {
	now, wall := fleettime.Mono(time.Hour), fleettime.Time(1622133200_000)
	a := New(now, Config{Term: wire.Term{N: 3}, Centres: []string{"dublin"}, Params: wire.DefaultParams()})
	a.SetLease(fleettime.Never)
	now = now.Add(2 * ledger.TimeWait)
	a.SetTime(now, wall)
	report := func(instance uint64, asOf fleettime.Time) wire.Grant {
		a.Observe(now, wire.Report{
			From: "dublin", Instance: instance, Seq: instance, Parts: 1, Sent: 1, Seen: wire.Term{N: 3}, AsOf: asOf,
		})
		for _, g := range a.Grants(now) {
			return g
		}
		t.Fatal("no answer")
		return wire.Grant{}
	}
	if g := report(1, wall.Add(-time.Minute)); g.AtBound != fleettime.Unsynced {
		t.Errorf("who knows another time gets the leader's guess, sure to %v", g.AtBound)
	}
	if g := report(2, 0); g.AtBound == fleettime.Unsynced || g.At < wall {
		t.Errorf("who knows no time gets %v, sure to %v", g.At, g.AtBound)
	}
}

// TestATimeThatNobodyIsSureOf: a coordinator that begins after hours without a leader takes over the time of the data
// centre with the least clock uncertainty, with that uncertainty. It shrinks no faster than the uncertainty of nodes
// that do not hear of it grows.
func TestATimeThatNobodyIsSureOf(t *testing.T) {
	start, wall := fleettime.Mono(time.Hour), fleettime.Time(1622133200_000)
	a := New(start, Config{Term: wire.Term{N: 3}, Centres: []string{"dublin", "nairobi"}, Params: wire.DefaultParams()})
	a.SetLease(fleettime.Never)
	now, seq := start.Add(ledger.TimeWait+time.Second), uint64(0)
	unsure := map[string]time.Duration{"dublin": 5 * time.Second, "nairobi": 3 * time.Second}
	hear := func(name string) wire.Grant {
		seq++
		a.Observe(now, wire.Report{
			From: name, Instance: 1, Seq: seq, Parts: 1, Sent: now, Seen: wire.Term{N: 3}, Acked: a.centres.of(name, 0).grantSeq,
			Join: true,
			AsOf: wall.Add(now.Sub(start)), AsOfBound: unsure[name],
		})
		for _, g := range a.Grants(now) {
			if g.To == name {
				return g
			}
		}
		t.Fatalf("%s gets no answer", name)
		return wire.Grant{}
	}
	for range 2 {
		for _, name := range []string{"dublin", "nairobi", "dublin"} {
			hear(name)
		}
	}
	least := unsure["nairobi"]
	if g := hear("dublin"); g.AtBound < least || g.AtBound > least+fleettime.MaxError {
		t.Fatalf("taken from somebody who is unsure by %v, it is reported to %v", least, g.AtBound)
	}
	after := func(d time.Duration) time.Duration {
		for end := now.Add(d); now < end; now = now.Add(time.Second) {
			a.SetTime(now, wall)
		}
		return hear("dublin").AtBound
	}
	if err := after(time.Hour); err < least-time.Duration(float64(time.Hour)*slewRate) ||
		err > least-300*time.Millisecond {
		t.Errorf("after an hour it is reported to %v", err)
	}
	if err := after(9 * time.Hour); err > fleettime.MaxError {
		t.Errorf("after ten hours it is reported to %v", err)
	}
}

// TestWhoKnowsTheTimeAndEndsIsNotWaitedForLong: a data centre knew the time, and is silent
// since, while the other one is heard and knows none.
func TestWhoKnowsTheTimeAndEndsIsNotWaitedForLong(t *testing.T) {
	start, wall := fleettime.Mono(time.Hour), fleettime.Time(1622133200_000)
	a := New(start, Config{Term: wire.Term{N: 3}, Centres: []string{"dublin", "nairobi"}, Params: wire.DefaultParams()})
	a.SetLease(fleettime.Never)
	a.Observe(start, wire.Report{
		From: "nairobi", Instance: 1, Seq: 1, Parts: 1, Sent: start, Seen: wire.Term{N: 2}, AsOf: wall,
	})
	for now, seq := start, uint64(1); ; now, seq = now.Add(500*time.Millisecond), seq+1 {
		a.Observe(now, wire.Report{From: "dublin", Instance: 1, Seq: seq, Parts: 1, Sent: now, Seen: wire.Term{N: 3}})
		a.SetTime(now, wall.Add(now.Sub(start)))
		known, past := a.clock.Bound(now) != fleettime.Unsynced, now.Sub(start)
		if known && past < ledger.TimeWait {
			t.Fatalf("after %v it guesses, though nairobi may be about to tell", past)
		}
		if known {
			return
		}
		if past > ledger.TimeWait+time.Second {
			t.Fatalf("after %v it still waits for nairobi", past)
		}
	}
}

// TestAKnownTimeIsNoGuess: a coordinator that knows fleet time from before its start uses that rather than its
// machine's clock, as soon as every data centre is heard and none knows it.
func TestAKnownTimeIsNoGuess(t *testing.T) {
	const known, wall = fleettime.Time(1_622_131_200_000), fleettime.Time(1_622_131_500_000)
	for _, c := range []struct {
		time  fleettime.Known
		after time.Duration
		want  fleettime.Time
		guess bool
	}{
		{fleettime.Known{Time: known, Bound: time.Millisecond}, restoredWait, known.Add(restoredWait), false},
		{fleettime.Known{Time: known, Bound: time.Millisecond, Guess: true}, restoredWait, known.Add(restoredWait), true},
		{fleettime.Known{Time: known, Bound: time.Minute}, ledger.TimeWait, wall, true},
		{fleettime.Known{}, ledger.TimeWait, wall, true},
	} {
		a := New(0, Config{Term: wire.Term{N: 1}, Centres: []string{"nairobi"}, Params: wire.DefaultParams(), Time: c.time})
		now := fleettime.Mono(c.after)
		if a.SetTime(now-1, wall); a.Time(now-1) != 0 {
			t.Errorf("%+v: a time is given before silent data centres had a chance to tell theirs", c.time)
		}
		a.SetTime(now, wall)
		if k := a.Known(now); k.Time != c.want || k.Guess != c.guess {
			t.Errorf("%+v: %+v, want %v, a guess: %v", c.time, k, c.want, c.guess)
		}
	}
}

// TestTheCoordinatorKnowsWhatEachDataCentreReads: the newest report names it, and every grant what the coordinator reads.
func TestTheCoordinatorKnowsWhatEachDataCentreReads(t *testing.T) {
	now := fleettime.Mono(time.Hour)
	a := New(now, Config{Term: wire.Term{N: 3}, Centres: []string{"dublin", "lima"}, Params: wire.DefaultParams()})
	a.SetLease(fleettime.Never)
	hear := func(name string, instance, seq uint64, reads wire.Forms) {
		a.Observe(now, wire.Report{From: name, Instance: instance, Seq: seq, Parts: 1, Sent: 1, Reads: reads})
		for _, g := range a.Grants(now) {
			if g.Reads != wire.Read {
				t.Errorf("%s is told %b", g.To, g.Reads)
			}
		}
	}
	reads := func(name string) bool { d := a.centres.of(name, 0); return d.reads.Reads(now, wire.Extended) }
	hear("dublin", 1, 1, wire.Extended)
	hear("lima", 1, 1, 0)
	if !reads("dublin") || reads("lima") {
		t.Error("only dublin named the form")
	}
	hear("dublin", 2, 1, 0)
	if hear("dublin", 1, 2, wire.Extended); reads("dublin") {
		t.Error("its aggregator was replaced by one of an older release")
	}
}
