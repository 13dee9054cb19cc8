package admission

import (
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// Snapshots is the edge's side of the snapshots in its data folder.
type Snapshots struct {
	edge  *edge
	rooms *Rooms
	on    bool // see Config.Stores

	number uint64 // of the newest snapshot
	stored uint64 // number of the newest one in the folder; 0 for none of this instance
	taken  fleettime.Mono
	took   time.Duration // to take and write the newest one that was written
	until  uint32        // Unix second up to which tickets may be stamped

	taking      bool   // the newest one is being written
	takingUntil uint32 // becomes until once it is written
	wanted      bool   // a room is near its ceiling
	stamped     bool   // tickets were stamped since the newest one was begun

	dropped []room.ID // rooms that were dropped since the newest snapshot was begun

	enforced bool   // the ceilings apply
	void     bool   // the folder cannot be written, or only slowly: it must settle nothing
	voidSeq  uint64 // first report that said so; 0 for none yet
	last     bool   // nothing is stamped any more
}

// Due returns when the next snapshot is due; fleettime.Never while one is being written. Decisions, grants and
// SetRooms may bring it forward.
func (s *Snapshots) Due() fleettime.Mono {
	switch {
	case !s.on || s.taking || s.edge.clock.since == 0: // without fleet time nothing is stamped
		return fleettime.Never
	case s.void:
		return s.taken.Add(snapshotRetry)
	case s.wanted || s.number == 0:
		return s.taken.Add(snapshotGap)
	case s.stamped:
		return s.taken.Add(min(max(snapshotOften, snapshotShare*s.took), snapshotEvery))
	default:
		return s.taken.Add(snapshotEvery)
	}
}

// Begin begins a snapshot and returns its number and head, and the rooms that are in no snapshot any more. The
// caller then takes all rooms with Take, writes the snapshot, and calls Written or Failed.
func (s *Snapshots) Begin(now fleettime.Mono) (number uint64, head wire.Report, dropped []room.ID) {
	l, c := &s.edge.up, &s.edge.clock
	dropped, s.dropped = s.dropped, nil
	s.number++
	s.taken, s.taking, s.wanted, s.stamped = now, true, false, false
	s.takingUntil = uint32(c.Time(now).Second()) + snapshotLife
	if !s.enforced {
		s.enforced, s.until = true, math.MaxUint32
		for _, r := range s.rooms.order {
			c := &r.account.ceiling
			c.most, c.life, c.known = math.MaxUint64, math.MaxUint32, false
		}
	}
	s.until = min(s.until, s.takingUntil)
	head = wire.Report{
		From: s.edge.cfg.Edge, Instance: l.instance, LeaseEpoch: l.leaseEpoch, Parts: 1, AsOf: c.fleet.Now(now),
		AsOfBound: c.Bound(now), Seen: l.seen, Join: true, Final: true, Bye: true, Settles: true, Stored: s.number,
		ClusterID: l.clusterID,
	}
	head.AsOfBound += wire.SnapshotLife // it may end later
	return s.number, head, dropped
}

// Take takes rooms after the given one, in the order of their IDs, into the memory of in, one per element. It
// returns those that changed since the snapshot before. last is the room to go on after; more is false at the end.
func (s *Snapshots) Take(
	now fleettime.Mono, after room.ID, first bool, in []wire.RoomPast,
) (changed []wire.RoomPast, last room.ID, more bool) {
	begin, found := slices.BinarySearchFunc(s.rooms.order, after, compareRoom)
	if first {
		begin = 0
	} else if found {
		begin++
	}
	rooms := s.rooms.order[begin:]
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

// Written records that the newest snapshot is in the data folder. The caller then calls Release.
func (s *Snapshots) Written(now fleettime.Mono) {
	s.taking, s.took = false, now.Sub(s.taken)
	if !s.enforced { // more may have been stamped since it was taken
		s.wanted = true
		return
	}
	if s.void || s.stored == 0 {
		s.edge.reportSoon(now)
	}
	s.stored, s.until, s.void, s.voidSeq = s.number, s.takingUntil, false, 0
	for _, r := range s.rooms.order {
		if c := &r.account.ceiling; c.pending {
			c.most, c.life, c.pending = c.nextMost, c.nextLife, false
		}
	}
}

// Failed records that the newest snapshot was not written, or only in part. emptied says that the folder has no
// snapshot any more.
func (s *Snapshots) Failed(now fleettime.Mono, emptied bool) {
	s.taking = false
	s.Lag(now)
	s.unable(emptied)
}

// Lag records that the newest snapshot is still being written: the data folder must settle nothing. The caller
// calls Written or Failed later.
func (s *Snapshots) Lag(now fleettime.Mono) {
	s.unable(false)
	s.edge.up.reportSoon(now, 0)
}

// reset ends the ceilings, for a new instance: no snapshot is about it.
func (s *Snapshots) reset() {
	s.enforced, s.stored, s.voidSeq = false, 0, 0
	for _, r := range s.rooms.order {
		r.account.ceiling = ceiling{}
	}
}

// unable records that the folder must settle nothing. emptied says that it has no snapshot any more. Otherwise the
// ceilings apply until the regional has stored that the folder is void.
func (s *Snapshots) unable(emptied bool) {
	s.void, s.voidSeq = true, 0
	if emptied {
		s.enforced = false
	}
}

// hear applies a grant's word on the data folder.
func (s *Snapshots) hear(g *wire.Grant) {
	if s.void && s.voidSeq != 0 && g.Acked >= s.voidSeq && g.Folder == wire.FolderVoid {
		s.enforced = false
	}
}

// settles returns Report.Stored. While fleet time is a guess the folder settles nothing: sessions that may have
// been stamped since the snapshot would count until a time that may be far off.
func (s *Snapshots) settles() uint64 {
	if s.void || s.edge.clock.guessed {
		return 0
	}
	return s.stored
}
