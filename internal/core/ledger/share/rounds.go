package share

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// Rounds calls visitors of a random room. The zero value begins with the first round. In each round, every visitor that
// has waited since before the round has the same chance. A visitor learns of its call with its next poll, so visitors
// are called some time before permits are free: see ahead.
type Rounds struct {
	recent     draw.Rounds    // oldest first; copied on change, because views keep it
	share      float64        // called part of the visitors in the newest round
	calledUpTo fleettime.Time // visitors that joined during the round before this time are called, once share is 1

	calls  [callSeconds]float64 // visitors called in each of the last seconds
	second int64                // the newest of them
}

const (
	// callSeconds is the longest time from a call to the visitor's next poll.
	callSeconds = int(draw.RoundLength / time.Second)

	// ahead is the time between a call and the expected admission. Half of the called visitors have not polled
	// yet. The others are held at the edges and take each slot that becomes free.
	ahead = 20 * time.Second
)

// Lot identifies the draws of a room.
type Lot struct {
	Term wire.Term // of the leader
	Room room.ID
}

// call calls visitors of the round that has begun until want of them are called and have not entered; held of them are
// at the edges. whole is the line by place, with called visitors.
func (r *Rounds) call(ft fleettime.Time, whole estimate.Histogram, want, held float64) {
	r.advance(ft.Second())
	coming := r.coming()
	more := want - held - coming
	if more <= 0 {
		return
	}
	newest := &r.recent[len(r.recent)-1]
	start := newest.Start()
	called := 0.0
	if r.share < 1 {
		left := max(0, whole.Before(start)-held-coming)
		if called = min(more, left); left-called < 0.5 {
			r.share = 1
		} else {
			r.share += (1 - r.share) * called / left
		}
	}
	if rest := more - called; r.share >= 1 && rest > 0 {
		before := whole.Before(max(start, r.calledUpTo))
		if late := min(rest, whole.Total()-before); late > 0 {
			called += late
			r.calledUpTo = max(r.calledUpTo, whole.At(before+late))
		}
	}
	r.calls[r.second%int64(callSeconds)] += called
	r.recent = append(draw.Rounds(nil), r.recent...)
	r.recent[len(r.recent)-1] = newest.Upto(r.share, r.calledUpTo)
}

// begin starts the round of ft, unless it has begun.
func (r *Rounds) begin(ft fleettime.Time, l Lot) {
	if n := len(r.recent); n > 0 && r.recent[n-1].Start() >= draw.StartOf(ft) {
		return
	}
	kept := r.recent[max(0, len(r.recent)+1-draw.MaxRounds):]
	r.recent = append(append(draw.Rounds(nil), kept...), draw.NewRound(ft, l.seed(draw.StartOf(ft))))
	r.share, r.calledUpTo = 0, 0
}

// seed returns the seed of the round that begins at start. Every leader uses another one, because it does not know
// the visitors that its predecessor called.
func (l Lot) seed(start fleettime.Time) uint64 {
	var in [32]byte
	for i, n := range []uint64{l.Term.N, l.Term.Nonce, uint64(l.Room), uint64(start)} {
		binary.BigEndian.PutUint64(in[8*i:], n)
	}
	sum := sha256.Sum256(in[:])
	return binary.BigEndian.Uint64(sum[:])
}

// advance drops calls that all their visitors have learned of.
func (r *Rounds) advance(second int64) {
	r.second = max(r.second, second-int64(callSeconds))
	for r.second < second {
		r.second++
		r.calls[r.second%int64(callSeconds)] = 0
	}
}

// coming returns the expected number of called visitors that have not polled yet: the next poll of each is uniform
// within callSeconds.
func (r *Rounds) coming() float64 {
	sum := 0.0
	for age := range callSeconds {
		if s := r.second - int64(age); s >= 0 {
			sum += r.calls[s%int64(callSeconds)] * (1 - (float64(age)+0.5)/float64(callSeconds))
		}
	}
	return sum
}

// cutoff returns the last called place.
func (r *Rounds) cutoff() fleettime.Time { return r.recent.Called() }

// waits returns the times at which given parts of the waiting visitors that are not called will have entered. Called
// visitors enter before them. joining visitors join per second, for the time fading.
func (r *Rounds) waits(
	called, waiting, joining float64, fading time.Duration, paces []estimate.Pace, theta float64,
) estimate.Waits {
	called = min(called, waiting)
	before, ok := estimate.Estimate(called, paces, 0)
	if !ok {
		return estimate.Waits{}
	}
	w, ok := estimate.Lots(waiting-called, joining, fading, estimate.Later(paces, before), theta)
	if !ok {
		return estimate.Waits{}
	}
	for k := range w {
		w[k] = min(estimate.MaxWait, before+w[k])
	}
	return w
}
