package admission

import (
	"testing"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
)

// drawnRoom is the room after a draw whose entries closed at closes.
func drawnRoom(closes fleettime.Time, secret byte) (Room, *draw.Draw) {
	r := &draw.Record{Algorithm: draw.Algorithm, Room: "r", Event: "e", Closes: closes.Std(), Secret: draw.Hash{secret}}
	return Room{ID: sale, Drawn: r}, r.Draw()
}

// TestWhoWasDrawnStandsThere: with the next request a visitor that joined before the close moves to the drawn
// place, with its count and a new estimate; the same again at any edge. Later visitors stay behind all drawn ones,
// also with a slow clock of the edge.
func TestWhoWasDrawnStandsThere(t *testing.T) {
	now := at(0)
	e, r := newEdge(t, now, 0, 0)
	e.Clock.since = 1 // other edges have long been counting
	ft := e.Clock.Time(now)
	early, late := waiting(7, 2*time.Minute), waiting(8, 10*time.Second)
	early.Longer, early.Forecast = 5, 9
	for _, w := range []*ticket.Ticket{&early, &late} {
		d := e.Arrive(now, sale, *w)
		if d.Ticket.Place() != w.Joined {
			t.Fatalf("before the draw: %+v", d)
		}
		*w = d.Ticket
	}
	closes := ft.Add(-30 * time.Second)
	in, places := drawnRoom(closes, 1)
	v := &Visit{Room: sale, Ticket: waiting(9, time.Minute)}
	e.Rooms.Hold(now, v)
	e.SetRooms(now, []Room{in})
	want := places.Place(7, early.Joined, 0)
	if v.Ticket.Place() != places.Place(9, v.Ticket.Joined, 0) {
		t.Errorf("somebody who is held stands at %v", v.Ticket.Place())
	}
	first := e.Arrive(now, sale, early)
	if first.Ticket.Place() != want || first.Ticket.Joined != early.Joined || first.Ticket.Longer != 0 ||
		first.Fresh != Kept || !first.Reseal {
		t.Errorf("%+v stands at %v, want %v", first, first.Ticket.Place(), want)
	}
	if d := e.Arrive(now, sale, late); d.Ticket.Place() != late.Joined {
		t.Errorf("who came late stands at %v, and joined at %v", d.Ticket.Place(), late.Joined)
	}
	counted := map[int64]float64{}
	for _, s := range r.hear(now).Rooms[0].Waiting {
		counted[s.Start.Second()] += s.N
	}
	if counted[want.Second()] != 1 || counted[late.Joined.Second()] != 0 || counted[early.Joined.Second()] != -1 {
		t.Errorf("counted %v, one more at %v, and one less at %v, where they were counted elsewhere", counted, want,
			early.Joined)
	}
	for _, w := range []ticket.Ticket{early, first.Ticket} { // the response was lost; the next request
		if d := e.Arrive(now, sale, w); d.Ticket.Place() != want {
			t.Errorf("again: %v, want %v", d.Ticket.Place(), want)
		}
	}

	// A second draw applies to all visitors that joined before its close, and replaces the first one.
	again, places := drawnRoom(ft.Add(-5*time.Second), 2)
	e.SetRooms(now, []Room{again})
	for _, w := range []ticket.Ticket{first.Ticket, late} {
		if d := e.Arrive(now, sale, w); d.Ticket.Place() != places.Place(w.ID, w.Joined, 0) {
			t.Errorf("after another draw ticket %d stands at %v", w.ID, d.Ticket.Place())
		}
	}

	// New visitors never take part in a known draw, whatever this clock shows; and drawn places stay when the draw
	// is forgotten.
	soon, _ := drawnRoom(ft.Add(time.Second), 3)
	e.SetRooms(now, []Room{soon})
	if d := e.Arrive(now, sale, ticket.Ticket{}); d.Ticket.Joined < ft.Add(time.Second) {
		t.Errorf("somebody new joined at %v, before entries closed", d.Ticket.Joined)
	}
	e.SetRooms(now, []Room{{ID: sale}})
	if d := e.Arrive(now, sale, first.Ticket); d.Ticket.Place() != want {
		t.Errorf("without the draw: %v, want %v", d.Ticket.Place(), want)
	}
}

// TestADrawThatIsReadAgain: every change of the draw registry decodes the records again, which does not affect held
// visitors.
func TestADrawThatIsReadAgain(t *testing.T) {
	now := at(0)
	e, _ := newEdge(t, now, 0, 0)
	read := func() []Room {
		in, _ := drawnRoom(e.Clock.Time(now).Add(-30*time.Second), 1)
		in.Drawn.Beacon = &draw.Beacon{Round: 5, Signature: []byte{1}}
		return []Room{in}
	}
	v := &Visit{Room: sale, Ticket: waiting(9, time.Minute)}
	e.Rooms.Hold(now, v)
	e.SetRooms(now, read())
	was := v.Ticket
	if e.SetRooms(now, read()); v.Ticket != was || was.Place() == was.Joined {
		t.Errorf("the ticket was %+v, and is %+v", was, v.Ticket)
	}
}
