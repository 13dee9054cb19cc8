// Package reuse detects copies of a session's ticket by the stamps of its versions, similar to refresh token
// rotation with reuse detection. Every renewal creates a new version, so two clients with copies of one ticket
// continue on two lines of descent.
//
// A browser holds one version. Concurrent requests bring it several, and the last to arrive is kept, so a browser
// may move to another line, a few times if responses are slow. It does not return again and again to a line that it
// left. Two browsers with copies do, in turns. A slow response of the site brings a late version, whose descent
// proves nothing: see ticket.Ticket.Late.
//
// A [Book] follows one line per session. An edge keeps a book of the versions that it saw, a regional one of those
// that its edges saw. The size of its memory is the one knob.
package reuse

import (
	"cmp"
	"slices"
)

// Version is one version of a session's ticket. The zero Version stands for the waiting ticket before it.
type Version struct {
	Stamp  uint32 // random and unique
	Parent uint32 // Stamp of the version that it replaced
	Root   uint32 // Stamp of the first version of its line
	Seen   uint32 // Unix second of its issue
}

// late reports whether the descent of v proves nothing.
func (v *Version) late() bool { return v.Parent == 0 && v.Root != v.Stamp }

func (v *Version) is(stamp uint32) bool {
	return stamp != 0 && (v.Stamp == stamp || v.Parent == stamp || v.Root == stamp)
}

// Book follows the lines of the sessions of one room. It is not safe for concurrent use.
type Book struct {
	lines    Recent[line]
	suspects Recent[suspect]
	wait     uint32
}

// line is the state of the followed line.
type line struct {
	root uint32 // 0 after a late version
	cur  uint32 // its newest version that was presented for renewal
	prev uint32 // the version before cur

	// Last presentation of cur, and of the version before it on any line: Unix seconds.
	at     uint32
	other  uint32
	lastAt uint32
}

// elsewhere reports whether v was in a browser before another version was presented that is no longer in flight:
// the browser that presented that one does not hold v any more.
func (l *line) elsewhere(now uint32, v *Version) bool {
	after := func(stamp, at uint32) bool {
		return stamp != 0 && stamp != v.Stamp && now >= at+InFlight && at >= v.Seen+InFlight
	}
	return after(l.cur, l.at) || after(l.other, l.lastAt)
}

// next advances the line to version v.
func (l *line) next(now uint32, v *Version) {
	*l = line{root: v.Root, cur: v.Stamp, prev: v.Parent, at: now, other: l.cur, lastAt: l.at}
	if v.late() {
		l.root = 0
	}
}

// suspect is a session that changed its line.
type suspect struct {
	left   [24]change // newest last
	turned uint32     // Unix second of the last change
	points uint16     // for returns to a line that it left
	found  uint32     // Unix second of the detection of a copy, until Decide

	// The decision: until then only descendants of these versions may be renewed; they have a root of their own.
	until uint32
	from  [2]uint32
	root  uint32
}

// change is a change of line.
type change struct {
	line uint32 // the line left: its root, or its newest version
	at   uint32 // Unix second
}

const (
	// InFlight is how long a response may be in flight from an edge, in seconds.
	InFlight = 5

	// surePoints are added for a return to a line that was left, if the presented version cannot have been in
	// flight when the other line was presented, otherwise one. No browser reaches maxPoints.
	surePoints, maxPoints = 4, 12

	// pointFor is after how many seconds without a change a point expires.
	pointFor = 8
	// suspicion is after how many seconds the left lines are forgotten.
	suspicion = 300

	// maxSuspects is the maximum number of sessions with remembered changes.
	maxSuspects = 1 << 12
)

// NewBook returns a book for the lines of limit sessions. It decides about a detected copy itself if [Book.Decide]
// was not called within wait seconds.
func NewBook(limit int, wait uint32) Book {
	return Book{lines: NewRecent[line](limit), suspects: NewRecent[suspect](min(limit, maxSuspects)), wait: wait}
}

// Finding is the result of [Book.Shown].
type Finding uint8

// Findings.
const (
	Fine  Finding = iota // may be renewed
	Found                // may be renewed; the ticket is now known to be copied
	Copy                 // another client continues with the ticket: must not be renewed
)

// Shown records that version v of a session was presented for renewal at Unix second now. A client that may
// continue is given the root of the followed line. A version is renewed at most once in after seconds and valid for
// at most life seconds.
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
	case !fresh && v.Stamp == l.cur: // repeated: concurrent requests, or a lost response
		l.at = max(l.at, now)
		b.lines.Put(id, l)
		return Fine
	case fresh, v.Stamp != 0 && v.Parent == l.cur:
	case s.found != 0:
		return Fine // undecided which line continues
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

// Followed returns the newest presented version of the followed line.
func (b *Book) Followed(id uint64) (stamp uint32) { return b.lines.Get(id).cur }

// Decide lets only the line of version stamp continue, for the life seconds in which other versions may be valid.
// The line gets a new root, so that every edge recognises it and copies of it can be detected like any other.
func (b *Book) Decide(now uint32, id uint64, stamp, life uint32) {
	s := suspect{until: now + life, from: [2]uint32{stamp}, root: rootOf(id, stamp)}
	l := b.lines.Get(id)
	if l.prev == stamp { // it has advanced here
		s.from[1] = l.cur
	} else {
		l.cur, l.prev = stamp, 0
	}
	l.root = s.root
	b.suspects.Put(id, s)
	b.lines.Put(id, l)
}

// rootOf returns the new root of the line that continues with a version.
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

// sure reports whether v was in a browser that has presented another line since: that browser does not hold it any
// more.
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

// diverges records a version that does not continue the line l, and reports whether the ticket is now known to be
// copied.
func (b *Book) diverges(now uint32, id uint64, l *line, s *suspect, v *Version, late bool, after uint32) bool {
	if now >= s.turned+suspicion {
		*s = suspect{until: s.until, from: s.from, root: s.root}
	}
	if now > s.turned {
		s.points -= uint16(min(uint32(s.points), (now-s.turned)/pointFor))
	}
	switch place := v.Stamp == 0; {
	case place && s.turned == 0: // although the session continues; from now on this counts
	case place, s.knows(v):
		switch {
		case s.sure(now, v, l):
			s.points += surePoints
		case after > InFlight: // otherwise responses in flight may be renewed several times
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
			s.points++ // more lines than remembered may alternate
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
