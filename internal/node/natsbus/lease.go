package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// LeaseLength is how long a leader leads without a renewal while the store is fast. A rival waits that long after the
// last renewal, so together with its first exchange it bounds a failover.
const LeaseLength = 1200 * time.Millisecond

// LongestLease is the length while the store is slow, and of a new term, whose first writes compete with those of all
// nodes that join. The ledgers bear a replaced leader for longer, [ledger.OwnerLease]: rivals of an older build wait
// for LeaseLength only.
const LongestLease = 3 * LeaseLength

const (
	leasesBucket = "vestibule_leases"
	// rivalMargin is how much longer than a lease a rival waits, besides drift.
	rivalMargin = 100 * time.Millisecond
)

// Lease is leadership under one name: of global, or of one data centre. Any number of candidates may stand.
//
// It uses only each candidate's own clock. The leader renews a key by compare-and-set and leads until its lease
// ends, measured from before the write. A rival takes over by compare-and-set after it has seen the key unchanged
// for longer than a lease, measured from when it saw it. A stale view only makes the compare-and-set fail. For a
// missing key the rival waits as long: if the store was lost, its leader may still hold a lease.
//
// The term is a number in the key. It increases with every takeover and is at least the current time in seconds, so
// that it exceeds the terms of a store that was lost or restored from an older state, even if nobody remembers
// them.
type Lease struct {
	conn     *Conn
	name     string
	me       string
	replicas int
	now      func() fleettime.Mono
	log      *slog.Logger

	fresh bool // the operator asserts that nobody ever led
	met   bool // we saw a leader

	newest wire.Term // seen, ours or another's

	trouble  trouble // of writes
	pace     pace
	patience time.Duration // of the next opening of the bucket

	namesake leaseValue // the last lease under our own name that is not ours
	beats    int        // renewals of it seen; negative after the warning
}

// leaseValue is the content of the key. The nonce shows whether a write that timed out succeeded.
type leaseValue struct {
	Leader string `json:"leader"`
	Nonce  uint64 `json:"nonce"`
	Term   uint64 `json:"term"`
	Beat   uint64 `json:"beat"`
	Length uint64 `json:"ms,omitempty"` // of the lease, in milliseconds; 0 is [LeaseLength]
}

// length returns the length of the lease that a rival waits for.
func (v leaseValue) length() time.Duration {
	return max(LeaseLength, time.Duration(min(v.Length, uint64(LongestLease/time.Millisecond)))*time.Millisecond)
}

// NewLease returns the leadership called name for the candidate me. now reads this process's monotonic clock.
func NewLease(conn *Conn, name, me string, replicas int, now func() fleettime.Mono) *Lease {
	return &Lease{
		conn: conn, name: name, me: me, replicas: replicas, now: now,
		log: conn.log.With(slog.String("lease", name)),
	}
}

// Bootstrap sets whether the operator asserts that nobody ever led under this name: then a missing key is taken at
// once.
func (l *Lease) Bootstrap(asserted bool) *Lease {
	l.fresh = asserted
	return l
}

// ErrLeaseLost means that another candidate leads, or may lead.
var ErrLeaseLost = errors.New("lease lost")

// errUnavailable means that the store is not available: it does not answer, or cannot be created as configured.
var errUnavailable = errors.New("the lease store is not available")

var errExpired = fmt.Errorf("%w: it could not be renewed", ErrLeaseLost)

var _ wire.Leadership = (*Lease)(nil)

// Run implements [wire.Leadership].
func (l *Lease) Run(ctx context.Context, minTerm func() uint64, lead func(context.Context, wire.Leading)) error {
	logged := false // that the store is not available
	for {
		err := l.stand(ctx, minTerm, lead)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch shut := errors.Is(err, errUnavailable) && !errors.Is(err, wire.ErrDown); {
		case shut && !logged:
			logged = true
			l.log.Warn("no process can campaign for leadership yet", slog.Any("error", err))
		case err != nil:
			logged = logged && shut
			l.log.Debug("standing for leadership", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (l *Lease) write(
	ctx context.Context, kv jetstream.KeyValue, v leaseValue, rev uint64, limit time.Duration,
) (uint64, error) {
	if !l.conn.Connected() {
		return 0, wire.ErrDown
	}
	data, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	try, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if rev == 0 {
		rev, err = kv.Create(try, l.name, data)
	} else {
		rev, err = kv.Update(try, l.name, data, rev)
	}
	l.trouble.record(err)
	return rev, err
}

// lead runs the leader until the lease ends. The leader has stopped before the lease is released.
func (l *Lease) lead(ctx context.Context, kv jetstream.KeyValue, t taken, lead func(context.Context, wire.Leading)) {
	v := t.value
	scope, end := context.WithCancel(ctx)
	defer end()
	until := t.end()
	// A separate timer, so that a blocked write cannot delay the end.
	expiry := time.AfterFunc(until.Sub(l.now()), end)
	defer expiry.Stop()
	extends := make(chan fleettime.Mono, 1)
	done := make(chan struct{})
	before, last := l.met || l.newest.N > 0, l.newest
	l.met, l.newest = true, wire.Term{N: v.Term, Nonce: v.Nonce}
	l.log.Info("leading", slog.Uint64("term", v.Term))
	if t.behind {
		l.log.Error("the store did not know of a term that was seen: it lost writes, or came back older")
	}
	go func() {
		defer close(done)
		lead(scope, wire.Leading{
			Term: wire.Term{N: v.Term, Nonce: v.Nonce}, Until: until, Extends: extends, Behind: t.behind, Before: before,
			Last: last,
		})
	}()
	r := renewal{Lease: l, kv: kv, taken: t, until: until, expiry: expiry, extends: extends}
	err := r.run(ctx, scope, done)
	l.pace.late.Store(0)
	if err != nil && ctx.Err() == nil { // the end of the process is no trouble
		l.log.Warn("no longer leading", slog.Uint64("term", v.Term), slog.Any("error", err))
	}
	end()
	<-done
	if err == nil {
		r.release()
	}
}
