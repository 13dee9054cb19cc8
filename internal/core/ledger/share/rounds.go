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

// rounds calls visitors in a room whose method is random. In each round every visitor that has waited since before it
// has the same chance. A visitor hears of its call with its next question, so visitors are called some time before
// permits come free: see ahead.
type rounds struct {
	recent     draw.Rounds    // oldest first; made anew with every change, as views keep it
	share      float64        // of the visitors in the newest round, the part that has been called
	calledUpTo fleettime.Time // visitors that came during the round before this time have been called, once share is 1

	calls  [callSeconds]float64 // how many people were called in each of the last seconds
	second int64                // the newest of them
}

const (
	// callSeconds is the longest time from a call to the visitor's next question.
	callSeconds = int(draw.RoundLength / time.Second)

	// People are called so long before they will enter. Half of them are on their way, as their next
	// question lies anywhere within a round; the others are held at the edges and take each slot as it becomes free.
	ahead = 20 * time.Second
)

// Lot identifies the draws of a room.
type Lot struct {
	Term wire.Term // of the leader
	Room room.ID
}

// call calls visitors until want of them are called and have not entered; held of them are at the edges. whole is the
// line by place, with called visitors.
func (r *rounds) call(ft fleettime.Time, l Lot, whole estimate.Histogram, want, held float64) {
	if n := len(r.recent); n == 0 || r.recent[n-1].Start() < draw.StartOf(ft) {
		r.open(ft, l)
	}
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

// open begins the round that is on at ft.
func (r *rounds) open(ft fleettime.Time, l Lot) {
	kept := r.recent[max(0, len(r.recent)+1-draw.MaxRounds):]
	r.recent = append(append(draw.Rounds(nil), kept...), draw.NewRound(ft, l.seed(draw.StartOf(ft))))
	r.share, r.calledUpTo = 0, 0
}

// seed returns the seed of the draw of the round that begins at start. Another leader uses another one, because it
// does not know the visitors that its predecessor called.
func (l Lot) seed(start fleettime.Time) uint64 {
	var in [32]byte
	for i, n := range []uint64{l.Term.N, l.Term.Nonce, uint64(l.Room), uint64(start)} {
		binary.BigEndian.PutUint64(in[8*i:], n)
	}
	sum := sha256.Sum256(in[:])
	return binary.BigEndian.Uint64(sum[:])
}

// advance drops calls after all their visitors had the time to come.
func (r *rounds) advance(second int64) {
	r.second = max(r.second, second-int64(callSeconds))
	for r.second < second {
		r.second++
		r.calls[r.second%int64(callSeconds)] = 0
	}
}

// coming returns the number of called visitors that have not heard of it yet: the next question of each lies anywhere
// within callSeconds.
func (r *rounds) coming() float64 {
	sum := 0.0
	for age := range callSeconds {
		if s := r.second - int64(age); s >= 0 {
			sum += r.calls[s%int64(callSeconds)] * (1 - (float64(age)+0.5)/float64(callSeconds))
		}
	}
	return sum
}

// cutoff returns the last place that is called.
func (r *rounds) cutoff() fleettime.Time { return r.recent[len(r.recent)-1].Called }

// waits returns when given parts of the waiting visitors that have not been called will have entered: called visitors
// enter before them. joining visitors come per second, for the time fading.
func (r *rounds) waits(called, waiting, joining float64, fading time.Duration, paces []estimate.Pace, theta float64) estimate.Waits {
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
