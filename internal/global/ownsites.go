package global

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/node"
)

// ownSites finds sites that are listeners of the fleet. It belongs to the publisher.
type ownSites struct {
	file    string // the version of the rooms file that was checked
	checked time.Time
	err     error

	looked time.Time // when the sites in use were checked
}

// refusal returns the new sites of the rooms file that are listeners of the fleet, as faults; nil for none. Names are
// looked up every storeEvery at most. before is the state in the store, nil for unknown.
func (o *ownSites) refusal(ctx context.Context, p *publisher, before *roomstore.State) error {
	if !p.file.good {
		return nil
	}
	if wall := time.Now(); o.file != p.file.stamp || o.err != nil && wall.Sub(o.checked) >= storeEvery {
		o.file, o.checked, o.err = p.file.stamp, wall, ownFaults(ctx, p.file.doc, before, p.s.ownSites)
	}
	return o.err
}

// ownFaults returns the sites that doc has, before has not, and are listeners of the fleet, as find says.
func ownFaults(
	ctx context.Context, doc room.Document, before *roomstore.State, find func(context.Context, []string) map[string]string,
) error {
	doc = doc.WithDefaults()
	added := before.Added(doc)
	if len(added) == 0 {
		return nil
	}
	own := find(ctx, slices.Collect(maps.Keys(added)))
	var faults room.Faults
	check := func(list string, i int, name, origin string) {
		if at := own[origin]; at != "" {
			faults = append(faults, room.Fault{
				Item: fmt.Sprintf("%s[%d]", list, i), Name: name, Field: "origin",
				Rule: fmt.Sprintf("must not be a listener of the fleet, and %s is one", at),
			})
		}
	}
	for i := range doc.Rooms {
		check("rooms", i, doc.Rooms[i].Name, doc.Rooms[i].Origin)
	}
	for i, h := range doc.Hosts {
		check("hosts", i, h.Name, h.Origin)
	}
	return faults.Err()
}

// look sets the alarm about sites in use that are listeners of the fleet: a node may have begun to listen there since,
// or was not heard when the site was set. Names are not looked up, edges do that.
func (o *ownSites) look(ctx context.Context, s *Server, wall time.Time) {
	if wall.Sub(o.looked) < storeEvery {
		return
	}
	o.looked = wall
	s.metrics.trouble.own.Store(ownAlarm(ctx, s.rooms.Known(), s.listens()))
}

// ownAlarm returns the alarm about the sites of a state that are listeners of the fleet; nil for none.
func ownAlarm(ctx context.Context, state *roomstore.State, listens []string) *string {
	if state == nil {
		return nil
	}
	own := node.OwnSites(ctx, slices.Collect(maps.Keys(roomstore.Origins(state.Document()))), listens, nil)
	if len(own) == 0 {
		return nil
	}
	origin := slices.Sorted(maps.Keys(own))[0]
	text := fmt.Sprintf("the site %s is a listener of the fleet (%s), its visitors get no answer: give its rooms and hosts the address of their site",
		origin, own[origin])
	if len(own) > 1 {
		text += fmt.Sprintf("; %d sites are", len(own))
	}
	return &text
}
