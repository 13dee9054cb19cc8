package roomstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
)

// ErrUnknown means that the change may or may not have been made.
var ErrUnknown = errors.New("whether the change was made is not known")

// errConflict means that another writer was first.
var errConflict = errors.New("somebody else wrote first")

// changeWithin bounds one change with all its tries.
const changeWithin = 15 * time.Second

// FromFileError means that a rooms file is the authority for rooms, so that nothing else changes them.
type FromFileError struct{ File string } // of this candidate, "" where only others have one

func (e *FromFileError) Error() string {
	return "rooms come from " + cmp.Or(e.File, "the rooms file of the leading global") + ": change them there"
}

// Change makes one change if the store is the authority. edit is called with the current state, and again after a
// concurrent write; it must be repeatable and must not keep the draft. After a [*FromFileError], an error of edit,
// [room.Faults] or a [*TooLargeError] nothing was changed. [ErrUnknown] means that the change may have been made. nil
// means that the change is durable, and that every node knows it or will within seconds.
func (s *Store) Change(ctx context.Context, edit func(*Draft) error) (*State, error) {
	return s.change(ctx, edit, nil)
}

// Publish is Change for the leader, under either authority. It also repairs the store: it restores lost documents,
// replaces a rooms document that differs from the state, and deletes unreferenced parts. doubted means that this node
// refuses the contents of the store.
func (s *Store) Publish(ctx context.Context, doubted bool, edit func(*Draft) error) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, changeWithin)
	defer cancel()
	parts, err := s.Docs.List(ctx, "*.*")
	if err != nil {
		return nil, err
	}
	state, err := s.change(ctx, edit, &stock{parts: parts, doubted: doubted})
	if err != nil {
		return nil, err
	}
	return state, s.tidy(ctx, state, parts)
}

// stock is the leader's list of the parts in the store.
type stock struct {
	parts   map[string]wire.Written
	doubted bool
}

func (s *Store) change(ctx context.Context, edit func(*Draft) error, have *stock) (*State, error) {
	ctx, cancel := context.WithTimeout(ctx, changeWithin)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	id, fresh := rand.Text()[:16], have != nil
	var unsure *State // base of a try without an answer
	seen := uint64(0) // the newest version read
	for try := 0; ; try++ {
		v, err := s.load(ctx, fresh)
		if err == nil && v.state.Version < seen {
			err = errConflict // a stale answer
		}
		if err == nil {
			seen = v.state.Version
			switch {
			case unsure != nil && slices.Contains(v.state.changes, id):
				s.outbox.clear(ctx, v.state, nil)
				return v.state, nil // it was written, but the answer was lost
			case unsure != nil && !unsure.precedes(v.state):
				return nil, ErrUnknown
			}
			var next *State
			if next, err = s.attempt(ctx, v, id, edit, have); err == nil {
				return next, nil
			}
		}
		refused, _ := errors.AsType[*refusal](err)
		_, newer := errors.AsType[*NewerError](err)
		switch {
		case refused != nil && v.fresh && unsure != nil: // its own earlier try may be the reason
			return nil, fmt.Errorf("%w: %w", ErrUnknown, refused.err)
		case refused != nil && v.fresh:
			return nil, refused.err
		case refused != nil, errors.Is(err, errConflict): // another writer, or a stale cache
		case newer, have != nil: // the leader tries again anyway
			return nil, err
		default:
			if errors.Is(err, ErrUnknown) && unsure == nil {
				unsure = v.state
			}
			s.Log.Debug("change not made yet", slog.Any("error", err))
		}
		fresh = true
		s.mu.Lock()
		s.last = nil // the next change reads the store
		s.mu.Unlock()
		if s.pause(ctx, time.Duration(try)*mathrand.N(5*time.Millisecond)); ctx.Err() != nil {
			if unsure != nil && !errors.Is(err, ErrUnknown) {
				err = fmt.Errorf("%w: %w", ErrUnknown, err)
			}
			return nil, err
		}
	}
}

// precedes reports whether next remembers every change made since s.
func (s *State) precedes(next *State) bool {
	if len(s.changes) == 0 {
		return len(next.changes) < maxChanges
	}
	return slices.Contains(next.changes, s.changes[len(s.changes)-1])
}

// refusal is an error that retries cannot fix.
type refusal struct{ err error }

func (e *refusal) Error() string { return e.err.Error() }

func (e *refusal) Unwrap() error { return e.err }

// attempt makes the change over the state that was read.
func (s *Store) attempt(ctx context.Context, v *view, id string, edit func(*Draft) error, have *stock) (*State, error) {
	doubted := have != nil && have.doubted
	now, floor, limit := s.now().UnixMilli(), s.Floor(), s.Docs.Limit()
	above := max(v.state.Version, v.version, floor, uint64(max(0, now-1)))
	if have == nil && s.Restoring != nil && s.Restoring() {
		return nil, &refusal{ErrRestoring}
	}
	if have == nil && (v.state.FromFile || s.File != "" && v.state.empty()) {
		return nil, &refusal{&FromFileError{s.File}}
	}
	d := NewDraft(v.state)
	if err := edit(d); err != nil {
		return nil, &refusal{err}
	}
	next, err := d.Apply(now, above+1)
	if err != nil {
		return nil, &refusal{err}
	}
	if next.Version == 0 {
		return next, nil // nothing is written yet
	}
	stands := next == v.state && v.stored && !doubted // the stored state need not be written
	if stands && have != nil {
		// Nobody would accept this version if nodes know a newer one, or the rooms document differs in this version or
		// a newer one.
		same := v.says(next)
		if same && v.version >= max(next.Version, floor) {
			s.outbox.clear(ctx, next, nil)
			return next, s.parts.putAll(ctx, v, &packed{parts: next.parts, whole: !next.sections}, d, limit, have)
		}
		stands = v.version < next.Version && floor <= next.Version
	}
	var own *audit.Entry
	if !stands {
		changes := append(slices.Clone(v.state.changes), id)
		next = &State{
			Version: above + 1, Rooms: next.Rooms, Hosts: next.Hosts, FromFile: next.FromFile,
			changes: changes[max(0, len(changes)-maxChanges):],
		}
		if own, err = s.outbox.add(ctx, id, now, have != nil, v.state, next); err != nil {
			return nil, &refusal{err}
		}
		if err := s.parts.renewPages(ctx, v.state, next); err != nil {
			return nil, err
		}
	}
	reuse := v.state.parts
	if doubted {
		reuse = nil
	}
	p, err := pack(next, limit, reuse)
	if err != nil {
		return nil, &refusal{err}
	}
	if err := s.parts.putAll(ctx, v, p, d, limit, have); err != nil {
		return nil, err
	}
	after := &view{
		state: next, stored: true, revision: v.revision, present: v.present, version: v.version, roomsRev: v.roomsRev,
	}
	if !stands {
		next.parts, next.sections = p.parts, !p.whole
		switch after.revision, err = s.Docs.Put(ctx, OwnedDocument, p.owned, v.revision); {
		case errors.Is(err, wire.ErrChanged):
			return nil, errConflict
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		after.present = next.present()
	}
	if err := s.announce(ctx, after, p.rooms, own); err != nil && have != nil {
		return nil, err
	}
	return next, nil
}

// concurrently calls two functions at once, and waits for both.
func concurrently(a, b func()) {
	var other sync.WaitGroup
	other.Go(a)
	b()
	other.Wait()
}

// announce sends a completed change to the nodes and the audit stream, concurrently, since the two are independent.
// The leader repairs a failure.
func (s *Store) announce(ctx context.Context, after *view, rooms []byte, own *audit.Entry) error {
	var err error
	s.both(func() { s.outbox.clear(ctx, after.state, own) }, func() {
		err = s.publishRooms(ctx, after, rooms)
		s.setState(after.state, after, err == nil)
	})
	if err != nil {
		s.Log.Warn("rooms are changed but not published to the nodes yet",
			slog.Uint64("version", after.state.Version), slog.Any("error", err))
	}
	return err
}
