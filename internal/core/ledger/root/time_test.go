package slots

import (
	"testing"
	"time"

	"vestibule/internal/fleet"
	"vestibule/internal/wire"
)

// TestADataCentreThatForgotTheTimeIsToldIt: it had another time than the leader's
// guess; then its aggregator was replaced by one that knows none.
func TestADataCentreThatForgotTheTimeIsToldIt(t *testing.T) {
	now, wall := fleet.Mono(time.Hour), fleet.Time(1622133200_000)
	a := NewAllocator(now, AllocatorConfig{Term: wire.Term{N: 3}, Centres: []string{"dublin"}, Params: wire.DefaultParams()})
	a.SetLease(fleet.Never)
	now = now.Add(2 * timeWait)
	a.SetTime(now, wall)
	report := func(inc uint64, asOf fleet.Time) wire.Grant {
		a.Observe(now, wire.Report{From: "dublin", Inc: inc, Seq: inc, Parts: 1, Sent: 1, Seen: wire.Term{N: 3}, AsOf: asOf})
		for _, g := range a.Grants(now) {
			return g
		}
		t.Fatal("no answer")
		return wire.Grant{}
	}
	if g := report(1, wall.Add(-time.Minute)); g.AtBound != fleet.Unsynced {
		t.Errorf("who knows another time is told the leader's guess, sure to %v", g.AtBound)
	}
	if g := report(2, 0); g.AtBound == fleet.Unsynced || g.At < wall {
		t.Errorf("who knows no time is told %v, sure to %v", g.At, g.AtBound)
	}
}

// TestATimeThatNobodyIsSureOf: a coordinator that begins after nobody has led for hours
// takes over the time of the data centre that is least unsure, and is as unsure. It
// grows surer no faster than the bounds of who does not hear of it grow.
func TestATimeThatNobodyIsSureOf(t *testing.T) {
	start, wall := fleet.Mono(time.Hour), fleet.Time(1622133200_000)
	a := NewAllocator(start, AllocatorConfig{Term: wire.Term{N: 3}, Centres: []string{"dublin", "nairobi"}, Params: wire.DefaultParams()})
	a.SetLease(fleet.Never)
	now, seq := start.Add(timeWait+time.Second), uint64(0)
	unsure := map[string]time.Duration{"dublin": 5 * time.Second, "nairobi": 3 * time.Second}
	hear := func(name string) wire.Grant {
		seq++
		a.Observe(now, wire.Report{
			From: name, Inc: 1, Seq: seq, Parts: 1, Sent: now, Seen: wire.Term{N: 3}, Acked: a.centres.of(name, 0).grantSeq, Join: true,
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
	if g := hear("dublin"); g.AtBound < least || g.AtBound > least+fleet.MaxError {
		t.Fatalf("taken from somebody who is unsure by %v, it is told to %v", least, g.AtBound)
	}
	after := func(d time.Duration) time.Duration {
		for end := now.Add(d); now < end; now = now.Add(time.Second) {
			a.SetTime(now, wall)
		}
		return hear("dublin").AtBound
	}
	if err := after(time.Hour); err < least-time.Duration(float64(time.Hour)*slewRate) || err > least-300*time.Millisecond {
		t.Errorf("after an hour it is told to %v", err)
	}
	if err := after(9 * time.Hour); err > fleet.MaxError {
		t.Errorf("after ten hours it is told to %v", err)
	}
}

// TestWhoKnowsTheTimeAndEndsIsNotWaitedForLong: a data centre knew the time, and is silent
// since, while the other one is heard and knows none.
func TestWhoKnowsTheTimeAndEndsIsNotWaitedForLong(t *testing.T) {
	start, wall := fleet.Mono(time.Hour), fleet.Time(1622133200_000)
	a := NewAllocator(start, AllocatorConfig{Term: wire.Term{N: 3}, Centres: []string{"dublin", "nairobi"}, Params: wire.DefaultParams()})
	a.SetLease(fleet.Never)
	a.Observe(start, wire.Report{From: "nairobi", Inc: 1, Seq: 1, Parts: 1, Sent: start, Seen: wire.Term{N: 2}, AsOf: wall})
	for now, seq := start, uint64(1); ; now, seq = now.Add(500*time.Millisecond), seq+1 {
		a.Observe(now, wire.Report{From: "dublin", Inc: 1, Seq: seq, Parts: 1, Sent: now, Seen: wire.Term{N: 3}})
		a.SetTime(now, wall.Add(now.Sub(start)))
		known, past := a.clock.Bound(now) != fleet.Unsynced, now.Sub(start)
		if known && past < timeWait {
			t.Fatalf("after %v it guesses, though nairobi may be about to tell", past)
		}
		if known {
			return
		}
		if past > timeWait+time.Second {
			t.Fatalf("after %v it still waits for nairobi", past)
		}
	}
}
