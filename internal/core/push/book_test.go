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
		out = append(append(out, b.Confirm(0, shard)...), b.Due(0, shard, c)...)
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
		b.Set(0, shop, v, 1, "fcm", record(fleettime.Time(v)*minute, Unconfirmed, "a"))
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
	expect(Call{shop, 0, 2 * minute, 0}, "1:soon 2:soon")
	expect(Call{shop, 0, 2 * minute, 0}, "")
	b.Set(0, shop, 1, 1, "fcm", nil)
	b.Set(0, shop, 4, 1, "fcm", record(4*minute, Soon, "a")) // by another notifier
	expect(Call{shop, 3 * minute, 4 * minute, 0}, "2:turn 3:turn")
	expect(Call{shop, 3 * minute, 4 * minute, 0}, "")
	b.Set(0, shop, 5, 1, "fcm", record(5*minute, Unconfirmed, "b")) // another browser
	expect(Call{shop, math.MaxInt64, math.MaxInt64, 0}, "4:turn 5:confirm")
	expect(Call{shop, math.MaxInt64, math.MaxInt64, 0}, "5:turn")
	for v := uint64(2); v <= 5; v++ {
		b.Set(0, shop, v, 1, "fcm", record(fleettime.Time(v)*minute, Called, "b"))
	}
	if b.Len() != 0 || len(b.rooms) != 0 {
		t.Errorf("%d are left, in %d rooms", b.Len(), len(b.rooms))
	}
}

// TestWhatCannotBeStoredIsDueAgain with the same ID, which tells copies apart from other browsers and other stages.
func TestWhatCannotBeStoredIsDueAgain(t *testing.T) {
	b, ids := NewBook(100), map[string]bool{}
	b.Set(0, shop, 1, 1, "fcm", record(minute, Unconfirmed, "a"))
	for _, c := range []Call{{}, {shop, 0, minute, 0}, {shop, minute, minute, 0}} {
		first := allDue(b, c)
		b.Again(first)
		second := allDue(b, c)
		if len(first) != 1 || len(second) != 1 || first[0] != second[0] || ids[first[0].ID] {
			t.Fatalf("%v %v", first, second)
		}
		ids[first[0].ID] = true
		confirm(b, first)
	}
	b.Set(0, shop, 1, 1, "fcm", record(minute, Unconfirmed, "b"))
	if other := allDue(b, Call{}); len(other) != 1 || ids[other[0].ID] {
		t.Errorf("%v", other)
	}
	b.Set(0, shop, 1, 1, "fcm", nil)
	b.Again([]Job{{Room: shop, Visitor: 1, Stage: Called}})
	if got := allDue(b, Call{shop, minute, minute, 0}); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// TestWhatFailedOrGotLostIsDueAgain, as another attempt, until its mark is stored or it is over.
func TestWhatFailedOrGotLostIsDueAgain(t *testing.T) {
	b := NewBook(100)
	b.Set(0, shop, 1, 1, "fcm", record(minute, Confirmed, "a"))
	b.Set(0, shop, 2, 1, "fcm", record(minute, Confirmed, "a"))
	call := Call{shop, minute, minute, 600}
	first := allDue(b, call)
	_, _, m := b.Get(&first[1])
	other := m
	other.Visitor, other.Nonce = 1, "of another browser"
	b.Mark(m)
	b.Mark(other)
	if sealed, _, _ := b.Get(&first[1]); sealed != nil {
		t.Error("it can be delivered again")
	}
	at := func(seconds fleettime.Time) []Job { return b.Due(seconds*1000, Shard(1), call) }
	b.Lost(40_000, 45*time.Second)
	if got := at(40); len(got) != 0 {
		t.Errorf("after 40 s: %v", got)
	}
	b.Lost(46_000, 45*time.Second)
	second := at(46)
	if names(second) != "1:turn" || second[0].Attempt != 1 || second[0].ID == first[0].ID || second[0].Due != first[0].Due ||
		second[0].Until != first[0].Until || second[0].Until != fleettime.Time(600_000) {
		t.Fatalf("%+v, %+v", second, first[0])
	}
	b.Failed(&first[0], 47_000) // of the attempt before
	b.Failed(&second[0], 60_000)
	if got := at(59); len(got) != 0 {
		t.Errorf("before its time: %v", got)
	}
	b.Hurry("mozilla")
	if got := at(59); len(got) != 0 {
		t.Errorf("another service works: %v", got)
	}
	b.Hurry("fcm")
	third := at(59)
	if names(third) != "1:turn" || third[0].Attempt != 2 {
		t.Fatalf("%+v", third)
	}
	b.Over(&third[0])
	b.Lost(1e9, time.Second)
	if got := at(1e6); len(got) != 0 {
		t.Errorf("it was over: %v", got)
	}
}

// TestAStartedNotifierTellsWhatOthersCouldNot: the outbox takes an ID once, and another notifier has used those of its
// attempts.
func TestAStartedNotifierTellsWhatOthersCouldNot(t *testing.T) {
	call, stored := Call{shop, minute, minute, 600}, map[string]bool{}
	attempts := func(from fleettime.Time, most int) (taken int) {
		b := NewBook(100)
		b.Set(from, shop, 1, 1, "fcm", record(minute, Confirmed, "a"))
		for i := range fleettime.Time(most) {
			for _, j := range b.Due(from+i*15_000, Shard(1), call) {
				if !stored[j.ID] {
					taken++
				}
				stored[j.ID] = true
				b.Failed(&j, from+(i+1)*15_000)
			}
		}
		return taken
	}
	if first, second := attempts(0, 8), attempts(125_000, 2); first != 8 || second != 1 {
		t.Errorf("the outbox takes %d of 8 attempts, and %d of 2 of the next notifier; want 8, and its second", first, second)
	}
}

// TestAFailingServiceKeepsNobodyElseBehind: 2,000 subscriptions that are not confirmed, and as many that are, of a push
// service that takes nothing, with earlier places than that of another one.
func TestAFailingServiceKeepsNobodyElseBehind(t *testing.T) {
	for _, had := range []Stage{Unconfirmed, Confirmed} {
		b := NewBook(1 << 20)
		for i := range uint64(2000) {
			b.Set(0, shop, i*wire.OutboxShards, 1, "fcm", record(fleettime.Time(i+1), had, "a"))
		}
		late := uint64(2000 * wire.OutboxShards)
		b.Set(0, shop, late, 1, "mozilla", record(5000, Confirmed, "b"))
		b.Set(0, shop, late+wire.OutboxShards, 1, "mozilla", record(5000, Unconfirmed, "b"))
		b.Confirm(0, 0)
		all := Call{shop, math.MaxInt64, math.MaxInt64, 600}
		got := map[uint64]Stage{}
		for _, j := range b.Due(0, 0, all) {
			got[j.Visitor] = j.Stage
		}
		if got[late] != Called || len(got) > Window+1 {
			t.Errorf("%v: %d are due, the other %v", had, len(got), got[late])
		}
		if had == Unconfirmed {
			continue
		}
		for range 5 { // what is under way fails, and the others come
			for v := range got {
				b.Failed(&Job{Room: shop, Visitor: v, Stage: Called}, math.MaxInt64)
			}
			for _, j := range b.Due(0, 0, all) {
				got[j.Visitor] = j.Stage
			}
		}
		if len(got) != 2001 {
			t.Errorf("%d of 2,001 were due", len(got))
		}
	}
}

// TestSubscribingAgainDoesNotGrowTheBook.
func TestSubscribingAgainDoesNotGrowTheBook(t *testing.T) {
	b := NewBook(100)
	for i := range 10_000 {
		b.Set(0, shop, 16, 1, "fcm", record(minute, Stage(i%3), fmt.Sprintf("%08d", i)))
		switch i % 5 {
		case 1:
			allDue(b, Call{shop, minute, minute, 600})
		case 3:
			b.Lost(fleettime.Time(1e9+i), 0)
		}
	}
	n := 0
	for slot := range slots {
		n += b.heap(b.rooms[shop].subs[16], slot).Len()
	}
	if p := b.posts["fcm"][0]; n > slots || p.queued > 1 {
		t.Errorf("%d subscription: %d places in heaps, %d queued", b.Len(), n, p.queued)
	}
}

// TestTheBookIsBounded by number and by age.
func TestTheBookIsBounded(t *testing.T) {
	b := NewBook(10)
	for v := range uint64(20) {
		if got := b.Set(fleettime.Time(v), shop, v+1, 1, "fcm", record(1, Confirmed, "a")); got != (v < 10) {
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
			book.Set(0, shop, v, v, "fcm", record(fleettime.Time(v*7919%n), Confirmed, "a"))
		}
		due := 0
		for at := range fleettime.Time(50) {
			for shard := range wire.OutboxShards {
				due += len(book.Due(0, shard, Call{shop, at * 2000, at*2000 + 1000, 0}))
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
		"its turn":           {wire.View{Cutoff: place, Free: 1}, time.Second, true},
		"its turn in a flow": {wire.View{Cutoff: place, Paces: []estimate.Pace{{Mu: 1}}}, time.Second, true},
		"nothing is free":    {wire.View{Cutoff: place}, time.Second, false},
		"nothing for long":   {wire.View{Cutoff: place, Paces: []estimate.Pace{{Mu: 0.01}}}, time.Second, false},
		"not called":         {wire.View{Cutoff: place - 1, Free: 1}, time.Minute, false},
	} {
		if c := CallOf(7, &tc.view, time.Minute, place.Add(tc.after)); place <= c.Called != tc.called {
			t.Errorf("%s: called up to %d, the place is %d", name, c.Called, place)
		}
	}
}
