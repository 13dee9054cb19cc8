package ticket

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog" //nolint:depguard // secrets redact themselves in logs
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/strictjson"
)

const (
	// MaxKeys bounds a ring: the next key, the current one, and older ones of valid tickets.
	MaxKeys = 4

	// MinRotation is the minimum time between two rotations. With MaxKeys it gives every ticket at least two rotations
	// to be sealed again before its key is dropped, so that no place is lost.
	MinRotation = 10 * time.Minute
)

// Secret is key material. It formats as a fixed string, so that logs and errors cannot show it.
type Secret [32]byte

func (Secret) String() string { return "[secret]" }

// GoString implements [fmt.GoStringer], for %#v.
func (Secret) GoString() string { return "[secret]" }

// LogValue implements [slog.LogValuer].
func (Secret) LogValue() slog.Value { return slog.StringValue("[secret]") }

// Key is one root key of the fleet.
type Key struct {
	ID       uint32         `json:"id"`
	Secret   Secret         `json:"secret"`
	SealFrom fleettime.Time `json:"seal_from"` // start of sealing, opensOnly for never; opening is allowed at once
}

// opensOnly is the SealFrom of a key taken from another ring: see [Keyring.Join].
const opensOnly fleettime.Time = 1 << 53

// newest returns the newest key that seals now or later.
func (r Keyring) newest() Key {
	for _, k := range slices.Backward(r.Keys) {
		if k.SealFrom < opensOnly {
			return k
		}
	}
	return Key{}
}

// era is the number of revocations of a ring: the upper bits of its version. An older build takes a ring that has revoked
// its keys as one that is many rotations newer, and follows it.
func (r Keyring) era() uint64 { return r.Version >> 16 }

// Keyring holds the fleet's root keys, oldest first. The zero value is empty; a node with an empty ring is not ready.
// Only the global coordinator makes keys.
type Keyring struct {
	Version uint64 `json:"version"` // grows with every change
	Keys    []Key  `json:"keys"`
	Push    Secret `json:"push,omitzero"` // of notifications, see package push; zero before a room first has them
}

// Equal reports whether two rings are the same.
func (r Keyring) Equal(o Keyring) bool {
	return r.Version == o.Version && r.Push == o.Push && slices.Equal(r.Keys, o.Keys)
}

// Errors of Rotate.
var (
	// ErrTooSoon reports that the newest key of the ring is not in use yet.
	ErrTooSoon = errors.New("ticket: the newest key is not in use yet")

	// ErrInterval reports an interval shorter than MinRotation.
	ErrInterval = fmt.Errorf("ticket: keys are rotated every %v at most", MinRotation)
)

// Rotate returns the ring with one more key, read from random (a cryptographic source), and drops the oldest beyond
// MaxKeys. A key is in the ring for one interval before it seals, so a node that reads the ring once per interval has
// every key in use. An empty ring gets two keys: the first seals at once. With interval 0, for no rotation, it gets
// only the first. The next rotation is due when the key of this one comes into use.
func (r Keyring) Rotate(now fleettime.Time, interval time.Duration, random io.Reader) (Keyring, error) {
	if interval < MinRotation && (interval != 0 || len(r.Keys) > 0) {
		return r, ErrInterval
	}
	next := Keyring{Version: r.Version + 1, Keys: slices.Clone(r.Keys), Push: r.Push}
	if len(r.Keys) == 0 {
		// Numbered by the date, so that keys of different rings have different numbers.
		next.Keys = append(next.Keys, Key{ID: uint32(max(1, now.Second())), SealFrom: now})
	}
	if next.newest().SealFrom > now {
		return r, ErrTooSoon
	} else if interval > 0 {
		next.Keys = append(next.Keys, Key{ID: next.Keys[len(next.Keys)-1].ID + 1, SealFrom: now.Add(interval)})
	}
	for i := range next.Keys {
		if k := &next.Keys[i]; k.Secret == (Secret{}) {
			if _, err := io.ReadFull(random, k.Secret[:]); err != nil {
				return r, fmt.Errorf("make key: %w", err)
			}
		}
	}
	if len(next.Keys) > MaxKeys {
		next.Keys = next.Keys[len(next.Keys)-MaxKeys:]
	}
	return next, nil
}

// Advance is Rotate before the time: the key that was announced seals at once, and another one is announced. It returns
// ErrTooSoon while the announced key is younger than MinRotation: a node may not know it. An interval of 0, for no
// rotation, counts as MinRotation.
func (r Keyring) Advance(now fleettime.Time, interval time.Duration, random io.Reader) (Keyring, error) {
	next := Keyring{Version: r.Version, Keys: slices.Clone(r.Keys), Push: r.Push}
	for i := range next.Keys {
		if k := &next.Keys[i]; k.SealFrom > now && k.SealFrom < opensOnly {
			if announced := k.SealFrom.Add(-max(interval, MinRotation)); announced.Add(MinRotation) > now {
				return r, fmt.Errorf("%w: it seals from %v on", ErrTooSoon, announced.Add(MinRotation))
			}
			k.SealFrom = now
		}
	}
	next, err := next.Rotate(now, max(interval, MinRotation), random)
	if err != nil {
		return r, err
	}
	return next, nil
}

// Revoke returns a ring of new keys: no ticket under a key of r opens with it, and [Keyring.Join] brings none of them
// back. The first key seals at once.
func (r Keyring) Revoke(now fleettime.Time, interval time.Duration, random io.Reader) (Keyring, error) {
	next, err := Keyring{}.Rotate(now, max(interval, MinRotation), random)
	if err != nil {
		return r, err
	}
	// Their numbers are above those of every ring that exists: rings are numbered by the date and count rotations.
	if n := len(r.Keys); n > 0 && next.Keys[0].ID <= r.Keys[n-1].ID {
		for i := range next.Keys {
			next.Keys[i].ID = r.Keys[n-1].ID + 1 + uint32(i)
		}
	}
	next.Version, next.Push = (r.era()+1)<<16, r.Push
	return next, nil
}

// without returns r without the keys that o has revoked: o has more revocations, and no key as old.
func (r Keyring) without(o Keyring) Keyring {
	if o.era() <= r.era() || len(o.Keys) == 0 {
		return r
	}
	left := Keyring{Version: r.Version, Push: r.Push}
	for _, k := range r.Keys {
		if k.ID >= o.Keys[0].ID {
			left.Keys = append(left.Keys, k)
		}
	}
	return left
}

// Due reports whether the ring must be rotated at now, with the given interval, 0 for never.
func (r Keyring) Due(now fleettime.Time, interval time.Duration) bool {
	return len(r.Keys) == 0 || interval > 0 && now >= r.newest().SealFrom
}

// Join merges the ring o of other nodes into r. If one ring descends from the other by rotations, the newer one is the
// result. Of two unrelated rings the older one continues to seal, and the sealing key of the other only opens tickets,
// so that no place is lost; a key that one ring has revoked does not come back from the other. A key with a taken number is left out. The version of the result makes every node accept
// it. The result has the Push of its own ring, or else of the other.
func (r Keyring) Join(o Keyring, now fleettime.Time) Keyring {
	out := r.join(o, now)
	for _, x := range []Keyring{r, o} {
		if out.Push == (Secret{}) && x.Push != (Secret{}) {
			out.Push, out.Version = x.Push, max(r.Version, o.Version)+1
		}
	}
	return out
}

func (r Keyring) join(o Keyring, now fleettime.Time) Keyring {
	r, o = r.without(o), o.without(r)
	shared := slices.ContainsFunc(o.Keys, r.has)
	switch {
	case len(o.Keys) == 0, o.Equal(r):
		return r
	case len(r.Keys) == 0:
		return o
	case shared && r.Newer(o) && r.Continues(o), !shared && r.dropped(o):
		return r
	case shared && o.Newer(r) && o.Continues(r), !shared && o.dropped(r):
		return o
	}
	seals, opens := r, o
	if o.Keys[0].SealFrom < r.Keys[0].SealFrom {
		seals, opens = o, r
	}
	// In the order of need: the present and next sealing keys, then the past ones.
	at := seals.sealing(now)
	wanted := slices.Clone(seals.Keys[at:min(at+2, len(seals.Keys))])
	foreign := slices.Clone(opens.Keys[:opens.sealing(now)+1])
	slices.Reverse(foreign)
	for i := range foreign {
		if foreign[i].ID > seals.Keys[at].ID {
			foreign[i].SealFrom = opensOnly
		}
	}
	past := slices.Clone(seals.Keys[:at])
	slices.Reverse(past)
	wanted = append(append(append(wanted, foreign[0]), past...), foreign[1:]...)
	joined := Keyring{Version: max(r.Version, o.Version) + MaxKeys, Push: seals.Push}
	for _, k := range wanted {
		if len(joined.Keys) < MaxKeys && !slices.ContainsFunc(joined.Keys, func(h Key) bool { return h.ID == k.ID }) {
			joined.Keys = append(joined.Keys, k)
		}
	}
	slices.SortFunc(joined.Keys, func(a, b Key) int { return cmp.Compare(a.ID, b.ID) })
	return joined
}

// has reports whether k is a key of the ring.
func (r Keyring) has(k Key) bool {
	return slices.ContainsFunc(r.Keys, func(h Key) bool { return h.ID == k.ID && h.Secret == k.Secret })
}

// dropped reports whether r may descend from o and have dropped all its keys since.
func (r Keyring) dropped(o Keyring) bool {
	return r.Version >= o.Version+MaxKeys-1 && o.newest().SealFrom < r.Keys[0].SealFrom
}

// sealing returns the index of the key that seals at now, 0 for none.
func (r Keyring) sealing(now fleettime.Time) int {
	for i, k := range slices.Backward(r.Keys) {
		if k.SealFrom <= now {
			return i
		}
	}
	return 0
}

// Sum returns a checksum to compare rings, which reveals nothing about their keys; "" for an empty ring.
func (r Keyring) Sum() (string, error) {
	if len(r.Keys) == 0 {
		return "", nil
	}
	data, err := EncodeKeyring(r)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// Newer reports whether r may replace o on a node: a ring that is older or empty never does.
func (r Keyring) Newer(o Keyring) bool { return len(r.Keys) > 0 && r.Version > o.Version }

// Continues reports whether r can descend from o by rotations. It cannot if it shares no key with o and is too young to
// have dropped them all: the keys were lost and a new ring begun.
func (r Keyring) Continues(o Keyring) bool {
	if len(o.Keys) == 0 || r.Version >= o.Version+MaxKeys {
		return true
	}
	return r.has(o.Keys[len(o.Keys)-1])
}

// EncodeKeyring returns the ring as stored and distributed. The result holds secrets.
func EncodeKeyring(r Keyring) ([]byte, error) { return json.Marshal(r) }

// MarshalJSON writes the secret itself. It is the only way out of memory.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s[:]) }

// UnmarshalJSON reads the output of MarshalJSON and refuses any other length.
func (s *Secret) UnmarshalJSON(data []byte) error {
	var b []byte
	if err := json.Unmarshal(data, &b); err != nil {
		return errors.New("secret: not a base64 string") // without the value
	}
	if len(b) != len(s) {
		return fmt.Errorf("secret: must be %d bytes, got %d", len(s), len(b))
	}
	copy(s[:], b)
	return nil
}

// DecodeKeyring reads a stored ring. The error names the field and the rule, and never contains key material.
func DecodeKeyring(data []byte) (Keyring, error) {
	var r Keyring
	if err := strictjson.Decode(data, &r); err != nil {
		return Keyring{}, fmt.Errorf("keyring: %w", err)
	}
	if len(r.Keys) > MaxKeys {
		return Keyring{}, fmt.Errorf("keyring: keys: at most %d, got %d", MaxKeys, len(r.Keys))
	}
	for i, k := range r.Keys {
		if i > 0 && k.ID <= r.Keys[i-1].ID {
			return Keyring{}, fmt.Errorf("keyring: keys[%d].id: must grow, got %d after %d", i, k.ID, r.Keys[i-1].ID)
		}
		if k.Secret == (Secret{}) {
			return Keyring{}, fmt.Errorf("keyring: keys[%d].secret: must not be empty", i)
		}
	}
	return r, nil
}
