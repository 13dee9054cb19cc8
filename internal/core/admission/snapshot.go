package admission

import (
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// SnapshotDue returns when the next snapshot is due; fleettime.Never while one is being written. Decisions, grants and
// SetRooms may bring it forward.
func (e *known) SnapshotDue() fleettime.Mono {
	switch s := &e.snapshots; {
	case !s.on || s.taking || e.since == 0: // without fleet time nothing is stamped
		return fleettime.Never
	case s.void:
		return s.taken.Add(snapshotRetry)
	case s.wanted || s.number == 0:
		return s.taken.Add(snapshotGap)
	default:
		return s.taken.Add(snapshotEvery)
	}
}

// BeginSnapshot begins a snapshot and returns its number and head, and the rooms that are in no snapshot any more. The
// caller then takes all rooms with SnapshotRooms, writes the snapshot, and calls Snapshotted or SnapshotFailed.
func (e *Engine) BeginSnapshot(now fleettime.Mono) (number uint64, head wire.Report, dropped []room.ID) {
	s, l, m := &e.snapshots, &e.up, e.at(now)
	dropped, s.dropped = s.dropped, nil
	s.number++
	s.taken, s.taking, s.wanted = now, true, false
	s.takingUntil = m.second() + snapshotLife
	if !s.enforced {
		s.enforced, s.until = true, math.MaxUint32
		for _, r := range e.order {
			c := &r.account.ceiling
			c.most, c.life, c.known = math.MaxUint64, math.MaxUint32, false
		}
	}
	s.until = min(s.until, s.takingUntil)
	head = wire.Report{
		From: e.cfg.Edge, Instance: l.instance, LeaseEpoch: l.leaseEpoch, Parts: 1, AsOf: e.clock.Now(now),
		AsOfBound: e.clock.Bound(now), Seen: l.seen, Join: true, Final: true, Bye: true, Settles: true, Stored: s.number,
		ClusterID: l.clusterID,
	}
	head.AsOfBound += (snapshotLife + 1) * time.Second // it may end later
	return s.number, head, dropped
}

// SnapshotRooms takes rooms after the given one, in the order of their IDs, into the memory of in, one per element. It
// returns those that changed since the snapshot before. last is the room to go on after; more is false at the end.
func (e *Engine) SnapshotRooms(
	now fleettime.Mono, after room.ID, first bool, in []wire.RoomPast,
) (changed []wire.RoomPast, last room.ID, more bool) {
	begin, found := slices.BinarySearchFunc(e.order, after, compareRoom)
	if first {
		begin = 0
	} else if found {
		begin++
	}
	rooms := e.order[begin:]
	rooms, more = rooms[:min(len(rooms), len(in))], len(rooms) > len(in)
	n := 0
	for _, r := range rooms {
		last = r.settings.ID
		if r.account.snapshot(now, len(r.line.held.visits), &in[n]) {
			in[n].Report.Joined = r.line.queue.joined
			n++
		}
	}
	return in[:n], last, more
}

// Snapshotted records that the newest snapshot is in the data folder. The caller then calls Release.
func (e *Engine) Snapshotted(now fleettime.Mono) {
	s := &e.snapshots
	s.taking = false
	if !s.enforced { // more may have been stamped since it was taken
		s.wanted = true
		return
	}
	if s.void || s.stored == 0 {
		e.reportSoon(now)
	}
	s.stored, s.until, s.void, s.voidSeq = s.number, s.takingUntil, false, 0
	for _, r := range e.order {
		if c := &r.account.ceiling; c.pending {
			c.most, c.life, c.pending = c.nextMost, c.nextLife, false
		}
	}
}

// SnapshotFailed records that the newest snapshot was not written, or only in part. emptied says that the folder has no
// snapshot any more.
func (e *Engine) SnapshotFailed(now fleettime.Mono, emptied bool) {
	e.snapshots.taking = false
	e.FolderLags(now)
	e.snapshots.unable(emptied)
}

// FolderLags records that the newest snapshot is still being written: the data folder must settle nothing. The caller
// calls Snapshotted or SnapshotFailed later.
func (e *Engine) FolderLags(now fleettime.Mono) {
	e.snapshots.unable(false)
	e.up.reportSoon(now, 0)
}

// unsnapshot ends the ceilings, for a new instance: no snapshot is about it.
func (e *Engine) unsnapshot() {
	s := &e.snapshots
	s.enforced, s.stored, s.voidSeq = false, 0, 0
	for _, r := range e.order {
		r.account.ceiling = ceiling{}
	}
}
