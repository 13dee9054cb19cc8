package room

import (
	"cmp"
	"strings"
)

// maxGates is the largest number of rooms that can gate one request: a visitor
// carries at most that many tickets (the edge reads four cookies of a name).
const maxGates = 4

// Match says what stands in front of one request. Its zero value is the answer
// for an unknown host.
type Match struct {
	// Known tells whether the host is in the set. A request for an unknown
	// host is misdirected (421) and never forwarded.
	Known bool

	Host string // in canonical form; "" where it is not known

	// Refuse tells that the request must not be forwarded for anybody: more
	// rooms than a visitor can hold tickets for would gate it, or its path
	// can be read as naming another host of the set. No honest client sends
	// such a request (400).
	Refuse bool

	// Origin is the pass-through origin of the host: where the request goes
	// when no room gates it.
	Origin string

	rooms [maxGates]*Room
	n     int
}

// Rooms returns the rooms that gate the request: the visitor must be admitted
// to all of them. None means that the request passes through. The room of the
// path as it stands comes first, the others by length of path, longest first.
// When Refuse is set, some rooms may be missing.
//
// The slice points into m and does not allocate.
func (m *Match) Rooms() []*Room { return m.rooms[:m.n:m.n] }

// Target returns the origin of the request once the visitor is admitted: that
// of the first room, or the pass-through origin when no room gates it.
func (m *Match) Target() string {
	if m.n > 0 {
		return m.rooms[0].Origin
	}
	return m.Origin
}

// Match returns which rooms gate a request. The host is the Host header (or
// :authority), the path is the path of the request line, both raw: the path is
// escaped, with everything before the first question mark. Neither may have
// been cleaned by a router before.
//
// For an ordinary host and path it does not allocate.
func (s *Set) Match(rawHost, path string) Match {
	name, ok := CanonicalHost(rawHost)
	if !ok || s == nil {
		return Match{}
	}
	h := s.hosts[name]
	if h == nil {
		return Match{}
	}
	g := gates{Match: Match{Known: true, Host: name, Origin: h.origin}}
	if path != "" && path[0] == '/' {
		g.addLiteral(h.exact.find(path))
		if t := scan(path); t.plain() {
			if h.folded != nil || t&hasUpper != 0 {
				g.add(h.findFolded(path))
			}
			g.sort()
			return g.Match
		}
	}
	s.matchOdd(h, path, &g)
	g.sort()
	return g.Match
}

// matchOdd adds what gates a path that is not ordinary.
func (s *Set) matchOdd(h *host, path string, g *gates) {
	var buf [MaxReadings]string
	readings, ok := expand(path, buf[:0])
	if !ok {
		for _, c := range h.covers {
			if g.add(c); g.Refuse {
				break
			}
		}
		return
	}
	folded := h.folded
	if folded == nil {
		folded = &h.exact
	}
	for _, r := range readings {
		g.add(h.exact.find(r))
		g.add(folded.find(Fold(r)))
		if s.namesOther(h, r) {
			g.Refuse = true
		}
	}
}

// namesOther tells whether the reading is the network-path form of a URL on
// another host of the set. An origin that serves both might answer for the
// other, whose rooms were not asked.
func (s *Set) namesOther(h *host, reading string) bool {
	authority, _, ok := splitAuthority(reading)
	if !ok {
		return false
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	name, ok := CanonicalHost(authority)
	return ok && name != h.name && s.hosts[name] != nil
}

// findFolded finds an ASCII path with letter case folded.
func (h *host) findFolded(path string) *cover {
	t := h.folded
	if t == nil {
		t = &h.exact
	}
	// What lies beyond the longest key and one byte more cannot change the
	// answer; the byte more shows whether a segment ends at the key.
	path = path[:min(len(path), h.longest+1)]
	var buf [256]byte
	b := append(buf[:0], path...)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + ('a' - 'A')
		}
	}
	return t.findBytes(b)
}

// gates collects the rooms of a Match.
type gates struct {
	Match
	literal bool          // rooms[0] is the room of the literal reading
	length  [maxGates]int // of the longest path by which the room gates
}

func (g *gates) addLiteral(c *cover) {
	g.literal = c != nil
	g.add(c)
}

func (g *gates) add(c *cover) {
	if c == nil {
		return
	}
	for i, r := range g.rooms[:g.n] {
		if r == c.room {
			g.length[i] = max(g.length[i], len(c.path))
			return
		}
	}
	if g.n == maxGates {
		g.Refuse = true
		return
	}
	g.rooms[g.n], g.length[g.n] = c.room, len(c.path)
	g.n++
}

// sort orders all rooms but that of the literal reading: longest path first,
// then by ID.
func (g *gates) sort() {
	from := 0
	if g.literal {
		from = 1
	}
	for i := from + 1; i < g.n; i++ {
		for j := i; j > from && g.before(j, j-1); j-- {
			g.rooms[j], g.rooms[j-1] = g.rooms[j-1], g.rooms[j]
			g.length[j], g.length[j-1] = g.length[j-1], g.length[j]
		}
	}
}

func (g *gates) before(i, j int) bool {
	if c := cmp.Compare(g.length[i], g.length[j]); c != 0 {
		return c > 0
	}
	return g.rooms[i].ID < g.rooms[j].ID
}
