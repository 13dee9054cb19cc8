// Package draw orders by chance those who came before an event, in a way that anyone can
// check afterwards.
//
// A [Secret] is made when the event is saved, and its [Secret.Commit] is public before the
// first visitor comes. When entries close the secret is published in a [Record], and with it,
// where one was asked for, a round of a public beacon that nobody could know before. Both make
// the seed from which everybody's place follows: no list of people is needed, and who knows
// the record and an entry can work out its place.
//
// It does not keep anyone from taking many entries. Without a beacon, an operator who knows
// the secret can make tickets whose places are good.
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

// Algorithm names how places are drawn, in records.
const Algorithm = "vestibule draw 1"

const (
	// Window is how long before the close of entries the places of a class lie: an hour of the
	// time axis on which fifo orders by the time of joining.
	Window = time.Hour

	// MaxClass is the last class: class 0 is nearest to the close of entries, every other one
	// has a window of its own before that of the class below.
	MaxClass = 7
)

// Secret is what the places of a draw are made from, until then known to global alone.
type Secret [32]byte

// Commit returns what is published of a secret beforehand: SHA-256 of the algorithm's name and
// the secret.
func (s Secret) Commit() [sha256.Size]byte {
	return sha256.Sum256(append([]byte(Algorithm), s[:]...))
}

// Draw gives places. It is made by [Record.Draw], and is not safe for concurrent use.
type Draw struct {
	closes fleettime.Time
	commit Hash // to its secret
	mac    hash.Hash
	sum    []byte
}

// newDraw returns the draw of a seed.
func newDraw(seed [sha256.Size]byte, closes fleettime.Time) *Draw {
	return &Draw{closes: closes, mac: hmac.New(sha256.New, seed[:])}
}

// Place returns the place of a ticket on the time axis by which a line is ordered, in
// milliseconds; class is 0 to [MaxClass].
//
// Who joined when entries had closed keeps the time of joining as a place: behind everybody
// drawn. Of who joined before it is closes − Window·(1+class) + ⌊Window·u⌋, where u is the first eight
// bytes of HMAC-SHA-256(seed, ticket), as a big-endian number, over 2^64, and ticket is the
// ticket's number in eight bytes, big-endian.
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
