package fakes

import (
	"cmp"
	"context"
	"path"
	"sync"
	"time"

	"vestibule/internal/core/wire"
)

// Documents is a [wire.DocumentStore] in memory. It is safe for concurrent use; tests that write its fields hold the
// lock.
type Documents struct {
	sync.Mutex
	Written map[string]wire.Written
	Data    map[string][]byte
	Down    error // every call fails with it

	// Writing, if set, is called before every write. With an error the write is made, and its answer is lost.
	Writing func(key string) error

	Puts  int // documents that were written
	Reads int // calls of Get
	rev   uint64
}

// NewDocuments returns an empty store.
func NewDocuments() *Documents {
	return &Documents{Written: map[string]wire.Written{}, Data: map[string][]byte{}}
}

// Get implements [wire.DocumentStore].
func (s *Documents) Get(_ context.Context, key string) ([]byte, uint64, error) {
	s.Lock()
	defer s.Unlock()
	s.Reads++
	return s.Data[key], s.Written[key].Revision, s.Down
}

// Put implements [wire.DocumentStore].
func (s *Documents) Put(_ context.Context, key string, data []byte, revision uint64) (uint64, error) {
	lost := s.writing(key)
	s.Lock()
	defer s.Unlock()
	if s.Down != nil {
		return 0, s.Down
	}
	if s.Written[key].Revision != revision {
		return 0, wire.ErrChanged
	}
	s.rev++
	s.Puts++
	s.Written[key], s.Data[key] = wire.Written{At: time.Now(), Revision: s.rev}, data
	return s.rev, lost
}

func (s *Documents) writing(key string) error {
	if s.Writing == nil {
		return nil
	}
	return s.Writing(key)
}

// Limit implements [wire.DocumentStore].
func (s *Documents) Limit() int { return 400_000 }

// List implements [wire.DocumentStore].
func (s *Documents) List(_ context.Context, pattern string) (map[string]wire.Written, error) {
	s.Lock()
	defer s.Unlock()
	out := map[string]wire.Written{}
	for key, w := range s.Written {
		if ok, err := path.Match(pattern, key); ok && err == nil {
			out[key] = w
		}
	}
	return out, s.Down
}

// Delete implements [wire.DocumentStore].
func (s *Documents) Delete(_ context.Context, key string, revision uint64) error {
	lost := s.writing(key)
	s.Lock()
	defer s.Unlock()
	if s.Written[key].Revision != revision {
		return wire.ErrChanged
	}
	delete(s.Written, key)
	delete(s.Data, key)
	return cmp.Or(lost, s.Down)
}
