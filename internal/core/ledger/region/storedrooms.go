package region

import (
	"slices"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// This file stores what a successor needs to know of every room: the bound of all data centres, and the floor. A
// successor may use the permits up to the floor, although global does not know the ledgers of all data centres.
//
// Invariant: the data centre holds no fewer permits than any floor that may be stored, until Durable.FloorsUntil.

// floorsEvery is the interval, in seconds, at which the end of the floors is stored anew.
const floorsEvery = 5

// The part of the permits that a floor leaves out, as a divisor: small, and larger while permits of the room are returned.
const (
	floorSlack   = 16
	loweredSlack = 8
)

// storeRooms stores the bounds when they change, lower floors before permits below them are returned, and floors with
// a later end every floorsEvery seconds.
func (a *Aggregator) storeRooms(now fleettime.Mono, at *snapshot) {
	s := &a.stored
	if at.blank || s.saved < s.roomsNeeds {
		return // the floors are unknown, or the newest ones are not stored yet
	}
	end, ceilingsEnd := a.floorsEnd(now, at), a.lifecycle.ceilingsEnd(now)
	anew := end >= s.durable.FloorsUntil+floorsEvery || ceilingsEnd >= s.durable.CeilingsUntil+floorsEvery ||
		ceilingsEnd == 0 && s.durable.CeilingsUntil != 0 || ceilingsEnd != 0 && a.lifecycle.misses()
	due := anew
	for _, b := range a.rooms.list {
		due = due || a.lifecycle.waitsForCeiling(b)
		h := &b.loan
		h.guard = h.floor
		due = due || b.bound != b.storedBound
		n, rate := at.surplus(b)
		due = due || h.crossesFloor(n+b.moves.waits, rate)
	}
	if !due {
		return
	}
	edges := a.lifecycle.listCeilings(ceilingsEnd != 0)
	var rooms []wire.StoredRoom
	for _, b := range a.rooms.list {
		h := &b.loan
		if len(edges) != 0 && (anew || a.lifecycle.waitsForCeiling(b)) {
			b.raiseCeilings()
		}
		ceilings := b.listCeilings(edges)
		n, rate := at.surplus(b)
		n = max(0, n) + b.moves.waits
		slack := int64(floorSlack)
		if h.crossesFloor(n, rate) {
			slack = loweredSlack
		}
		h.floor = h.floorWithout(n, rate, slack)
		h.guard = wire.PermitCounts{Sessions: max(h.guard.Sessions, h.floor.Sessions), Rate: max(h.guard.Rate, h.floor.Rate)}
		if b.storedBound = b.bound; b.bound != (wire.PermitCounts{}) || h.floor != (wire.PermitCounts{}) ||
			slices.ContainsFunc(ceilings, func(c wire.PermitCounts) bool { return c != wire.PermitCounts{} }) {
			rooms = append(rooms, wire.StoredRoom{Room: b.ID, Bound: b.bound, Floor: h.floor, Ceilings: ceilings})
		}
	}
	s.roomsNeeds = s.change(func(d *wire.Durable) {
		d.Rooms, d.FloorsUntil, d.CeilingsUntil, d.Ceilings = rooms, end, ceilingsEnd, nil
		for _, e := range edges {
			d.Ceilings = append(d.Ceilings, wire.CeilingEdge{Edge: e.name, Instance: e.instance})
		}
	})
}

// floorsEnd returns the Unix second until which global is certainly bound by its lease; 0 for no longer.
func (c *centre) floorsEnd(now fleettime.Mono, at *snapshot) int64 {
	ft, ok := c.clock.earliest(now)
	if !ok || !at.leased || c.clock.guessed {
		return 0
	}
	return ft.Add(fleettime.Shrink(c.up.leaseEnd.Sub(now))-2*fleettime.Guard).Second() - 1
}

// recallFloors makes the stored floors usable, if global was certainly bound by them until now.
func (a *Aggregator) recallFloors(now fleettime.Mono) {
	ft, bound := a.clock.Read(now)
	if bound > fleettime.Rough || ft.Add(bound+fleettime.Guard).Second() >= a.stored.durable.FloorsUntil {
		return
	}
	for _, b := range a.rooms.list {
		b.loan.sure = b.loan.floor
	}
}
