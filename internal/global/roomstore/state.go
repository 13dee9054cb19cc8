package roomstore

import (
	"cmp"
	"slices"

	"vestibule/internal/core/room"
)

// Mark is the store's metadata of a room or a host.
type Mark struct {
	Created  int64  `json:"created"`  // Unix milliseconds
	Changed  int64  `json:"changed"`  // Unix milliseconds
	Revision uint64 `json:"revision"` // version of the first state with the current settings
}

// Room is a room in the store. It must not be modified.
type Room struct {
	Mark
	room.Settings // defaults filled in
}

// Host is the entry of a host. It must not be modified.
type Host struct {
	Mark
	room.Host
}

// State is all rooms and hosts of a fleet at one version. Versions grow with every change and are never below the date
// in Unix milliseconds. A state is immutable; states share their common parts.
type State struct {
	Version uint64
	Rooms   []*Room // by name
	Hosts   []*Host // by name

	// FromFile reports whether the rooms file of the leading global is the authority: nothing else changes rooms. It
	// is false without rooms and hosts.
	FromFile bool

	changes  []string  // ids of the last changes, the newest last
	outbox   []waiting // entries that may be missing in the audit stream, the oldest first
	parts    []*part   // stored form, nil if not stored
	sections bool      // the parts are sections, not inside the owned document
}

// Document returns the rooms and hosts as nodes read them.
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

// empty reports whether there are neither rooms nor hosts.
func (s *State) empty() bool { return len(s.Rooms)+len(s.Hosts) == 0 }

// imported returns the state of a rooms document alone. A rooms file is not the authority until it has the same
// content.
func imported(d room.Document, version uint64) *State {
	s := &State{Version: version}
	m := Mark{Created: int64(version), Changed: int64(version), Revision: version}
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
	Before, After *Room // nil for a missing room
}
