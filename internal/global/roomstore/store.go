package roomstore

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
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
	File string // rooms file of this candidate, "" for none
	Log  *slog.Logger

	// Journal is where each change has its entry, nil for nowhere. By says whose change it is.
	Journal *audit.Journal

	// Floor returns the newest version of the rooms that any node is known to have: what is
	// written is above it.
	Floor func() uint64

	// Keep replaces the file of the copy in one step.
	Keep func(file string, data []byte) error
}

// Store is the rooms of a fleet at one candidate for global. Any number of
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

	untold string // why the newest change is not in the audit stream yet

	partly map[string][]byte // sections that were read when others could not be
}

// New returns a store that remembers what is on disk.
func New(o Options) *Store {
	o.Docs = prompt{o.Docs}
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

// answerWithin bounds how long the store may take over one document, so that there is time to
// find out what became of a change.
const answerWithin = 3 * time.Second

// prompt are documents of a store that is waited for so long.
type prompt struct{ Documents }

// Get implements [Documents].
func (d prompt) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return d.Documents.Get(ctx, key)
}

// Put implements [Documents].
func (d prompt) Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return d.Documents.Put(ctx, key, data, revision)
}

// learn notes a state that this process wrote, or that the store holds.
func (s *Store) learn(state *State, v *view, told bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last = nil; told {
		v.rooms, v.fresh = nil, false
		s.last = v
	}
	s.know(state)
}

// know notes a state that can be read, and reports whether it is the newest. The caller holds
// the lock.
func (s *Store) know(state *State) bool {
	s.alarm = ""
	if s.known != nil && s.known.Version >= state.Version {
		return false
	}
	s.known = state
	select {
	case s.kept <- struct{}{}:
	default:
	}
	return true
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
			if keep != nil || len(s.kept) > 0 {
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
	if s.know(state) {
		s.last = nil // somebody else wrote it
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
