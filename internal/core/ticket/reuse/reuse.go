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
}

type session struct {
	cur  uint32 // the version that was presented last
	prev uint32 // the version that cur replaced

	samples [2]sample // of the presented versions, at least InFlight seconds apart, newest first
	strikes uint32    // presented versions that were replaced
	struck  uint32    // Unix second of the last strike
	clean   uint32    // samples since then
	found   uint32    // Unix second of the detection of a copy, until Decide

	// The decision: until then only descendants of these versions may be renewed; they have a root of their own.
	until uint32
	from  [2]uint32
	root  uint32
}

type sample struct {
	stamp uint32
	at    uint32 // Unix second of the presentation
	seen  uint32 // as in Version
}

const (
	// InFlight is how long a response and the next request may be in flight together, in seconds.
	InFlight = 5

	// maxStrikes strikes prove a copy. One is forgiven for each strikeLife seconds that also have cleanSamples samples:
	// copies that renew in step, however slowly, have one sample between two strikes.
	maxStrikes, strikeLife, cleanSamples = 4, 30, 2
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
		s.decide(now, id, s.cur, life)
		b.sessions.Put(id, s)
	}
	if now < s.until {
		if !s.continues(v) {
			return Copy
		}
		v.Root = s.root
	}
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
			s.decide(now, id, s.cur, life)
		}
		b.sessions.Put(id, s)
		return Found
	}
	s.present(now, v)
	b.sessions.Put(id, s)
	return Fine
}

// Newest returns the version of the session that was presented last, before a copy was detected.
func (b *Book) Newest(id uint64) (stamp uint32) { return b.sessions.Get(id).cur }

// Decide lets only the line of version stamp continue, for the life seconds in which other versions may be valid.
// The line gets a new root, so that every edge recognises it and copies of it can be detected like any other.
func (b *Book) Decide(now uint32, id uint64, stamp, life uint32) {
	s := b.sessions.Get(id)
	s.decide(now, id, stamp, life)
	b.sessions.Put(id, s)
}

func (s *session) decide(now uint32, id uint64, stamp, life uint32) {
	next := session{cur: stamp, until: now + life, from: [2]uint32{stamp}, root: rootOf(id, stamp)}
	if s.prev == stamp { // it has advanced here
		next.cur, next.prev, next.from[1] = s.cur, s.prev, s.cur
	}
	*s = next
}

// rootOf returns the new root of the line that continues with a version.
func rootOf(id uint64, stamp uint32) uint32 {
	x := (id ^ uint64(stamp)<<32 ^ uint64(stamp)) * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	return uint32(x>>32) | 1
}

// continues reports whether v is of the line that was decided to continue.
func (s *session) continues(v *Version) bool {
	for _, f := range s.from {
		if f != 0 && (v.Stamp == f || v.Parent == f) {
			return true
		}
	}
	return v.Root == s.root
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
