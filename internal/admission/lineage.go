package admission

import (
	"slices"

	"vestibule/internal/fleet"
	"vestibule/internal/mutant"
	"vestibule/internal/ticket"
	"vestibule/internal/wire"
)

// lineage is how far one session's ticket has come, as one edge saw it, by the stamps
// of its versions. Every answer that renews hands out a version of its own, so two
// clients who go on with copies of one ticket go on in two lines of descent.
//
// A browser has one version. Answers to requests that it made at once bring several,
// and the last to arrive is kept: the browser may move to another line, a few times if
// answers are slow. It does not come back again and again to a line that it left. Two
// browsers with copies do, in turns. An answer that the site was slow to give brings a
// version without descent, see ticket.Ticket.Late: nothing follows from it.
type lineage struct {
	root uint32 // of the line that is followed; 0 after a late version
	cur  uint32 // the newest version of it that was shown to be renewed
	prev uint32 // the one before
}

// suspect is a session whose line of descent was changed at this edge.
type suspect struct {
	left   [24]uint32 // roots or stamps of the lines that were left, newest last
	turned uint32     // Unix second of the last change
	points uint16     // for returns to a line that was left
	copied bool       // nothing but the line that is followed is accepted
}

const (
	// InFlight is for how many seconds an answer may be on its way from this edge.
	InFlight = 5

	// Points of a return to a line that was left: many where the version that is shown
	// cannot have been on its way when the line was left, else one. So many points
	// are no browser's.
	surePoints, maxPoints = 4, 12

	// After so many seconds without a change a point is forgotten.
	pointFor = 8
	// After so many seconds the lines that were left are forgotten.
	suspicion = 300

	// maxSuspects is for how many sessions per room all this is remembered.
	maxSuspects = 1 << 12
)

func (s *suspect) knows(stamp uint32) bool { return stamp != 0 && slices.Contains(s.left[:], stamp) }

func (s *suspect) leave(stamp uint32) {
	copy(s.left[:], s.left[1:])
	s.left[len(s.left)-1] = stamp
}

// copyOf reports whether t, a version of a session that is to be renewed, is a copy
// that somebody else goes on with. Otherwise the line of t is followed from now on.
func (r *roomState) copyOf(ft fleet.Time, t *ticket.Ticket) bool {
	m := r.recent.get(t.ID)
	l := &m.lineage
	switch fresh := *l == (lineage{}); {
	case fresh && t.Stamp == 0, !fresh && t.Stamp == l.cur:
		return false // the place, or the same version again: requests made at once, or a lost answer
	case fresh, t.Stamp != 0 && t.Parent == l.cur:
	case r.astray(ft, l, t):
		return !mutant.On(mutant.CopyRenews)
	case t.Stamp == 0:
		return false
	}
	l.root, l.cur, l.prev = t.Root, t.Stamp, t.Parent
	r.recent.put(t.ID, m)
	return false
}

// astray takes note of a version that does not continue the line l, and reports
// whether the ticket is known to be copied.
func (r *roomState) astray(ft fleet.Time, l *lineage, t *ticket.Ticket) bool {
	s, now := r.suspects.get(t.ID), uint32(ft.Second())
	if s.copied {
		return true
	}
	if now >= s.turned+suspicion {
		s = suspect{}
	}
	s.points -= min(s.points, uint16((now-s.turned)/pointFor))
	switch place := t.Stamp == 0; {
	case place && s.turned == 0: // although the session goes on: from now on that counts
	case place, s.knows(t.Root), s.knows(t.Stamp), s.knows(t.Parent):
		switch {
		case now >= s.turned+InFlight && (place || s.turned >= t.Seen+InFlight):
			s.points += surePoints
		case wire.RenewAfter(r.life) > InFlight: // otherwise answers on their way may be renewed several times
			s.points++
		}
	case t.Root == 0 || l.root == 0, t.Root == l.root && t.Parent != l.prev:
		return false // late, or renewed elsewhere meanwhile
	}
	switch {
	case t.Stamp == 0:
	case t.Root != l.root:
		if s.leave(l.root); wire.RenewAfter(r.life) > InFlight {
			s.points++ // more lines than are remembered may take turns
		}
	default:
		s.leave(l.cur)
	}
	s.turned = now
	if s.copied = s.points >= maxPoints; s.copied {
		r.copied++
	}
	r.suspects.put(t.ID, s)
	return s.copied
}

// descend makes of t the next version of its session's ticket.
func (e *Engine) descend(t *ticket.Ticket) {
	t.Parent = t.Stamp
	for t.Stamp = 0; t.Stamp == 0 || t.Stamp == t.Parent; {
		t.Stamp = e.cfg.Rand.Uint32()
	}
	if t.Root == 0 {
		t.Root = t.Stamp
	}
}
