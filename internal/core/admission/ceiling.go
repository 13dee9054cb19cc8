package admission

import (
	"math"
	"time"

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

	// The ceilings of a killed edge count for the life of a ticket. So snapshots are taken more often while tickets are
	// stamped, for at most one part of snapshotShare of the time.
	snapshotOften = 100 * time.Millisecond
	snapshotShare = 50

	// snapshotLife is for how many seconds tickets may be stamped under a snapshot: see wire.SnapshotLife.
	snapshotLife = uint32(wire.SnapshotLife/time.Second) - 1

	// ceilingLeast is how many tickets a room without permits that stamped none in the last second may stamp.
	ceilingLeast = 2
)

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

// may reports whether the room may stamp another ticket with a life of at most life. If not, a snapshot is due.
func (c *ceiling) may(s *Snapshots, m moment, life uint32) bool {
	if !s.enforced {
		return true
	}
	may := c.stamped < c.most && life <= c.life && m.second() <= s.until
	if !may {
		s.wanted = true
	}
	return may
}

// left returns how many tickets the room may stamp under the present snapshot; -1 without a bound.
func (c *ceiling) left(s *Snapshots, life uint32) int64 {
	switch {
	case !s.enforced || c.most == math.MaxUint64:
		return -1
	case life > c.life:
		return 0
	}
	return int64(c.most - min(c.most, c.stamped))
}

// stamp counts a stamped ticket. If only a few more may be stamped, a snapshot is due.
func (c *ceiling) stamp(s *Snapshots) {
	c.stamped++
	c.stale, s.stamped = true, true
	if s.enforced && c.stamped+(c.most-min(c.most, c.at))/2 >= c.most {
		s.wanted = true
	}
}

// foresee brings the next snapshot forward if a room that is likely to stamp so many tickets may stamp far fewer.
func (c *ceiling) foresee(s *Snapshots, likely uint64, life uint32) {
	if s.enforced && (life > c.life || likely > 2*(c.most-min(c.most, c.stamped))) {
		s.wanted = true
	}
}
