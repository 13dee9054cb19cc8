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

// LeaseLength is how long a leader leads without renewing. A rival waits for
// that long after the last sign of life, so together with its first exchange
// it bounds a takeover.
const LeaseLength = 1200 * time.Millisecond

const (
	leasesBucket = "vestibule_leases"
	// rivalMargin is how much longer than a lease a rival waits, beside drift.
	rivalMargin = 100 * time.Millisecond
)

// Lease is leadership under one name: of global, or of one data centre. Any
// number of candidates may stand.
//
// It needs no clock but each candidate's own: the leader renews a key by
// compare-and-set and believes itself until its lease ends, counted from before
// the write was sent; a rival takes over by compare-and-set once it has seen the
// key unchanged for longer than a lease, counted from when it saw it. A stale
// view only makes the compare-and-set fail. A key that is not there is waited
// for as long: where a store was lost its leader may still believe in its lease.
//
// The term is a number inside the key; it grows with every takeover and is never
// below the date, so that it exceeds those of a store that was lost or came back
// older, also where nobody remembers them.
type Lease struct {
	conn     *Conn
	name     string
	me       string
	replicas int
	now      func() fleettime.Mono
	log      *slog.Logger

	fresh bool   // nobody ever led: the operator says so
	met   bool   // somebody led while we watched
	term  uint64 // highest one met

	trouble trouble // with writing
	led     uint64  // nonce of the lease that this candidate had last, 0 for none
	rival   bool    // a lease of somebody else was seen since

	namesake leaseValue // a lease under our own name that is not ours, as last seen
	beats    int        // how often it was renewed while we watched; below zero once that was told
}

// leaseValue is what the key holds. The nonce tells after a write that timed
// out whether it had happened.
type leaseValue struct {
	Leader string `json:"leader"`
	Nonce  uint64 `json:"nonce"`
	Term   uint64 `json:"term"`
	Beat   uint64 `json:"beat"`
}

// NewLease returns the leadership called name for the candidate me. now reads
// this process's monotonic clock.
func NewLease(conn *Conn, name, me string, replicas int, now func() fleettime.Mono) *Lease {
	return &Lease{
		conn: conn, name: name, me: me, replicas: replicas, now: now,
		log: conn.log.With(slog.String("lease", name)),
	}
}

// Bootstrap tells whether the operator asserts that nobody ever led under this
// name: then a key that is not there need not be waited for.
func (l *Lease) Bootstrap(asserted bool) *Lease {
	l.fresh = asserted
	return l
}

// ErrLeaseLost says that another candidate leads, or may.
var ErrLeaseLost = errors.New("lease lost")

// errShut says that there is no store to stand at: it does not answer, or cannot
// be made as it is asked for.
var errShut = errors.New("the store of leases cannot be opened")

var errExpired = fmt.Errorf("%w: it could not be renewed", ErrLeaseLost)

var _ wire.Leadership = (*Lease)(nil)

// Run implements [wire.Leadership].
func (l *Lease) Run(ctx context.Context, minTerm func() uint64, lead func(context.Context, wire.Leading)) error {
	said := false // that the store cannot be opened
	for {
		err := l.stand(ctx, minTerm, lead)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch shut := errors.Is(err, errShut) && !errors.Is(err, wire.ErrDown); {
		case shut && !said:
			said = true
			l.log.Warn("nobody can stand for leadership yet", slog.Any("error", err))
		case err != nil:
			said = said && shut
			l.log.Debug("standing for leadership", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (l *Lease) write(ctx context.Context, kv jetstream.KeyValue, v leaseValue, rev uint64, limit time.Duration) (uint64, error) {
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
	l.trouble.note(err)
	return rev, err
}

// lead is leadership: everything in it ends when the lease does. What leads has
// ended before the lease is given up.
func (l *Lease) lead(ctx context.Context, kv jetstream.KeyValue, t taken, lead func(context.Context, wire.Leading)) {
	v := t.value
	scope, end := context.WithCancel(ctx)
	defer end()
	until := t.sent.Add(fleettime.Shrink(LeaseLength))
	// By its own timer, so that no write that hangs can put the end off.
	expiry := time.AfterFunc(until.Sub(l.now()), end)
	defer expiry.Stop()
	extends := make(chan fleettime.Mono, 1)
	done := make(chan struct{})
	before, rival := l.met || l.term > 0, l.rival
	l.met, l.term, l.led, l.rival = true, v.Term, v.Nonce, false
	l.log.Info("leading", slog.Uint64("term", v.Term))
	if t.behind {
		l.log.Error("the store did not know of a term that was seen: it lost writes, or came back older")
	}
	go func() {
		defer close(done)
		lead(scope, wire.Leading{Term: wire.Term{N: v.Term, Nonce: v.Nonce}, Until: until, Extends: extends, Behind: t.behind, Before: before, Rival: rival})
	}()
	rev, err := l.hold(ctx, kv, v, t.rev, until, tenure{scope, expiry, extends, done})
	if err != nil {
		l.log.Warn("no longer leading", slog.Uint64("term", v.Term), slog.Any("error", err))
	}
	end()
	<-done
	if err == nil {
		l.giveUp(kv, v, rev)
	}
}

// tenure is one time of leadership.
type tenure struct {
	scope   context.Context
	expiry  *time.Timer // ends scope
	extends chan fleettime.Mono
	done    <-chan struct{} // whoever leads has stopped
}

// hold renews the lease until ctx ends or the tenure is done; then it returns
// the revision of the lease. It returns an error when the lease is lost, or not
// renewed in time.
func (l *Lease) hold(ctx context.Context, kv jetstream.KeyValue, v leaseValue, rev uint64, until fleettime.Mono, t tenure) (uint64, error) {
	beat := time.NewTicker(LeaseLength / 3)
	defer beat.Stop()
	for {
		again := l.conn.link.next()
		select {
		case <-t.done:
			return rev, nil
		case <-t.scope.Done():
			if ctx.Err() != nil {
				return rev, nil
			}
			return 0, errExpired
		case <-beat.C:
		case <-again:
		}
		sent := l.now()
		left := until.Sub(sent)
		if left <= 0 {
			return 0, errExpired
		}
		v.Beat++
		next, err := l.write(ctx, kv, v, rev, min(LeaseLength/3, left))
		switch {
		case err == nil:
			rev, until = next, sent.Add(fleettime.Shrink(LeaseLength))
			t.expiry.Reset(until.Sub(l.now()))
			select {
			case <-t.extends:
			default:
			}
			t.extends <- until
		case errors.Is(err, jetstream.ErrKeyExists):
			if rev, err = l.own(ctx, kv, v, min(LeaseLength/3, left)); err != nil {
				return 0, err
			}
		default:
			l.log.Debug("lease not renewed yet", slog.Any("error", err))
		}
	}
}

// own looks whether the key still holds our own lease after a refused write:
// then an earlier write that timed out had happened. The revision it returns is
// only good for the next compare-and-set, which decides.
func (l *Lease) own(ctx context.Context, kv jetstream.KeyValue, v leaseValue, limit time.Duration) (uint64, error) {
	try, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	e, err := kv.Get(try, l.name)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrLeaseLost, err)
	}
	var have leaseValue
	if err := json.Unmarshal(e.Value(), &have); err != nil || have.Nonce != v.Nonce || have.Term != v.Term {
		return 0, fmt.Errorf("%w to %s, term %d", ErrLeaseLost, have.Leader, have.Term)
	}
	return e.Revision(), nil
}

// giveUp lets rivals take over at once. Where it fails they wait for the lease
// to end.
func (l *Lease) giveUp(kv jetstream.KeyValue, v leaseValue, rev uint64) {
	v.Leader = ""
	if _, err := l.write(context.Background(), kv, v, rev, LeaseLength/3); err != nil {
		l.log.Debug("lease not given up", slog.Any("error", err))
	}
	l.log.Info("leadership ended", slog.Uint64("term", v.Term))
}
