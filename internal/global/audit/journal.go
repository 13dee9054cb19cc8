package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"vestibule/internal/core/wire"
)

// Stream stores the entries. Nothing is deleted from it. Its methods are safe for concurrent use.
type Stream interface {
	// Bounds returns the sequences of the oldest and the newest entry: first is above last if there is none.
	Bounds(ctx context.Context) (first, last uint64, err error)

	// Append adds data under a subject if the newest sequence is last. It returns wire.ErrChanged if it is not. After
	// any other error the data may or may not have been added.
	Append(ctx context.Context, subject string, data []byte, last uint64) (uint64, error)

	// Read returns up to n entries from a sequence on, the oldest first: of one subject, or of all for "". The result
	// may be stale.
	Read(ctx context.Context, from uint64, n int, subject string) ([]wire.AuditEntry, error)
}

// Journal adds entries to a stream. Journals of several nodes may share one. Its methods are safe for concurrent use.
type Journal struct {
	Stream

	// Pause waits for the duration, or until the context ends.
	Pause func(context.Context, time.Duration)

	turn chan struct{} // held while adding
	head *head         // the newest known entry, nil for none; guarded by turn
}

type head struct {
	sequence uint64
	chain    Chain
}

// NewJournal returns a journal of a stream.
func NewJournal(s Stream) *Journal {
	return &Journal{Stream: s, Pause: Pause, turn: make(chan struct{}, 1)}
}

// Pause waits for a duration, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ErrNotAdded means that an entry may or may not have been added: the next try finds out.
var ErrNotAdded = errors.New("audit: the entry may not be in the stream")

// Add adds an entry, in as many parts as it needs, unless the stream has an entry of its version already. It fills in
// Number, Previous and Through. Changes of the rooms must be added in the order of their versions.
func (j *Journal) Add(ctx context.Context, e Entry) error {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrNotAdded, ctx.Err())
	}
	for _, part := range divide(e) {
		if err := j.add(ctx, part); err != nil {
			j.head = nil
			return fmt.Errorf("%w: %w", ErrNotAdded, err)
		}
	}
	return nil
}

// Through returns the newest version of the rooms known to be in the stream, 0 if unknown. It never blocks.
func (j *Journal) Through() uint64 {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	default:
		return 0
	}
	if j.head == nil {
		return 0
	}
	return j.head.chain.Through
}

// maxTries bounds the attempts to add an entry beside concurrent writers.
const maxTries = 50

// add adds one entry.
func (j *Journal) add(ctx context.Context, e Entry) error {
	tried := uint64(0) // the entry is not in the stream up to this sequence
	for try := 0; ; try++ {
		if j.head == nil {
			h, err := j.newest(ctx)
			if err != nil {
				return err
			}
			j.head = h
		}
		if e.Version > 0 && j.head.chain.Through >= e.Version {
			return nil
		}
		if try > 0 && j.head.sequence > tried {
			there, err := j.has(ctx, &e, tried+1)
			if err != nil || there {
				return err
			}
			tried = j.head.sequence
		}
		if try == 0 {
			tried = j.head.sequence
		}
		h := j.head.chain
		e.Number, e.Previous, e.Through = h.Number+1, h.Hash, h.Through
		if e.Part == e.Parts {
			e.Through = max(h.Through, e.Version)
		}
		data, err := json.Marshal(e)
		if err != nil {
			return err
		}
		sequence, err := j.Append(ctx, e.Subject(), data, j.head.sequence)
		if err == nil {
			j.head = &head{sequence, Chain{Number: e.Number, Hash: Hash(data), Through: e.Through, begun: true}}
			return nil
		}
		j.head = nil
		if try == maxTries || ctx.Err() != nil {
			return err
		}
		wait := time.Duration(min(try, 10)) * mathrand.N(4*time.Millisecond)
		if !errors.Is(err, wire.ErrChanged) {
			wait += 50 * time.Millisecond
		}
		if j.Pause(ctx, wait); ctx.Err() != nil {
			return err
		}
	}
}

// newest reads the newest entry of the stream.
func (j *Journal) newest(ctx context.Context) (*head, error) {
	first, last, err := j.Bounds(ctx)
	if err != nil {
		return nil, err
	}
	h := &head{sequence: last}
	if first > last {
		h.chain.Number = last // all entries have expired; the numbering continues
		return h, nil
	}
	got, err := j.Read(ctx, last, 1, "")
	if err != nil {
		return nil, err
	}
	if len(got) == 0 || got[0].Sequence != last {
		return nil, fmt.Errorf("audit: entry %d cannot be read yet", last)
	}
	if _, _, err := h.chain.Next(got[0].Data); err != nil {
		// A foreign entry. The next entry begins a new chain, and verification finds the place.
		h.chain = Chain{Number: last, Hash: Hash(got[0].Data)}
	}
	return h, nil
}

// has reports whether an entry is in the stream from a sequence on, after an append with an unknown result.
func (j *Journal) has(ctx context.Context, e *Entry, from uint64) (bool, error) {
	for from <= j.head.sequence {
		got, err := j.Read(ctx, from, 100, "")
		if err != nil {
			return false, err
		}
		if len(got) == 0 {
			return false, fmt.Errorf("audit: entry %d cannot be read yet", from)
		}
		for _, s := range got {
			var have Entry
			if err := json.Unmarshal(s.Data, &have); err == nil && have.ID == e.ID && have.Part == e.Part &&
				have.Late == e.Late {
				return true, nil
			}
		}
		from = got[len(got)-1].Sequence + 1
	}
	return false, nil
}

// maxEntry bounds the bytes of rooms in one entry: a message may have 400 KB on the smallest server.
const maxEntry = 96 << 10

// divide splits a large entry into several.
func divide(e Entry) []Entry {
	out := []Entry{e}
	last := &out[0]
	last.Rooms, last.Hosts = nil, nil
	size := 0
	grow := func(n int) {
		if size += n; size > maxEntry && size > n {
			more := e
			more.Rooms, more.Hosts = nil, nil
			out, size = append(out, more), n
			last = &out[len(out)-1]
		}
	}
	for _, r := range e.Rooms {
		grow(len(r.Name) + len(r.Before) + len(r.After) + 100)
		last.Rooms = append(last.Rooms, r)
	}
	for _, h := range e.Hosts {
		grow(len(h.Name) + len(h.Before) + len(h.After) + 60)
		last.Hosts = append(last.Hosts, h)
	}
	if len(out) > 1 {
		for i := range out {
			out[i].Part, out[i].Parts = i+1, len(out)
		}
	}
	return out
}
