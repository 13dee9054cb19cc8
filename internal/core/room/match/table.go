package match

import (
	"cmp"
	"slices"
	"strings"
)

// Most is the maximum number of rooms that cover one request: an edge reads at most four tickets of a name.
const Most = 4

// Table finds rooms by the host and the path of a request. Rooms are numbers here. Of two rooms with paths of equal
// length the lower number comes first. A table is immutable and safe for concurrent use. A nil table knows no host.
type Table struct {
	hosts map[string]*host
}

// Route is a host and a path that a room covers.
type Route struct {
	Host string
	Path string // a key, see [Key]
	Room int
}

// NewTable returns a table of routes. origins maps each canonical host to the origin of requests that no route
// covers; every host of a route must be in it.
func NewTable(origins map[string]string, routes []Route) *Table {
	t := &Table{hosts: make(map[string]*host, len(origins))}
	for name, origin := range origins {
		t.hosts[name] = &host{name: name, origin: origin}
	}
	for _, r := range routes {
		h := t.hosts[r.Host]
		h.covers = append(h.covers, &cover{room: r.Room, path: r.Path})
	}
	for _, h := range t.hosts {
		h.build()
	}
	return t
}

// Result lists the rooms that cover a request. The zero value is the result for an unknown host.
type Result struct {
	// Known reports whether the host is in the table.
	Known bool

	Host   string // in canonical form; "" if not Known
	Origin string // the host's origin, for requests that no route covers

	// Refuse reports that more than [Most] rooms cover the request, or that its path can be read as the URL of
	// another host of the table.
	Refuse bool

	Rooms [Most]int // the first N are set
	N     int
}

// Find returns the rooms that cover a request. rawHost is the Host header (or :authority) and path the path of the
// request line, up to the first question mark. Both must be raw: not decoded or cleaned by a router.
//
// The room of the literal path comes first, the others by length of path, longest first. For an ordinary host and
// path Find does not allocate.
func (t *Table) Find(rawHost, path string) Result {
	name, ok := CanonicalHost(rawHost)
	if !ok || t == nil {
		return Result{}
	}
	h := t.hosts[name]
	if h == nil {
		return Result{}
	}
	g := gates{Result: Result{Known: true, Host: name, Origin: h.origin}}
	if path != "" && path[0] == '/' {
		literal := find(&h.exact, path)
		g.literal = literal != nil
		g.add(literal)
		if t := scan(path); t.plain() {
			if h.folded != nil || t&hasUpper != 0 {
				g.add(h.findFolded(path))
			}
			g.sort()
			return g.Result
		}
	}
	t.findOdd(h, path, &g)
	g.sort()
	return g.Result
}

// findOdd adds the rooms of all readings of a path.
func (t *Table) findOdd(h *host, path string, g *gates) {
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
		g.add(find(&h.exact, r))
		g.add(find(folded, Fold(r)))
		if t.namesOther(h, r) {
			g.Refuse = true
		}
	}
}

// namesOther reports whether the reading is the network-path form of a URL on another host of the table. An origin
// that serves both might answer for the other host, whose rooms were not checked.
func (t *Table) namesOther(h *host, reading string) bool {
	authority, _, ok := splitAuthority(reading)
	if !ok {
		return false
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	name, ok := CanonicalHost(authority)
	return ok && name != h.name && t.hosts[name] != nil
}

// findFolded finds an ASCII path with letter case folded.
func (h *host) findFolded(path string) *cover {
	t := h.folded
	if t == nil {
		t = &h.exact
	}
	// Bytes beyond the longest key plus one cannot change the result; the one more shows whether a segment ends at
	// the key.
	path = path[:min(len(path), h.longest+1)]
	var buf [256]byte
	b := append(buf[:0], path...)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + ('a' - 'A')
		}
	}
	return find(t, b)
}

// gates collects the rooms of a Result.
type gates struct {
	Result
	literal bool      // Rooms[0] is the room of the literal reading
	length  [Most]int // length of the longest matching path of each room
}

func (g *gates) add(c *cover) {
	if c == nil {
		return
	}
	for i, r := range g.Rooms[:g.N] {
		if r == c.room {
			g.length[i] = max(g.length[i], len(c.path))
			return
		}
	}
	if g.N == Most {
		g.Refuse = true
		return
	}
	g.Rooms[g.N], g.length[g.N] = c.room, len(c.path)
	g.N++
}

// sort orders all rooms but that of the literal reading: longest path first,
// then by number.
func (g *gates) sort() {
	from := 0
	if g.literal {
		from = 1
	}
	for i := from + 1; i < g.N; i++ {
		for j := i; j > from && g.before(j, j-1); j-- {
			g.Rooms[j], g.Rooms[j-1] = g.Rooms[j-1], g.Rooms[j]
			g.length[j], g.length[j-1] = g.length[j-1], g.length[j]
		}
	}
}

func (g *gates) before(i, j int) bool {
	return cmp.Or(cmp.Compare(g.length[j], g.length[i]), cmp.Compare(g.Rooms[i], g.Rooms[j])) < 0
}

// cover is one route of a room, on the host that holds it.
type cover struct {
	room int
	path string // decoded, without a slash at the end; "/" is the whole host
}

type host struct {
	name    string
	origin  string
	covers  []*cover // longest path first
	exact   node     // by path
	folded  *node    // by Fold of the path; nil when that is the same tree
	longest int      // bytes of the longest key of the trees
}

func (h *host) build() {
	slices.SortFunc(h.covers, func(a, b *cover) int { // longest path first
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(a.room, b.room))
	})
	var folded node
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

// spellings returns the undecoded forms of a path with non-ASCII letters: itself, and as clients escape it. Without
// the latter the literal reading of "/caf%C3%A9", as sent by every browser for the room "/café", would match the
// room "/" and be gated twice.
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

// node is a tree of paths, segment by segment. Its zero value is empty.
type node struct {
	cover *cover // of the path that ends here, if any
	next  map[string]*node
}

func (n *node) insert(path string, c *cover) {
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

// find returns the cover with the longest path that is path or a prefix of whole segments, or nil. The path begins
// with a slash. A map look-up by string(bytes) does not allocate, so bytes cost no conversion.
func find[T string | []byte](n *node, path T) *cover {
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
