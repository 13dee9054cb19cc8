package room

import (
	"cmp"
	"maps"
	"slices"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/room/match"
)

// Room is one room of a [Set]. It must not be modified.
type Room struct {
	ID ID
	Settings
	Index   int      // position in Set.Rooms
	Control *Control // controls in force; Settings are under them; nil for none
	Plan    Plan     // of its events
	Phase   Phase    // current phase; Settings are those in it
	Closed  bool     // a prequeue may be on, within the clock uncertainty

	Drawn *draw.Notice // the newest draw of the room with a record, which holds the positions; nil for none
	Draw  *draw.Notice // of the current phase's event, nil without a known draw
}

// Set is a document indexed for matching: every room by ID, by name and by host and path. It is immutable and safe for
// concurrent use. The zero value and nil are sets without hosts.
type Set struct {
	version uint64
	rooms   []*Room // by ID
	byID    map[ID]*Room
	byName  map[string]*Room
	table   *match.Table      // of rooms by their index
	origins map[string]string // pass-through origins by host
	planned []*Room           // those with events or a draw
	board   *draw.Board
}

// NewSet returns the set of the rooms and hosts of doc, with defaults filled in. It keeps no reference to doc. The
// version is the caller's, to distinguish sets. If doc is invalid, the error is of type [Faults] and holds all faults.
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
		origins: doc.PassThrough(),
	}
	for i, settings := range doc.Rooms {
		r := &Room{ID: IDOf(settings.TicketName()), Settings: settings, Plan: settings.Plan()}
		if s.rooms[i] = r; len(r.Plan) > 1 {
			s.planned = append(s.planned, r)
		}
	}
	slices.SortFunc(s.rooms, func(a, b *Room) int { return cmp.Compare(a.ID, b.ID) })
	var routes []match.Route
	for i, r := range s.rooms {
		r.Index = i
		s.byID[r.ID] = r
		s.byName[r.Name] = r
		for _, route := range r.routes() {
			key, _ := match.Key(route.Path)
			routes = append(routes, match.Route{Host: route.Host, Path: key, Room: i})
		}
	}
	s.table = match.NewTable(s.origins, routes)
	return s, nil
}

// Version returns the version that was passed to NewSet.
func (s *Set) Version() uint64 {
	if s == nil {
		return 0
	}
	return s.version
}

// Rooms returns the rooms in the order of their IDs. The slice must not be modified.
func (s *Set) Rooms() []*Room {
	if s == nil {
		return nil
	}
	return slices.Clip(s.rooms)
}

// Notifies reports whether the room notifies its visitors. Places by lot have no call: each round draws them anew.
func (s *Settings) Notifies() bool { return s.WebPush && s.QueueingMethod != MethodRandom }

// Notifies reports whether a room notifies its visitors.
func (s *Set) Notifies() bool {
	return slices.ContainsFunc(s.Rooms(), func(r *Room) bool { return r.Notifies() })
}

// Origins returns the pass-through origins of the hosts, by host.
func (s *Set) Origins() map[string]string {
	if s == nil {
		return nil
	}
	return maps.Clone(s.origins)
}

// ByID returns the room with this ID, nil for none.
func (s *Set) ByID(id ID) *Room {
	if s == nil {
		return nil
	}
	return s.byID[id]
}

// ByName returns the room called name, nil for none.
func (s *Set) ByName(name string) *Room {
	if s == nil {
		return nil
	}
	return s.byName[name]
}

// Match is the result of matching one request. Its zero value is the result for an unknown host.
type Match struct {
	// Known reports whether the host is in the set. A request for an unknown host is misdirected (421) and never
	// forwarded.
	Known bool

	Host string // in canonical form; "" if unknown

	// Refuse reports that the request must never be forwarded: more rooms than a visitor can hold tickets for would
	// gate it, or its path can be read as naming another host of the set. No honest client sends such a request (400).
	Refuse bool

	// Origin is the pass-through origin of the host: the destination of requests that no room gates.
	Origin string

	rooms [match.Most]*Room
	n     int
}

// Rooms returns the rooms that gate the request: the visitor must be admitted to all of them. None means that the
// request passes through. The room of the raw path comes first, the others by length of path, longest first. If Refuse
// is set, some rooms may be missing.
//
// The slice points into m and does not allocate.
func (m *Match) Rooms() []*Room { return m.rooms[:m.n:m.n] }

// Target returns the origin of the request once the visitor is admitted: that of the first room, or the pass-through
// origin if no room gates it.
func (m *Match) Target() string {
	if m.n > 0 {
		return m.rooms[0].Origin
	}
	return m.Origin
}

// Match returns the rooms that gate a request: see [match.Table.Find].
func (s *Set) Match(rawHost, path string) Match {
	if s == nil {
		return Match{}
	}
	found := s.table.Find(rawHost, path)
	m := Match{Known: found.Known, Host: found.Host, Refuse: found.Refuse, Origin: found.Origin, n: found.N}
	for i, room := range found.Rooms[:found.N] {
		m.rooms[i] = s.rooms[room]
	}
	return m
}

// Renamed returns the rooms of d that the set covers under another name, with the same host and path, as a map from
// new to old name. A room's name is its identity, so all visitors of a renamed room start again.
func (s *Set) Renamed(d Document) map[string]string {
	old, out := map[Route]string{}, map[string]string{}
	for _, r := range s.Rooms() {
		old[Route{Host: r.Host, Path: r.Path}] = r.TicketName()
	}
	d = d.WithDefaults()
	for _, r := range d.Rooms {
		if name := old[Route{Host: r.Host, Path: r.Path}]; name != "" && name != r.TicketName() {
			out[r.Name] = name
		}
	}
	return out
}
