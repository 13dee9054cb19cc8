// Package draw gives the visitors of an event places by chance, in a way that anyone can verify afterwards.
//
// A [Secret] is made when the event is saved. Its [Secret.Commit] is public before the first visitor joins. When
// entries close, the secret is published in a [Record], if configured together with a round of a public beacon that
// nobody could know before. Both make the seed of all places. There is no list of visitors: anyone with the record
// and an entry can compute its place.
//
// A draw does not stop a visitor from taking many entries. Without a beacon, an operator that knows the secret can
// make tickets with good places.
package draw

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math/bits"
	"time"

	"vestibule/internal/core/fleettime"
)

// Algorithm is the name of the algorithm in records.
const Algorithm = "vestibule draw 1"

const (
	// Window is the range of places of one class before the close of entries. It lies on the time axis that orders
	// fifo rooms by join time.
	Window = time.Hour

	// MaxClass is the last class. Class 0 is next to the close of entries; each further class has its own window
	// before the previous one.
	MaxClass = 7
)

// Secret is the seed material of a draw. Only global knows it before the close.
type Secret [32]byte

// Commit returns the public commitment to a secret: SHA-256 of the algorithm's name and the secret.
func (s Secret) Commit() [sha256.Size]byte {
	return sha256.Sum256(append([]byte(Algorithm), s[:]...))
}

// Draw computes places. [Record.Draw] makes it. It is not safe for concurrent use.
type Draw struct {
	closes fleettime.Time
	commit Hash // commitment to its secret
	mac    hash.Hash
	sum    []byte
}

// newDraw returns the draw with a seed.
func newDraw(seed [sha256.Size]byte, closes fleettime.Time) *Draw {
	return &Draw{closes: closes, mac: hmac.New(sha256.New, seed[:])}
}

// Place returns the place of a ticket on the time axis of the queue, in milliseconds; class is 0 to [MaxClass].
//
// A visitor that joined after the close keeps the join time as its place, behind all drawn places. Earlier entrants
// get closes − Window·(1+class) + ⌊Window·u⌋, where u is the first eight bytes of HMAC-SHA-256(seed, ticket), as a
// big-endian number, over 2^64. ticket is the ticket's number in eight bytes, big-endian.
func (d *Draw) Place(ticket uint64, joined fleettime.Time, class uint8) fleettime.Time {
	if joined >= d.closes {
		return joined
	}
	var id [8]byte
	binary.BigEndian.PutUint64(id[:], ticket)
	d.mac.Reset()
	d.mac.Write(id[:])
	d.sum = d.mac.Sum(d.sum[:0])
	in, _ := bits.Mul64(uint64(Window.Milliseconds()), binary.BigEndian.Uint64(d.sum))
	return d.closes.Add(-Window*time.Duration(1+class)) + fleettime.Time(in)
}
