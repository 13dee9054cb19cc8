package control

import (
	"context"
	"slices"

	"vestibule/internal/core/room"
	"vestibule/internal/global/roomstore"
)

// guardedRooms refuses changes by which anybody but an admin makes a machine of the fleet its own site: an edge would
// show visitors a server on its loopback address.
type guardedRooms struct {
	Rooms
	listed []string // origins that editors may set in spite of that
}

// Change implements [Rooms].
func (g guardedRooms) Change(ctx context.Context, edit func(*roomstore.Draft) error) (*roomstore.State, error) {
	return g.Rooms.Change(ctx, func(d *roomstore.Draft) error {
		if err := edit(d); err != nil || principal(ctx).Role == Admin {
			return err
		}
		return g.check(d)
	})
}

// check returns the refusal of the new origins of a draft. Those that a room or a host has already are listed.
func (g guardedRooms) check(d *roomstore.Draft) error {
	next, err := d.Apply(1, d.Base().Version+1)
	if err != nil {
		return err
	}
	known := slices.Clone(g.listed)
	for _, h := range d.Base().Hosts {
		known = append(known, h.Origin)
	}
	for _, r := range d.Base().Rooms {
		known = append(known, r.Origin)
	}
	var f faults
	refused := func(pointer, of, origin string) {
		if room.LoopbackOrigin(origin) && !slices.Contains(known, origin) {
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
