package admission

import (
	"cmp"
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// Rooms are the rooms of an engine, with their held requests. Engine.SetRooms adds rooms, drop deletes them.
type Rooms struct {
	edge  *edge // shared by all rooms
	byID  map[room.ID]*roomState
	order []*roomState // by ID: iteration must not depend on a map
}

// Len returns the number of rooms with a state, also of removed ones.
func (s *Rooms) Len() int { return len(s.order) }

// Pause stops or resumes admissions to a room because its origin does not respond. Sessions are served, places are
// kept, and the permits go to other edges.
func (s *Rooms) Pause(now fleettime.Mono, id room.ID, paused bool) {
	r := s.byID[id]
	if r == nil || r.paused == paused {
		return
	}
	r.paused, r.dirty = paused, true
	s.edge.reportSoon(now)
}

// Hold keeps a request that Arrive decided to Hold. The caller sets v.Room and v.Ticket. The engine owns v until
// Release returns it or GiveUp takes it back.
func (s *Rooms) Hold(now fleettime.Mono, v *Visit) { s.open(v.Room).hold(now, v) }

// Release admits held visitors in the order of joining, while permits last and the admission cutoff allows, and
// returns the decided ones. The slice is valid until the next call.
func (s *Rooms) Release(now fleettime.Mono, out []*Visit) []*Visit {
	m := s.edge.clock.at(now)
	if !s.edge.up.check(now) || s.edge.up.standing != wire.Listed {
		return out
	}
	for _, r := range s.order {
		out = r.release(m, out)
	}
	return out
}

// ReleaseRoom is Release for one room: a visitor was held there just now.
func (s *Rooms) ReleaseRoom(now fleettime.Mono, id room.ID) []*Visit {
	if !s.edge.up.check(now) || s.edge.up.standing != wire.Listed {
		return nil
	}
	return s.byID[id].release(s.edge.clock.at(now), nil)
}

// GiveUp ends the hold of v, and its visitor continues to wait. It returns false if Release has already decided.
func (s *Rooms) GiveUp(now fleettime.Mono, v *Visit) bool {
	r := s.byID[v.Room]
	if !r.unhold(v) {
		return false
	}
	r.giveUp(s.edge.clock.at(now), v)
	return true
}

// Decline answers a request that Arrive decided to Hold and that the caller cannot hold: its visitor continues to wait.
func (s *Rooms) Decline(now fleettime.Mono, v *Visit) {
	s.open(v.Room).giveUp(s.edge.clock.at(now), v)
	v.Decision.Reason = Crowded
}

// Abandon ends the hold of v after its client disconnected. The visitor still has the ticket that it brought and is
// counted as that ticket says. It returns false if Release has already decided.
func (s *Rooms) Abandon(now fleettime.Mono, v *Visit) bool {
	r := s.byID[v.Room]
	if !r.unhold(v) {
		return false
	}
	r.abandon(now, v)
	return true
}

// Left ends the holds of requests with the ticket of a visitor that has left, and returns them: they take no permit, and
// their Fresh is Gone.
func (s *Rooms) Left(id room.ID, visitor uint64) (out []*Visit) {
	r := s.byID[id]
	if r == nil || r.line.held.tabs[visitor] == 0 {
		return nil
	}
	for _, v := range slices.Clone(r.line.held.visits) {
		if v.Ticket.ID == visitor && r.unhold(v) {
			v.Decision = Decision{Verdict: Queue, Reason: GaveUp, Fresh: Gone, Ticket: v.Ticket}
			out = append(out, v)
		}
	}
	return out
}

// Drain ends all holds without a decision before the process exits.
func (s *Rooms) Drain(now fleettime.Mono) []*Visit {
	var out []*Visit
	for _, r := range s.order {
		for len(r.line.held.visits) > 0 {
			v := r.line.held.visits[0]
			s.GiveUp(now, v)
			out = append(out, v)
		}
	}
	return out
}

// open returns the state of a room and makes it if needed. A held visitor may be of a room that was dropped meanwhile.
func (s *Rooms) open(id room.ID) *roomState {
	r := s.byID[id]
	if r == nil {
		r = newRoomState(s.edge, id)
		for _, end := range s.edge.cfg.Ended[id] {
			r.account.ended.note(end)
		}
		s.byID[id] = r
		i, _ := slices.BinarySearchFunc(s.order, id, compareRoom)
		s.order = slices.Insert(s.order, i, r)
		past := &s.edge.snapshots
		past.wanted = true
		past.dropped = slices.DeleteFunc(past.dropped, func(o room.ID) bool { return o == id }) // the next one has it
	}
	return r
}

func compareRoom(r *roomState, id room.ID) int { return cmp.Compare(r.settings.ID, id) }

// drop handles wire.RoomGrant.Drop. The parent knows the newest counters if it has acknowledged them.
func (s *Rooms) drop(now fleettime.Mono, r *roomState) {
	if r.dirty || r.account.changed || r.changedAt > s.edge.up.acked || !r.mayDrop(now) {
		r.dirty = true // the next report has the room
		s.edge.reportSoon(now)
		return
	}
	delete(s.byID, r.settings.ID)
	s.order = slices.DeleteFunc(s.order, func(o *roomState) bool { return o == r })
	if past := &s.edge.snapshots; past.on {
		past.dropped = append(past.dropped, r.settings.ID)
	}
}
