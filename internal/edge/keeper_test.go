package edge

import (
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
)

func TestDroppedRoomsLeaveTheSnapshots(t *testing.T) {
	var s snapshotEncoder
	head := wire.Report{From: "edge-1", Parts: 1}
	rooms := func() (ids []room.ID) {
		p := testkit.Must(wire.DecodePast(wire.AppendPast(nil, 1, &head, s.rooms)))(t)
		for i := range p.Rooms {
			ids = append(ids, p.Rooms[i].Report.Room)
		}
		return ids
	}
	for id := room.ID(1); id <= 3; id++ {
		s.put(&wire.RoomPast{Report: wire.RoomReport{Room: id}})
	}
	s.drop([]room.ID{2, 9})
	if got := rooms(); len(got) != 2 || got[0] != 1 || got[1] != 3 {
		t.Fatalf("the snapshot has rooms %v, want 1 and 3", got)
	}
	s.put(&wire.RoomPast{Report: wire.RoomReport{Room: 2}})
	if got := rooms(); len(got) != 3 {
		t.Fatalf("the snapshot has rooms %v, want all", got)
	}
	s.drop([]room.ID{1, 2, 3})
	if got := rooms(); len(got)+len(s.order)+len(s.rooms) != 0 {
		t.Fatalf("the snapshot has rooms %v, want none", got)
	}
}
