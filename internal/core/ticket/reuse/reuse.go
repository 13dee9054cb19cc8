// Package reuse detects copies of a session's ticket by the reuse of a version that was replaced, similar to refresh
// token rotation with reuse detection (RFC 9700, section 4.14). Every renewal creates a new version.
//
// A browser holds one version. Concurrent requests bring it several, and the last to arrive is kept. Of two versions
// that must both have arrived before either was presented, a browser therefore presents one: the other one was
// replaced. Two browsers with copies present both, at every renewal and in any rhythm; one browser does so only where a
// response was very slow on its way. If the site is slow, Seen is the time of its response.
//
// A [Book] remembers the sessions of one room. An edge keeps a book of the versions that it saw, a regional one of
// those that its edges saw. The size of its memory is the one knob.
package reuse

import (
	"cmp"
	"maps"
	"slices"
)

// Version is one version of a session's ticket. The zero Version stands for the waiting ticket before it.
type Version struct {
	Stamp  uint32 // random and unique
	Parent uint32 // Stamp of the version that it replaced
	Root   uint32 // given to the line that continues after a copy was detected, and inherited; 0 before
	Seen   uint32 // Unix second of its issue
}

// Book remembers the presented versions of the sessions of one room. It is not safe for concurrent use.
type Book struct {
	sessions Recent[session]
	wait     uint32
	decided  map[uint64]decision // by session; at most maxDecided
}

type session struct {
	cur  uint32 // the version that was presented last
	prev uint32 // the version that cur replaced

	samples [2]sample // of the presented versions, at least InFlight seconds apart, newest first
	strikes uint32    // presented versions that were replaced
	struck  uint32    // Unix second of the last strike
	clean   uint32    // samples since then
	found   uint32    // Unix second of the detection of a copy, until Decide
}

type sample struct {
	stamp uint32
	at    uint32 // Unix second of the presentation
	seen  uint32 // as in Version
}

// decision is the line of a copied session that continues: the descendants of two versions, which have a root of their
// own. Other versions are copies. It lasts until no edge accepts a version from before it.
type decision struct {
	at, until uint32 // Unix seconds; at is 0 for the decision of another book, see adopt
	from      [2]uint32
	root      uint32
}

const (
	// InFlight is how long a response and the next request may be in flight together, in seconds. Copies that renew in
	// turns are found where the renewals of each are further apart than that from those of another.
	InFlight = 3

	// maxStrikes strikes prove a copy. One is forgiven for each strikeLife seconds that also have cleanSamples samples:
	// copies that renew in step, however slowly, have one sample between two strikes.
	maxStrikes, strikeLife, cleanSamples = 4, 30, 2

	// maxDecided is the number of decisions that a book remembers. A further one takes the place of the one that ends
	// first.
	maxDecided = 1 << 12

	// clockError covers the difference of two clocks, and the second in which a ticket is stamped.
	clockError = 10
)

// NewBook returns a book for limit sessions. It decides about a detected copy itself if [Book.Decide] was not called
// within wait seconds.
func NewBook(limit int, wait uint32) Book {
	return Book{sessions: NewRecent[session](limit), wait: wait}
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
// continue is given the root of the line that continues. A version is valid for at most life seconds.
func (b *Book) Shown(now uint32, id uint64, v *Version, life uint32) Finding {
	s := b.sessions.Get(id)
	if s.found != 0 && now >= s.found+b.wait {
		s = b.decide(now, id, s, s.cur, life)
		b.sessions.Put(id, s)
	}
	if !b.Continues(now, id, v) {
		return Copy
	}
	b.adopt(now, id, v, life)
	switch {
	case s.found != 0 && v.Stamp != s.cur && v.Parent != s.cur:
		return Fine // undecided which line continues
	case s.replaced(now, v) && now >= s.struck+InFlight:
		s.strikes -= min(s.strikes, (now-s.struck)/strikeLife, s.clean/cleanSamples)
		s.strikes, s.struck, s.clean = s.strikes+1, now, 0
		if s.strikes < maxStrikes || s.found != 0 {
			break
		}
		if s.found = now; b.wait == 0 {
			s = b.decide(now, id, s, s.cur, life)
		}
		b.sessions.Put(id, s)
		return Found
	}
	s.present(now, v)
	b.sessions.Put(id, s)
	return Fine
}

// Continues reports whether version v of a session may be served at Unix second now: no copy was detected, or v is of
// the line that continues. It gives v the root of that line.
func (b *Book) Continues(now uint32, id uint64, v *Version) bool {
	if len(b.decided) == 0 {
		return true
	}
	d, ok := b.decided[id]
	if !ok || now >= d.until {
		return true
	}
	if !d.continues(v) {
		return false
	}
	v.Root = d.root
	return true
}

// Newest returns the version of the session that was presented last, before a copy was detected.
func (b *Book) Newest(id uint64) (stamp uint32) { return b.sessions.Get(id).cur }

// Decide lets only the line of version stamp continue, for as long as an edge may accept other versions: for the life
// seconds in which they are valid, for as long again in which an edge renews an expired version of a session that goes
// on, and for longer with [Book.Keep]. The line gets a new root, so that every edge recognises it and copies of it can
// be detected like any other.
func (b *Book) Decide(now uint32, id uint64, stamp, life uint32) {
	if d, ok := b.decided[id]; ok && now < d.until && d.root == rootOf(id, stamp) { // known
		b.Keep(id, now+2*life+clockError)
		return
	}
	b.sessions.Put(id, b.decide(now, id, b.sessions.Get(id), stamp, life))
}

func (b *Book) decide(now uint32, id uint64, s session, stamp, life uint32) session {
	d := decision{at: now, until: now + 2*life + clockError, from: [2]uint32{stamp}, root: rootOf(id, stamp)}
	next := session{cur: stamp}
	if s.prev == stamp { // it has advanced here
		next.cur, next.prev, d.from[1] = s.cur, s.prev, s.cur
	}
	b.put(now, id, d)
	return next
}

// adopt takes over the decision that another book made, if this one knows none: v has the root of its line.
func (b *Book) adopt(now uint32, id uint64, v *Version, life uint32) {
	if v.Root == 0 {
		return
	}
	if d, ok := b.decided[id]; ok && now < d.until {
		return
	}
	b.put(now, id, decision{until: now + 2*life + clockError, from: [2]uint32{v.Stamp, v.Parent}, root: v.Root})
}

// put stores a decision.
func (b *Book) put(now uint32, id uint64, d decision) {
	if _, ok := b.decided[id]; !ok && len(b.decided) >= maxDecided {
		maps.DeleteFunc(b.decided, func(_ uint64, d decision) bool { return now >= d.until })
		if len(b.decided) >= maxDecided {
			delete(b.decided, slices.MinFunc(slices.Collect(maps.Keys(b.decided)), func(x, y uint64) int {
				return cmp.Or(cmp.Compare(b.decided[x].until, b.decided[y].until), cmp.Compare(x, y))
			}))
		}
	}
	if b.decided == nil {
		b.decided = map[uint64]decision{}
	}
	b.decided[id] = d
}

// Keep keeps the decision about a session until second until: the session is valid here until then, and may make an
// older version valid.
func (b *Book) Keep(id uint64, until uint32) {
	if len(b.decided) == 0 {
		return
	}
	if d, ok := b.decided[id]; ok && d.until < until {
		d.until = until
		b.decided[id] = d
	}
}

// Decided returns the sessions with a decision that is in force at now and came by Decide or Shown, in a fixed order.
func (b *Book) Decided(now uint32) (ids []uint64) {
	for id, d := range b.decided {
		if now < d.until && d.at != 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Decision returns the version whose line continues, and the Unix second of the decision; both are 0 for a session that
// [Book.Decided] does not return.
func (b *Book) Decision(now uint32, id uint64) (stamp, at uint32) {
	if d := b.decided[id]; now < d.until && d.at != 0 {
		return d.from[0], d.at
	}
	return 0, 0
}

// rootOf returns the new root of the line that continues with a version.
func rootOf(id uint64, stamp uint32) uint32 {
	x := (id ^ uint64(stamp)<<32 ^ uint64(stamp)) * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	return uint32(x>>32) | 1
}

// continues reports whether v is of the line that was decided to continue.
func (d *decision) continues(v *Version) bool {
	for _, f := range d.from {
		if f != 0 && (v.Stamp == f || v.Parent == f) {
			return true
		}
	}
	return v.Root == d.root
}

// replaced reports whether another version was presented after v had arrived in its browser, and had itself arrived
// before the request with v was sent.
func (s *session) replaced(now uint32, v *Version) bool {
	for _, o := range s.samples {
		if o.stamp != 0 && o.stamp != v.Stamp && o.at >= v.Seen+InFlight && now >= o.seen+InFlight {
			return true
		}
	}
	return false
}

func (s *session) present(now uint32, v *Version) {
	if v.Stamp == 0 {
		return
	}
	if v.Stamp != s.cur {
		s.cur, s.prev = v.Stamp, v.Parent
	}
	if now >= s.samples[0].at+InFlight {
		s.samples[1], s.samples[0] = s.samples[0], sample{v.Stamp, now, v.Seen}
		s.clean++
	}
}
