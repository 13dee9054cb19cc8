package lineage

import (
	"testing"

	"pgregory.net/rapid"
)

// TestRecentRemembersTheNewestTickets compares with a twin that keeps a list.
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
			found := false
			for j := range twin {
				if twin[j].id == e.id {
					twin[j].until, found = e.until, true
				}
			}
			if !found {
				twin = append(twin, e)
			}
			if len(twin) > limit {
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
			if len(r.ring) > limit || len(r.index) > limit {
				t.Fatalf("%d entries, limit %d", len(r.ring), limit)
			}
		}
	})
}
