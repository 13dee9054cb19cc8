package region_test

import (
	"cmp"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/wire"
)

// lead returns an aggregator that has the lease: of cfg.DC, or of dublin with cluster ID 1.
func lead(now fleettime.Mono, cfg region.Config, stored wire.Durable) *region.Aggregator {
	cfg.Strict, cfg.Params = true, wire.DefaultParams()
	cfg.DC, cfg.ClusterID = cmp.Or(cfg.DC, "dublin"), cmp.Or(cfg.ClusterID, 1)
	a := region.New(now, cfg, stored)
	a.SetLease(fleettime.Never)
	return a
}

// save completes a pending write, and returns what was written.
func save(a *region.Aggregator, now fleettime.Mono) wire.Durable {
	d, ok := a.Unsaved()
	if ok {
		a.Saved(now, d.Version)
	}
	return d
}

// joining returns a report of an edge in its first lease epoch that has no answer yet.
func joining(edge string, instance, seq uint64, seen wire.Term, rooms ...wire.RoomReport) wire.Report {
	return wire.Report{
		From: edge, Instance: instance, LeaseEpoch: 1, Seq: seq, Parts: 1, Seen: seen, Join: true, Rooms: rooms,
	}
}

// granted returns n granted session permits.
func granted(n uint64) wire.Permits { return wire.Permits{Sessions: wire.Allocation{Granted: n}} }

// stamped returns n sessions that end in a second.
func stamped(until uint32, n uint64) []wire.Expiry { return []wire.Expiry{{Until: until, Stamped: n}} }
