package roomstore

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
)

// Options are the parts of a store.
type Options struct {
	Docs wire.DocumentStore // the store of the state
	Copy string             // file for the last good copy, "" for none
	File string             // rooms file of this candidate, "" for none
	Log  *slog.Logger

	// Journal gets an entry for each change; it may be nil. By sets the author.
	Journal *audit.Journal

	// Floor returns the newest version of the rooms known to any node. New versions are above it.
	Floor func() uint64

	// Restoring reports whether rooms that the store lost are coming back from the nodes: changes wait. It may be nil.
	Restoring func() bool

	// Keep replaces the file of the copy in one step.
	Keep func(file string, data []byte) error
}

// Store is the rooms of a fleet at one candidate for global. Any number of candidates may write: a change is
// compare-and-set on the whole state. Its methods are safe for concurrent use.
//
// Locks: turn is held through a change, by one writer of this process at a time; that of the cache is never held across
// a call.
type Store struct {
	Options
	pause func(context.Context, time.Duration) // waits for the duration, or until the context ends
	both  func(a, b func())                    // calls two functions: concurrently, but in a test that can be replayed
	turn  chan struct{}
	offer chan []byte // the newest owned document from a watch, not yet processed

	cache
	parts  partStore
	outbox outbox
}

// New returns a store that starts with the copy on disk.
func New(o Options) *Store {
	o.Docs = prompt{o.Docs}
	s := &Store{
		Options: o, pause: audit.Pause, both: concurrently, turn: make(chan struct{}, 1), offer: make(chan []byte, 1),
		cache: cache{now: time.Now, kept: make(chan struct{}, 1)},
	}
	s.parts, s.outbox = partStore{docs: o.Docs, log: o.Log}, outbox{journal: o.Journal, log: o.Log}
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

// AuditFault returns why the newest change is missing in the audit stream, "" if this candidate knows of none.
func (s *Store) AuditFault() string { return s.outbox.failure() }

// answerWithin bounds a request for one document, so that there is time to find out the result of a change.
const answerWithin = 3 * time.Second

// prompt adds the timeout answerWithin to a document store.
type prompt struct{ wire.DocumentStore }

// Get implements [wire.DocumentStore].
func (d prompt) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return d.DocumentStore.Get(ctx, key)
}

// Put implements [wire.DocumentStore].
func (d prompt) Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return d.DocumentStore.Put(ctx, key, data, revision)
}

// Offer hands over the owned document from a watch, nil for a missing one. It does not block.
func (s *Store) Offer(data []byte) {
	if data == nil {
		return // the known state stays; the leader restores the document
	}
	for {
		select {
		case s.offer <- data:
			return
		case <-s.offer: // superseded
		}
	}
}

// Run processes offered documents and writes the copy on disk, until ctx ends. It returns the error of ctx.
func (s *Store) Run(ctx context.Context) error {
	var keep <-chan time.Time
	again := time.NewTicker(time.Second)
	defer again.Stop()
	var late []byte // not readable yet
	for {
		select {
		case <-ctx.Done():
			if keep != nil || len(s.kept) > 0 {
				s.keep()
			}
			return ctx.Err()
		case data := <-s.offer:
			late = s.applyOwned(ctx, data)
		case <-again.C:
			if late != nil {
				late = s.applyOwned(ctx, late)
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

// keepEvery is the minimum interval between writes of the copy on disk.
const keepEvery = 200 * time.Millisecond

// applyOwned processes an owned document. It returns the document if it cannot be read yet.
func (s *Store) applyOwned(ctx context.Context, data []byte) (late []byte) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	o, err := decodeOwned(data)
	var state *State
	if err == nil {
		state, err = s.parts.assemble(ctx, &o, s.Known())
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
		s.last = nil // another writer wrote it
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
