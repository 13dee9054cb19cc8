package ticket

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/strictjson"
)

const (
	// MaxKeys bounds a ring: the next key, the current one, and those whose
	// tickets are still honoured.
	MaxKeys = 4

	// MinRotation is the least time between two rotations. With MaxKeys it
	// gives every ticket at least two rotations to be sealed anew before its
	// key is dropped, so no place is lost.
	MinRotation = 10 * time.Minute
)

// Secret is key material. It formats as a fixed string, so that no log and no
// error can show it.
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
	SealFrom fleettime.Time `json:"seal_from"` // sealing begins then, at opensOnly never; opening is allowed at once
}

// opensOnly is the SealFrom of a key of another ring: see [Keyring.Join].
const opensOnly fleettime.Time = 1 << 53

// newest returns the newest key that seals or is to seal.
func (r Keyring) newest() Key {
	for _, k := range slices.Backward(r.Keys) {
		if k.SealFrom < opensOnly {
			return k
		}
	}
	return Key{}
}

// Keyring is the fleet's root keys, oldest first. The zero value is empty: a
// node that has it is not ready. Only the global coordinator makes keys.
type Keyring struct {
	Version uint64 `json:"version"` // grows with every change
	Keys    []Key  `json:"keys"`
}

// Errors of Rotate.
var (
	// ErrTooSoon says that nobody seals with the newest key of the ring yet.
	ErrTooSoon = errors.New("ticket: the newest key is not in use yet")

	// ErrInterval says that keys were to be rotated more often than MinRotation.
	ErrInterval = fmt.Errorf("ticket: keys are rotated every %v at most", MinRotation)
)

// Rotate returns the ring with one more key, read from random (which must be
// a cryptographic source), dropping the oldest beyond MaxKeys. Nobody seals with
// a key before it has been in the ring for one interval, so whoever hears of the
// ring once in an interval knows every key that he meets. An empty ring gets its
// first key, which seals at once, and the next one together; only the first where
// interval is 0, which stands for no rotation. The next rotation is due when the
// key of this one comes into use.
func (r Keyring) Rotate(now fleettime.Time, interval time.Duration, random io.Reader) (Keyring, error) {
	if interval < MinRotation && (interval != 0 || len(r.Keys) > 0) {
		return r, ErrInterval
	}
	next := Keyring{Version: r.Version + 1, Keys: slices.Clone(r.Keys)}
	if len(r.Keys) == 0 {
		// Numbered by the date: keys of two rings have different numbers.
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

// Due reports whether a ring whose keys are rotated at intervals (0 for never) is to
// be rotated at now.
func (r Keyring) Due(now fleettime.Time, interval time.Duration) bool {
	return len(r.Keys) == 0 || interval > 0 && now >= r.newest().SealFrom
}

// Join returns what becomes of r where nodes are heard that hold o. Of two rings of which
// one came of the other by rotations it is the newer one. Of two that were begun apart
// the older one goes on, and the key that the other one seals with only opens tickets, so
// that nobody loses a place; a key with the number of one that is kept is left out. The
// version of such a ring tells every node to take it.
func (r Keyring) Join(o Keyring, now fleettime.Time) Keyring {
	shared := slices.ContainsFunc(o.Keys, r.has)
	switch {
	case len(o.Keys) == 0, o.Version == r.Version && slices.Equal(o.Keys, r.Keys):
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
	// In the order in which they are needed: what nodes seal with and will, and what
	// they did.
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
	joined := Keyring{Version: max(r.Version, o.Version) + MaxKeys}
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

// dropped reports whether r may have come of o and dropped all its keys since.
func (r Keyring) dropped(o Keyring) bool {
	return r.Version >= o.Version+MaxKeys-1 && o.newest().SealFrom < r.Keys[0].SealFrom
}

// sealing returns the place of the key that is sealed with at now, 0 for none.
func (r Keyring) sealing(now fleettime.Time) int {
	for i, k := range slices.Backward(r.Keys) {
		if k.SealFrom <= now {
			return i
		}
	}
	return 0
}

// Sum tells rings apart without telling anything of their keys, "" for an empty one.
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

// Newer reports whether r may replace o on a node that holds o: a ring that
// is older or empties what was seen is never believed.
func (r Keyring) Newer(o Keyring) bool { return len(r.Keys) > 0 && r.Version > o.Version }

// Continues reports whether r can have come of o by rotations. One that holds
// none of the keys of o, although it cannot have dropped them all yet, was begun
// anew: somebody lost the keys.
func (r Keyring) Continues(o Keyring) bool {
	if len(o.Keys) == 0 || r.Version >= o.Version+MaxKeys {
		return true
	}
	newest := o.Keys[len(o.Keys)-1]
	return slices.ContainsFunc(r.Keys, func(k Key) bool { return k.ID == newest.ID && k.Secret == newest.Secret })
}

// EncodeKeyring returns the ring as it is stored and distributed. The result
// holds secrets.
func EncodeKeyring(r Keyring) ([]byte, error) { return json.Marshal(r) }

// MarshalJSON writes the secret itself: the one place where it leaves memory.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s[:]) }

// UnmarshalJSON reads what MarshalJSON wrote and refuses any other length.
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

// DecodeKeyring reads a stored ring. The error names the field and the rule
// and never contains key material.
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
