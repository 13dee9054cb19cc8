package roomstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/wire"
)

// view is the part of the store that was read.
type view struct {
	state    *State          // the newer of the stored and the known state; never nil
	stored   bool            // the store holds exactly that state
	revision uint64          // of the owned document
	present  map[string]bool // content hashes of the parts in the stored state

	rooms    *roomdoc.Head // the rooms document; nil if unreadable or not read
	version  uint64        // of it, 0 if unreadable
	roomsRev uint64        // revision of it

	fresh bool // read from the store just now
}

// says reports whether the rooms document in the view equals that of a state.
func (v *view) says(s *State) bool {
	h := v.rooms
	if h == nil {
		return false
	}
	if len(h.Sections) > 0 {
		return slices.EqualFunc(s.parts, h.Sections, func(p *part, hash string) bool { return p.hash == hash })
	}
	d, err := room.DecodeDocument(h.Document)
	if err != nil {
		return false
	}
	have := imported(d, 1)
	return slices.EqualFunc(s.Rooms, have.Rooms, func(a, b *Room) bool { return a.Equal(b.Settings) }) &&
		slices.EqualFunc(s.Hosts, have.Hosts, func(a, b *Host) bool { return a.Host == b.Host })
}

// present returns the content hashes of the sections of a stored state.
func (s *State) present() map[string]bool {
	out := map[string]bool{}
	if s.sections {
		for _, p := range s.parts {
			out[p.hash] = true
		}
	}
	return out
}

// partStore reads and writes the documents of a state but for the owned one. It is safe for concurrent use.
type partStore struct {
	docs wire.DocumentStore
	log  *slog.Logger

	mu     sync.Mutex
	partly map[string][]byte // sections read although others were not available
}

// readRooms fills in the rooms document.
func (ps *partStore) readRooms(ctx context.Context, v *view) error {
	data, revision, err := ps.docs.Get(ctx, roomdoc.RoomsDocument)
	if err != nil {
		return err
	}
	v.rooms, v.version, v.roomsRev = nil, 0, revision
	if data == nil {
		return nil
	}
	h, err := roomdoc.DecodeHead(data)
	if err != nil {
		ps.log.Error("the store holds no rooms that can be read; they are replaced", slog.Any("error", err))
		return nil
	}
	v.rooms, v.version = &h, h.Version
	return nil
}

// load returns the contents of the store, from memory if no other writer is known.
func (s *Store) load(ctx context.Context, fresh bool) (*view, error) {
	s.mu.Lock()
	known, last := s.known, s.last
	s.mu.Unlock()
	if last != nil && !fresh {
		v := *last
		return &v, nil
	}
	data, revision, err := s.Docs.Get(ctx, OwnedDocument)
	if err != nil {
		return nil, err
	}
	v := &view{revision: revision, fresh: true}
	if err := s.parts.readRooms(ctx, v); err != nil {
		return nil, err
	}
	if data != nil {
		o, err := decodeOwned(data)
		if err == nil {
			v.state, err = s.parts.assemble(ctx, &o, known)
		}
		_, newer := errors.AsType[*NewerError](err)
		switch {
		case err == nil:
			v.stored, v.present = true, v.state.present()
		case known == nil, newer, o.Version > known.Version:
			// It may only be late, so it is never overwritten.
			return nil, err
		default:
			s.Log.Error("the store holds no rooms.owned that can be read; they are replaced", slog.Any("error", err))
		}
	}
	if known != nil && (v.state == nil || v.state.Version < known.Version) {
		v.state, v.stored = known, false // rolled back, or a stale answer: then a write over it fails
	}
	if v.state == nil {
		if v.state, err = s.found(ctx, v.rooms); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// Read returns the newest state that the store holds or this candidate knows, including other candidates' changes.
func (s *Store) Read(ctx context.Context) (*State, error) {
	v, err := s.load(ctx, true)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = s.now()
	return v.state, nil
}

// errLate means that the store lacks a section that a document names. The section may still arrive.
var errLate = errors.New("not in the store yet")

// assemble returns the state of an owned document, from the parts of the known state and those in the store.
func (ps *partStore) assemble(ctx context.Context, o *owned, known *State) (*State, error) {
	had := map[string]*part{}
	if known != nil && known.parts != nil {
		if known.Version == o.Version && slices.Equal(known.changes, o.Changes) {
			return known, nil
		}
		for _, p := range known.parts {
			had[p.hash] = p
		}
	}
	got, err := ps.readSections(ctx,
		slices.DeleteFunc(slices.Clone(o.Sections), func(hash string) bool { return had[hash] != nil }))
	if err != nil {
		return nil, fmt.Errorf("rooms.owned: %w", err)
	}
	state, err := o.assemble(func(hash string, most int) (*part, error) {
		if p := had[hash]; p != nil {
			return p, nil
		}
		return decodePart(hash, got[hash], most)
	})
	if err == nil {
		ps.mu.Lock()
		ps.partly = nil
		ps.mu.Unlock()
	}
	return state, err
}

// readSections reads sections, a few at a time. After a partial failure it keeps the result for the next try.
func (ps *partStore) readSections(ctx context.Context, hashes []string) (map[string][]byte, error) {
	ps.mu.Lock()
	got := maps.Clone(ps.partly)
	ps.mu.Unlock()
	if got == nil {
		got = map[string][]byte{}
	}
	missing := slices.DeleteFunc(slices.Clone(hashes), func(hash string) bool { return got[hash] != nil })
	var g errgroup.Group
	g.SetLimit(8)
	var mu sync.Mutex
	for _, hash := range missing {
		g.Go(func() error {
			data, _, err := ps.docs.Get(ctx, roomdoc.SectionDocument(hash))
			if err == nil && data == nil {
				err = errLate
			}
			if err != nil {
				return fmt.Errorf("section %s: %w", hash, err)
			}
			mu.Lock()
			defer mu.Unlock()
			got[hash] = data
			return nil
		})
	}
	err := g.Wait()
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.partly = nil; err != nil {
		maps.DeleteFunc(got, func(hash string, _ []byte) bool { return !slices.Contains(hashes, hash) })
		ps.partly = got
	}
	return got, err
}

// found returns the state for a store without a state document: that of a new fleet, or a lost one. h is its rooms
// document, nil if missing or unreadable.
func (s *Store) found(ctx context.Context, h *roomdoc.Head) (state *State, err error) {
	if h == nil {
		return &State{}, nil
	}
	if len(h.Sections) > 0 { // they contain the marks
		state, err = s.parts.assemble(ctx, &owned{Format: format, Version: h.Version, Sections: h.Sections}, nil)
	} else {
		var d room.Document
		if d, err = room.DecodeDocument(h.Document); err == nil {
			state = imported(d, h.Version)
		} else if errors.Is(err, room.ErrUnknownField) {
			return nil, &NewerError{err}
		}
	}
	_, newer := errors.AsType[*NewerError](err)
	switch {
	case err == nil:
		return state, nil
	case newer || ctx.Err() != nil || errors.Is(err, errLate):
		return nil, err
	}
	s.Log.Error("the store holds no rooms that can be read; they are replaced", slog.Any("error", err))
	return &State{}, nil
}
