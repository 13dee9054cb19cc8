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
	// Lead is how long before an event starts its entries close.
	Lead = 30 * time.Second

	// Settle is how long a record is public before anybody enters by it: everybody who waits has asked again
	// by then (within 25 s) and is counted by the place that was drawn. It is shorter than [Lead] by what the
	// leader may take to publish.
	Settle = 28 * time.Second

	// Never is later than any time.
	Never fleettime.Time = math.MaxInt64

	// maxNotices bounds a board, and with it the one message that it is.
	maxNotices = 256

	// keptFor is for how long a record stays on the board after its event, while there is space.
	keptFor = 30 * 24 * time.Hour
)

// Policies of beacons: what a draw does for one.
const (
	BeaconNone      = "none"
	BeaconPreferred = "preferred" // without it where none can be had within [BeaconPatience]
	BeaconRequired  = "required"  // nobody enters before it was had
)

// BeaconPatience is how long after the close a beacon is waited for that is preferred.
const BeaconPatience = 20 * time.Second

// Event is an event that begins with a draw. Times are fleet time.
type Event struct {
	Room       string // id, 32 hexadecimal digits
	ID         string // likewise
	Start, End fleettime.Time
}

// Closes returns when the entries of the event's draw close.
func (e Event) Closes() fleettime.Time { return e.Start.Add(-Lead) }

// Notice is what the fleet, and everybody, is told of the draw of one event. Times are fleet time in milliseconds.
type Notice struct {
	Room  string         `json:"room"`
	Event string         `json:"event"`
	Start fleettime.Time `json:"start"` // another start is another draw
	End   fleettime.Time `json:"end"`

	Commit    Hash           `json:"commit"`
	Committed fleettime.Time `json:"committed"` // since when the commit is public
	Beacon    string         `json:"beacon"`    // one of the policies

	Published fleettime.Time  `json:"published,omitempty"` // when the record was, 0 for not yet
	Record    json.RawMessage `json:"record,omitempty"`    // as [EncodeRecord] wrote it

	Void string `json:"void,omitempty"` // why there is no draw: people enter in the order in which they joined

	record *Record
}

// of reports whether the notice is of the draw of e.
func (n *Notice) of(e Event) bool { return n.Room == e.Room && n.Event == e.ID && n.Start == e.Start }

// Closes returns when entries close.
func (n *Notice) Closes() fleettime.Time { return n.Start.Add(-Lead) }

// Drawn returns the record, nil before there is one and where there is no draw.
func (n *Notice) Drawn() *Record {
	if n == nil {
		return nil
	}
	return n.record
}

// Opens returns from when on somebody may enter, but not before the event starts: [Never] before the record was published.
func (n *Notice) Opens() fleettime.Time {
	switch {
	case n != nil && n.Void != "":
		return 0
	case n.Drawn() == nil:
		return Never
	}
	return n.Published.Add(Settle)
}

// Board is what is public of all draws. One that others may see is not modified.
type Board struct {
	Version uint64    `json:"version"` // grows with every change
	Notices []*Notice `json:"notices"`
}

// Of returns the notice of the draw of e, nil for none. The nil board has none.
func (b *Board) Of(e Event) *Notice {
	if b == nil {
		return nil
	}
	if i := slices.IndexFunc(b.Notices, func(n *Notice) bool { return n.of(e) }); i >= 0 {
		return b.Notices[i]
	}
	return nil
}

// Latest returns the notice of the newest draw of an event, whenever that was to start, nil for none.
func (b *Board) Latest(room, event string) (latest *Notice) {
	return b.newest(func(n *Notice) bool { return n.Room == room && n.Event == event })
}

// Drawn returns the notice of the newest draw of a room that has a record, nil for none: whoever joined before its
// entries closed has the place that it gives.
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

// Due is what the leader has to do for the draws of events.
type Due struct {
	Commit  []Event   // these have no notice: a secret is to be made and kept, then its commit published
	Void    []Event   // these have none, and it is too late for a draw
	Publish []*Notice // the records of these
	Forget  []*Notice // these are nobody's any more
}

// Nothing reports whether nothing is to be done.
func (d *Due) Nothing() bool { return len(d.Commit)+len(d.Void)+len(d.Publish)+len(d.Forget) == 0 }

// Due returns what is to be done at now, by a clock that is off by bound at most, for the events that begin with a draw.
// A secret is told only when entries have closed for certain, at every edge that knows the time.
func (b *Board) Due(now fleettime.Time, bound time.Duration, events []Event) (d Due) {
	if bound > fleettime.Rough {
		return d // whoever is so unsure cannot tell what is before the close
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

// ErrFull says that there are as many draws as a board takes.
var ErrFull = fmt.Errorf("there are %d draws of events that are not over: no more can be announced", maxNotices)

// With returns a board in which notices are written, in place of those of the same draws, and some are forgotten; each a
// version higher than b at least, and not below version. Of records of events that are over it keeps the newest.
func (b *Board) With(version uint64, now fleettime.Time, write []*Notice, forget []*Notice) (*Board, error) {
	next := &Board{Version: version}
	if b != nil {
		next.Version = max(version, b.Version+1)
		for _, n := range b.Notices {
			if !slices.Contains(forget, n) && !slices.ContainsFunc(write, func(w *Notice) bool { return w.Room == n.Room && w.Event == n.Event && w.Start == n.Start }) {
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

// Announce returns the notice of a draw whose secret is stored, as it is published before anybody comes.
func Announce(now fleettime.Time, e Event, s Secret, beacon string) *Notice {
	return &Notice{Room: e.Room, Event: e.ID, Start: e.Start, End: e.End, Commit: Hash(s.Commit()), Committed: now, Beacon: beacon}
}

// Without returns the notice of an event that begins without a draw, and why.
func Without(e Event, why string) *Notice {
	return &Notice{Room: e.Room, Event: e.ID, Start: e.Start, End: e.End, Beacon: BeaconNone, Void: why}
}

// Publish returns n with the record of its draw, which is made from the secret that was committed to and, where one was had,
// from the beacon of the first round after entries closed.
func (n *Notice) Publish(now fleettime.Time, s Secret, beacon *Beacon, entrants uint64) (*Notice, error) {
	if Hash(s.Commit()) != n.Commit {
		return nil, errors.New("the secret is not the one that was committed to")
	}
	out := *n
	out.Published, out.record = now, &Record{
		Algorithm: Algorithm, Room: n.Room, Event: n.Event, Commit: n.Commit, Committed: n.Committed.Std().UTC(), Closes: n.Closes().Std().UTC(),
		Beacon: beacon, Secret: Hash(s), Entrants: entrants,
	}
	var err error
	out.Record, err = EncodeRecord(out.record)
	return &out, err
}

// EncodeBoard writes a board.
func EncodeBoard(b *Board) ([]byte, error) { return json.Marshal(b) }

// DecodeBoard reads what EncodeBoard wrote. It refuses what it does not know, and records that are not of the draws that
// they stand at. Their beacons are not verified: whoever may write the board is believed in that.
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
			return nil, fmt.Errorf("draws: notices[%d]: must say something", i)
		}
		if err := n.read(); err != nil {
			return nil, fmt.Errorf("draws: notices[%d]: %w", i, err)
		}
	}
	return b, nil
}

// read checks a notice, and reads its record.
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
		return errors.New("record: is that of another draw")
	case n.Published < n.Closes():
		return errors.New("published: must not be before entries close")
	case n.Void != "":
		return errors.New("void: must be empty where there is a record")
	}
	n.record = r
	return nil
}
