package control

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"vestibule/internal/core/room"
	"vestibule/internal/global/roomstore"
)

// guardedRooms refuses changes that make a listener of the fleet a site: visitors would reach what only operators may.
// Anybody but an admin makes no machine of the fleet its own site either: an edge would show visitors a server on its
// loopback address.
type guardedRooms struct {
	Rooms
	listed   []string // loopback origins that editors may set in spite of that
	ownSites func(context.Context, []string) map[string]string
}

// Change implements [Rooms].
func (g guardedRooms) Change(ctx context.Context, edit func(*roomstore.Draft) error) (*roomstore.State, error) {
	return g.Rooms.Change(ctx, func(d *roomstore.Draft) error {
		err := edit(d)
		if _, dry := errors.AsType[*dryRunError](err); err != nil && !dry {
			return err
		}
		return cmp.Or(g.check(ctx, d), err)
	})
}

// check returns the refusal of the new origins of a draft. Those that a room or a host has already stay.
func (g guardedRooms) check(ctx context.Context, d *roomstore.Draft) error {
	next, err := d.Apply(1, d.Base().Version+1)
	if err != nil {
		return err
	}
	added, listed := d.Base().Added(next.Document()), principal(ctx).Role == Admin
	var own map[string]string // the listener of the fleet at an origin
	if g.ownSites != nil {
		own = g.ownSites(ctx, slices.Collect(maps.Keys(added)))
	}
	var f faults
	refused := func(pointer, of, origin string) {
		if !added[origin] {
			return
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
