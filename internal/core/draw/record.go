package draw

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

// Beacon is a round of a public randomness beacon. Its randomness is SHA-256 of its signature.
type Beacon struct {
	Chain     Hash   `json:"chain"` // hash of the beacon's chain
	Round     uint64 `json:"round"`
	Signature []byte `json:"-"`
	Text      string `json:"signature"` // Signature in hexadecimal digits
}

// Record is the permanent public result of a draw, published after the close.
type Record struct {
	Algorithm string    `json:"algorithm"`
	Room      string    `json:"room"`  // ID of the room
	Event     string    `json:"event"` // ID of the event
	Commit    Hash      `json:"commit"`
	Committed time.Time `json:"committed"` // publication of the commit
	Closes    time.Time `json:"closes"`    // visitors that joined earlier take part
	Beacon    *Beacon   `json:"beacon,omitempty"`
	Secret    Hash      `json:"secret"`
	Entrants  uint64    `json:"entrants"` // visitors counted
}

// Receipt is a visitor's evidence of its place in a draw.
type Receipt struct {
	Ticket Ticket    `json:"ticket"`
	Joined time.Time `json:"joined"`
	Class  uint8     `json:"class,omitempty"`
	Place  time.Time `json:"place"`
	Commit Hash      `json:"commit,omitzero"` // of the draw, as shown to the visitor before it
}

// Ticket is a ticket number: 16 hexadecimal digits in JSON.
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

// maxSignature bounds a beacon's signature, in bytes. Signatures of drand have 48 or 96.
const maxSignature = 96

// DecodeRecord decodes a record. It rejects unknown fields.
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

// EncodeRecord encodes a record.
func EncodeRecord(r *Record) ([]byte, error) {
	out := *r
	if r.Beacon != nil {
		b := *r.Beacon
		b.Text = hex.EncodeToString(b.Signature)
		out.Beacon = &b
	}
	return json.Marshal(&out)
}

// Check returns all violations of a fair draw in a record. beacon verifies the round, and that it is the first one
// after the close.
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

// seed returns SHA-256 of the algorithm's name and " seed", the secret, the beacon's randomness (zeros without
// one), the close of entries (milliseconds since 1970, eight bytes, big-endian), and the IDs of room and event,
// each prefixed with its length in four bytes, big-endian.
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

// Same reports whether another record gives the same places.
func (r *Record) Same(o *Record) bool { return r.seed() == o.seed() }

// Draw returns the draw of a checked record.
func (r *Record) Draw() *Draw {
	d := newDraw(r.seed(), fleettime.TimeOf(r.Closes))
	d.commit = r.Commit
	return d
}

// Takes reports whether the receipt's ticket joined before the close.
func (d *Draw) Takes(r *Receipt) bool { return fleettime.TimeOf(r.Joined) < d.closes }

// ErrForged is returned for a receipt with a different place than the drawn one.
var ErrForged = errors.New("that is not the place that was drawn")

// Check returns nil if the receipt holds the ticket's place in the draw.
func (d *Draw) Check(r *Receipt) error {
	if r.Class > MaxClass {
		return fmt.Errorf("class: must be 0 to %d, got %d", MaxClass, r.Class)
	}
	if r.Commit != (Hash{}) && r.Commit != d.commit {
		return fmt.Errorf("commit: %w: the receipt is of another draw than the record", ErrForged)
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

// TimeFormat is the format of times in receipts.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"
