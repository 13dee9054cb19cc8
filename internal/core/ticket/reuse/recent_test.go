package reuse

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRecentRemembersTheNewestTickets compares with a model that keeps a list: a ticket put again is among the newest.
func TestRecentRemembersTheNewestTickets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(0, 5).Draw(t, "limit")
		r := NewRecent[uint32](limit)
		type entry struct {
			id    uint64
			until uint32
		}
		var twin []entry
		for i := range rapid.IntRange(1, 60).Draw(t, "puts") {
			e := entry{rapid.Uint64Range(1, 9).Draw(t, "id"), uint32(1000 + i)}
			r.Put(e.id, e.until)
			twin = slices.DeleteFunc(twin, func(o entry) bool { return o.id == e.id })
			if twin = append(twin, e); len(twin) > limit {
				twin = twin[1:]
			}
			want := map[uint64]uint32{}
			for _, e := range twin {
				want[e.id] = e.until
			}
			for id := range uint64(10) {
				if got := r.Get(id); got != want[id] {
					t.Fatalf("ticket %d: %d, want %d", id, got, want[id])
				}
			}
			if len(r.entries) > limit || len(r.index) > limit {
				t.Fatalf("%d entries, limit %d", len(r.entries), limit)
			}
		}
	})
}
