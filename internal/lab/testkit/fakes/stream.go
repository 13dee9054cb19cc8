package fakes

import (
	"context"
	"errors"
	"sync"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
)

// Stream is an in-memory audit stream. It is safe for concurrent use.
type Stream struct {
	// Before, if set, is called before every operation and returns its result: "" normal, "failed" not done,
	// "silent" done but not answered, "stale" a read that ends before the newest entry.
	Before func(op string) string

	mu       sync.Mutex
	entries  []wire.AuditEntry
	subjects []string
}

var _ audit.Stream = (*Stream)(nil)

// ErrStream is returned by a stream that does not answer.
var ErrStream = errors.New("the stream does not answer")

func (s *Stream) fate(op string) string {
	if s.Before == nil {
		return ""
	}
	return s.Before(op)
}

// Bounds implements [audit.Stream].
func (s *Stream) Bounds(context.Context) (first, last uint64, err error) {
	if s.fate("bounds") == "failed" {
		return 0, 0, ErrStream
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return 1, uint64(len(s.entries)), nil
}

// Append implements [audit.Stream].
func (s *Stream) Append(_ context.Context, subject string, data []byte, last uint64) (uint64, error) {
	fate := s.fate("append")
	if fate == "failed" {
		return 0, ErrStream
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last != uint64(len(s.entries)) {
		return 0, wire.ErrChanged
	}
	s.entries, s.subjects = append(s.entries, wire.AuditEntry{Sequence: last + 1, Data: data}), append(s.subjects, subject)
	if fate == "silent" {
		return 0, ErrStream
	}
	return last + 1, nil
}

// Read implements [audit.Stream].
func (s *Stream) Read(_ context.Context, from uint64, n int, subject string) (out []wire.AuditEntry, err error) {
	fate := s.fate("read")
	if fate == "failed" {
		return nil, ErrStream
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range s.entries {
		if fate == "stale" && i == len(s.entries)-1 {
			break
		}
		if e.Sequence >= from && len(out) < n && (subject == "" || subject == s.subjects[i]) {
			out = append(out, e)
		}
	}
	return out, nil
}

// Entries returns the content of the stream, oldest first.
func (s *Stream) Entries() (out [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		out = append(out, e.Data)
	}
	return out
}
