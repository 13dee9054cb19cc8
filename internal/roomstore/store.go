package roomstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/room"
	"vestibule/internal/wire"
)

// Documents is where the state is kept. Its methods are safe for concurrent use.
type Documents interface {
	// Get returns a document and its revision, (nil, 0) if there is none. What it returns may
	// be stale.
	Get(ctx context.Context, key string) ([]byte, uint64, error)

	// Put writes a document that was at revision when it was read, 0 for one that did not
	// exist. It returns wire.ErrChanged if it no longer is; any other error leaves open
	// whether it was written.
	Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error)

	// Limit returns how many bytes a document may have.
	Limit() int

	// List returns the documents that match a pattern ("page.*").
	List(ctx context.Context, pattern string) (map[string]wire.Written, error)

	// Delete removes a document that is still at revision, and returns wire.ErrChanged if it
	// is not.
	Delete(ctx context.Context, key string, revision uint64) error
}

// Options are what a store is made of.
type Options struct {
	Docs Documents
	Copy string // file for the last good copy, "" for none
	Log  *slog.Logger

	// Floor returns the newest version of the rooms that any node is known to have: what is
	// written is above it.
	Floor func() uint64

	// Keep replaces the file of the copy in one step.
	Keep func(file string, data []byte) error
}

// Store is the rooms of a fleet with their owners, at one candidate for global. Any number of
// candidates may write: a change is compare-and-set on the whole state. Its methods are
// safe for concurrent use.
//
// Locks: turn is held through a change, by one writer of this process at a time; mu guards
// what is remembered and is never held across a call.
type Store struct {
	Options
	now   func() time.Time
	pause func(context.Context, time.Duration) // waits so long, or until the context ends
	turn  chan struct{}
	offer chan []byte   // the newest owned document that a watch told, not looked at yet
	kept  chan struct{} // known was replaced

	mu    sync.Mutex
	known *State // the newest that was seen, nil for none
	last  *view  // what this process wrote last, while nobody else is known to have written
	alarm string // why what the store holds is not used

	partly map[string][]byte // sections that were read when others could not be
}

// New returns a store that remembers what is on disk.
func New(o Options) *Store {
	s := &Store{Options: o, now: time.Now, pause: pause, turn: make(chan struct{}, 1), offer: make(chan []byte, 1), kept: make(chan struct{}, 1)}
	if o.Copy == "" {
		return s
	}
	data, err := os.ReadFile(o.Copy)
	if errors.Is(err, os.ErrNotExist) {
		return s
	}
	if err == nil {
		s.known, err = decodeCopy(data)
	}
	if err != nil {
		s.Log.Error("last good copy cannot be used", slog.String("document", OwnedDocument), slog.Any("error", err))
	}
	return s
}

// Known returns the newest state that this candidate has seen, nil for none.
func (s *Store) Known() *State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known
}

// Alarm returns why the store's rooms.owned are not used, "" where they are.
func (s *Store) Alarm() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alarm
}

// view is what the store holds, as far as it was read.
type view struct {
	state    *State          // the newest of what is stored and what is known; never nil
	stored   bool            // the store holds exactly that
	revision uint64          // of the owned document
	present  map[string]bool // content hashes of the parts that the stored one names

	rooms    []byte // the rooms document; nil for none, or where it is known without reading
	version  uint64 // of it, 0 where it cannot be read
	roomsRev uint64 // revision of it

	fresh bool // read from the store just now
}

// ErrUnknown says that it is not known whether a change was made.
var ErrUnknown = errors.New("whether the change was made is not known")

// errConflict says that somebody else wrote first.
var errConflict = errors.New("somebody else wrote first")

// changeWithin bounds one change with all its tries.
const changeWithin = 15 * time.Second

// Change makes one change of what an owner has. edit is called with what there is, and again
// where somebody else wrote meanwhile; it must do the same each time and must not keep the
// draft. An error of edit, [room.Faults] and [*TooLargeError] mean that nothing was
// changed, [ErrUnknown] says that this is not known; nil says that the change is durable, and every node
// is told of it or will be within seconds.
func (s *Store) Change(ctx context.Context, by Owner, edit func(*Draft) error) (*State, error) {
	return s.change(ctx, by, edit, nil)
}

// Publish is Change for the leader, who answers for the store: what it lost is given back,
// a rooms document that says something else than the state is replaced, and parts that nothing
// names any more are deleted. doubted says that this node refuses what the store holds.
func (s *Store) Publish(ctx context.Context, by Owner, doubted bool, edit func(*Draft) error) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, changeWithin)
	defer cancel()
	parts, err := s.Docs.List(ctx, "*.*")
	if err != nil {
		return nil, err
	}
	state, err := s.change(ctx, by, edit, &stock{parts: parts, doubted: doubted})
	if err != nil {
		return nil, err
	}
	return state, s.tidy(ctx, parts)
}

// stock is what the leader knows of the parts in the store.
type stock struct {
	parts   map[string]wire.Written
	doubted bool
}

func (s *Store) change(ctx context.Context, by Owner, edit func(*Draft) error, have *stock) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, changeWithin)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	id, fresh := rand.Text()[:16], have != nil
	var unsure *State // over which it was tried without an answer whether it was written
	seen := uint64(0) // the newest version that was read
	for try := 0; ; try++ {
		v, err := s.look(ctx, fresh)
		if err == nil && v.state.Version < seen {
			err = errConflict // a stale answer
		}
		if err == nil {
			seen = v.state.Version
			switch {
			case unsure != nil && slices.Contains(v.state.changes, id):
				return v.state, nil // it was written, though nobody said so
			case unsure != nil && !unsure.precedes(v.state):
				return nil, ErrUnknown
			}
			var next *State
			if next, err = s.attempt(ctx, v, id, by, edit, have); err == nil {
				return next, nil
			}
		}
		refused, _ := errors.AsType[*refusal](err)
		_, newer := errors.AsType[*NewerError](err)
		switch {
		case refused != nil && v.fresh && unsure != nil: // it may have been refused for what it did itself
			return nil, fmt.Errorf("%w: %w", ErrUnknown, refused.err)
		case refused != nil && v.fresh:
			return nil, refused.err
		case refused != nil, errors.Is(err, errConflict): // others wrote, or what was remembered may be old
		case newer, have != nil: // the leader tries again anyway
			return nil, err
		default:
			if errors.Is(err, ErrUnknown) && unsure == nil {
				unsure = v.state
			}
			s.Log.Debug("change not made yet", slog.Any("error", err))
		}
		fresh = true
		s.forget()
		if s.pause(ctx, time.Duration(try)*mathrand.N(5*time.Millisecond)); ctx.Err() != nil {
			if unsure != nil && !errors.Is(err, ErrUnknown) {
				err = fmt.Errorf("%w: %w", ErrUnknown, err)
			}
			return nil, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// precedes reports whether everything that was changed since s is among the changes that
// next remembers.
func (s *State) precedes(next *State) bool {
	if len(s.changes) == 0 {
		return len(next.changes) < maxChanges
	}
	return slices.Contains(next.changes, s.changes[len(s.changes)-1])
}

// answerWithin bounds how long the store may take over one document, so that there is time to
// find out what became of a change.
const answerWithin = 3 * time.Second

func (s *Store) get(ctx context.Context, key string) ([]byte, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return s.Docs.Get(ctx, key)
}

func (s *Store) put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return s.Docs.Put(ctx, key, data, revision)
}

// refusal is what makes a change impossible, whatever happens.
type refusal struct{ err error }

func (e *refusal) Error() string { return e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }

// forget makes the next change read the store.
func (s *Store) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = nil
}

// attempt makes the change over what was seen.
func (s *Store) attempt(ctx context.Context, v *view, id string, by Owner, edit func(*Draft) error, have *stock) (*State, error) {
	doubted := have != nil && have.doubted
	now, floor, limit := s.now().UnixMilli(), s.Floor(), s.Docs.Limit()
	above := max(v.state.Version, v.version, floor, uint64(max(0, now-1)))
	d := NewDraft(v.state, by)
	if err := edit(d); err != nil {
		return nil, &refusal{err}
	}
	next, err := d.Apply(now, above+1)
	if err != nil {
		return nil, &refusal{err}
	}
	if next.Version == 0 {
		return next, nil // nobody has written anything yet
	}
	stands := next == v.state && v.stored && !doubted // what is stored need not be written
	if stands && have != nil {
		// Where nodes know more, or the rooms document says something else in this version or
		// a newer one, nobody would take this version.
		same := v.says(next)
		if same && v.version >= max(next.Version, floor) {
			return next, s.restore(ctx, next, d, have)
		}
		stands = v.version < next.Version && floor <= next.Version
	}
	if !stands {
		changes := append(slices.Clone(v.state.changes), id)
		next = &State{Version: above + 1, Rooms: next.Rooms, Hosts: next.Hosts, changes: changes[max(0, len(changes)-maxChanges):]}
	}
	reuse := v.state.parts
	if doubted {
		reuse = nil
	}
	p, err := pack(next, limit, reuse)
	if err != nil {
		return nil, &refusal{err}
	}
	if err := s.putParts(ctx, v, p, d, limit, have); err != nil {
		return nil, err
	}
	after := &view{state: next, stored: true, revision: v.revision, present: v.present, version: v.version, roomsRev: v.roomsRev}
	if !stands {
		next.parts, next.sections = p.parts, !p.whole
		switch after.revision, err = s.put(ctx, OwnedDocument, p.owned, v.revision); {
		case errors.Is(err, wire.ErrChanged):
			return nil, errConflict
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		after.present = next.present()
	}
	// From here on the change is made: what fails now is made good by the leader.
	err = s.tell(ctx, after, p.rooms)
	s.learn(next, after, err == nil)
	if err != nil {
		s.Log.Warn("rooms are changed, and nodes are not told yet", slog.Uint64("version", next.Version), slog.Any("error", err))
		if have != nil {
			return nil, err
		}
	}
	return next, nil
}

// putParts writes what p and the draft need and the store may not have.
func (s *Store) putParts(ctx context.Context, v *view, p *packed, d *Draft, limit int, have *stock) error {
	for name, page := range d.pages {
		if len(page.content) > limit {
			return &refusal{&TooLargeError{page.label, len(page.content), limit}}
		}
		if err := s.putPart(ctx, PageDocument(name), page.content, have); err != nil {
			return err
		}
	}
	if p.whole {
		return nil
	}
	for _, part := range p.parts {
		listed := have
		if !v.present[part.hash] {
			listed = nil // what the stored state does not name may be deleted at any moment
		} else if have == nil {
			continue
		}
		if err := s.putPart(ctx, SectionDocument(part.hash), part.data, listed); err != nil {
			return err
		}
	}
	return nil
}

// present returns the content hashes of the sections of a state as it is stored.
func (s *State) present() map[string]bool {
	out := map[string]bool{}
	if s.sections {
		for _, p := range s.parts {
			out[p.hash] = true
		}
	}
	return out
}

// restore writes what a state consists of and the store lost.
func (s *Store) restore(ctx context.Context, state *State, d *Draft, have *stock) error {
	for name, page := range d.pages {
		if err := s.putPart(ctx, PageDocument(name), page.content, have); err != nil {
			return err
		}
	}
	if !state.sections {
		return nil
	}
	for _, p := range state.parts {
		if err := s.putPart(ctx, SectionDocument(p.hash), p.data, have); err != nil {
			return err
		}
	}
	return nil
}

// says reports whether the rooms document that was read says what a state does.
func (v *view) says(s *State) bool {
	h, err := DecodeHead(v.rooms)
	if err != nil {
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

// putPart writes what is named by its content, unless the leader's list has it. What is there
// already is written again, so that it is not deleted as something that nothing names.
func (s *Store) putPart(ctx context.Context, key string, data []byte, have *stock) error {
	if have != nil && !have.doubted {
		if _, there := have.parts[key]; there {
			return nil
		}
	}
	_, err := s.put(ctx, key, data, 0)
	for range 3 {
		if !errors.Is(err, wire.ErrChanged) {
			return err
		}
		_, revision, e := s.get(ctx, key)
		if e != nil {
			return e
		}
		_, err = s.put(ctx, key, data, revision)
	}
	if errors.Is(err, wire.ErrChanged) {
		return nil // others write the same again and again
	}
	return err
}

// tell writes the rooms document, unless the store has one of that version or a newer one. It
// fills in what the store holds then.
func (s *Store) tell(ctx context.Context, v *view, rooms []byte) error {
	for try := 0; ; try++ {
		if v.version >= v.state.Version && v.version != 0 {
			return nil // by a later change, which knew of this one
		}
		revision, err := s.put(ctx, RoomsDocument, rooms, v.roomsRev)
		if err == nil {
			v.version, v.roomsRev = v.state.Version, revision
			return nil
		}
		if !errors.Is(err, wire.ErrChanged) || try == 20 {
			return err
		}
		if err := s.readRooms(ctx, v); err != nil {
			return err
		}
		s.pause(ctx, time.Duration(try)*mathrand.N(time.Millisecond))
	}
}

// readRooms fills in what the store holds of the rooms document.
func (s *Store) readRooms(ctx context.Context, v *view) (err error) {
	if v.rooms, v.roomsRev, err = s.get(ctx, RoomsDocument); err != nil {
		return err
	}
	v.version = 0
	if v.rooms == nil {
		return nil
	}
	h, err := DecodeHead(v.rooms)
	if err != nil {
		s.Log.Error("the store holds no rooms that can be read; they are replaced", slog.Any("error", err))
		return nil
	}
	v.version = h.Version
	return nil
}

// look returns what the store holds, by memory where nobody else is known to have written.
func (s *Store) look(ctx context.Context, fresh bool) (*view, error) {
	s.mu.Lock()
	known, last := s.known, s.last
	s.mu.Unlock()
	if last != nil && !fresh {
		v := *last
		return &v, nil
	}
	data, revision, err := s.get(ctx, OwnedDocument)
	if err != nil {
		return nil, err
	}
	v := &view{revision: revision, fresh: true}
	if err := s.readRooms(ctx, v); err != nil {
		return nil, err
	}
	if data != nil {
		o, err := decodeOwned(data)
		if err == nil {
			v.state, err = s.assemble(ctx, &o, known)
		}
		_, newer := errors.AsType[*NewerError](err)
		switch {
		case err == nil:
			v.stored, v.present = true, v.state.present()
		case known == nil, newer, o.Version > known.Version:
			// Never written over: it may only be late.
			return nil, err
		default:
			s.Log.Error("the store holds no rooms.owned that can be read; they are replaced", slog.Any("error", err))
		}
	}
	if known != nil && (v.state == nil || v.state.Version < known.Version) {
		v.state, v.stored = known, false // it came back older, or the answer is stale: then nothing can be written over it
	}
	if v.state == nil {
		if v.state, err = s.found(ctx, v.rooms); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// errLate says that the store does not hold yet what a document names.
var errLate = errors.New("not in the store yet")

// assemble returns the state that an owned document holds, made of parts of the one that is
// known and of what the store has.
func (s *Store) assemble(ctx context.Context, o *owned, known *State) (*State, error) {
	had := map[string]*part{}
	if known != nil && known.parts != nil {
		if known.Version == o.Version && slices.Equal(known.changes, o.Changes) {
			return known, nil
		}
		for _, p := range known.parts {
			had[p.hash] = p
		}
	}
	got, err := s.sections(ctx, slices.DeleteFunc(slices.Clone(o.Sections), func(hash string) bool { return had[hash] != nil }))
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
		s.mu.Lock()
		s.partly = nil
		s.mu.Unlock()
	}
	return state, err
}

// sections reads sections, a few at a time. Those that it got stay for the next try where it did
// not get all.
func (s *Store) sections(ctx context.Context, hashes []string) (map[string][]byte, error) {
	s.mu.Lock()
	got := maps.Clone(s.partly)
	s.mu.Unlock()
	if got == nil {
		got = map[string][]byte{}
	}
	missing := slices.DeleteFunc(slices.Clone(hashes), func(hash string) bool { return got[hash] != nil })
	var g errgroup.Group
	g.SetLimit(8)
	var mu sync.Mutex
	for _, hash := range missing {
		g.Go(func() error {
			data, _, err := s.get(ctx, SectionDocument(hash))
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.partly = nil; err != nil {
		maps.DeleteFunc(got, func(hash string, _ []byte) bool { return !slices.Contains(hashes, hash) })
		s.partly = got
	}
	return got, err
}

// found returns the state of a store that has no owners: that of a fleet that begins, or was
// of release 0.1.0.
func (s *Store) found(ctx context.Context, rooms []byte) (*State, error) {
	h, err := DecodeHead(rooms)
	if rooms == nil || err != nil {
		return &State{}, nil //nolint:nilerror // readRooms has told of it
	}
	var state *State
	if len(h.Sections) > 0 { // they know the owners
		state, err = s.assemble(ctx, &owned{Format: format, Version: h.Version, Sections: h.Sections}, nil)
	} else {
		var d room.Document
		if d, err = room.DecodeDocument(h.Document); err == nil {
			state = imported(d, h.Version)
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

// learn notes a state that this process wrote, or that the store holds.
func (s *Store) learn(state *State, v *view, told bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarm = ""
	if s.last = nil; told {
		v.rooms, v.fresh = nil, false
		s.last = v
	}
	if s.known != nil && s.known.Version >= state.Version {
		return
	}
	s.known = state
	select {
	case s.kept <- struct{}{}:
	default:
	}
}

// Offer brings in the owned document that a watch told of, nil for one that is not there. It
// does not wait.
func (s *Store) Offer(data []byte) {
	if data == nil {
		return // what is known stays; the leader gives it back
	}
	for {
		select {
		case s.offer <- data:
			return
		case <-s.offer: // overtaken
		}
	}
}

// Run takes in what is offered and keeps the copy on disk, until ctx ends, whose error it
// returns.
func (s *Store) Run(ctx context.Context) error {
	var keep <-chan time.Time
	again := time.NewTicker(time.Second)
	defer again.Stop()
	var late []byte // it could not be read yet
	for {
		select {
		case <-ctx.Done():
			if keep != nil {
				s.keep()
			}
			return ctx.Err()
		case data := <-s.offer:
			late = s.take(ctx, data)
		case <-again.C:
			if late != nil {
				late = s.take(ctx, late)
			}
		case <-s.kept:
			if keep == nil {
				keep = time.After(keepEvery)
			}
		case <-keep:
			keep = nil
			s.keep()
		}
	}
}

// keepEvery is how often the copy on disk is written at most.
const keepEvery = 200 * time.Millisecond

// take looks at an owned document. It returns it where it cannot be read yet.
func (s *Store) take(ctx context.Context, data []byte) (late []byte) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	o, err := decodeOwned(data)
	var state *State
	if err == nil {
		state, err = s.assemble(ctx, &o, s.Known())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.alarm != err.Error() && ctx.Err() == nil {
			s.Log.Error("rooms.owned not read, the last good ones stay", slog.Any("error", err))
		}
		s.alarm = err.Error()
		return data
	}
	s.alarm = ""
	if s.known != nil && s.known.Version >= state.Version {
		return nil
	}
	s.known, s.last = state, nil
	select {
	case s.kept <- struct{}{}:
	default:
	}
	return nil
}

// keep writes the copy on disk.
func (s *Store) keep() {
	state := s.Known()
	if s.Copy == "" || state == nil {
		return
	}
	data, err := encodeCopy(state)
	if err == nil {
		err = s.Keep(s.Copy, data)
	}
	if err != nil {
		s.Log.Error("last good copy not written", slog.String("document", OwnedDocument), slog.Any("error", err))
	}
}

// unnamedFor is how old pages and sections are at least that are deleted because
// nothing names them: a node that is slow may still be reading them.
const unnamedFor = time.Hour

// tidy deletes what is named by its content and nothing names any more. A part that was
// written again since it was listed stays.
func (s *Store) tidy(ctx context.Context, parts map[string]wire.Written) error {
	old := maps.Clone(parts)
	maps.DeleteFunc(old, func(key string, w wire.Written) bool {
		return !byContent(key) || time.Since(w.At) <= unnamedFor
	})
	if len(old) == 0 {
		return nil
	}
	v, err := s.look(ctx, true) // after the list: who names a part from now on writes it first
	if err != nil {
		return err
	}
	if !v.stored {
		return nil
	}
	for _, p := range v.state.parts {
		delete(old, SectionDocument(p.hash))
	}
	for _, r := range v.state.Rooms {
		delete(old, PageDocument(r.WaitingPage))
	}
	if h, err := DecodeHead(v.rooms); err == nil {
		for _, hash := range h.Sections {
			delete(old, SectionDocument(hash))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(old)) {
		if err := s.Docs.Delete(ctx, key, old[key].Revision); err != nil && !errors.Is(err, wire.ErrChanged) {
			return err
		}
	}
	return nil
}
