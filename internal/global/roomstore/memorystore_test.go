package roomstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"vestibule/internal/core/wire"
)

// memoryStore is a store in memory. before, if set, is called before every operation and returns its fate.
type memoryStore struct {
	limit  int
	before func(op, key string) fate

	mu       sync.Mutex
	docs     map[string]entry
	past     map[string]entry // the previous one, for a stale answer
	revision uint64
	wrote    func(key string, data []byte) // called with every write that was made
}

type entry struct {
	data     []byte
	revision uint64
	at       time.Time
}

type fate int

const (
	done   fate = iota
	failed      // and nothing was done
	silent      // done, without an answer
	stale       // the answer is the one before
)

var errStore = errors.New("the store does not answer")

func newMemoryStore() *memoryStore {
	return &memoryStore{limit: 1 << 20, docs: map[string]entry{}, past: map[string]entry{}}
}

func (s *memoryStore) fate(op, key string) fate {
	if s.before == nil {
		return done
	}
	return s.before(op, key)
}

func (s *memoryStore) Limit() int { return s.limit }

func (s *memoryStore) Get(_ context.Context, key string) ([]byte, uint64, error) {
	f := s.fate("get", key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.docs[key]
	switch f {
	case done:
	case stale:
		e = s.past[key]
	default:
		return nil, 0, errStore
	}
	return e.data, e.revision, nil
}

func (s *memoryStore) Put(_ context.Context, key string, data []byte, revision uint64) (uint64, error) {
	f := s.fate("put", key)
	if f == failed {
		return 0, errStore
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.docs[key]
	if have.revision != revision {
		return 0, wire.ErrChanged
	}
	if s.wrote != nil {
		s.wrote(key, data)
	}
	s.revision++
	s.past[key] = have
	s.docs[key] = entry{slices.Clone(data), s.revision, time.Now()}
	if f == silent {
		return 0, errStore
	}
	return s.revision, nil
}

func (s *memoryStore) List(context.Context, string) (map[string]wire.Written, error) {
	if s.fate("list", "") != done {
		return nil, errStore
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]wire.Written{}
	for key, e := range s.docs {
		if strings.Contains(key, ".") {
			out[key] = wire.Written{At: e.at, Revision: e.revision}
		}
	}
	return out, nil
}

func (s *memoryStore) Delete(_ context.Context, key string, revision uint64) error {
	if s.fate("delete", key) != done {
		return errStore
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.docs[key].revision != revision {
		return wire.ErrChanged
	}
	delete(s.docs, key)
	return nil
}

// lose empties the store; revisions restart.
func (s *memoryStore) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.docs, s.past, s.revision = map[string]entry{}, map[string]entry{}, 0
}
