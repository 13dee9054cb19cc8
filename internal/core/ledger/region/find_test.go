package region_test

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// A session is found by its ticket, with the edge that renewed it last, until it ends.
func TestSessionsAreFound(t *testing.T) {
	const second = 1_800_000_000
	sale := room.IDOf("sale")
	term, now := wire.Term{N: 1, Nonce: 1}, fleettime.Mono(time.Hour)
	a := lead(now, region.Config{
		Term: term, Bootstrap: true, Time: fleettime.Known{Time: second * 1000, Bound: 1},
	}, wire.Durable{})
	a.SetRooms(now, []ledger.RoomConfig{{ID: sale, Total: 50, Rate: 600, Session: 5 * time.Minute, LostWait: time.Hour}})
	say := func(edge string, instance uint64, moves ...wire.Move) {
		m := joining(edge, instance, uint64(now), term, wire.RoomReport{Room: sale, Moves: moves, FirstMove: 1})
		m.AsOf = second * 1000
		a.Observe(now, m)
		save(a, now)
		now = now.Add(time.Second)
	}
	say("d1", 7, wire.Move{ID: 42, Until: second + 100}, wire.Move{ID: 43, Until: second + 50})
	say("d2", 8, wire.Move{ID: 42, From: second + 100, Until: second + 200})
	find := func(id uint64) []region.Session {
		return a.Find(now, func(o uint64) bool { return o == id })
	}
	got := find(42)
	if len(got) != 1 || got[0] != (region.Session{Room: sale, Edge: "d2", Until: (second + 200) * 1000}) {
		t.Errorf("%+v", got)
	}
	if len(find(43)) != 1 || len(find(44)) != 0 {
		t.Errorf("%+v, %+v", find(43), find(44))
	}
	if now = now.Add(2 * time.Minute); len(find(43)) != 0 || len(find(42)) != 1 {
		t.Errorf("later: %+v, %+v", find(43), find(42))
	}
}
