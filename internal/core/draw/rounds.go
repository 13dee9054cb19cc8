package draw

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"time"

	"vestibule/internal/core/fleettime"
)

const (
	// RoundLength is the length of a round of a random room: a waiting visitor asks about once per round.
	RoundLength = 20 * time.Second

	// MaxRounds is how many rounds are published: a visitor called in one of them that has not asked since still
	// enters.
	MaxRounds = 4

	// RoundParts is the number of distinct places of a round's participants.
	RoundParts = half - 1

	half = int64(RoundLength / time.Millisecond / 2)
)

// Round is one round of a random room. Visitors with a place from before its start take part, each with the same
// chance. Later visitors follow in order, so joining again as a new visitor gains nothing.
type Round struct {
	Seed   uint64         `json:"-"`      // seed of the places, known to nodes only
	Called fleettime.Time `json:"called"` // the last called place, on the axis of the round's places
}

// StartOf returns the start of the round at a time.
func StartOf(t fleettime.Time) fleettime.Time {
	return t - t%fleettime.Time(RoundLength.Milliseconds())
}

// NewRound returns the round at a time, with nobody called.
func NewRound(t fleettime.Time, seed uint64) Round { return Round{Seed: seed, Called: StartOf(t)} }

// Start returns the first millisecond of the round.
func (r Round) Start() fleettime.Time { return StartOf(r.Called) }

// Place returns the place in the round of a ticket with the queue place joined. Participants get a number from 1 to
// [RoundParts] after the round's start, in milliseconds: 1 + ⌊RoundParts·u⌋, where u is the first eight bytes of
// SHA-256 of seed and ticket, over 2^64, all numbers big-endian. Later visitors are in the second half of the
// round.
func (r Round) Place(ticket uint64, joined fleettime.Time) fleettime.Time {
	start := r.Start()
	if joined >= start {
		return start + fleettime.Time(half+min(int64(joined-start)/2, half-1))
	}
	var in [16]byte
	binary.BigEndian.PutUint64(in[:], r.Seed)
	binary.BigEndian.PutUint64(in[8:], ticket)
	sum := sha256.Sum256(in[:])
	n, _ := bits.Mul64(uint64(RoundParts), binary.BigEndian.Uint64(sum[:]))
	return start + 1 + fleettime.Time(n)
}

// Upto returns the round after it called a share of the participants, 0 to 1. With share 1 it also calls the later
// visitors that joined before joined, 0 for none.
func (r Round) Upto(share float64, joined fleettime.Time) Round {
	start := r.Start()
	r.Called = start + fleettime.Time(min(1, max(0, share))*float64(RoundParts))
	if share >= 1 && joined > start {
		// the last place belongs to visitors that join after the round
		r.Called = start + fleettime.Time(min(2*half-1, half+int64(joined-start)/2)-1)
	}
	return r
}

// Rounds are the last rounds of a room, oldest first. They must not be changed after publication.
type Rounds []Round

// Newest returns the seed of the newest round, or 0.
func (rs Rounds) Newest() uint64 {
	if len(rs) == 0 {
		return 0
	}
	return rs[len(rs)-1].Seed
}

// Called returns the last called place. rs must not be empty.
func (rs Rounds) Called() fleettime.Time { return rs[len(rs)-1].Called }

// Place returns the place that decides about a ticket with the queue place joined: that of the first round that
// called it, or else that of the newest round. The ticket is called unless the place is behind [Rounds.Called].
// rs must not be empty.
func (rs Rounds) Place(ticket uint64, joined fleettime.Time) (place fleettime.Time) {
	for _, r := range rs {
		place = r.Place(ticket, joined)
		if place <= r.Called && joined < r.Start().Add(RoundLength) {
			return place
		}
	}
	return place
}
