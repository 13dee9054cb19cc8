package roomstore

import (
	"context"
	"errors"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/wire"
)

// putAll writes the parts of p and the pages of the draft that the store may lack.
func (ps *partStore) putAll(ctx context.Context, v *view, p *packed, d *Draft, limit int, have *stock) error {
	for name, page := range d.pages {
		if len(page.content) > limit {
			return &refusal{&TooLargeError{page.label, len(page.content), limit}}
		}
		if err := ps.put(ctx, roomdoc.PageDocument(name), page.content, have); err != nil {
			return err
		}
	}
	if p.whole {
		return nil
	}
	for _, part := range p.parts {
		listed := have
		if !v.present[part.hash] {
			listed = nil // a section outside of the stored state may be deleted at any moment
		} else if have == nil {
			continue
		}
		if err := ps.put(ctx, roomdoc.SectionDocument(part.hash), part.data, listed); err != nil {
			return err
		}
	}
	return nil
}

// put writes a value named by its content, unless the leader's list has it. An existing value is written again, so
// that it does not get deleted as unreferenced.
func (ps *partStore) put(ctx context.Context, key string, data []byte, have *stock) error {
	if have != nil && !have.doubted {
		if _, there := have.parts[key]; there {
			return nil
		}
	}
	_, err := ps.docs.Put(ctx, key, data, 0)
	for range 3 {
		if !errors.Is(err, wire.ErrChanged) {
			return err
		}
		_, revision, e := ps.docs.Get(ctx, key)
		if e != nil {
			return e
		}
		_, err = ps.docs.Put(ctx, key, data, revision)
	}
	if errors.Is(err, wire.ErrChanged) {
		return nil // concurrent writers of the same value
	}
	return err
}

// publishRooms writes the rooms document, unless the store has that version or a newer one. It updates the view.
func (s *Store) publishRooms(ctx context.Context, v *view, rooms []byte) error {
	for try := 0; ; try++ {
		if v.version >= v.state.Version && v.version != 0 {
			return nil // a later change, based on this one, has written it
		}
		revision, err := s.Docs.Put(ctx, roomdoc.RoomsDocument, rooms, v.roomsRev)
		if err == nil {
			v.version, v.roomsRev = v.state.Version, revision
			return nil
		}
		if !errors.Is(err, wire.ErrChanged) || try == 20 {
			return err
		}
		if err := s.parts.readRooms(ctx, v); err != nil {
			return err
		}
		s.pause(ctx, time.Duration(try)*mathrand.N(time.Millisecond))
	}
}

// spare removes from parts the sections and pages of the state.
func (s *State) spare(parts map[string]wire.Written) {
	for _, p := range s.parts {
		delete(parts, roomdoc.SectionDocument(p.hash))
	}
	for _, r := range s.Rooms {
		for page := range r.EachPage {
			delete(parts, roomdoc.PageDocument(page))
		}
	}
}

// unnamedFor is the minimum age of unreferenced sections before deletion: a slow node may still be reading them. Pages
// are kept for pageFor.
const unnamedFor = time.Hour

// tidy deletes unreferenced content. state was just published. A part rewritten since the listing stays.
func (s *Store) tidy(ctx context.Context, state *State, parts map[string]wire.Written) error {
	old := maps.Clone(parts)
	maps.DeleteFunc(old, func(key string, w wire.Written) bool {
		keep := unnamedFor
		if roomdoc.IsPage(key) {
			keep = pageFor
		}
		return !roomdoc.ByContent(key) || time.Since(w.At) <= keep
	})
	if state.spare(old); len(old) == 0 {
		return nil
	}
	v, err := s.load(ctx, true) // after the listing: a later reference to a part is preceded by a write of it
	if err != nil {
		return err
	}
	if !v.stored {
		return nil
	}
	v.state.spare(old)
	if v.rooms != nil {
		for _, hash := range v.rooms.Sections {
			delete(old, roomdoc.SectionDocument(hash))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if err := s.Docs.Delete(ctx, key, old[key].Revision); err != nil && !errors.Is(err, wire.ErrChanged) {
			return err
		}
	}
	return nil
}
