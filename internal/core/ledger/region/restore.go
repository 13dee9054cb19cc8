package region

import (
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// restore restores the edges from the predecessor's roster; own says that this process was the predecessor, and that
// the store is empty.
func (l *lifecycle) restore(now fleettime.Mono, old *wire.Durable, own bool) {
	for i := range old.Roster {
		r := &old.Roster[i]
		if own && !r.Dead && r.Edge != wire.UnknownPast {
			l.roster.witnesses = append(l.roster.witnesses, wire.GoneEdge{Edge: r.Edge, Instance: r.Instance})
			l.roster.recoveredEdges++
		}
		e := l.roster.add(r.Edge, r.Instance)
		e.leaseEpoch, e.receivedAt, e.recovered, e.folder = r.LeaseEpoch, now, true, r.Stored
		e.waited, e.silent = r.Waited, time.Duration(r.Waited)*time.Second
		e.leased, e.until, e.ended = r.Leased, r.Until, r.Ended
		switch e.summary = slices.Clone(r.Gone); {
		case !r.Dead:
			continue
		case r.Left || r.Edge == wire.Gone:
			e.become(left)
		default:
			e.become(dead)
		}
		for _, rr := range r.Rooms {
			b := l.rooms.open(rr.Room)
			// Counting begins early enough for every ticket that can be stamped from now on: stored tickets were
			// stamped before now.
			if first, ok := oldest(old, rr.Room); ok {
				b.counts.start(fleettime.Time((int64(first) - int64(wire.Life(room.MaxSession))) * 1000))
			}
			b.restore(now, e, &rr, int64(l.rooms.pastLife))
		}
	}
}

// oldest returns the first expiry second of a room in a roster.
func oldest(d *wire.Durable, id room.ID) (first uint32, ok bool) {
	for i := range d.Roster {
		for _, rr := range d.Roster[i].Rooms {
			if rr.Room == id && len(rr.Sessions) > 0 && (!ok || rr.Sessions[0].Until < first) {
				first, ok = rr.Sessions[0].Until, true
			}
		}
	}
	return first, ok
}
