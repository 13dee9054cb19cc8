// Package reuse tells copies of one session's ticket apart, by the stamps of its
// versions. Every answer that renews hands out a version of its own, so two clients
// who go on with copies of one ticket go on in two lines of descent.
//
// A browser has one version. Answers to requests that it made at once bring several,
// and the last to arrive is kept: the browser may move to another line, a few times if
// answers are slow. It does not come back again and again to a line that it left. Two
// browsers with copies do, in turns. An answer that the site was slow to give brings a
// late version, from whose descent nothing follows: see ticket.Ticket.Late.
//
// A [Book] follows one line per session. An edge keeps one of what it is shown, a
// regional one of what its edges were shown; the size of its memory is the one knob.
package reuse

import (
	"cmp"
	"slices"
)

// Version is what is known of one version of a session's ticket; the zero Version is
// the place that it was before.
type Version struct {
	Stamp  uint32 // random, its own
	Parent uint32 // Stamp of the version that was shown for it
	Root   uint32 // Stamp of the first version of its line
	Seen   uint32 // Unix second at which it was issued
}

// late reports whether nothing follows from the descent of v.
func (v *Version) late() bool { return v.Parent == 0 && v.Root != v.Stamp }

func (v *Version) is(stamp uint32) bool {
	return stamp != 0 && (v.Stamp == stamp || v.Parent == stamp || v.Root == stamp)
}

// Book follows the lines of the sessions of one room. Not safe for concurrent use.
type Book struct {
	lines    Recent[line]
	suspects Recent[suspect]
	wait     uint32
}

// line is how far the line has come that is followed.
type line struct {
	root uint32 // 0 after a late version
	cur  uint32 // the newest version of it that was shown to be renewed
	prev uint32 // the one before

	// When cur was shown last, and the version that was shown before it, of whatever
	// line: Unix seconds.
	at     uint32
	other  uint32
	lastAt uint32
}

// elsewhere reports whether v had been in a browser before another version was shown
// that is not on its way any more: the browser that showed it has v no more.
func (l *line) elsewhere(now uint32, v *Version) bool {
	after := func(stamp, at uint32) bool {
		return stamp != 0 && stamp != v.Stamp && now >= at+InFlight && at >= v.Seen+InFlight
	}
	return after(l.cur, l.at) || after(l.other, l.lastAt)
}

// next goes on with version v.
func (l *line) next(now uint32, v *Version) {
	*l = line{root: v.Root, cur: v.Stamp, prev: v.Parent, at: now, other: l.cur, lastAt: l.at}
	if v.late() {
		l.root = 0
	}
}

// suspect is a session whose line was changed.
type suspect struct {
	left   [24]change // newest last
	turned uint32     // Unix second of the last change
	points uint16     // for returns to a line that was left
	found  uint32     // Unix second since which the ticket is known to be copied, until it is decided who goes on

	// The decision: until then nobody goes on but the descendants of these versions,
	// which have a root of their own.
	until uint32
	from  [2]uint32
	root  uint32
}

// change is one from a line to another.
type change struct {
	line uint32 // that was left: its root, or its newest version
	at   uint32 // Unix second
}

const (
	// InFlight is for how many seconds an answer may be on its way from an edge.
	InFlight = 5

	// Points of a return to a line that was left: many where the version that is shown
	// cannot have been on its way when another line was shown, else one. So many points
	// are no browser's.
	surePoints, maxPoints = 4, 12

	// After so many seconds without a change a point is forgotten.
	pointFor = 8
	// After so many seconds the lines that were left are forgotten.
	suspicion = 300

	// maxSuspects is for how many sessions changes are remembered.
	maxSuspects = 1 << 12
)

// NewBook returns a book for the lines of limit sessions. What is found to be copied is
// decided by the book itself after wait seconds, where [Book.Decide] was not called before.
func NewBook(limit int, wait uint32) Book {
	return Book{lines: NewRecent[line](limit), suspects: NewRecent[suspect](min(limit, maxSuspects)), wait: wait}
}

// Finding is what Shown says of a version.
type Finding uint8

// The findings.
const (
	Fine  Finding = iota // may be renewed
	Found                // may be renewed; from now on the ticket is known to be copied
	Copy                 // somebody else goes on with the ticket: not to be renewed
)

// Shown takes note that at Unix second now version v of a session was shown to be
// renewed. Who may go on is given the root of the line that is followed. A version is renewed
// once in after seconds, and valid for life seconds at most.
func (b *Book) Shown(now uint32, id uint64, v *Version, after, life uint32) (f Finding) {
	l, s := b.lines.Get(id), b.suspects.Get(id)
	if s.found != 0 && now >= s.found+b.wait {
		b.Decide(now, id, l.cur, life)
		l, s = b.lines.Get(id), b.suspects.Get(id)
	}
	late := v.late()
	if now < s.until {
		if !s.goesOn(v) {
			return Copy
		}
		v.Root = s.root
	}
	switch fresh := l == (line{}); {
	case fresh && v.Stamp == 0:
		return Fine
	case !fresh && v.Stamp == l.cur: // again: requests made at once, or a lost answer
		l.at = max(l.at, now)
		b.lines.Put(id, l)
		return Fine
	case fresh, v.Stamp != 0 && v.Parent == l.cur:
	case s.found != 0:
		return Fine // it is being decided which line goes on
	default:
		if b.diverges(now, id, &l, &s, v, late, after) {
			if f = Found; b.wait == 0 {
				b.Decide(now, id, l.cur, life)
			}
			return f
		}
		if v.Stamp == 0 {
			return Fine
		}
	}
	l.next(now, v)
	b.lines.Put(id, l)
	return Fine
}

// Followed returns the newest version that was shown of the line that is followed.
func (b *Book) Followed(id uint64) (stamp uint32) { return b.lines.Get(id).cur }

// Decide has only the line of version stamp go on, for the life seconds in which other
// versions may be valid. It has a root of its own from here on, so that every edge knows
// it again, and copies of it can be told apart like any.
func (b *Book) Decide(now uint32, id uint64, stamp, life uint32) {
	s := suspect{until: now + life, from: [2]uint32{stamp}, root: rootOf(id, stamp)}
	l := b.lines.Get(id)
	if l.prev == stamp { // it has come further here
		s.from[1] = l.cur
	} else {
		l.cur, l.prev = stamp, 0
	}
	l.root = s.root
	b.suspects.Put(id, s)
	b.lines.Put(id, l)
}

// rootOf returns the root of the line that goes on with a version.
func rootOf(id uint64, stamp uint32) uint32 {
	x := (id ^ uint64(stamp)<<32 ^ uint64(stamp)) * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	return uint32(x>>32) | 1
}

func (s *suspect) goesOn(v *Version) bool {
	if v.Root == s.root {
		return true
	}
	for _, f := range s.from {
		if f != 0 && (v.Stamp == f || v.Parent == f) {
			return true
		}
	}
	return false
}

func (s *suspect) leave(line, now uint32) {
	copy(s.left[:], s.left[1:])
	s.left[len(s.left)-1] = change{line: line, at: now}
}

func (s *suspect) knows(v *Version) bool {
	return slices.ContainsFunc(s.left[:], func(c change) bool { return v.is(c.line) })
}

// sure reports whether v had been in a browser that showed another line since: that
// browser has it no more.
func (s *suspect) sure(now uint32, v *Version, l *line) bool {
	had := func(at uint32) bool { return now >= at+InFlight && (v.Stamp == 0 || at >= v.Seen+InFlight) }
	if s.turned != 0 && had(s.turned) {
		return true
	}
	for i, c := range s.left {
		to := cmp.Or(l.root, l.cur)
		if i+1 < len(s.left) {
			to = s.left[i+1].line
		}
		if c.line != 0 && had(c.at) && !v.is(to) {
			return true
		}
	}
	return false
}

// diverges takes note of a version that does not continue the line l, and reports
// whether the ticket is known to be copied by now.
func (b *Book) diverges(now uint32, id uint64, l *line, s *suspect, v *Version, late bool, after uint32) bool {
	if now >= s.turned+suspicion {
		*s = suspect{until: s.until, from: s.from, root: s.root}
	}
	if now > s.turned {
		s.points -= uint16(min(uint32(s.points), (now-s.turned)/pointFor))
	}
	switch place := v.Stamp == 0; {
	case place && s.turned == 0: // although the session goes on: from now on that counts
	case place, s.knows(v):
		switch {
		case s.sure(now, v, l):
			s.points += surePoints
		case after > InFlight: // otherwise answers on their way may be renewed several times
			s.points++
		}
	case late || l.root == 0:
		return false
	case v.Root == l.root && v.Parent != l.prev:
		if !l.elsewhere(now, v) {
			return false // renewed elsewhere meanwhile
		}
		s.points += surePoints
	}
	switch {
	case v.Stamp == 0:
	case v.Root != l.root:
		if s.leave(l.root, now); after > InFlight {
			s.points++ // more lines than are remembered may take turns
		}
	default:
		s.leave(l.cur, now)
	}
	s.turned = max(s.turned, now)
	if s.points >= maxPoints {
		s.found = now
	}
	b.suspects.Put(id, *s)
	return s.found != 0
}
