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
	if g := report(1, wall.Add(-time.Minute)); g.AtErr != fleet.Unsynced {
		t.Errorf("who knows another time is told the leader's guess, sure to %v", g.AtErr)
	}
	if g := report(2, 0); g.AtErr == fleet.Unsynced || g.At < wall {
		t.Errorf("who knows no time is told %v, sure to %v", g.At, g.AtErr)
	}
}

// TestATimeThatNobodyIsSureOf: a coordinator that begins after nobody has led for hours
// takes over the time of a data centre that is unsure by then, and is as unsure, until
// each data centre has followed it for as long as a ticket lives.
func TestATimeThatNobodyIsSureOf(t *testing.T) {
	start, wall := fleet.Mono(time.Hour), fleet.Time(1622133200_000)
	a := NewAllocator(start, AllocatorConfig{Term: wire.Term{N: 3}, Centres: []string{"dublin", "nairobi"}, Params: wire.DefaultParams()})
	a.SetLease(fleet.Never)
	a.SetRooms(start, []RoomConfig{{ID: 7, Total: 10, Rate: 10, Session: 2 * time.Minute}})
	now, seq := start.Add(timeWait+time.Second), uint64(0)
	const unsure = 3 * time.Second
	hear := func(name string) wire.Grant {
		seq++
		err := unsure
		if name == "nairobi" {
			err = time.Second // it has heard of the time since
		}
		a.Observe(now, wire.Report{
			From: name, Inc: 1, Seq: seq, Parts: 1, Sent: now, Seen: wire.Term{N: 3}, Acked: a.find(name).grantSeq, Join: true,
			AsOf: wall.Add(now.Sub(start)), AsOfErr: err,
		})
		for _, g := range a.Grants(now) {
			if g.To == name {
				return g
			}
		}
		t.Fatalf("%s gets no answer", name)
		return wire.Grant{}
	}
	hear("dublin")
	if g := hear("dublin"); g.AtErr < unsure || g.AtErr > unsure+fleet.MaxError {
		t.Fatalf("taken from somebody who is unsure by %v, it is told to %v", unsure, g.AtErr)
	}
	follow := func(names ...string) (g wire.Grant) {
		for end := now.Add(5 * time.Minute); now < end; now = now.Add(time.Second) {
			for _, name := range names {
				g = hear(name)
			}
		}
		return g
	}
	if g := follow("dublin"); g.AtErr < unsure {
		t.Errorf("one data centre has not followed yet, and time is told to %v", g.AtErr)
	}
	if g := follow("dublin", "nairobi"); g.AtErr > fleet.MaxError {
		t.Errorf("all have followed for longer than a ticket lives, and time is told to %v", g.AtErr)
	}
}
