package admission

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// drop tells the edge to drop the room, in the answer to its last report.
func (r *regional) drop(now fleettime.Mono) {
	g := r.held
	g.Drop = true
	r.room(now, g)
}

// newRemoved returns an edge that reports that its room is removed and empty, at the returned time.
func newRemoved(t *testing.T) (*Engine, *regional, fleettime.Mono) {
	now := at(0)
	e, r := newStoring(t, now, 5, 5)
	if n := entered(e, now, 2); n != 2 {
		t.Fatalf("%d of 2 enter", n)
	}
	e.SetRooms(now, nil)
	for range 2000 { // the tickets expire, and the watermark follows
		now = now.Add(time.Second)
		m := r.hear(now)
		if len(m.Rooms) > 0 && m.Rooms[0].Removed {
			return e, r, now
		}
		r.say(now, wire.Grant{Lease: 3 * time.Second, Watermark: day.Add(now.Sub(0))})
	}
	t.Fatalf("the room is not reported as removed: %+v", r.last)
	return nil, nil, 0
}

func TestARemovedRoomIsDropped(t *testing.T) {
	e, r, now := newRemoved(t)
	if p := r.last.Rooms[0].Permits; p.Sessions.Held() != 2 || p.Rate.Held() != 0 || r.last.Rooms[0].Spent != 2 {
		t.Fatalf("a removed room holds permits: %+v", r.last.Rooms[0])
	}
	if e.Rooms.Len() != 1 {
		t.Fatal("the room was dropped before the regional said so")
	}
	if r.drop(now); e.Rooms.Len() != 0 {
		t.Fatal("the room is not dropped")
	}
	if m := r.hear(now.Add(time.Second)); len(m.Rooms) != 0 {
		t.Errorf("a dropped room is reported: %+v", m.Rooms)
	}
	now = now.Add(2 * time.Second)
	e.SetRooms(now, []Room{{ID: sale}})
	m := r.hear(now)
	if len(m.Rooms) != 1 || m.Rooms[0].Removed || m.Rooms[0].Spent != 0 || m.Rooms[0].Permits != (wire.Permits{}) {
		t.Errorf("a room that is added again does not start anew: %+v", m.Rooms)
	}
}

// TestARoomThatIsNotEmptyIsKept: the edge keeps a room that it is to drop and that is in the set again, or has changes
// that the regional does not know, and reports it.
func TestARoomThatIsNotEmptyIsKept(t *testing.T) {
	for name, then := range map[string]func(e *Engine, r *regional, now fleettime.Mono){
		"added again": func(e *Engine, r *regional, now fleettime.Mono) { e.SetRooms(now, []Room{{ID: sale}}) },
		"added and removed again": func(e *Engine, r *regional, now fleettime.Mono) {
			e.SetRooms(now, []Room{{ID: sale}})
			e.SetRooms(now, nil)
		},
		"a session was revoked": func(e *Engine, r *regional, now fleettime.Mono) {
			until := uint32(day.Add(now.Sub(0)).Second()) + 60
			r.held.Ends = []wire.End{{ID: 1, Home: 2, Until: until, Kind: wire.Left}}
		},
		"a visitor is held": func(e *Engine, r *regional, now fleettime.Mono) { e.Rooms.Hold(now, &Visit{Room: sale}) },
	} {
		t.Run(name, func(t *testing.T) {
			e, r, now := newRemoved(t)
			then(e, r, now)
			r.drop(now)
			if m := r.hear(now.Add(time.Second)); e.Rooms.Len() != 1 || len(m.Rooms) != 1 || m.Rooms[0].Spent != 2 {
				t.Errorf("%d rooms, reported %+v; want the room with its counters", e.Rooms.Len(), m.Rooms)
			}
		})
	}
}

// TestAHeldVisitorOfADroppedRoom: the room was dropped between the decision to hold and the hold. The hold ends as any.
func TestAHeldVisitorOfADroppedRoom(t *testing.T) {
	e, r, now := newRemoved(t)
	r.drop(now)
	v := &Visit{Room: sale}
	e.Rooms.Hold(now, v)
	if out := e.Rooms.ReleaseRoom(now, sale); len(out) != 0 {
		t.Fatalf("%d visitors of a removed room are decided", len(out))
	}
	if !e.Rooms.GiveUp(now, v) || v.Decision.Enters() {
		t.Errorf("the hold ends with %+v", v.Decision)
	}
}

// TestASnapshotForgetsDroppedRooms: each snapshot says which rooms are in none any more, but not one that is back.
func TestASnapshotForgetsDroppedRooms(t *testing.T) {
	e, r, now := newRemoved(t)
	known := map[room.ID]wire.RoomPast{}
	takeAll(e, now, known)
	e.Snapshots.Written(now)
	r.drop(now)
	if _, _, dropped := e.Snapshots.Begin(now); len(dropped) != 1 || dropped[0] != sale {
		t.Fatalf("dropped rooms are %v, want %v", dropped, sale)
	}
	e.Snapshots.Written(now)
	if _, _, dropped := e.Snapshots.Begin(now); len(dropped) != 0 {
		t.Fatalf("a room is dropped twice: %v", dropped)
	}
	e.Snapshots.Written(now)

	e, r, now = newRemoved(t)
	r.drop(now)
	e.SetRooms(now, []Room{{ID: sale}})
	if _, _, dropped := e.Snapshots.Begin(now); len(dropped) != 0 {
		t.Fatalf("a room that is back is dropped: %v", dropped)
	}
	clear(known)
	changed, _, _ := e.Snapshots.Take(now, 0, true, make([]wire.RoomPast, 1))
	if len(changed) != 1 || changed[0].Report.Spent != 0 {
		t.Errorf("the snapshot has %+v, want the new counters", changed)
	}
}
