package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/fleettime"
)

const (
	// beatEvery is the interval of a leader's renewals.
	beatEvery = LeaseLength / 3
	// maxOpen is the number of renewals that may be unanswered at a time.
	maxOpen = 3
	// maxTried is the number of writes whose outcome is not known and that are remembered.
	maxTried = 16
)

// pace is how long writes of the lease take.
type pace struct {
	slowest time.Duration // of the newest writes; it falls by a quarter with each faster one
	late    atomic.Int64  // slowest while it is late, for other goroutines
}

// lateAfter is the time of a write from which an operator is told.
const lateAfter = LeaseLength / 4

func (p *pace) took(d time.Duration) {
	p.slowest = max(d, p.slowest*3/4)
	late := p.slowest
	if late < lateAfter {
		late = 0
	}
	p.late.Store(int64(late))
}

// Slow implements [wire.Leadership].
func (l *Lease) Slow() string {
	late := time.Duration(l.pace.late.Load())
	if late == 0 {
		return ""
	}
	return fmt.Sprintf("slow: a renewal of the lease takes %v at %s: above %v no process leads; the server is far away, its disk is slow, or a machine has too little processor time", late.Round(10*time.Millisecond), l.conn.URL(), MaxRoundTrip)
}

// MaxRoundTrip is the longest time of a write to the NATS server of a leader, with the way there and back.
const MaxRoundTrip = time.Second

// length returns the length of a lease that survives three writes in a row as slow as the slowest.
func (p *pace) length() time.Duration {
	return min(max(beatEvery+4*p.slowest, LeaseLength), LongestLease)
}

// write is a renewal that was sent.
type write struct {
	beat   uint64
	length time.Duration
	after  uint64 // the revision that it replaces
	sent   fleettime.Mono
	open   bool // unanswered

	rev uint64 // its own
	err error
}

// renewal renews the lease of one term. Each write has all that is left of the lease. While it is late, another may
// follow it, in case that it was lost: one at most of those that replace the same revision succeeds.
type renewal struct {
	*Lease
	taken
	kv      jetstream.KeyValue
	until   fleettime.Mono
	expiry  *time.Timer // ends the term
	extends chan fleettime.Mono

	tried   []write // that may have succeeded, oldest first
	answers chan write
}

// run renews the lease until ctx ends or the leader is done. It returns an error if the lease is lost, or not renewed
// before scope ends.
func (r *renewal) run(ctx, scope context.Context, done <-chan struct{}) error {
	r.answers = make(chan write, maxOpen)
	writes, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for range r.open() {
			<-r.answers
		}
	}()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	r.pace.took(r.now().Sub(r.sent))
	r.send(writes) // winning the lease may have used up most of it
	for {
		again := r.conn.link.next()
		select {
		case <-done:
			return nil
		case <-scope.Done():
			if ctx.Err() != nil {
				return nil
			}
			return errExpired
		case <-beat.C:
			if r.waits() {
				continue
			}
			r.send(writes)
		case <-again:
			r.send(writes)
		case w := <-r.answers:
			if err := r.settle(writes, w); err != nil {
				return err
			}
			if r.now().Sub(w.sent) >= beatEvery && !r.waits() { // a beat is overdue
				r.send(writes)
			}
		}
	}
}

// open returns the number of unanswered writes.
func (r *renewal) open() (n int) {
	for _, w := range r.tried {
		if w.open {
			n++
		}
	}
	return n
}

// waits reports whether an unanswered write is not late yet.
func (r *renewal) waits() bool {
	now := r.now()
	return slices.ContainsFunc(r.tried, func(w write) bool {
		return w.open && w.after == r.rev && now.Sub(w.sent) < max(beatEvery*3/4, 2*r.pace.slowest)
	})
}

// send sends a renewal, unless too many are unanswered.
func (r *renewal) send(ctx context.Context) {
	now := r.now()
	left := r.until.Sub(now)
	if left <= 0 || r.open() == maxOpen {
		return
	}
	if k := slices.IndexFunc(r.tried, func(w write) bool { return w.open }); k >= 0 {
		r.pace.took(now.Sub(r.tried[k].sent))
	}
	r.value.Beat++
	// A lease is never shortened: the end that the leader was told stays true.
	length := max(r.pace.length(), min(LongestLease, fleettime.Stretch(left)+time.Millisecond))
	r.value.Length = uint64(length / time.Millisecond)
	v, w := r.value, write{beat: r.value.Beat, length: r.value.length(), after: r.rev, sent: now, open: true}
	if len(r.tried) == maxTried { // the oldest is answered: few are not
		r.tried = r.tried[1:]
	}
	r.tried = append(r.tried, w)
	go func() {
		w.rev, w.err = r.write(ctx, r.kv, v, w.after, left)
		r.answers <- w
	}()
}

// settle takes the answer to a write. It returns an error if the lease is lost.
func (r *renewal) settle(ctx context.Context, w write) error {
	for i := range r.tried {
		if r.tried[i].beat == w.beat {
			r.tried[i].open = false
		}
	}
	switch {
	case w.after != r.rev: // another write was first
	case w.err == nil:
		r.pace.took(r.now().Sub(w.sent))
		r.extend(w, w.rev)
	case errors.Is(w.err, jetstream.ErrKeyExists):
		return r.confirm(ctx)
	default:
		r.log.Debug("lease not renewed yet", slog.Any("error", w.err))
	}
	return nil
}

// extend extends the lease by a write that succeeded.
func (r *renewal) extend(w write, rev uint64) {
	r.rev = rev
	r.tried = slices.DeleteFunc(r.tried, func(t write) bool { return !t.open && t.beat <= w.beat })
	until := w.sent.Add(fleettime.Shrink(w.length))
	if until <= r.until {
		return
	}
	r.until = until
	r.expiry.Reset(until.Sub(r.now()))
	select {
	case <-r.extends:
	default:
	}
	r.extends <- until
}

// confirm reads the key after a rejected write. If it still holds our lease, an earlier write had succeeded without an
// answer, and extends the lease from its own sending. The revision is only for the next compare-and-set, which decides.
func (r *renewal) confirm(ctx context.Context) error {
	have, rev, err := r.holder(ctx, r.until.Sub(r.now()))
	switch {
	case errors.Is(err, ErrLeaseLost):
		return err
	case err != nil: // the next write asks again
		r.log.Debug("lease not read", slog.Any("error", err))
		return nil
	}
	w := write{}
	if k := slices.IndexFunc(r.tried, func(t write) bool { return t.beat == have.Beat }); k >= 0 {
		w = r.tried[k]
	}
	r.extend(w, rev)
	return nil
}

// holder returns the content of the key, and its revision. It returns an [ErrLeaseLost] if the lease there is not ours.
func (r *renewal) holder(ctx context.Context, limit time.Duration) (have leaseValue, rev uint64, err error) {
	try, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	e, err := r.kv.Get(try, r.name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return have, 0, fmt.Errorf("%w: %w", ErrLeaseLost, err)
	}
	if err != nil {
		return have, 0, err
	}
	if err := json.Unmarshal(e.Value(), &have); err != nil || have.Nonce != r.value.Nonce || have.Term != r.value.Term {
		return have, 0, fmt.Errorf("%w to %s, term %d", ErrLeaseLost, have.Leader, have.Term)
	}
	return have, e.Revision(), nil
}

// release releases the lease, so that rivals can take over at once. If it fails they wait for its end.
func (r *renewal) release() {
	ctx := context.Background()
	v, limit := r.value, max(beatEvery, 2*r.pace.slowest)
	v.Leader = ""
	_, err := r.write(ctx, r.kv, v, r.rev, limit)
	if errors.Is(err, jetstream.ErrKeyExists) { // a write was under way
		var rev uint64
		if _, rev, err = r.holder(ctx, limit); err == nil {
			_, err = r.write(ctx, r.kv, v, rev, limit)
		}
	}
	if err != nil {
		r.log.Debug("lease not given up", slog.Any("error", err))
	}
	r.log.Info("leadership ended", slog.Uint64("term", v.Term))
}
