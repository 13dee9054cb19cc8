package control

import (
	"context"
	"slices"

	"vestibule/internal/core/room"
	"vestibule/internal/global/roomstore"
)

// guardedRooms refuses changes that make a listener of the fleet a site: visitors would reach what only operators may.
// Anybody but an admin makes no machine of the fleet its own site either: an edge would show visitors a server on its
// loopback address.
type guardedRooms struct {
	Rooms
	listed  []string        // loopback origins that editors may set in spite of that
	listens func() []string // the listeners of the fleet
}

// Change implements [Rooms].
func (g guardedRooms) Change(ctx context.Context, edit func(*roomstore.Draft) error) (*roomstore.State, error) {
	return g.Rooms.Change(ctx, func(d *roomstore.Draft) error {
		if err := edit(d); err != nil {
			return err
		}
		return g.check(ctx, d)
	})
}

// check returns the refusal of the new origins of a draft. Those that a room or a host has already stay.
func (g guardedRooms) check(ctx context.Context, d *roomstore.Draft) error {
	next, err := d.Apply(1, d.Base().Version+1)
	if err != nil {
		return err
	}
	known, listed := map[string]bool{}, principal(ctx).Role == Admin
	for _, h := range d.Base().Hosts {
		known[h.Origin] = true
	}
	for _, r := range d.Base().Rooms {
		known[r.Origin] = true
	}
	var listens []string
	if g.listens != nil {
		listens = g.listens()
	}
	own := map[string]string{} // by origin
	var f faults
	refused := func(pointer, of, origin string) {
		if known[origin] {
			return
		}
		if _, looked := own[origin]; !looked {
			own[origin] = fleetSite(ctx, origin, listens)
		}
		switch at := own[origin]; {
		case at != "":
			f.add(pointer, "origin %s of %s must not be a listener of the fleet, and %s is one", short(origin), of, at)
		case !listed && room.LoopbackOrigin(origin) && !slices.Contains(g.listed, origin):
			f.add(pointer,
				"origin %s of %s must not be a loopback address: list it in control.origins of every global, or let an admin set it",
				short(origin), of)
		}
	}
	for _, r := range next.Rooms {
		refused("/vestibule/origin", "room "+r.Name, r.Origin)
	}
	for _, h := range next.Hosts {
		refused("/origin", "host "+h.Name, h.Origin)
	}
	return f.err()
}
