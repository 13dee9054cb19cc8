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
	a := region.New(now, region.Config{
		Strict: true, DC: "dublin", Term: term, Params: wire.DefaultParams(), Bootstrap: true, ClusterID: 1, Time: fleettime.Known{Time: second * 1000, Bound: 1},
	}, wire.Durable{})
	a.SetLease(fleettime.Never)
	a.SetRooms(now, []ledger.RoomConfig{{ID: sale, Total: 50, Rate: 600, Session: 5 * time.Minute, LostWait: time.Hour}})
	say := func(edge string, instance uint64, moves ...wire.Move) {
		a.Observe(now, wire.Report{
			From: edge, Instance: instance, LeaseEpoch: 1, Seq: uint64(now), Parts: 1, AsOf: second * 1000, Seen: term, Join: true,
			Rooms: []wire.RoomReport{{Room: sale, Moves: moves, FirstMove: 1}},
		})
		if d, ok := a.Unsaved(); ok {
			a.Saved(now, d.Version)
		}
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
