package admission

import (
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// A snapshot is the state of the edge in its data folder. If the process is killed, the next one in the folder makes
// its last report from the snapshot ([Predecessor]). The snapshot names a ceiling per room: the tickets that the
// process may stamp until the next snapshot is written. They count as stamped.
//
// Invariant: while the regional may settle this instance by a snapshot, no room stamps beyond the ceilings of that
// snapshot and of all newer ones that the folder may have.
const (
	snapshotEvery = time.Second
	snapshotGap   = 20 * time.Millisecond // between snapshots if a room is near its ceiling
	snapshotRetry = 5 * time.Second       // after a failed write

	// snapshotLife is for how many seconds tickets may be stamped under a snapshot.
	snapshotLife = 4

	// ceilingLeast is how many tickets a room without permits that stamped none in the last second may stamp.
	ceilingLeast = 2
)

// snapshots is the edge's side of the snapshots in its data folder.
type snapshots struct {
	on bool // see Config.Stores

	number uint64 // of the newest snapshot
	stored uint64 // number of the newest one in the folder; 0 for none of this instance
	taken  fleettime.Mono
	until  uint32 // Unix second up to which tickets may be stamped

	taking      bool   // the newest one is being written
	takingUntil uint32 // becomes until once it is written
	wanted      bool   // a room is near its ceiling

	dropped []room.ID // rooms that were dropped since the newest snapshot was begun

	enforced bool   // the ceilings apply
	void     bool   // the folder cannot be written, or only slowly: it must settle nothing
	voidSeq  uint64 // first report that said so; 0 for none yet
	last     bool   // nothing is stamped any more
}

// ceiling bounds the tickets that a room stamps until the next snapshot is in the data folder.
type ceiling struct {
	stamped uint64 // so far
	most    uint64 // limit of stamped
	life    uint32 // limit of the life of a ticket, in seconds

	nextMost uint64 // limits once the newest snapshot of the room is written
	nextLife uint32
	pending  bool // nextMost and nextLife are set

	at    uint64 // stamped, as of the newest snapshot of the room
	known bool   // the room was in a snapshot
	stale bool   // the room has changed since
}

// storedSnapshot returns Report.Stored. While fleet time is a guess the folder settles nothing: what may have been
// stamped since the snapshot would count until a time that may be far off.
func (e *edge) storedSnapshot() uint64 {
	if e.snapshots.void || e.guessed {
		return 0
	}
	return e.snapshots.stored
}

// unable records that the folder must settle nothing. emptied says that it has no snapshot any more. Otherwise the
// ceilings apply until the regional has stored that the folder is void.
func (s *snapshots) unable(emptied bool) {
	s.void, s.voidSeq = true, 0
	if emptied {
		s.enforced = false
	}
}

// hear applies what a grant says about the data folder.
func (s *snapshots) hear(g *wire.Grant) {
	if s.void && s.voidSeq != 0 && g.Acked >= s.voidSeq && g.Folder == wire.FolderVoid {
		s.enforced = false
	}
}

// mayStamp reports whether the room may stamp another ticket. If not, or if only a few more, a snapshot is due.
func (r *roomState) mayStamp(m moment) bool {
	s, c := &r.edge.snapshots, &r.ceiling
	if !s.enforced {
		return true
	}
	may := c.stamped < c.most && r.life.full <= c.life && m.second() <= s.until
	if !may {
		s.wanted = true
	}
	return may
}

// stampable returns how many tickets the room may stamp under the present snapshot; -1 without a bound.
func (r *roomState) stampable() int64 {
	c := &r.ceiling
	switch {
	case !r.edge.snapshots.enforced || c.most == math.MaxUint64:
		return -1
	case r.life.full > c.life:
		return 0
	}
	return int64(c.most - min(c.most, c.stamped))
}

// stamped counts a stamped ticket.
func (r *roomState) stamped() {
	s, c := &r.edge.snapshots, &r.ceiling
	c.stamped++
	c.stale = true
	if s.enforced && c.stamped+(c.most-min(c.most, c.at))/2 >= c.most {
		s.wanted = true
	}
}

// SnapshotDue returns when the next snapshot is due; fleettime.Never while one is being written. Decisions, grants and
// SetRooms may bring it forward.
func (e *Engine) SnapshotDue() fleettime.Mono {
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
			r.ceiling.most, r.ceiling.life, r.ceiling.known = math.MaxUint64, math.MaxUint32, false
		}
	}
	s.until = min(s.until, s.takingUntil)
	head = wire.Report{
		From: e.cfg.Edge, Instance: l.instance, LeaseEpoch: l.leaseEpoch, Parts: 1, AsOf: e.clock.Now(now), AsOfBound: e.clock.Bound(now),
		Seen: l.seen, Join: true, Final: true, Bye: true, Settles: true, Stored: s.number, ClusterID: l.clusterID,
	}
	head.AsOfBound += (snapshotLife + 1) * time.Second // it may end later
	return s.number, head, dropped
}

// SnapshotRooms takes rooms after the given one, in the order of their IDs, into the memory of in, one per element. It
// returns those that changed since the snapshot before. last is the room to go on after; more is false at the end.
func (e *Engine) SnapshotRooms(now fleettime.Mono, after room.ID, first bool, in []wire.RoomPast) (changed []wire.RoomPast, last room.ID, more bool) {
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
		if last = r.ID; r.snapshot(now, &in[n]) {
			n++
		}
	}
	return in[:n], last, more
}

// likely returns how many tickets the room may stamp before the next snapshot, beyond those that it stamped since the
// one before: a part of its unspent permits, for a burst, and one for every held visitor.
func (r *roomState) likely() uint64 {
	credit := r.permits.credit()
	return ceilingLeast + credit/4 + min(uint64(len(r.held.visits)), credit)
}

// foresee brings the next snapshot forward if a grant allows the room far more than the ceilings do.
func (r *roomState) foresee() {
	s, c := &r.edge.snapshots, &r.ceiling
	if s.enforced && (r.life.full > c.life || r.likely() > 2*(c.most-min(c.most, c.stamped))) {
		s.wanted = true
	}
}

// snapshot takes the room into the memory of p; it returns false if the room has not changed since the newest snapshot.
func (r *roomState) snapshot(now fleettime.Mono, p *wire.RoomPast) bool {
	c := &r.ceiling
	more := r.likely() + 2*(c.stamped-c.at)
	if r.edge.snapshots.last {
		more = 0
	}
	if c.known && !c.stale && c.most-c.stamped == more && c.life == r.life.full {
		return false
	}
	c.nextMost, c.nextLife, c.pending = c.stamped+more, r.life.full, true
	c.most, c.life = min(c.most, c.nextMost), min(c.life, c.nextLife)
	c.at, c.known, c.stale = c.stamped, true, false
	was := &p.Report
	*p = wire.RoomPast{More: more, Life: r.life.full, Report: wire.RoomReport{
		Room: r.ID, Permits: wire.Permits{Sessions: r.permits.sessions.Told(), Rate: r.permits.rate.Told()},
		Spent: r.permits.spent, RateIdle: r.permits.rate.idle(now), RateOwed: r.permits.past.owed(now), RateUsed: r.permits.rate.ages(now, was.RateUsed[:0]),
		Renewed: r.permits.renewed, RenewCeil: r.permits.renewCeil,
		Sessions: r.sessions.report(was.Sessions[:0]), FirstMove: r.moves.first + uint64(len(r.moves.list)), Ends: r.ended.list(was.Ends[:0], wire.MaxEnds),
		Passes: r.passes.Tell(r.edge.up.seen), Admitted: r.admitted, Joined: r.queue.joined, Entered: r.entered,
		Outcomes: r.outcomes.Outcomes(), Counts: r.allCounts(was.Counts[:0]),
	}}
	return true
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
		if c := &r.ceiling; c.pending {
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
		r.ceiling = ceiling{}
	}
}
