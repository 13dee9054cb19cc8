package roomstore

import (
	"cmp"
	"maps"
	"slices"

	"vestibule/internal/core/room"
)

// Owner is who writes a room or a host. The set is closed.
type Owner string

// The owners.
const (
	File Owner = "file" // the rooms file of the leading global
	API  Owner = "api"  // the API, at any candidate for global
)

func (o Owner) valid() bool { return o == File || o == API }

// who names an owner in a fault, behind "a room".
func (o Owner) who() string {
	if o == File {
		return "of the rooms file"
	}
	return "of the API"
}

// Mark is what the store knows of a room or a host beside what the operator wrote.
type Mark struct {
	Owner    Owner
	Created  int64  // Unix milliseconds
	Changed  int64  // Unix milliseconds
	Revision uint64 // version of the first state that has it as it is now
}

// Room is a room with its owner. It must not be modified.
type Room struct {
	Mark
	room.Settings // defaults filled in
}

// Host is the entry of a host with its owner. It must not be modified.
type Host struct {
	Mark
	room.Host
}

// State is all rooms and hosts of a fleet at one version. Versions grow with every change and
// are never below the date in Unix milliseconds. A state is not modified; states share what
// they have in common.
type State struct {
	Version uint64
	Rooms   []*Room // by name
	Hosts   []*Host // by name

	changes  []string  // ids of the last changes, the newest last
	outbox   []waiting // entries that may not be in the audit stream yet, the oldest first
	parts    []*part   // what it is stored as, nil where it was not
	sections bool      // the parts are sections, and not inside the owned document
}

// Document returns the rooms and hosts as every node follows them: without owners.
func (s *State) Document() room.Document {
	return document(s.Rooms, s.Hosts)
}

func document(rooms []*Room, hosts []*Host) room.Document {
	var d room.Document
	for _, r := range rooms {
		d.Rooms = append(d.Rooms, r.Settings)
	}
	for _, h := range hosts {
		d.Hosts = append(d.Hosts, h.Host)
	}
	return d
}

// Room returns the room called name, nil for none.
func (s *State) Room(name string) *Room {
	i, ok := slices.BinarySearchFunc(s.Rooms, name, func(r *Room, name string) int { return cmp.Compare(r.Name, name) })
	if !ok {
		return nil
	}
	return s.Rooms[i]
}

// imported returns the state of a document that has no owners: everything in it came from a
// rooms file.
func imported(d room.Document, version uint64) *State {
	s := &State{Version: version}
	m := Mark{Owner: File, Created: int64(version), Changed: int64(version), Revision: version}
	d = d.WithDefaults()
	for _, r := range d.Rooms {
		s.Rooms = append(s.Rooms, &Room{m, r})
	}
	for _, h := range d.Hosts {
		s.Hosts = append(s.Hosts, &Host{m, h})
	}
	s.sort()
	return s
}

func (s *State) sort() {
	slices.SortStableFunc(s.Rooms, func(a, b *Room) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(s.Hosts, func(a, b *Host) int { return cmp.Compare(a.Name, b.Name) })
}

// Change is one difference between two states.
type Change struct {
	Name          string
	Before, After *Room // nil where the room is not there
}

// Diff returns which rooms differ, by name. Rooms that are written anew as they were do not.
func Diff(before, after *State) []Change {
	names := map[string]Change{}
	for _, r := range before.Rooms {
		names[r.Name] = Change{Name: r.Name, Before: r}
	}
	for _, r := range after.Rooms {
		c := names[r.Name]
		if c.Name, c.After = r.Name, r; c.Before != nil && (c.Before == r || (c.Before.Owner == r.Owner && c.Before.Equal(r.Settings))) {
			delete(names, r.Name)
			continue
		}
		names[r.Name] = c
	}
	return slices.SortedFunc(maps.Values(names), func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
}
