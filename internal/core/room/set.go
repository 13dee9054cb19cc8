package room

import (
	"cmp"
	"slices"
	"strings"

	"vestibule/internal/draw"
)

// Room is one room of a [Set]. It must not be modified.
type Room struct {
	ID ID
	Settings
	Index   int      // position in Set.Rooms
	Control *Control // what operators say for now and is in force: Settings are under it; nil for nothing
	Plan    Plan     // of its events
	Phase   Phase    // which of them is on: Settings are those in it
	Closed  bool     // it is not certain that nobody gathers for an event

	Drawn *draw.Notice // the newest draw of the room with a record: it says who has which place; nil for none
	Draw  *draw.Notice // of the event of the phase that is on, nil where there is none or nobody has told of it
}

// Set is a document made ready for matching: every room by ID, by name and by
// host and path. It is immutable and safe for concurrent use. The zero value
// and nil are sets that know no host.
type Set struct {
	version uint64
	rooms   []*Room // by ID
	byID    map[ID]*Room
	byName  map[string]*Room
	hosts   map[string]*host
	planned []*Room // those with events, and those with a draw
	board   *draw.Board
}

// NewSet returns the set of the rooms and hosts of doc, with defaults filled
// in. It keeps no reference to doc. The version is the caller's, to tell sets
// apart. When doc is not valid, the error is of type [Faults] and names
// everything that is wrong.
func NewSet(doc Document, version uint64) (*Set, error) {
	if err := doc.Validate().Err(); err != nil {
		return nil, err
	}
	doc = doc.WithDefaults()
	s := &Set{
		version: version,
		rooms:   make([]*Room, len(doc.Rooms)),
		byID:    make(map[ID]*Room, len(doc.Rooms)),
		byName:  make(map[string]*Room, len(doc.Rooms)),
		hosts:   make(map[string]*host),
	}
	for i, settings := range doc.Rooms {
		r := &Room{ID: IDOf(settings.Known()), Settings: settings, Plan: settings.Plan()}
		if s.rooms[i] = r; len(r.Plan) > 1 {
			s.planned = append(s.planned, r)
		}
	}
	slices.SortFunc(s.rooms, func(a, b *Room) int { return cmp.Compare(a.ID, b.ID) })
	for name, origin := range doc.passThrough() {
		s.hosts[name] = &host{name: name, origin: origin}
	}
	for i, r := range s.rooms {
		r.Index = i
		s.byID[r.ID] = r
		s.byName[r.Name] = r
		for _, route := range r.routes() {
			key, _ := pathKey(route.Path)
			h := s.hosts[route.Host]
			h.covers = append(h.covers, &cover{room: r, path: key})
		}
	}
	for _, h := range s.hosts {
		h.build()
	}
	return s, nil
}

// Version returns the version that was given to NewSet.
func (s *Set) Version() uint64 {
	if s == nil {
		return 0
	}
	return s.version
}

// Rooms returns the rooms in the order of their IDs. The slice must not be
// modified.
func (s *Set) Rooms() []*Room {
	if s == nil {
		return nil
	}
	return slices.Clip(s.rooms)
}

// Origins returns the pass-through origins of the hosts, by host.
func (s *Set) Origins() map[string]string {
	out := make(map[string]string)
	if s != nil {
		for name, h := range s.hosts {
			out[name] = h.origin
		}
	}
	return out
}

// ByID returns the room with this ID, nil when there is none.
func (s *Set) ByID(id ID) *Room {
	if s == nil {
		return nil
	}
	return s.byID[id]
}

// ByName returns the room called name, nil when there is none.
func (s *Set) ByName(name string) *Room {
	if s == nil {
		return nil
	}
	return s.byName[name]
}

// cover is one route of a room, on the host that holds it.
type cover struct {
	room *Room
	path string // decoded, without a slash at the end; "/" is the whole host
}

// host is what a Set knows of one host.
type host struct {
	name    string
	origin  string
	covers  []*cover // longest path first
	exact   tree     // by path
	folded  *tree    // by Fold of the path; nil when that is the same tree
	longest int      // bytes of the longest key of the trees
}

func (h *host) build() {
	slices.SortFunc(h.covers, compareCovers)
	var folded tree
	same := true
	for _, c := range h.covers {
		for _, key := range spellings(c.path) {
			h.longest = max(h.longest, len(key))
			h.exact.insert(key, c)
			folded.insert(Fold(key), c)
			same = same && Fold(key) == key
		}
	}
	if !same {
		h.folded = &folded
	}
}

// compareCovers orders by length of path, longest first.
func compareCovers(a, b *cover) int {
	if c := cmp.Compare(len(b.path), len(a.path)); c != 0 {
		return c
	}
	return cmp.Compare(a.room.ID, b.room.ID)
}

// spellings returns the texts by which a path that is not all plain ASCII may
// stand in an undecoded reading: itself, and as clients escape it. Without the
// latter the literal reading of "/caf%C3%A9", which is how every browser asks
// for the room "/café", would fall to the room "/" and gate twice.
func spellings(path string) []string {
	escaped := func(digits string) string {
		var b strings.Builder
		for _, c := range []byte(path) {
			if c >= 0x80 || strings.IndexByte(" \"<>^`{|}", c) >= 0 {
				b.WriteByte('%')
				b.WriteByte(digits[c>>4])
				b.WriteByte(digits[c&15])
				continue
			}
			b.WriteByte(c)
		}
		return b.String()
	}
	upper := escaped("0123456789ABCDEF")
	if upper == path {
		return []string{path}
	}
	return []string{path, upper, escaped("0123456789abcdef")}
}

// tree finds the longest path that covers another, segment by segment. Its
// zero value is empty.
type tree struct {
	root node
}

type node struct {
	cover *cover // of the path that ends here, if any
	next  map[string]*node
}

func (t *tree) insert(path string, c *cover) {
	n := &t.root
	if path != "/" {
		for seg := range strings.SplitSeq(path[1:], "/") {
			if n.next == nil {
				n.next = make(map[string]*node)
			}
			child := n.next[seg]
			if child == nil {
				child = new(node)
				n.next[seg] = child
			}
			n = child
		}
	}
	n.cover = c
}

// find returns the cover with the longest path that is path or a whole number
// of its first segments, nil when there is none. The path begins with a slash.
func (t *tree) find(path string) *cover {
	n := &t.root
	best := n.cover
	for i := 1; n.next != nil && i <= len(path); i++ {
		from := i
		for i < len(path) && path[i] != '/' {
			i++
		}
		if n = n.next[path[from:i]]; n == nil {
			break
		}
		if n.cover != nil {
			best = n.cover
		}
	}
	return best
}

// findBytes is find for bytes: a map lookup by string(bytes) does not allocate,
// a conversion before the call would.
func (t *tree) findBytes(path []byte) *cover {
	n := &t.root
	best := n.cover
	for i := 1; n.next != nil && i <= len(path); i++ {
		from := i
		for i < len(path) && path[i] != '/' {
			i++
		}
		if n = n.next[string(path[from:i])]; n == nil {
			break
		}
		if n.cover != nil {
			best = n.cover
		}
	}
	return best
}

// Renamed returns, for the rooms of d that the set covers under another name, the old
// name by the new one: the same host and path. A room is known by its name, so
// everybody in one that is renamed begins anew.
func (s *Set) Renamed(d Document) map[string]string {
	old, out := map[Route]string{}, map[string]string{}
	for _, r := range s.Rooms() {
		old[Route{Host: r.Host, Path: r.Path}] = r.Known()
	}
	d = d.WithDefaults()
	for _, r := range d.Rooms {
		if name := old[Route{Host: r.Host, Path: r.Path}]; name != "" && name != r.Known() {
			out[r.Name] = name
		}
	}
	return out
}
