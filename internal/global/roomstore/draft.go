package roomstore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
)

// Draft is a change of a state. It may be applied several times, after concurrent writes.
type Draft struct {
	base     *State
	rooms    []*Room // in the order of writing
	hosts    []*Host
	fromFile bool
	set      bool // everything was replaced
	pages    map[string]page
	byName   map[string]int // index into rooms, nil until needed

	// The last listedRooms rooms and listedHosts hosts come from a file: faults name them by their place in it.
	listedRooms, listedHosts int

	dropped map[string]bool // hosts with a deleted entry
}

type page struct {
	label   string // for errors
	content []byte
}

// NewDraft returns a draft without changes.
func NewDraft(base *State) *Draft {
	return &Draft{
		base: base, rooms: slices.Clone(base.Rooms), hosts: slices.Clone(base.Hosts), fromFile: base.FromFile,
		pages: map[string]page{},
	}
}

// Base returns the state that the draft changes.
func (d *Draft) Base() *State { return d.base }

// ErrNotThere means that there is no room of that name.
var ErrNotThere = errors.New("no such room")

// Room returns a room of the draft, nil for none.
func (d *Draft) Room(name string) *Room {
	if i, ok := d.find(name); ok {
		return d.rooms[i]
	}
	return nil
}

func (d *Draft) find(name string) (int, bool) {
	if d.byName == nil {
		d.byName = make(map[string]int, len(d.rooms))
		for i, r := range d.rooms {
			d.byName[r.Name] = i
		}
	}
	i, ok := d.byName[name]
	return i, ok
}

// Put makes or replaces the room of that name. Its faults are reported by Apply, together with all others.
func (d *Draft) Put(s room.Settings) {
	i, ok := d.find(s.Name)
	switch {
	case !ok:
		d.byName[s.Name] = len(d.rooms)
		d.rooms = append(d.rooms, &Room{Mark{}, s.WithDefaults()})
	case !d.rooms[i].Equal(s):
		d.rooms[i] = &Room{Mark{Created: d.rooms[i].Created}, s.WithDefaults()}
	}
}

// Replace gives the room called name the settings s. If s has another name, the room is renamed. It returns
// [ErrNotThere].
func (d *Draft) Replace(name string, s room.Settings) error {
	i, ok := d.find(name)
	if !ok {
		return fmt.Errorf("%q: %w", name, ErrNotThere)
	}
	if r := d.rooms[i]; !r.Equal(s) {
		if s = s.WithDefaults(); s.Name != name && s.TicketName() != r.TicketName() {
			s.Identity = r.TicketName()
		}
		d.rooms[i] = &Room{Mark{Created: r.Created}, s.WithDefaults()}
		d.byName = nil
	}
	return nil
}

// Delete removes the room of that name. It returns [ErrNotThere].
func (d *Draft) Delete(name string) error {
	i, ok := d.find(name)
	if !ok {
		return fmt.Errorf("%q: %w", name, ErrNotThere)
	}
	d.rooms = slices.Delete(d.rooms, i, i+1)
	d.byName = nil
	return nil
}

// PutHost makes or replaces the entry of a host.
func (d *Draft) PutHost(h room.Host) {
	d.Merge(room.Document{Hosts: []room.Host{h}})
	d.listedHosts = 0
}

// DeleteHost removes the entry of a host, and reports whether there was one. A host without rooms is then served no
// longer.
func (d *Draft) DeleteHost(name string) bool {
	before := len(d.hosts)
	d.hosts = slices.DeleteFunc(d.hosts, func(h *Host) bool { return h.Name == name })
	if len(d.hosts) == before {
		return false
	}
	if d.dropped == nil {
		d.dropped = map[string]bool{}
	}
	d.dropped[name] = true
	return true
}

// keepSites adds an entry for each host that the base serves and the draft does not: its visitors go straight to its
// last site, instead of an error. Hosts end only by DeleteHost and Set.
func (d *Draft) keepSites() {
	if d.set {
		return
	}
	after := document(d.rooms, d.hosts).PassThrough()
	before := d.base.Document().PassThrough()
	var kept []*Host
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] == "" && !d.dropped[name] {
			kept = append(kept, &Host{Mark{}, room.Host{Name: name, Origin: before[name]}})
		}
	}
	d.hosts = append(kept, d.hosts...) // listed hosts come last
}

// Set replaces all rooms and hosts by those of doc.
func (d *Draft) Set(doc room.Document) {
	d.Merge(doc)
	d.set, d.byName = true, nil
	d.rooms = d.rooms[len(d.rooms)-d.listedRooms:]
	d.hosts = d.hosts[len(d.hosts)-d.listedHosts:]
}

// Merge makes or replaces the rooms and hosts of doc; others stay.
func (d *Draft) Merge(doc room.Document) {
	doc = doc.WithDefaults()
	d.byName, d.listedRooms, d.listedHosts = nil, len(doc.Rooms), len(doc.Hosts)
	rooms := make(map[string]*Room, len(d.rooms))
	for _, r := range d.rooms {
		rooms[r.Name] = r
	}
	listed := make([]*Room, len(doc.Rooms))
	for i, s := range doc.Rooms {
		listed[i] = &Room{Mark{}, s}
		if old := rooms[s.Name]; old != nil {
			if listed[i].Created = old.Created; old.Equal(s) {
				listed[i] = old
			}
			delete(rooms, s.Name) // a second room of that name is a fault, not the same room
		}
	}
	hosts := make(map[string]*Host, len(d.hosts))
	for _, h := range d.hosts {
		hosts[h.Name] = h
	}
	listedHosts := make([]*Host, len(doc.Hosts))
	for i, h := range doc.Hosts {
		listedHosts[i] = &Host{Mark{}, h}
		if old := hosts[h.Name]; old != nil {
			if listedHosts[i].Created = old.Created; old.Host == h {
				listedHosts[i] = old
			}
			delete(hosts, h.Name)
		}
	}
	d.rooms = append(slices.DeleteFunc(d.rooms, func(r *Room) bool { return rooms[r.Name] == nil }), listed...)
	d.hosts = append(slices.DeleteFunc(d.hosts, func(h *Host) bool { return hosts[h.Name] == nil }), listedHosts...)
}

// DiffersError means that a rooms file cannot become the authority, since it differs from the store.
type DiffersError struct {
	Missing []string // only in the store; hosts have the prefix "host "
	Added   []string // only in the file
	Changed []string
}

func (e *DiffersError) Error() string {
	var all []string
	for _, p := range []struct {
		what  string
		names []string
	}{{"not in the file", e.Missing}, {"not in the store", e.Added}, {"different", e.Changed}} {
		if n := len(p.names); n > 5 {
			all = append(all, fmt.Sprintf("%s: %s and %d more", p.what, strings.Join(p.names[:5], ", "), n-5))
		} else if n > 0 {
			all = append(all, p.what+": "+strings.Join(p.names, ", "))
		}
	}
	return "the store is the authority for rooms until the file says the same (" + strings.Join(all, "; ") +
		"): make the store what the file says with \"vestibule rooms apply --prune\", or the file what the store says with \"vestibule rooms export\""
}

// Follow makes a rooms file the authority and replaces all rooms and hosts by doc. If the store is the authority and
// not empty, doc must equal its contents: else it returns a [*DiffersError] or [room.Faults] and changes nothing.
func (d *Draft) Follow(doc room.Document) error {
	if !d.base.FromFile && !d.base.empty() {
		trial := NewDraft(d.base)
		trial.Set(doc)
		next, err := trial.Apply(1, d.base.Version+1)
		if err != nil {
			return err
		}
		if e := differ(d.base, next); e != nil {
			return e
		}
	}
	d.Set(doc)
	d.fromFile = true
	return nil
}

// differ returns an error if a file with the state next cannot follow base.
func differ(base, next *State) error {
	e := &DiffersError{}
	put := func(name string, before, after bool) {
		switch {
		case !after:
			e.Missing = append(e.Missing, name)
		case !before:
			e.Added = append(e.Added, name)
		default:
			e.Changed = append(e.Changed, name)
		}
	}
	for _, c := range Changes(base, next) {
		put(c.Name, c.Before != nil, c.After != nil)
	}
	before, after := base.Sites(), next.Sites()
	for _, name := range HostChanges(before, after) {
		put("host "+name, before[name] != "", after[name] != "")
	}
	if len(e.Missing)+len(e.Added)+len(e.Changed) == 0 {
		return nil
	}
	return e
}

// Sites returns the sites of hosts by name.
func (s *State) Sites() map[string]string {
	out := map[string]string{}
	for _, h := range s.Hosts {
		out[h.Name] = h.Origin
	}
	return out
}

// Origins returns the sites of rooms and hosts.
func Origins(doc room.Document) map[string]bool {
	out := map[string]bool{}
	for _, r := range doc.Rooms {
		out[r.Origin] = true
	}
	for _, h := range doc.Hosts {
		out[h.Origin] = true
	}
	return out
}

// Added returns the sites that doc has and s, which may be nil, has not.
func (s *State) Added(doc room.Document) map[string]bool {
	out := Origins(doc)
	if s != nil {
		for o := range Origins(s.Document()) {
			delete(out, o)
		}
	}
	return out
}

// HostChanges returns the sorted names of the hosts with different sites.
func HostChanges(before, after map[string]string) []string {
	all := maps.Clone(before)
	maps.Copy(all, after)
	maps.DeleteFunc(all, func(name, _ string) bool { return before[name] == after[name] })
	return slices.Sorted(maps.Keys(all))
}

// Unserved returns the sorted names of the hosts that before serves and after does not.
func Unserved(before, after *State) []string {
	was, is := before.Document().PassThrough(), after.Document().PassThrough()
	maps.DeleteFunc(was, func(name, _ string) bool { return is[name] != "" })
	return slices.Sorted(maps.Keys(was))
}

// Detach makes the store the authority. The rooms do not change.
func (d *Draft) Detach() { d.fromFile = false }

// AddPage adds a custom waiting page, stored before the rooms that name it, and returns its name in rooms. Errors
// about it contain the label.
func (d *Draft) AddPage(label string, content []byte) (name string) {
	name = roomdoc.Hash(content)
	d.pages[name] = page{label, compress.Gzip(content)}
	return name
}

// Apply returns the draft's changes of its base, with this version and the time in Unix milliseconds: the base itself
// if nothing changed. It returns all faults of the rooms together, as [room.Faults].
func (d *Draft) Apply(now int64, version uint64) (*State, error) {
	d.keepSites()
	next := &State{Version: version, changes: d.base.changes, FromFile: d.fromFile && len(d.rooms)+len(d.hosts) > 0}
	// A mark without a revision is new in this draft.
	stamp := func(m Mark) Mark {
		if m.Changed, m.Revision = now, version; m.Created == 0 {
			m.Created = now
		}
		return m
	}
	changed := d.set && d.base.Version == 0 || next.FromFile != d.base.FromFile || len(d.rooms) != len(d.base.Rooms) ||
		len(d.hosts) != len(d.base.Hosts)
	for _, r := range d.rooms {
		if r.Revision == 0 {
			changed = true
			r = &Room{stamp(r.Mark), r.Settings}
		}
		next.Rooms = append(next.Rooms, r)
	}
	for _, h := range d.hosts {
		if h.Revision == 0 {
			changed = true
			h = &Host{stamp(h.Mark), h.Host}
		}
		next.Hosts = append(next.Hosts, h)
	}
	if !changed {
		return d.base, nil
	}
	doc := next.Document()
	if err := doc.ValidateAs(d.labels()).Err(); err != nil {
		return nil, err
	}
	next.sort()
	return next, nil
}

// labels names rooms and hosts in faults: those of a file by their place in it.
func (d *Draft) labels() room.Labels {
	label := func(one, list string, others int) func(int) string {
		return func(i int) string {
			if i < others {
				return one
			}
			return fmt.Sprintf("%s[%d]", list, i-others)
		}
	}
	return room.Labels{
		Room: label("room", "rooms", len(d.rooms)-d.listedRooms), Host: label("host", "hosts", len(d.hosts)-d.listedHosts),
	}
}
