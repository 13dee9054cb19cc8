package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// left returns the number of rooms that every tier has, and those of the stored promises.
func (h *house) left() (n []int) {
	d := h.agg.Durable()
	n = append(n, h.root.Rooms(), h.agg.Rooms(), len(d.Rooms))
	for _, r := range d.Roster {
		n = append(n, len(r.Rooms))
	}
	for _, e := range h.edges {
		n = append(n, e.Rooms.Len())
	}
	return n
}

// setRooms replaces the room set of every node.
func (h *house) setRooms(ids []room.ID) {
	var configs []ledger.RoomConfig
	var rooms []admission.Room
	for _, id := range ids {
		configs = append(configs, ledger.RoomConfig{
			ID: id, Total: 2, Rate: 60, Session: 5 * time.Second, LostWait: time.Minute,
		})
		rooms = append(rooms, admission.Room{ID: id})
	}
	h.root.SetRooms(h.now, configs)
	h.agg.SetRooms(h.now, configs)
	for _, e := range h.edges {
		e.SetRooms(h.now, rooms)
	}
}

// visit has one newcomer come to every room, and returns how many were let in.
func (h *house) visit(ids []room.ID) (in int) {
	var held []*admission.Visit
	for i, id := range ids {
		e := h.edges[i%len(h.edges)]
		switch d := e.Arrive(h.now, id, ticket.Ticket{}); d.Verdict {
		case admission.Admit:
			in++
		case admission.Hold:
			v := &admission.Visit{Room: id, Ticket: d.Ticket}
			e.Rooms.Hold(h.now, v)
			held = append(held, v)
		case admission.Queue, admission.Serve:
		}
	}
	return in + len(held)
}

// TestRemovedRoomsLeaveNothing makes 1,000 rooms with a visitor each, and removes them, twice: nothing of them is left
// at any tier, nor in the store. The second time they admit as many.
func TestRemovedRoomsLeaveNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1)
	var ids []room.ID
	for i := range 1000 {
		ids = append(ids, room.IDOf(fmt.Sprint("room", i)))
	}
	for round := range 2 {
		h.setRooms(ids)
		for range 8 {
			h.talk(t)
		}
		h.visit(ids)
		for range 8 {
			h.talk(t)
		}
		for _, id := range ids {
			if l := h.agg.Ledger(id); l.Active != 1 {
				t.Fatalf("round %d: a room has %d sessions, want 1: %+v", round, l.Active, l)
			}
		}
		if got := h.left(); slices.Max(got) < len(ids) || h.root.Rooms() != len(ids) {
			t.Fatalf("round %d: %v rooms are known", round, got)
		}
		h.setRooms(nil)
		for range 4 * 150 {
			h.talk(t)
		}
		if got := h.left(); slices.Max(got) != 0 {
			t.Fatalf("round %d: %v removed rooms are left", round, got)
		}
	}
}

// makeAndRemove makes rooms that every node hears of, removes them, and lets the tickets expire.
func (h *house) makeAndRemove(t *testing.T, ids []room.ID) {
	t.Helper()
	h.setRooms(ids)
	for range 8 {
		h.talk(t)
	}
	h.setRooms(nil)
	for range 4 * 150 {
		h.talk(t)
	}
}

// TestRemovedRoomsStayAtAnOlderEdge: an edge of the release before never reports that a room is removed. Its data
// centre keeps the room with it.
func TestRemovedRoomsStayAtAnOlderEdge(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 1)
	ids := []room.ID{h.room, room.IDOf("a")}
	old := func(m *wire.Report) {
		if m.From == "edge0" {
			for i := range m.Rooms {
				m.Rooms[i].Removed = false
			}
		}
	}
	h.alter = old
	h.makeAndRemove(t, ids)
	if h.edges[0].Rooms.Len() != 2 || h.edges[1].Rooms.Len() != 0 || h.agg.Rooms() != 2 || h.root.Rooms() != 2 {
		t.Fatalf("%v rooms are left", h.left())
	}
	h.alter = func(*wire.Report) {} // the new release
	h.makeAndRemove(t, ids)
	if got := h.left(); slices.Max(got) != 0 {
		t.Fatalf("%v rooms are left", got)
	}
}

// TestRule13ADroppedRoomStartsAnew: a room is full, removed, dropped by every node and added again. Both sides of a hop
// start with the same counters, so it takes as many visitors as before.
func TestRule13ADroppedRoomStartsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(wire.DefaultParams(), []string{"dublin", "nairobi"}, 2)
	r := w.rooms.add("sale", 4, 60, 5*time.Second)
	w.begin(true)
	w.run(2 * time.Second)
	left := 0
	for round := range 3 {
		from := w.now
		for i := range 12 {
			w.people.arrive(fmt.Sprint(round, i), r, w.edges[i%len(w.edges)])
		}
		w.run(4 * time.Second)
		if w.oracle.broken != "" {
			t.Fatalf("round %d: %s", round, w.oracle.broken)
		}
		if n := r.since(from); n != int(r.total) {
			t.Fatalf("round %d: %d were let in, want %d", round, n, r.total)
		}
		w.people.leave(false)
		w.people.leave(true)
		r.gone = true
		w.setRooms()
		w.run(2 * time.Minute)
		without, all := w.dropped()
		left += all - without
		r.gone = false
		w.setLimits(r, r.total, r.rate)
		w.run(2 * time.Second)
	}
	if left > 0 {
		t.Fatalf("%d nodes had the removed room", left)
	}
}

// newRemovedRoom returns a world whose full room was removed at once, when its visitors had gone.
func newRemovedRoom(seed uint64) (*world, *roomTruth) {
	w := newWorld(wire.DefaultParams(), []string{"dublin", "nairobi"}, 2)
	w.rng = rand.New(rand.NewPCG(seed, 3))
	r := w.rooms.add("sale", 4, 60, 5*time.Second)
	w.begin(true)
	w.run(2 * time.Second)
	for i := range 6 {
		w.people.arrive(fmt.Sprint(i), r, w.edges[i%len(w.edges)])
	}
	w.run(2 * time.Second)
	w.people.leave(false)
	w.people.leave(true)
	r.gone = true
	w.setRooms()
	return w, r
}

// since returns the number of admissions at or after at.
func (r *roomTruth) since(at int64) int {
	n := 0
	for _, x := range r.admitted {
		if x >= at {
			n++
		}
	}
	return n
}

// dropped returns the nodes that have no room, of all nodes.
func (w *world) dropped() (n, of int) {
	count := func(rooms int) {
		if of++; rooms == 0 {
			n++
		}
	}
	for _, e := range w.edges {
		count(e.core.Rooms.Len())
	}
	for _, s := range w.centres {
		count(s.newest().core.Rooms())
	}
	count(w.root().core.Rooms())
	return n, of
}

// TestARoomComesBackWhileItIsDropped adds a room again at every moment of its drop, while messages are lost, links cut
// and leaders replaced. The judge checks every step, and in the end as many are let in as before.
func TestARoomComesBackWhileItIsDropped(t *testing.T) {
	t.Parallel()
	const step = 10 * time.Millisecond
	probe, _ := newRemovedRoom(0)
	first, last := time.Duration(0), time.Duration(0)
	for last == 0 && probe.now < int64(5*time.Minute) {
		probe.run(step)
		switch n, of := probe.dropped(); {
		case n == of:
			last = time.Duration(probe.now)
		case n > 0 && first == 0:
			first = time.Duration(probe.now)
		}
	}
	if first == 0 || last == 0 {
		t.Fatalf("the room is dropped from %v to %v", first, last)
	}
	const worlds = 24
	some := 0
	for seed := range uint64(worlds) {
		w, r := newRemovedRoom(seed)
		rng := rand.New(rand.NewPCG(seed, 4))
		until := func(at time.Duration) { w.run(max(0, at-time.Duration(w.now))) }
		until(first - time.Second)
		if rng.IntN(2) == 0 {
			w.net.chaos = chaos{loss: 0.3 * rng.Float64(), double: 0.2, late: 0.2, most: time.Second}
		}
		back := first - 300*time.Millisecond + time.Duration(rng.Float64()*float64(last-first+time.Second))
		cut := back - time.Duration(rng.Float64()*float64(500*time.Millisecond))
		links := []*link{}
		for _, s := range w.centres {
			links = append(links, &s.up, &s.down)
		}
		for _, e := range w.edges {
			links = append(links, &e.up, &e.down)
		}
		rng.Shuffle(len(links), func(i, k int) { links[i], links[k] = links[k], links[i] })
		links = links[:rng.IntN(4)]
		until(cut)
		for _, l := range links {
			l.cut = true
		}
		switch rng.IntN(4) { // successors, who know nothing of a drop under way
		case 0:
			w.centres[0].newest().gone = true
			w.startAgg(w.centres[0], false)
		case 1:
			w.root().gone = true
			w.startRoot(false)
		}
		until(back)
		if n, of := w.dropped(); n > 0 && n < of {
			some++
		}
		r.gone = false
		w.setLimits(r, r.total, r.rate)
		for i := range 8 {
			w.people.arrive(fmt.Sprint("back", i), r, w.edges[i%len(w.edges)])
		}
		w.run(time.Duration(rng.Float64() * float64(2*time.Second)))
		for _, l := range links {
			l.cut = false
		}
		w.net.chaos = chaos{}
		w.run(5 * time.Second)
		w.people.leave(false)
		w.run(75 * time.Second)
		from := w.now
		for i := range 8 {
			w.people.arrive(fmt.Sprint("then", i), r, w.edges[i%len(w.edges)])
		}
		w.run(4 * time.Second)
		if w.oracle.broken != "" {
			t.Fatalf("seed %d: %s", seed, w.oracle.broken)
		}
		if n := r.since(from); n != int(r.total) {
			t.Fatalf("seed %d: %d were let in, want %d", seed, n, r.total)
		}
	}
	if t.Logf("%d of %d rooms came back when some nodes had dropped it", some, worlds); some == 0 {
		t.Error("no room came back while it was dropped")
	}
}
