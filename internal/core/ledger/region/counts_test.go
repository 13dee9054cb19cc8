package region

import (
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// TestCountsAgreeWithAMap checks the ring of seconds against a twin that keeps
// every second in a map.
func TestCountsAgreeWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c counts
		twin := map[int64]int64{}
		sum := func() (n int64) {
			for _, x := range twin {
				n += x
			}
			return n
		}
		c.start(day)
		freed := day.Second() - 60
		wm := day
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "what") > 0 {
				second := freed + rapid.Int64Range(-100, ringSpan-1).Draw(t, "second")
				if rapid.Bool().Draw(t, "near") {
					second = freed + rapid.Int64Range(-3, 130).Draw(t, "near second")
				}
				n := rapid.Int64Range(-3, 3).Draw(t, "n")
				c.add(second, n)
				if second >= freed {
					twin[second] += n
				}
			} else {
				// Mostly a little on, sometimes beyond everything, sometimes back.
				step := rapid.SampledFrom([]int64{-500, 0, 300, 1000, 70_000, 400_000, 20_000_000}).Draw(t, "ms")
				wm += fleettime.Time(step)
				c.free(wm)
				for s := range twin {
					if wm.Add(-fleettime.Guard) >= fleettime.Time(s*1000) {
						delete(twin, s)
					}
				}
				freed = max(freed, wm.Add(-fleettime.Guard).Second()+1)
			}
			if c.sum != sum() || c.freed != freed {
				t.Fatalf("%d counted from %d on, the twin has %d from %d on", c.sum, c.freed, sum(), freed)
			}
			ring := int64(0)
			for _, n := range c.ring {
				ring += n
			}
			if ring != c.sum {
				t.Fatalf("the ring holds %d, the sum is %d", ring, c.sum)
			}
		}
	})
}

// TestCountsAreBounded: a session that claims to expire in a century is counted at the end of the ring, and is not
// forgotten before.
func TestCountsAreBounded(t *testing.T) {
	var c counts
	c.start(day)
	c.add(day.Second()+100*365*86400, 7)
	if len(c.ring) > ringSpan || c.sum != 7 {
		t.Errorf("%d seconds, %d counted", len(c.ring), c.sum)
	}
	c.free(day.Add(3600e9))
	if c.sum != 7 {
		t.Error("it was forgotten within the hour")
	}
}

// TestCountsBegunLongAgo: seconds from hours ago, as in a stored roster, take no place from current ones, and
// possibly valid sessions stay counted.
func TestCountsBegunLongAgo(t *testing.T) {
	for _, ago := range []int64{0, 3600, 2 * 3600, 4 * 3600, 24 * 3600, 365 * 86400} {
		var c counts
		now := day.Add(365 * 86400e9)
		c.start(now.Add(-time.Duration(ago) * time.Second))
		c.add(c.freed+10, 3)
		c.start(now)
		c.add(now.Second()+int64(wire.Life(room.MaxSession)), 7)
		c.free(now.Add(3600e9))
		if c.sum != 7 {
			t.Errorf("begun %d s ago: %d counted, want the 7 of now", ago, c.sum)
		}
	}
}

// TestSessionIDsStayWithinTheirBounds: 24 bytes per entry, never more entries than the limit, a table of at most
// three times the live entries, and freed entries are reused.
func TestSessionIDsStayWithinTheirBounds(t *testing.T) {
	if size := unsafe.Sizeof(idEntry{}); size != 24 {
		t.Errorf("an entry takes %d bytes, want 24", size)
	}
	const limit = 10_000
	var c counts
	var ids sessionIDs
	c.start(day)
	id := uint64(0)
	largest := 0
	for second := range 600 { // a hundred new sessions a second that live for a minute
		now := day.Add(0) + fleettime.Time(second*1000)
		for range 100 {
			id++
			ids.record(&c, wire.Move{ID: id, Until: uint32(now.Second()) + 60}, 1, limit)
		}
		c.free(now)
		largest = max(largest, len(ids.slots))
	}
	if largest > 3*6200 {
		t.Errorf("%d places were needed for 6,000 live sessions", largest)
	}
	if ids.n > limit {
		t.Errorf("%d entries, the limit is %d", ids.n, limit)
	}
	for k := id - 5000; k <= id; k++ {
		if e := ids.find(k); e == nil || e.id != k {
			t.Fatalf("session %d of %d is not known", k, id)
		}
	}
	// Far more sessions than the limit allows for: those beyond are not known,
	// which costs use of the limit and nothing else.
	for range 5 * limit {
		id++
		ids.record(&c, wire.Move{ID: id, Until: uint32(day.Second()) + 900}, 1, limit)
	}
	if ids.n > limit || len(ids.slots) > 3*limit {
		t.Errorf("%d entries in %d places, the limit is %d", ids.n, len(ids.slots), limit)
	}
}

// TestEveryInstanceHasANumberOfItsOwn: also the 65,537th of a term; it does not share sessions with the first.
func TestEveryInstanceHasANumberOfItsOwn(t *testing.T) {
	var a Aggregator
	first := a.roster.add("edge", 1).num
	a.roster.nums = 1<<16 - 1
	for range 3 {
		if e := a.roster.add("edge", 2); e.num == first || e.num == 0 {
			t.Fatalf("instance %d is told apart by %d, as the first by %d", a.roster.nums, e.num, first)
		}
	}
	var e idEntry
	for _, n := range []edgeNum{1, 1<<16 + 1, 1<<31 - 1} {
		for _, pinned := range []bool{true, false} {
			if e.at(n); e.edge() != n {
				t.Errorf("edge %d is kept as %d", n, e.edge())
			}
			if e.pin(pinned); e.edge() != n || e.pinned() != pinned {
				t.Errorf("edge %d, pinned %v, is kept as %d, %v", n, pinned, e.edge(), e.pinned())
			}
		}
	}
}
