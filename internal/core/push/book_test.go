package push

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

const (
	shop   = room.ID(7)
	minute = fleettime.Time(60_000)
)

func record(place fleettime.Time, notified Stage, nonce string) *Record {
	return &Record{Place: place, Notified: notified, Sealed: []byte(nonce + strings.Repeat("x", 20))}
}

func names(jobs []Job) string {
	var out []string
	for _, j := range jobs {
		out = append(out, fmt.Sprintf("%d:%v", j.Visitor, j.Stage))
	}
	return strings.Join(out, " ")
}

// allDue returns what is due in all shards.
func allDue(b *Book, c Call) (out []Job) {
	for shard := range wire.OutboxShards {
		out = append(append(out, b.Confirm(0, shard, 100)...), b.Due(0, shard, c, 100)...)
	}
	return out
}

// confirm marks jobs of a confirmation as notified.
func confirm(b *Book, jobs []Job) {
	for i := range jobs {
		if _, _, m := b.Get(&jobs[i]); m.Stage == Confirmed {
			b.Mark(m)
		}
	}
}

// TestWhoIsDue: each stage once and after the confirmation, the turn alone where both are due, and nobody whose
// subscription has ended.
func TestWhoIsDue(t *testing.T) {
	b := NewBook(100)
	for v := uint64(1); v <= 5; v++ {
		b.Set(0, shop, v, 1, record(fleettime.Time(v)*minute, Unconfirmed, "a"))
	}
	expect := func(c Call, want string) {
		t.Helper()
		jobs := allDue(b, c)
		if got := names(jobs); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
		confirm(b, jobs)
	}
	expect(Call{}, "1:confirm 2:confirm 3:confirm 4:confirm 5:confirm")
	expect(Call{shop, 0, 2 * minute}, "1:soon 2:soon")
	expect(Call{shop, 0, 2 * minute}, "")
	b.Set(0, shop, 1, 1, nil)
	b.Set(0, shop, 4, 1, record(4*minute, Soon, "a")) // by another notifier
	expect(Call{shop, 3 * minute, 4 * minute}, "2:turn 3:turn")
	expect(Call{shop, 3 * minute, 4 * minute}, "")
	b.Set(0, shop, 5, 1, record(5*minute, Unconfirmed, "b")) // another browser
	expect(Call{shop, math.MaxInt64, math.MaxInt64}, "4:turn 5:confirm")
	expect(Call{shop, math.MaxInt64, math.MaxInt64}, "5:turn")
	for v := uint64(2); v <= 5; v++ {
		b.Set(0, shop, v, 1, record(fleettime.Time(v)*minute, Called, "b"))
	}
	if b.Len() != 0 || len(b.rooms) != 0 {
		t.Errorf("%d are left, in %d rooms", b.Len(), len(b.rooms))
	}
}

// TestWhatCannotBeStoredIsDueAgain with the same ID, which tells copies apart from other browsers and other stages.
func TestWhatCannotBeStoredIsDueAgain(t *testing.T) {
	b, ids := NewBook(100), map[string]bool{}
	b.Set(0, shop, 1, 1, record(minute, Unconfirmed, "a"))
	for _, c := range []Call{{}, {shop, 0, minute}, {shop, minute, minute}} {
		first := allDue(b, c)
		b.Again(first)
		second := allDue(b, c)
		if len(first) != 1 || len(second) != 1 || first[0] != second[0] || ids[first[0].ID] {
			t.Fatalf("%v %v", first, second)
		}
		ids[first[0].ID] = true
		confirm(b, first)
	}
	b.Set(0, shop, 1, 1, record(minute, Unconfirmed, "b"))
	if other := allDue(b, Call{}); len(other) != 1 || ids[other[0].ID] {
		t.Errorf("%v", other)
	}
	b.Set(0, shop, 1, 1, nil)
	b.Again([]Job{{Room: shop, Visitor: 1, Stage: Called}})
	if got := allDue(b, Call{shop, minute, minute}); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// TestWhatTheOutboxLostIsDueAgain: until its mark is stored, or it is too late.
func TestWhatTheOutboxLostIsDueAgain(t *testing.T) {
	b := NewBook(100)
	b.Set(0, shop, 1, 1, record(minute, Confirmed, "a"))
	b.Set(0, shop, 2, 1, record(minute, Confirmed, "a"))
	first := allDue(b, Call{shop, minute, minute})
	_, _, m := b.Get(&first[1])
	other := m
	other.Visitor, other.Nonce = 1, "of another browser"
	b.Mark(m)
	b.Mark(other)
	if sealed, _, _ := b.Get(&first[1]); sealed != nil {
		t.Error("it can be delivered again")
	}
	for at, want := range []string{"", "", "1:turn", "", "1:turn", "", "", ""} {
		got := b.Stale(fleettime.Time(at*20_000), 30*time.Second, 90*time.Second)
		if names(got) != want || want != "" && got[0] != first[0] {
			t.Errorf("after %d s: %v of %v", at*20, got, first)
		}
	}
}

// TestTheBookIsBounded by number and by age.
func TestTheBookIsBounded(t *testing.T) {
	b := NewBook(10)
	for v := range uint64(20) {
		if got := b.Set(fleettime.Time(v), shop, v+1, 1, record(1, Confirmed, "a")); got != (v < 10) {
			t.Errorf("%d: %v", v, got)
		}
	}
	b.Prune(fleettime.Time(5), time.Millisecond)
	if b.Len() != 6 {
		t.Errorf("%d are left", b.Len())
	}
}

func BenchmarkDue(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		book := NewBook(n)
		for v := range uint64(n) {
			book.Set(0, shop, v, v, record(fleettime.Time(v*7919%n), Confirmed, "a"))
		}
		due := 0
		for at := range fleettime.Time(50) {
			for shard := range wire.OutboxShards {
				due += len(book.Due(0, shard, Call{shop, at * 2000, at*2000 + 1000}, n))
			}
		}
		if due < n {
			b.Fatal(due)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/subscriber")
}

// TestAFullRoomCallsNobody: a visitor that subscribed on its first page does not count as waiting yet, and is told of
// its turn once a permit is free that it would have been counted for, or its place is called.
func TestAFullRoomCallsNobody(t *testing.T) {
	const place = fleettime.Time(1_622_133_190_000)
	for name, tc := range map[string]struct {
		view   wire.View
		after  time.Duration
		called bool
	}{
		"full":               {wire.View{Cutoff: estimate.Open}, time.Minute, false},
		"over":               {wire.View{Cutoff: estimate.Open, Free: -3}, time.Minute, false},
		"free":               {wire.View{Cutoff: estimate.Open, Free: 1}, 10 * time.Second, true},
		"free, as it seemed": {wire.View{Cutoff: estimate.Open, Free: 1}, time.Second, false},
		"its turn":           {wire.View{Cutoff: place}, time.Second, true},
		"not called":         {wire.View{Cutoff: place - 1}, time.Minute, false},
	} {
		if c := CallOf(7, &tc.view, place.Add(tc.after)); place <= c.Called != tc.called {
			t.Errorf("%s: called up to %d, the place is %d", name, c.Called, place)
		}
	}
}
