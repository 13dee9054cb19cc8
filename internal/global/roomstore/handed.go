package roomstore

import (
	"errors"
	"fmt"

	"vestibule/internal/core/room/roomdoc"
)

// ErrRestoring means that the store has lost rooms, or may have: the leading global asks the nodes for newer ones.
var ErrRestoring = errors.New("the nodes are asked for newer rooms than the store has: nothing was changed, repeat in half a minute")

// Adopt records a state that another candidate encoded, if it is newer than the known one. The leader's next
// [Store.Publish] restores it.
func (s *Store) Adopt(data []byte) error {
	state, err := decodeCopy(data)
	if err != nil {
		return err
	}
	if err := state.Document().Validate(); err != nil {
		return err
	}
	s.adopt(state)
	return nil
}

// AdoptRooms is Adopt for the plain rooms document that every node keeps. Rooms that do not differ keep their marks.
func (s *Store) AdoptRooms(data []byte) error {
	version, doc, err := roomdoc.DecodeRooms(data)
	if err != nil {
		return err
	}
	if version > maxVersion {
		return fmt.Errorf("version: must be at most 2^53")
	}
	base := s.Known()
	if base == nil {
		base = &State{}
	}
	d := NewDraft(base)
	d.Set(doc)
	next, err := d.Apply(int64(version), version)
	if err != nil {
		return err
	}
	next = &State{Version: version, Rooms: next.Rooms, Hosts: next.Hosts, FromFile: next.FromFile, changes: base.changes}
	s.adopt(next)
	return nil
}
