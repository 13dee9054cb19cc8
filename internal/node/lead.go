package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/ledger/region"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/wire"
)

// Ledger is the part of a ledger that is common to the tiers.
type Ledger interface {
	SetLease(until fleettime.Mono)
	SetRooms(now fleettime.Mono, rooms []ledger.RoomConfig)
	SetMembers(now fleettime.Mono, list ledger.Members)

	// Fenced reports whether a successor was seen, and a lower bound of its term.
	Fenced() (by uint64, fenced bool)
}

var (
	_ Ledger = (*region.Aggregator)(nil)
	_ Ledger = (*root.Allocator)(nil)
)

const (
	inboxSize  = 1024 // messages queued for the ledger: a report of 1,000 rooms takes half a megabyte
	inboxBatch = 64   // of them are handled before due messages are sent
)

// ErrAsleep is returned if the machine was suspended while leading.
var ErrAsleep = errors.New("the machine was suspended: its lease is void")

// CandidateOptions configure a candidate.
type CandidateOptions struct {
	Lease wire.Leadership
	Clock *Clock // the clock of Lease
	Log   *slog.Logger

	Dropped     prometheus.Counter // messages that found the inbox full: later ones replace them
	Regressions prometheus.Counter // terms led with a store that did not know an observed term
}

// Candidate stands for leadership and, while leading, drives the ledger of a data centre or of the fleet. Leading
// is one function call, and its return undoes everything. It is safe for concurrent use.
type Candidate struct {
	CandidateOptions
	minTerm atomic.Uint64
	changed chan struct{} // change of the rooms or the list of data centres
}

// NewCandidate returns a candidate. Run makes it stand.
func NewCandidate(o CandidateOptions) *Candidate {
	return &Candidate{CandidateOptions: o, changed: make(chan struct{}, 1)}
}

// Changed reports a change of the rooms or the list of data centres; [NewFleet] calls it.
func (c *Candidate) Changed() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Run stands for leadership until ctx ends. For each term won it calls lead, with a context that ends with the
// lease.
func (c *Candidate) Run(ctx context.Context, f *Fleet, lead func(context.Context, *Term) error) error {
	return IgnoreEnd(ctx, c.Lease.Run(ctx, c.minTerm.Load, func(ctx context.Context, l wire.Leading) {
		if l.Behind {
			c.Regressions.Inc()
		}
		t := &Term{
			Leading: l, c: c, fleet: f, jumps: c.Clock.Jumps(),
			inbox: make(chan func(), inboxSize), outcomes: make(chan func() error, 1),
		}
		if err := lead(ctx, t); err != nil && ctx.Err() == nil {
			c.Log.Warn("leading ended", slog.Any("error", err))
		}
	}))
}

// Term is one term of leadership. One goroutine leads: it calls Drive, which runs everything in sequence.
type Term struct {
	wire.Leading
	c        *Candidate
	fleet    *Fleet
	jumps    uint64
	inbox    chan func()
	outcomes chan func() error
}

// Brief gives a new ledger its lease, the rooms and the data centres.
func (t *Term) Brief(l Ledger) {
	l.SetLease(t.Until)
	t.configure(l)
}

func (t *Term) configure(l Ledger) {
	l.SetRooms(t.c.Clock.Now(), LedgerRooms(t.fleet.Set()))
	if m := t.fleet.Members(); m != nil {
		l.SetMembers(t.c.Clock.Now(), m.Ledger())
	}
}

// Offer queues a message for the leading goroutine. It never blocks: if the inbox is full, it drops the message. It
// is safe for concurrent use.
func (t *Term) Offer(take func()) {
	select {
	case t.inbox <- take:
	default:
		t.c.Dropped.Inc()
	}
}

// Outcome queues the result of some work for the leading goroutine, and blocks until there is space or ctx ends. An
// error of take ends the term. It is safe for concurrent use.
func (t *Term) Outcome(ctx context.Context, take func() error) {
	select {
	case t.outcomes <- take:
	case <-ctx.Done():
	}
}

// Drain handles the messages that are queued now.
func (t *Term) Drain() { t.take(len(t.inbox)) }

// take handles n queued messages.
func (t *Term) take(n int) {
	for range n {
		(<-t.inbox)()
	}
}

// Above makes the candidate stand only for terms above this one.
func (t *Term) Above(term uint64) { t.c.minTerm.Store(max(term, t.c.minTerm.Load())) }

// Drive drives a ledger until ctx ends, or returns the reason for an earlier end of the term. It calls pump first
// and after every event: pump sends due messages and returns the time until the next one, or why the term ends.
// lock guards the ledger against concurrent readers; pump, messages and outcomes take it themselves.
func (t *Term) Drive(ctx context.Context, l Ledger, lock sync.Locker, pump func() (time.Duration, error)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case until := <-t.Extends:
			lock.Lock()
			l.SetLease(until)
			lock.Unlock()
		case take := <-t.inbox:
			take()
			t.take(min(len(t.inbox), inboxBatch)) // a busy leader answers them together
		case take := <-t.outcomes:
			if err := take(); err != nil {
				return err
			}
		case <-t.c.changed:
			lock.Lock()
			t.configure(l)
			lock.Unlock()
		case <-timer.C:
		}
		if t.c.Clock.Jumps() != t.jumps {
			return ErrAsleep
		}
		if by, fenced := l.Fenced(); fenced {
			t.Above(by)
			return wire.ErrFenced
		}
		next, err := pump()
		if err != nil {
			return err
		}
		timer.Reset(next)
	}
}

// Failed is the one of [Results] that is not an outage, and is logged.
const Failed = "failed"

// Results are the results of sending a message, as metric labels.
var Results = []string{"sent", "down", Failed}

// Result returns the [Results] entry of a send error: "sent" for nil, "down" for [wire.ErrDown].
func Result(err error) string {
	switch {
	case err == nil:
		return "sent"
	case errors.Is(err, wire.ErrDown):
		return "down"
	}
	return Failed
}

// SendGrants publishes the grants of a parent and calls count with each result.
func SendGrants(bus wire.Bus, parent string, grants []wire.Grant, count func(error)) {
	for i := range grants {
		count(bus.Publish(wire.GrantSubject(parent, grants[i].To), wire.EncodeGrant(&grants[i])))
	}
}
