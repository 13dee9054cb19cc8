package ticket

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"

	"vestibule/internal/core/fleettime"
)

const secondsOfDay = 24 * 60 * 60

// SessionKeys returns the keys of TLS session tickets at now: the first seals, the others open. Every node with the
// same ring has the same ones, so a visitor resumes its session anywhere in the fleet. A key seals for a day, and opens
// on the day after too. There is none without a ring.
func (r Keyring) SessionKeys(now fleettime.Time) (keys [][32]byte, err error) {
	if len(r.Keys) == 0 {
		return nil, nil
	}
	today, at := now.Second()/secondsOfDay, r.sealing(now)
	for i := range r.Keys {
		k := &r.Keys[(at+len(r.Keys)-i)%len(r.Keys)]
		for _, d := range [...]int64{today, today - 1} {
			key, err := hkdf.Key(sha256.New, k.Secret[:], nil, fmt.Sprintf("vestibule TLS session tickets, day %d", d), 32)
			if err != nil {
				return nil, fmt.Errorf("session keys: %w", err)
			}
			keys = append(keys, [32]byte(key))
		}
	}
	return keys, nil
}
