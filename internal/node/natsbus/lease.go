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

// LeaseLength is how long a leader leads without a renewal. A rival waits this long after the last renewal, so that it
// bounds a takeover together with one exchange.
const LeaseLength = 1200 * time.Millisecond

const (
	leasesBucket = "vestibule_leases"
	// rivalMargin is the extra wait of a rival beyond the lease, besides clock drift.
	rivalMargin = 100 * time.Millisecond
)

// Lease is the leadership of one name: of global, or of one data centre. There may be any number of candidates.
//
// It needs only each candidate's own clock. The leader renews a key by compare-and-set, and leads until its lease ends,
// counted from before the write was sent. A rival takes over by compare-and-set once it has seen the key unchanged for
// longer than a lease, counted from its own read. A stale view only makes the compare-and-set fail. A missing key is
// waited for as well: the store may have lost the lease of a live leader.
//
// The term is a number inside the key. It grows with every takeover and is never below the date, so that it exceeds
// those of a lost or restored store even if no node remembers them.
type Lease struct {
	conn     *Conn
	name     string
	me       string
	replicas int
	now      func() fleettime.Mono
	log      *slog.Logger

	fresh bool   // no leader ever existed, says the operator
	met   bool   // another leader was observed
	term  uint64 // highest observed term

	trouble trouble // with writing
	led     uint64  // nonce of this candidate's last lease, 0 for none
	rival   bool    // another candidate's lease was seen since

	namesake leaseValue // a lease with our name and another nonce, as last seen
	beats    int        // its observed renewals; negative once reported
}

// leaseValue is the value of the key. The nonce shows whether a write that timed out happened.
type leaseValue struct {
	Leader string `json:"leader"`
	Nonce  uint64 `json:"nonce"`
	Term   uint64 `json:"term"`
	Beat   uint64 `json:"beat"`
}

// NewLease returns the leadership called name for the candidate me. now reads this process's monotonic clock.
func NewLease(conn *Conn, name, me string, replicas int, now func() fleettime.Mono) *Lease {
	return &Lease{
		conn: conn, name: name, me: me, replicas: replicas, now: now,
		log: conn.log.With(slog.String("lease", name)),
	}
}

// Bootstrap sets whether the operator asserts that this name never had a leader: then a missing key is not waited for.
func (l *Lease) Bootstrap(asserted bool) *Lease {
	l.fresh = asserted
	return l
}

// ErrLeaseLost reports that another candidate leads, or may lead.
var ErrLeaseLost = errors.New("lease lost")

// errShut reports that the store does not answer, or cannot be created as requested.
var errShut = errors.New("cannot open the lease store")

var errExpired = fmt.Errorf("%w: it could not be renewed", ErrLeaseLost)

var _ wire.Leadership = (*Lease)(nil)

// Run implements [wire.Leadership].
func (l *Lease) Run(ctx context.Context, minTerm func() uint64, lead func(context.Context, wire.Leading)) error {
	warned := false // the failure was logged
	for {
		err := l.stand(ctx, minTerm, lead)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch shut := errors.Is(err, errShut) && !errors.Is(err, wire.ErrDown); {
		case shut && !warned:
			warned = true
			l.log.Warn("cannot stand for leadership yet", slog.Any("error", err))
		case err != nil:
			warned = warned && shut
			l.log.Debug("leadership attempt ended", slog.Any("error", err))
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
	l.trouble.record(err)
	return rev, err
}

// lead calls lead with a context that ends with the lease. The lease is given up only after lead has returned.
func (l *Lease) lead(ctx context.Context, kv jetstream.KeyValue, t taken, lead func(context.Context, wire.Leading)) {
	v := t.value
	scope, end := context.WithCancel(ctx)
	defer end()
	until := t.sent.Add(fleettime.Shrink(LeaseLength))
	// By its own timer, so that a hanging write cannot delay the end.
	expiry := time.AfterFunc(until.Sub(l.now()), end)
	defer expiry.Stop()
	extends := make(chan fleettime.Mono, 1)
	done := make(chan struct{})
	before, rival := l.met || l.term > 0, l.rival
	l.met, l.term, l.led, l.rival = true, v.Term, v.Nonce, false
	l.log.Info("leading", slog.Uint64("term", v.Term))
	if t.behind {
		l.log.Error("the store did not know of a term that was seen: it lost writes or was restored")
	}
	go func() {
		defer close(done)
		lead(scope, wire.Leading{Term: wire.Term{N: v.Term, Nonce: v.Nonce}, Until: until, Extends: extends, Behind: t.behind, Before: before, Rival: rival})
	}()
	rev, err := l.keepRenewed(ctx, kv, v, t.rev, until, tenure{scope, expiry, extends, done})
	if err != nil {
		l.log.Warn("no longer leading", slog.Uint64("term", v.Term), slog.Any("error", err))
	}
	end()
	<-done
	if err == nil {
		l.giveUp(kv, v, rev)
	}
}

// tenure is one period of leadership.
type tenure struct {
	scope   context.Context
	expiry  *time.Timer // ends scope
	extends chan fleettime.Mono
	done    <-chan struct{} // closed when lead has returned
}

// keepRenewed renews the lease until ctx ends or the tenure is done, and then returns its revision. It returns an error if the
// lease is lost, or not renewed in time.
func (l *Lease) keepRenewed(ctx context.Context, kv jetstream.KeyValue, v leaseValue, rev uint64, until fleettime.Mono, t tenure) (uint64, error) {
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
			if rev, err = l.stillOwned(ctx, kv, v, min(LeaseLength/3, left)); err != nil {
				return 0, err
			}
		default:
			l.log.Debug("lease not renewed yet", slog.Any("error", err))
		}
	}
}

// stillOwned checks after a refused write whether the key still holds our lease, because an earlier write that timed out had
// happened. The returned revision is only valid for the next compare-and-set, which decides.
func (l *Lease) stillOwned(ctx context.Context, kv jetstream.KeyValue, v leaseValue, limit time.Duration) (uint64, error) {
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

// giveUp lets rivals take over at once. If it fails they wait for the end of the lease.
func (l *Lease) giveUp(kv jetstream.KeyValue, v leaseValue, rev uint64) {
	v.Leader = ""
	if _, err := l.write(context.Background(), kv, v, rev, LeaseLength/3); err != nil {
		l.log.Debug("lease not given up", slog.Any("error", err))
	}
	l.log.Info("leadership ended", slog.Uint64("term", v.Term))
}
