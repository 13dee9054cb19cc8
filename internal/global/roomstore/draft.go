package roomstore

import (
	"errors"
	"fmt"
	"slices"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
)

// Draft is a change that one owner makes to a state. It holds that owner's rooms and hosts
// and changes no others. It may be made several times, where others write meanwhile.
type Draft struct {
	base   *State
	by     Owner
	rooms  []*Room // of the owner, in the order in which they were written
	hosts  []*Host
	taken  bool // what was another's is the owner's
	set    bool // everything was written anew
	pages  map[string]page
	byName map[string]int // into rooms, nil before it is needed
}

type page struct {
	label   string // for errors
	content []byte
}

// NewDraft returns a draft that changes nothing yet.
func NewDraft(base *State, by Owner) *Draft {
	d := &Draft{base: base, by: by, pages: map[string]page{}}
	for _, r := range base.Rooms {
		if r.Owner == by {
			d.rooms = append(d.rooms, r)
		}
	}
	for _, h := range base.Hosts {
		if h.Owner == by {
			d.hosts = append(d.hosts, h)
		}
	}
	return d
}

// Base returns the state that the draft changes.
func (d *Draft) Base() *State { return d.base }

// ErrNotThere says that the writer owns no room or host of that name.
var ErrNotThere = errors.New("no such room")

// OwnedError says that a room or a host belongs to somebody else.
type OwnedError struct {
	Name  string
	Owner Owner
}

func (e *OwnedError) Error() string {
	if e.Owner == File {
		return fmt.Sprintf("%q stands in the rooms file: change it there", e.Name)
	}
	return fmt.Sprintf("%q was made by the API: change it there", e.Name)
}

// Room returns a room as the draft has it, of any owner; nil for none.
func (d *Draft) Room(name string) *Room {
	if i, ok := d.find(name); ok {
		return d.rooms[i]
	}
	if r := d.base.Room(name); r != nil && r.Owner != d.by && !d.taken {
		return r
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

// Put makes or replaces the owner's room of that name. Whether it may be is told when the
// change is made, together with everything else that is wrong. It returns an [*OwnedError]
// where the room is somebody else's.
func (d *Draft) Put(s room.Settings) error {
	if r := d.Room(s.Name); r != nil && r.Owner != d.by {
		return &OwnedError{s.Name, r.Owner}
	}
	i, ok := d.find(s.Name)
	switch {
	case !ok:
		d.byName[s.Name] = len(d.rooms)
		d.rooms = append(d.rooms, &Room{Mark{Owner: d.by}, s.WithDefaults()})
	case !d.rooms[i].Equal(s):
		d.rooms[i] = &Room{Mark{Owner: d.by, Created: d.rooms[i].Created}, s.WithDefaults()}
	}
	return nil
}

// Replace makes the owner's room of that name what s says, also where s has another name:
// it stays the same room. It returns [ErrNotThere] or an [*OwnedError].
func (d *Draft) Replace(name string, s room.Settings) error {
	i, ok := d.find(name)
	if !ok {
		return d.notOurs(name)
	}
	if r := d.rooms[i]; !r.Equal(s) {
		if s = s.WithDefaults(); s.Name != name && s.Known() != r.Known() {
			s.Identity = r.Known()
		}
		d.rooms[i] = &Room{Mark{Owner: d.by, Created: r.Created}, s.WithDefaults()}
		d.byName = nil
	}
	return nil
}

// notOurs says why the writer may not change a room.
func (d *Draft) notOurs(name string) error {
	if r := d.Room(name); r != nil {
		return &OwnedError{name, r.Owner}
	}
	return fmt.Errorf("%q: %w", name, ErrNotThere)
}

// Delete removes the owner's room of that name. It returns [ErrNotThere] or an [*OwnedError].
func (d *Draft) Delete(name string) error {
	i, ok := d.find(name)
	if !ok {
		return d.notOurs(name)
	}
	d.rooms = slices.Delete(d.rooms, i, i+1)
	d.byName = nil
	return nil
}

// Set makes doc all that the owner has.
func (d *Draft) Set(doc room.Document) {
	doc = doc.WithDefaults()
	had := d.rooms
	d.set, d.byName = true, nil
	before := make(map[string]*Room, len(had))
	for _, r := range had {
		before[r.Name] = r
	}
	d.rooms = nil
	for _, s := range doc.Rooms {
		r := &Room{Mark{Owner: d.by}, s}
		if old := before[s.Name]; old != nil {
			if r.Created = old.Created; old.Equal(s) {
				r = old
			}
			delete(before, s.Name) // a second one of that name is a fault, not the same room
		}
		d.rooms = append(d.rooms, r)
	}
	hosts := make(map[string]*Host, len(d.hosts))
	for _, h := range d.hosts {
		hosts[h.Name] = h
	}
	d.hosts = nil
	for _, h := range doc.Hosts {
		n := &Host{Mark{Owner: d.by}, h}
		if old := hosts[h.Name]; old != nil {
			if n.Created = old.Created; old.Host == h {
				n = old
			}
			delete(hosts, h.Name)
		}
		d.hosts = append(d.hosts, n)
	}
}

// SetHosts makes hosts all entries that the owner has.
func (d *Draft) SetHosts(hosts []room.Host) {
	rooms, named := d.rooms, d.byName
	d.Set(room.Document{Hosts: hosts})
	d.rooms, d.byName = rooms, named
}

// TakeOver makes everything the owner's that was not. An operator who takes the rooms file
// away says so; otherwise its rooms stay as they were, and nobody may change them.
func (d *Draft) TakeOver() {
	if d.taken {
		return
	}
	d.taken = true
	for _, r := range d.base.Rooms {
		if r.Owner != d.by {
			d.rooms = append(d.rooms, &Room{Mark{Owner: d.by, Created: r.Created}, r.Settings})
		}
	}
	for _, h := range d.base.Hosts {
		if h.Owner != d.by {
			d.hosts = append(d.hosts, &Host{Mark{Owner: d.by, Created: h.Created}, h.Host})
		}
	}
	d.byName = nil
}

// AddPage brings in a custom waiting page, stored before the rooms that name it, and returns
// the name that rooms give it. The label stands in errors about it.
func (d *Draft) AddPage(label string, content []byte) (name string) {
	name = roomdoc.Hash(content)
	d.pages[name] = page{label, roomdoc.Compress(content)}
	return name
}

// Apply returns what the draft makes of its base, with this version and the time in Unix
// milliseconds: the base itself where nothing changed. Everything that is wrong with the rooms
// of all owners together is told at once, as [room.Faults]; what is wrong between two of them
// is told at the writer's, and names both.
func (d *Draft) Apply(now int64, version uint64) (*State, error) {
	next := &State{Version: version, changes: d.base.changes}
	if !d.taken {
		for _, r := range d.base.Rooms {
			if r.Owner != d.by {
				next.Rooms = append(next.Rooms, r)
			}
		}
		for _, h := range d.base.Hosts {
			if h.Owner != d.by {
				next.Hosts = append(next.Hosts, h)
			}
		}
	}
	others, otherHosts := slices.Clip(next.Rooms), slices.Clip(next.Hosts)
	// What has no revision is new: the draft made it.
	stamp := func(m Mark) Mark {
		if m.Changed, m.Revision = now, version; m.Created == 0 {
			m.Created = now
		}
		return m
	}
	changed := d.set && d.base.Version == 0 || len(others)+len(d.rooms) != len(d.base.Rooms) || len(otherHosts)+len(d.hosts) != len(d.base.Hosts)
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
	if err := doc.ValidateAs(d.labels(others, otherHosts)).Err(); err != nil {
		return nil, err
	}
	next.sort()
	return next, nil
}

// labels names rooms and hosts for faults: those of the file by where they stand in it.
func (d *Draft) labels(rooms []*Room, hosts []*Host) room.Labels {
	return room.Labels{
		Room: func(i int) string {
			switch {
			case i < len(rooms):
				return "a room " + rooms[i].Owner.who()
			case d.by == File:
				return fmt.Sprintf("rooms[%d]", i-len(rooms))
			}
			return "room"
		},
		Host: func(i int) string {
			switch {
			case i < len(hosts):
				return "an entry " + hosts[i].Owner.who()
			case d.by == File:
				return fmt.Sprintf("hosts[%d]", i-len(hosts))
			}
			return "host"
		},
	}
}
