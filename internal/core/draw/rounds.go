package draw

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"time"

	"vestibule/internal/core/fleettime"
)

const (
	// RoundLength is how long a round of a room lasts whose method is random: who waits asks about once in it.
	RoundLength = 20 * time.Second

	// MaxRounds is how many rounds are told of: who was called in one of them and has not heard of it still enters.
	MaxRounds = 4

	// RoundParts is into how many parts those who take part in a round are told apart.
	RoundParts = half - 1

	half = int64(RoundLength / time.Millisecond / 2)
)

// Round is one round of a room whose method is random. Whoever has a place from before its start takes part, each with the same
// chance; who comes later is behind them, in order. So nobody gains by coming again as somebody new.
type Round struct {
	Seed   uint64         // by which places are drawn, known to nodes alone
	Called fleettime.Time // the last place that was called, on the axis that places of the round lie on
}

// StartOf returns the start of the round that is on at a time.
func StartOf(t fleettime.Time) fleettime.Time {
	return t - t%fleettime.Time(RoundLength.Milliseconds())
}

// NewRound returns the round that is on at a time. It has called nobody.
func NewRound(t fleettime.Time, seed uint64) Round { return Round{Seed: seed, Called: StartOf(t)} }

// Start returns the first millisecond of the round.
func (r Round) Start() fleettime.Time { return StartOf(r.Called) }

// Place returns where in the round a ticket stands whose place in the line is joined. With everybody who takes part that is a number
// from 1 to [RoundParts] after the round's start, in milliseconds, drawn by the seed: 1 + ⌊RoundParts·u⌋, where u is the first
// eight bytes of SHA-256 of seed and ticket, over 2^64, all numbers big-endian. Who came later has the second half of the round.
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

// Upto returns the round when it has called a share of those who take part, from 0 to 1; and, where that is all of them, those who came
// later but before joined, which is 0 for nobody.
func (r Round) Upto(share float64, joined fleettime.Time) Round {
	start := r.Start()
	r.Called = start + fleettime.Time(min(1, max(0, share))*float64(RoundParts))
	if share >= 1 && joined > start {
		r.Called = start + fleettime.Time(min(2*half-1, half+int64(joined-start)/2)-1) // the last place is of who comes when it is over
	}
	return r
}

// Rounds are the last rounds of a room, oldest first. They must not be changed once told.
type Rounds []Round

// Newest returns the seed of the newest round, 0 where there is none.
func (rs Rounds) Newest() uint64 {
	if len(rs) == 0 {
		return 0
	}
	return rs[len(rs)-1].Seed
}

// Place returns by which place the ticket is called whose place in the line is joined: that of the first round that called it
// or, where none has, that of the newest. It is not called if that is behind the newest Called. There must be a round.
func (rs Rounds) Place(ticket uint64, joined fleettime.Time) (place fleettime.Time) {
	for _, r := range rs {
		place = r.Place(ticket, joined)
		if place <= r.Called && joined < r.Start().Add(RoundLength) {
			return place
		}
	}
	return place
}
