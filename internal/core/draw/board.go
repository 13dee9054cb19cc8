package draw

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/strictjson"
)

const (
	// Lead is how long before the start of an event its entries close.
	Lead = 30 * time.Second

	// Settle is how long a record is public before its places are used: by then every waiting visitor has asked
	// again (within 25 s) and is counted by the drawn place. The difference to [Lead] is the leader's time to
	// publish.
	Settle = 28 * time.Second

	// settles is how long after its publication the places of a record are counted: by then every visitor that gathers
	// has asked, and edges have reported their counts.
	settles = 13 * time.Second

	// Never is later than any time.
	Never fleettime.Time = math.MaxInt64

	// maxNotices bounds a board, and so its one message.
	maxNotices = 256

	// keptFor is how long a record stays on the board after its event, while there is space.
	keptFor = 30 * 24 * time.Hour
)

// Beacon policies of a draw.
const (
	BeaconNone      = "none"
	BeaconPreferred = "preferred" // draw without a beacon if none arrives within [BeaconPatience]
	BeaconRequired  = "required"  // admit nobody before the beacon arrives
)

// BeaconPatience is how long after the close a draw waits for a preferred beacon.
const BeaconPatience = 20 * time.Second

// Event is an event that begins with a draw. Times are fleet time.
type Event struct {
	Room       string // id, 32 hexadecimal digits
	ID         string // likewise
	Start, End fleettime.Time
}

// Closes returns when the entries of the draw close.
func (e Event) Closes() fleettime.Time { return e.Start.Add(-Lead) }

// Notice is the public announcement of the draw of one event. Times are fleet time in milliseconds.
type Notice struct {
	Room  string         `json:"room"`
	Event string         `json:"event"`
	Start fleettime.Time `json:"start"` // a different start is a different draw
	End   fleettime.Time `json:"end"`

	Commit    Hash           `json:"commit"`
	Committed fleettime.Time `json:"committed"` // publication of the commit
	Beacon    string         `json:"beacon"`    // one of the policies

	Published fleettime.Time  `json:"published,omitempty"` // publication of the record, 0 before it
	Record    json.RawMessage `json:"record,omitempty"`    // as written by [EncodeRecord]

	Void string `json:"void,omitempty"` // why the draw was cancelled; visitors then enter in the order of joining

	record *Record
}

// of reports whether the notice is of the draw of e.
func (n *Notice) of(e Event) bool { return n.Room == e.Room && n.Event == e.ID && n.Start == e.Start }

// Closes returns when entries close.
func (n *Notice) Closes() fleettime.Time { return n.Start.Add(-Lead) }

// Drawn returns the record, or nil before its publication and for a cancelled draw.
func (n *Notice) Drawn() *Record {
	if n == nil {
		return nil
	}
	return n.record
}

// Opens returns the earliest admission that the draw allows; the start of the event is a separate bound. It is
// [Never] before the record is published.
func (n *Notice) Opens() fleettime.Time {
	switch {
	case n != nil && n.Void != "":
		return 0
	case n.Drawn() == nil:
		return Never
	}
	return n.Published.Add(Settle)
}

// Counted returns since when positions are counted by drawn places. It is [Never] before the record is published.
func (n *Notice) Counted() fleettime.Time {
	if n.Drawn() == nil {
		return Never
	}
	return n.Published.Add(settles)
}

// Board is the public registry of all draws. A published board is never modified.
type Board struct {
	Version uint64    `json:"version"` // increases with every change
	Notices []*Notice `json:"notices"`
}

// Of returns the notice of the draw of e, or nil. A nil board has none.
func (b *Board) Of(e Event) *Notice {
	if b == nil {
		return nil
	}
	if i := slices.IndexFunc(b.Notices, func(n *Notice) bool { return n.of(e) }); i >= 0 {
		return b.Notices[i]
	}
	return nil
}

// Latest returns the notice of the newest draw of an event with any start, or nil.
func (b *Board) Latest(room, event string) (latest *Notice) {
	return b.newest(func(n *Notice) bool { return n.Room == room && n.Event == event })
}

// Drawn returns the room's newest notice with a record, or nil. Visitors that joined before its entries closed have
// the place that it gives.
func (b *Board) Drawn(room string) *Notice {
	return b.newest(func(n *Notice) bool { return n.Room == room && n.record != nil })
}

func (b *Board) newest(is func(*Notice) bool) (newest *Notice) {
	if b == nil {
		return nil
	}
	for _, n := range b.Notices {
		if is(n) && (newest == nil || n.Start > newest.Start) {
			newest = n
		}
	}
	return newest
}

// Due lists the leader's pending work for the draws of events.
type Due struct {
	Commit  []Event   // without a notice: store a secret, then publish its commit
	Void    []Event   // without a notice and too late for a draw
	Publish []*Notice // records to publish
	Forget  []*Notice // draws without an event
}

// Nothing reports whether there is no work.
func (d *Due) Nothing() bool { return len(d.Commit)+len(d.Void)+len(d.Publish)+len(d.Forget) == 0 }

// Due returns the pending work at now for the events that begin with a draw. The clock is off by at most bound. A
// secret is revealed only when entries have certainly closed at every edge with a valid clock.
func (b *Board) Due(now fleettime.Time, bound time.Duration, events []Event) (d Due) {
	if bound > fleettime.Rough {
		return d // too uncertain to tell times before the close from times after it
	}
	for _, e := range events {
		switch n := b.Of(e); {
		case n != nil:
			if n.record == nil && n.Void == "" && now.Add(-bound-fleettime.Guard) >= n.Closes() {
				d.Publish = append(d.Publish, n)
			}
		case now >= e.End:
		case now.Add(bound) < e.Closes():
			d.Commit = append(d.Commit, e)
		default:
			d.Void = append(d.Void, e)
		}
	}
	if b == nil {
		return d
	}
	for _, n := range b.Notices {
		kept := slices.ContainsFunc(events, n.of) || n.record != nil && now < n.End.Add(keptFor)
		if !kept {
			d.Forget = append(d.Forget, n)
		}
	}
	return d
}

// ErrFull is returned if the board holds the maximum number of draws.
var ErrFull = fmt.Errorf("too many draws: %d of events that are not over; wait for one to end", maxNotices)

// With returns a copy of the board with notices added, each in place of an older one of the same draw, and others
// removed. Its version is above that of b and at least version. Of the records of past events it keeps the newest.
func (b *Board) With(version uint64, now fleettime.Time, write []*Notice, forget []*Notice) (*Board, error) {
	next := &Board{Version: version}
	if b != nil {
		next.Version = max(version, b.Version+1)
		for _, n := range b.Notices {
			if !slices.Contains(forget, n) &&
				!slices.ContainsFunc(write,
					func(w *Notice) bool { return w.Room == n.Room && w.Event == n.Event && w.Start == n.Start }) {
				next.Notices = append(next.Notices, n)
			}
		}
	}
	next.Notices = append(next.Notices, write...)
	slices.SortFunc(next.Notices, func(a, b *Notice) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), strings.Compare(a.Room, b.Room), strings.Compare(a.Event, b.Event))
	})
	for len(next.Notices) > maxNotices {
		i := slices.IndexFunc(next.Notices, func(n *Notice) bool { return now >= n.End })
		if i < 0 {
			return nil, ErrFull
		}
		next.Notices = slices.Delete(next.Notices, i, i+1)
	}
	return next, nil
}

// Announce returns the notice of a draw with a stored secret, for publication before the event.
func Announce(now fleettime.Time, e Event, s Secret, beacon string) *Notice {
	return &Notice{
		Room: e.Room, Event: e.ID, Start: e.Start, End: e.End, Commit: Hash(s.Commit()), Committed: now, Beacon: beacon,
	}
}

// Without returns the notice of an event that begins without a draw, with the reason.
func Without(e Event, why string) *Notice {
	return &Notice{Room: e.Room, Event: e.ID, Start: e.Start, End: e.End, Beacon: BeaconNone, Void: why}
}

// Publish returns n with the record of its draw. The record is made from the committed secret and, if there is one,
// the beacon of the first round after the close.
func (n *Notice) Publish(now fleettime.Time, s Secret, beacon *Beacon, entrants uint64) (*Notice, error) {
	if Hash(s.Commit()) != n.Commit {
		return nil, errors.New("the secret does not match the commit")
	}
	out := *n
	out.Published, out.record = now, &Record{
		Algorithm: Algorithm, Room: n.Room, Event: n.Event, Commit: n.Commit, Committed: n.Committed.Std().UTC(),
		Closes: n.Closes().Std().UTC(), Beacon: beacon, Secret: Hash(s), Entrants: entrants,
	}
	var err error
	out.Record, err = EncodeRecord(out.record)
	return &out, err
}

// EncodeBoard encodes a board as JSON.
func EncodeBoard(b *Board) ([]byte, error) { return json.Marshal(b) }

// DecodeBoard decodes a board. It rejects unknown fields and records of a different draw than that of their notice.
// It does not verify beacons: writers of the board are trusted.
func DecodeBoard(data []byte) (*Board, error) {
	b := &Board{}
	if err := strictjson.Decode(data, b); err != nil {
		return nil, fmt.Errorf("draws: %w", err)
	}
	if b.Version == 0 || len(b.Notices) > maxNotices {
		return nil, fmt.Errorf("draws: must have a version and at most %d notices", maxNotices)
	}
	for i, n := range b.Notices {
		if n == nil {
			return nil, fmt.Errorf("draws: notices[%d]: must not be null", i)
		}
		if err := n.read(); err != nil {
			return nil, fmt.Errorf("draws: notices[%d]: %w", i, err)
		}
	}
	return b, nil
}

// read validates a notice and decodes its record.
func (n *Notice) read() error {
	if !slices.Contains([]string{BeaconNone, BeaconPreferred, BeaconRequired}, n.Beacon) {
		return fmt.Errorf("beacon: must be %s, %s or %s, got %.40q", BeaconNone, BeaconPreferred, BeaconRequired, n.Beacon)
	}
	if len(n.Record) == 0 {
		return nil
	}
	r, err := DecodeRecord(n.Record)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	known := func(*Beacon, time.Time) error { return nil }
	if faults := r.Check(known); len(faults) > 0 {
		return fmt.Errorf("record: %w", errors.Join(faults...))
	}
	switch {
	case r.Room != n.Room || r.Event != n.Event || fleettime.TimeOf(r.Closes) != n.Closes() || r.Commit != n.Commit:
		return errors.New("record: belongs to another draw")
	case n.Published < n.Closes():
		return errors.New("published: must not be before entries close")
	case n.Void != "":
		return errors.New("void: must be empty with a record")
	}
	n.record = r
	return nil
}
