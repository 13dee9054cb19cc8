package roomstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
)

// Every change of the rooms has an entry in the audit stream. No write covers both, and a process may die between two
// writes. So one compare-and-set writes the entry into the owned document together with the change. The entry is added
// to the stream right after. If that fails, it waits in the document until the next writer adds it, or the leader
// within seconds, marked as late. The first change after the entry is known to be in the stream removes it from the
// document.

const (
	// maxOutbox bounds the entries that wait in the document. Beyond it, changes by the API are refused until the
	// stream is writable. Those of the leader are made, and the oldest entry is lost; the stream shows a gap of
	// versions.
	maxOutbox = 100

	// maxOutboxBytes bounds their total size. Beyond it an entry waits without its rooms.
	maxOutboxBytes = 32 << 10
)

// errOutbox means that too many entries wait.
var errOutbox = errors.New("the audit stream cannot be written")

// outbox adds the entries that wait in the document to the audit stream. It is safe for concurrent use.
type outbox struct {
	journal *audit.Journal // nil for none
	log     *slog.Logger

	mu     sync.Mutex
	failed string // why the newest change is missing in the stream
}

// waiting is an entry that waits in the document.
type waiting struct {
	Version uint64 `json:"version"`
	raw     json.RawMessage
}

// readOutbox decodes the entries of the document. Fields of a newer build are preserved.
func readOutbox(raw []json.RawMessage) (out []waiting, err error) {
	if len(raw) > maxOutbox {
		return nil, fmt.Errorf("must be at most %d, got %d", maxOutbox, len(raw))
	}
	for i, data := range raw {
		w := waiting{raw: data}
		if err := json.Unmarshal(data, &w); err != nil || w.Version == 0 || w.Version > maxVersion {
			return nil, fmt.Errorf("entry %d: must be an object with a version", i)
		}
		out = append(out, w)
	}
	return out, nil
}

func writeOutbox(entries []waiting) (raw []json.RawMessage) {
	for _, w := range entries {
		raw = append(raw, w.raw)
	}
	return raw
}

type byKey struct{}

// By returns a context that attributes changes to by.
func By(ctx context.Context, by audit.By) context.Context {
	return context.WithValue(ctx, byKey{}, by)
}

// ByOf returns the author of changes made with a context.
func ByOf(ctx context.Context) audit.By {
	by, ok := ctx.Value(byKey{}).(audit.By)
	if !ok {
		by = audit.By{Name: "unknown", Operation: "change"}
	}
	return by
}

// entryOf returns the entry of a change. It contains rooms as documents, which any later build can read.
func entryOf(id string, now time.Time, by audit.By, base, next *State) (audit.Entry, error) {
	e := audit.Entry{ID: id, At: now.UTC(), By: by, Base: base.Version, Version: next.Version}
	alone := func(r *Room) (json.RawMessage, error) {
		if r == nil {
			return nil, nil
		}
		return room.EncodeDocument(room.Document{Rooms: []room.Settings{r.Settings}})
	}
	for _, c := range Changes(base, next) {
		r := c.After
		if r == nil {
			r = c.Before
		}
		changed := audit.Room{ID: room.PublicID(r.TicketName()), Name: r.Name}
		var err, err2 error
		changed.Before, err = alone(c.Before)
		changed.After, err2 = alone(c.After)
		if err := errors.Join(err, err2); err != nil {
			return e, err
		}
		e.Rooms = append(e.Rooms, changed)
	}
	before, after := base.Sites(), next.Sites()
	for _, name := range HostChanges(before, after) {
		e.Hosts = append(e.Hosts, audit.Host{Name: name, Before: before[name], After: after[name]})
	}
	return e, nil
}

// Changes returns the rooms that differ. A renamed room is one change.
func Changes(base, next *State) (out []Change) {
	before, after := map[string]*Room{}, map[string]*Room{}
	had := make(map[*Room]bool, len(base.Rooms))
	for _, r := range base.Rooms {
		had[r] = true
	}
	for _, r := range next.Rooms {
		if had[r] {
			delete(had, r)
		} else {
			after[r.TicketName()] = r
		}
	}
	for r := range had {
		before[r.TicketName()] = r
	}
	for known, r := range before {
		if after[known] == nil {
			out = append(out, Change{Name: r.Name, Before: r})
		}
	}
	for known, r := range after {
		if old := before[known]; old == nil || !old.Equal(r.Settings) {
			out = append(out, Change{Name: r.Name, Before: old, After: r})
		}
	}
	slices.SortFunc(out, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// add puts the entry of a change into the outbox of the new state. It returns the complete entry.
func (o *outbox) add(ctx context.Context, id string, now int64, leader bool, base, next *State) (*audit.Entry, error) {
	if o.journal == nil {
		return nil, nil
	}
	e, err := entryOf(id, time.UnixMilli(now), ByOf(ctx), base, next)
	if err != nil {
		return nil, err
	}
	through, size := o.journal.Through(), 0
	for _, w := range base.outbox {
		if w.Version > through {
			next.outbox, size = append(next.outbox, w), size+len(w.raw)
		}
	}
	if len(next.outbox) >= maxOutbox {
		if !leader {
			return nil, errOutbox
		}
		next.outbox = slices.Clone(next.outbox[1:])
	}
	raw, err := json.Marshal(e)
	if err == nil && size+len(raw) > maxOutboxBytes {
		short := e
		short.Omitted, short.Rooms, short.Hosts = len(e.Rooms)+len(e.Hosts), nil, nil
		raw, err = json.Marshal(short)
	}
	next.outbox = append(next.outbox, waiting{Version: e.Version, raw: raw})
	return &e, err
}

// flush adds the outbox of a state to the audit stream. own is the complete entry of a change just made by this
// process, nil for none.
func (o *outbox) flush(ctx context.Context, state *State, own *audit.Entry) error {
	if o.journal == nil {
		return nil
	}
	through := o.journal.Through()
	for _, w := range state.outbox {
		if w.Version <= through {
			continue
		}
		var e audit.Entry
		if own != nil && own.Version == w.Version {
			e = *own
		} else {
			if err := json.Unmarshal(w.raw, &e); err != nil {
				return fmt.Errorf("rooms.owned: outbox: %w", err)
			}
			e.Late = true
		}
		if err := o.journal.Add(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// clear empties the outbox, and records an error.
func (o *outbox) clear(ctx context.Context, state *State, own *audit.Entry) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	err := o.flush(ctx, state, own)
	text := ""
	if err != nil {
		text = err.Error()
	}
	o.mu.Lock()
	news := o.failed != text
	o.failed = text
	o.mu.Unlock()
	if err != nil && news {
		o.log.Warn("the audit entry of a change of rooms is not in the stream yet; the document has it",
			slog.Uint64("version", state.Version), slog.Any("error", err))
	}
}

// failure returns why the newest change is missing in the audit stream, "" if this candidate knows of none.
func (o *outbox) failure() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// pageFor is the minimum time that an unreferenced page is kept, so that a revision can be restored with its page.
const pageFor = 30 * 24 * time.Hour

// renewPages rewrites the pages that a change leaves without a room, so that their retention starts now.
func (ps *partStore) renewPages(ctx context.Context, base, next *State) error {
	named, left := map[string]bool{}, []string{}
	for _, r := range next.Rooms {
		for page := range r.EachPage {
			named[page] = true
		}
	}
	for _, r := range base.Rooms {
		for page := range r.EachPage {
			if !named[page] {
				named[page], left = true, append(left, roomdoc.PageDocument(page))
			}
		}
	}
	for _, key := range left {
		data, revision, err := ps.docs.Get(ctx, key)
		if err != nil {
			return err
		}
		if data == nil {
			continue
		}
		if _, err := ps.docs.Put(ctx, key, data, revision); err != nil && !errors.Is(err, wire.ErrChanged) {
			return err
		}
	}
	return nil
}
