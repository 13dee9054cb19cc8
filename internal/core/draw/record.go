package draw

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/strictjson"
)

// Hash is a SHA-256 sum, or a secret: 64 hexadecimal digits in JSON.
type Hash [sha256.Size]byte

// MarshalText is [encoding.TextMarshaler].
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText is [encoding.TextUnmarshaler].
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != 2*len(h) {
		return fmt.Errorf("must be %d hexadecimal digits, got %d characters", 2*len(h), len(text))
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// Beacon is a round of a public beacon. Its randomness is SHA-256 of its signature.
type Beacon struct {
	Chain     Hash   `json:"chain"` // which beacon
	Round     uint64 `json:"round"`
	Signature []byte `json:"-"`
	Text      string `json:"signature"` // Signature in hexadecimal digits
}

// Record is what is published of a draw when entries have closed, and stays.
type Record struct {
	Algorithm string    `json:"algorithm"`
	Room      string    `json:"room"`  // id
	Event     string    `json:"event"` // id
	Commit    Hash      `json:"commit"`
	Committed time.Time `json:"committed"` // since when the commit was public
	Closes    time.Time `json:"closes"`    // who joined before takes part
	Beacon    *Beacon   `json:"beacon,omitempty"`
	Secret    Hash      `json:"secret"`
	Entrants  uint64    `json:"entrants"` // how many were counted
}

// Receipt is what a visitor keeps of a draw.
type Receipt struct {
	Ticket Ticket    `json:"ticket"`
	Joined time.Time `json:"joined"`
	Class  uint8     `json:"class,omitempty"`
	Place  time.Time `json:"place"`
	Commit Hash      `json:"commit,omitzero"` // of the draw, as the visitor was told before it
}

// Ticket is the number of a ticket: 16 hexadecimal digits in JSON.
type Ticket uint64

// MarshalText is [encoding.TextMarshaler].
func (t Ticket) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(t)), nil }

// UnmarshalText is [encoding.TextUnmarshaler].
func (t *Ticket) UnmarshalText(text []byte) error {
	var b [8]byte
	if len(text) != 2*len(b) {
		return fmt.Errorf("must be 16 hexadecimal digits, got %d characters", len(text))
	}
	if _, err := hex.Decode(b[:], text); err != nil {
		return err
	}
	*t = Ticket(binary.BigEndian.Uint64(b[:]))
	return nil
}

// maxSignature bounds the signature of a beacon, in bytes; drand's have 48 or 96.
const maxSignature = 96

// DecodeRecord reads a record, and refuses one that says something which it does not know.
func DecodeRecord(data []byte) (*Record, error) {
	r := &Record{}
	if err := strictjson.Decode(data, r); err != nil {
		return nil, err
	}
	if b := r.Beacon; b != nil {
		var err error
		if b.Signature, err = hex.DecodeString(b.Text); err != nil || len(b.Signature) > maxSignature {
			return nil, fmt.Errorf("beacon.signature: must be at most %d hexadecimal digits", 2*maxSignature)
		}
	}
	return r, nil
}

// EncodeRecord writes a record.
func EncodeRecord(r *Record) ([]byte, error) {
	out := *r
	if r.Beacon != nil {
		b := *r.Beacon
		b.Text = hex.EncodeToString(b.Signature)
		out.Beacon = &b
	}
	return json.Marshal(&out)
}

// Check returns everything by which a record is not that of a fair draw. beacon verifies the
// round, and that it is the first one after entries closed.
func (r *Record) Check(beacon func(b *Beacon, closes time.Time) error) (faults []error) {
	fault := func(format string, a ...any) { faults = append(faults, fmt.Errorf(format, a...)) }
	if r.Algorithm != Algorithm {
		fault("algorithm: must be %q, got %q", Algorithm, r.Algorithm)
	}
	if Secret(r.Secret).Commit() != r.Commit {
		fault("secret: it is not the one that commit was made of")
	}
	if !r.Committed.Before(r.Closes) {
		fault("committed: must be before closes, got %s", r.Committed.Format(time.RFC3339Nano))
	}
	for _, at := range []struct {
		key string
		at  time.Time
	}{{"committed", r.Committed}, {"closes", r.Closes}} {
		if at.at.IsZero() || !at.at.Equal(at.at.Truncate(time.Millisecond)) {
			fault("%s: must be a time in whole milliseconds", at.key)
		}
	}
	if r.Beacon != nil {
		if err := beacon(r.Beacon, r.Closes); err != nil {
			fault("beacon: %w", err)
		}
	}
	return faults
}

// seed returns SHA-256 of the algorithm's name and " seed", the secret, the beacon's randomness
// (zeros where there is none), when entries close (milliseconds since 1970, eight bytes,
// big-endian), and the ids of room and event, each behind its length in four bytes, big-endian.
func (r *Record) seed() [sha256.Size]byte {
	var randomness [sha256.Size]byte
	if r.Beacon != nil {
		randomness = sha256.Sum256(r.Beacon.Signature)
	}
	b := slices.Concat([]byte(Algorithm+" seed"), r.Secret[:], randomness[:])
	b = binary.BigEndian.AppendUint64(b, uint64(r.Closes.UnixMilli()))
	for _, id := range []string{r.Room, r.Event} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(id)))
		b = append(b, id...)
	}
	return sha256.Sum256(b)
}

// Same reports whether another record gives the same places, as one that was read again does.
func (r *Record) Same(o *Record) bool { return r.seed() == o.seed() }

// Ahead returns how many of those who take part are supposed to stand before a place that was drawn: all that are is known
// once everybody has asked again. Five times of six it is fewer.
func (r *Record) Ahead(place fleettime.Time) uint64 {
	n, u := float64(r.Entrants), 1-float64(fleettime.TimeOf(r.Closes).Sub(place))/float64(Window)
	u = min(1, max(0, u))
	return uint64(min(max(0, n-1), n*u+math.Sqrt(n*u*(1-u))))
}

// Draw returns the draw of a record that was checked.
func (r *Record) Draw() *Draw {
	d := newDraw(r.seed(), fleettime.TimeOf(r.Closes))
	d.commit = r.Commit
	return d
}

// Takes reports whether the ticket of a receipt joined before entries closed.
func (d *Draw) Takes(r *Receipt) bool { return fleettime.TimeOf(r.Joined) < d.closes }

// ErrForged says that a receipt does not tell the place that was drawn.
var ErrForged = errors.New("that is not the place that was drawn")

// Check returns nil where a receipt tells the place that the ticket has in the draw.
func (d *Draw) Check(r *Receipt) error {
	if r.Class > MaxClass {
		return fmt.Errorf("class: must be 0 to %d, got %d", MaxClass, r.Class)
	}
	if r.Commit != (Hash{}) && r.Commit != d.commit {
		return fmt.Errorf("commit: %w: the visitor was told of another draw than that of the record", ErrForged)
	}
	for _, at := range []struct {
		key string
		at  time.Time
	}{{"joined", r.Joined}, {"place", r.Place}} {
		if !at.at.Equal(at.at.Truncate(time.Millisecond)) {
			return fmt.Errorf("%s: must be a time in whole milliseconds", at.key)
		}
	}
	if want := d.Place(uint64(r.Ticket), fleettime.TimeOf(r.Joined), r.Class); want != fleettime.TimeOf(r.Place) {
		return fmt.Errorf("place: %w: it is %s", ErrForged, time.UnixMilli(int64(want)).UTC().Format(TimeFormat))
	}
	return nil
}

// TimeFormat is how times stand in receipts.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"
