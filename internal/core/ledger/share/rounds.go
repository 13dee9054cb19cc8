package slots

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"vestibule/internal/draw"
	"vestibule/internal/fleet"
	"vestibule/internal/line"
	"vestibule/internal/mutant"
	"vestibule/internal/room"
	"vestibule/internal/wire"
)

// rounds decides who is called in a room whose method is random: rounds follow each other, and in each of them everybody who has
// waited since before it has the same chance. Nobody hears of a call before the next question, so people are called as they will
// come: see ahead.
type rounds struct {
	recent draw.Rounds // oldest first; made anew with every change, as views keep it
	share  float64     // of those who take part in the newest round, what has been called
	came   fleet.Time  // who came during the round before it has been called, once share is 1

	calls  [callSeconds]float64 // how many people were called in each of the last seconds
	second int64                // the newest of them
}

const (
	// callSeconds is how long it takes at most until who was called asks.
	callSeconds = int(draw.RoundLength / time.Second)

	// ahead is so many seconds of admissions that people are called early. Half of them are on their way, as their next
	// question lies anywhere within a round; the others are held at the edges and take each slot as it becomes free.
	ahead = 20.0
)

// lot is what the rounds of a room go by, beside those who wait.
type lot struct {
	term wire.Term // of who leads
	room room.ID
}

// seed returns what places of the round that begins at start are drawn by. Another leader draws others: what its
// predecessor had called of a round is not known.
func (l lot) seed(start fleet.Time) uint64 {
	var in [32]byte
	for i, n := range []uint64{l.term.N, l.term.Nonce, uint64(l.room), uint64(start)} {
		binary.BigEndian.PutUint64(in[8*i:], n)
	}
	if mutant.On(mutant.RoundsAlike) {
		clear(in[24:])
	}
	sum := sha256.Sum256(in[:])
	return binary.BigEndian.Uint64(sum[:])
}

// call calls so many people that those who were called and are not in are want, of whom held are at the edges. whole is who
// waits, by place, also who was called.
func (r *rounds) call(ft fleet.Time, l lot, whole line.Histogram, want, held float64) {
	if n := len(r.recent); n == 0 || r.recent[n-1].Start() < draw.StartOf(ft) {
		r.begin(ft, l)
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
		before := whole.Before(max(start, r.came))
		if late := min(rest, whole.Total()-before); late > 0 {
			called += late
			r.came = max(r.came, whole.At(before+late))
		}
	}
	r.calls[r.second%int64(callSeconds)] += called
	r.recent = append(draw.Rounds(nil), r.recent...)
	r.recent[len(r.recent)-1] = newest.Upto(r.share, r.came)
}

// begin begins the round that is on at ft.
func (r *rounds) begin(ft fleet.Time, l lot) {
	kept := r.recent[max(0, len(r.recent)+1-draw.MaxRounds):]
	r.recent = append(append(draw.Rounds(nil), kept...), draw.NewRound(ft, l.seed(draw.StartOf(ft))))
	r.share, r.came = 0, 0
}

// advance forgets calls of which all that came of them is known.
func (r *rounds) advance(second int64) {
	r.second = max(r.second, second-int64(callSeconds))
	for r.second < second {
		r.second++
		r.calls[r.second%int64(callSeconds)] = 0
	}
}

// coming returns how many people were called and have not heard of it yet: the next question of each lies anywhere within
// callSeconds.
func (r *rounds) coming() float64 {
	sum := 0.0
	for age := range callSeconds {
		if s := r.second - int64(age); s >= 0 {
			sum += r.calls[s%int64(callSeconds)] * (1 - (float64(age)+0.5)/float64(callSeconds))
		}
	}
	return sum
}

// horizon returns the last place that is called.
func (r *rounds) horizon() fleet.Time { return r.recent[len(r.recent)-1].Called }

// waits returns by when parts of those who wait, and are called by chance, are in.
func (r *rounds) waits(waiting, joining float64, v *wire.View) line.Waits {
	mu := max(v.Mu, 1e-9)
	early := min(waiting, ahead*mu) // called, and not in
	w, ok := line.Lots(waiting-early, joining, v.Paces, v.Theta)
	if !ok {
		return line.Waits{}
	}
	far := 1 - early/max(waiting, 1)
	for k, part := range line.WaitParts {
		// Who is called waits for all that were called before; where everybody is, chance decides among those.
		lag := early / mu * (far + (1-far)*part)
		w[k] = min(line.MaxWait, w[k]+time.Duration(lag*float64(time.Second)))
	}
	return w
}
