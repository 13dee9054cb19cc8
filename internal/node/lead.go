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

// Ledger is what a leader drives, as far as its tier does not matter.
type Ledger interface {
	SetLease(until fleettime.Mono)
	SetRooms(now fleettime.Mono, rooms []ledger.RoomConfig)
	SetMembers(now fleettime.Mono, list ledger.Members)

	// Fenced reports whether a successor has been seen, and a term that it cannot
	// be below.
	Fenced() (by uint64, fenced bool)
}

var (
	_ Ledger = (*region.Aggregator)(nil)
	_ Ledger = (*root.Allocator)(nil)
)

// ErrAsleep says that the machine was asleep while leading.
var ErrAsleep = errors.New("the machine was asleep: its lease cannot be believed")

// CandidateOptions are what a candidate is made of.
type CandidateOptions struct {
	Lease wire.Leadership
	Clock *Clock // the one that Lease reads
	Log   *slog.Logger

	// Inbox bounds the messages waiting for the ledger. Beyond it they are dropped and
	// counted: the next ones say the same.
	Inbox       int
	Dropped     prometheus.Counter
	Regressions prometheus.Counter // terms led from a store that did not know of a term that was seen
}

// Candidate stands for leadership, and while it leads drives a ledger: that of a data
// centre, or of the fleet. Leading is being inside one function, and leaving it undoes
// everything. It is safe for concurrent use.
type Candidate struct {
	CandidateOptions
	minTerm atomic.Uint64
	changed chan struct{} // the rooms or the list of data centres
}

// NewCandidate returns a candidate; it stands once it Runs.
func NewCandidate(o CandidateOptions) *Candidate {
	return &Candidate{CandidateOptions: o, changed: make(chan struct{}, 1)}
}

// Changed tells that the rooms or the list of data centres have changed: what
// [NewFleet] is to call.
func (c *Candidate) Changed() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Run stands for leadership until ctx ends, and calls lead for each term that is won,
// with a context that ends with the lease. The ledger is told what f knows.
func (c *Candidate) Run(ctx context.Context, f *Fleet, lead func(context.Context, *Term) error) error {
	return IgnoreEnd(ctx, c.Lease.Run(ctx, c.minTerm.Load, func(ctx context.Context, l wire.Leading) {
		if l.Behind {
			c.Regressions.Inc()
		}
		t := &Term{
			Leading: l, c: c, fleet: f, jumps: c.Clock.Jumps(),
			inbox: make(chan func(), c.Inbox), outcomes: make(chan func() error, 1),
		}
		if err := lead(ctx, t); err != nil && ctx.Err() == nil {
			c.Log.Warn("leading ended", slog.Any("error", err))
		}
	}))
}

// Term is one time of leading. One goroutine leads: it calls Drive, which does one thing
// after the other.
type Term struct {
	wire.Leading
	c        *Candidate
	fleet    *Fleet
	jumps    uint64
	inbox    chan func()
	outcomes chan func() error
}

// Brief tells a ledger that begins of its lease, the rooms and the data centres.
func (t *Term) Brief(l Ledger) {
	l.SetLease(t.Until)
	t.tell(l)
}

func (t *Term) tell(l Ledger) {
	l.SetRooms(t.c.Clock.Now(), LedgerRooms(t.fleet.Set()))
	if m := t.fleet.Members(); m != nil {
		l.SetMembers(t.c.Clock.Now(), m.Ledger())
	}
}

// Offer has a message taken by who leads. It never waits: where the inbox is full, the
// message is dropped. It is safe for concurrent use.
func (t *Term) Offer(take func()) {
	select {
	case t.inbox <- take:
	default:
		t.c.Dropped.Inc()
	}
}

// Outcome has that of some work taken by who leads, and waits for it until ctx ends. An
// error that take returns ends the term. It is safe for concurrent use.
func (t *Term) Outcome(ctx context.Context, take func() error) {
	select {
	case t.outcomes <- take:
	case <-ctx.Done():
	}
}

// Drain takes the messages that are in the inbox.
func (t *Term) Drain() {
	for {
		select {
		case take := <-t.inbox:
			take()
		default:
			return
		}
	}
}

// Above has the candidate stand for terms above this one only.
func (t *Term) Above(term uint64) { t.c.minTerm.Store(max(term, t.c.minTerm.Load())) }

// Drive drives a ledger until ctx ends, and returns nil then, or the reason why the term
// ends earlier. pump is called first and after everything that happens: it sends what is
// due, and returns for how long nothing will be, or why the term is to end. lock guards
// the ledger against those who look at it meanwhile; pump, messages and outcomes take it
// themselves.
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
		case take := <-t.outcomes:
			if err := take(); err != nil {
				return err
			}
		case <-t.c.changed:
			lock.Lock()
			t.tell(l)
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

// Failed is the one of [Results] that is nobody's outage, and is logged.
const Failed = "failed"

// Results are what becomes of a message that is sent, as metrics name it.
var Results = []string{"sent", "down", Failed}

// Result returns which of [Results] an error of sending is; "sent" for nil, "down" for
// [wire.ErrDown].
func Result(err error) string {
	switch {
	case err == nil:
		return "sent"
	case errors.Is(err, wire.ErrDown):
		return "down"
	}
	return Failed
}

// SendGrants publishes the grants of a parent, and tells count what became of each.
func SendGrants(bus wire.Bus, parent string, grants []wire.Grant, count func(error)) {
	for i := range grants {
		data, err := wire.EncodeGrant(&grants[i])
		if err == nil {
			err = bus.Publish(wire.GrantSubject(parent, grants[i].To), data)
		}
		count(err)
	}
}
