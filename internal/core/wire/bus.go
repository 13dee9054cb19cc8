package wire

import (
	"context" //nolint:depguard // interfaces that shells implement
	"errors"
	"fmt"
	"time"

	"vestibule/internal/core/fleettime"
)

// ErrDown reports that the bus has no connection: the message was not sent. Callers do not retry, since state is sent
// again anyway.
var ErrDown = errors.New("bus: not connected")

// Bus carries messages between nodes, at most once, without storing them. Its methods are safe for concurrent use.
type Bus interface {
	// Publish sends data on subject without waiting for a receiver. It returns ErrDown without a connection.
	Publish(subject string, data []byte) error

	// Subscribe calls handle with every message on subject, one at a time, until cancel is called. No call of handle is
	// running when cancel returns. The subject may hold a wildcard; handle gets the actual one.
	Subscribe(subject string, handle func(subject string, data []byte)) (cancel func(), err error)

	// Flush waits until all earlier messages of this client have left, and all messages published by others until then
	// were handled. It returns early when ctx ends.
	Flush(ctx context.Context) error
}

// Desk answers requests on the bus. Its methods are safe for concurrent use.
type Desk interface {
	// Answer calls handle with every request on subject, one at a time, and sends its result to the requester, until
	// cancel is called.
	Answer(subject string, handle func(question []byte) (answer []byte)) (cancel func(), err error)
}

// Leadership is an election of one leader among any number of candidates of one name.
type Leadership interface {
	// Run is a candidate until ctx ends, and returns ctx's error. It calls lead each time it wins. The candidate leads
	// while lead runs; lead must return when its context ends. If it returns early, Run gives up the leadership and is
	// a candidate again. minTerm is called before every attempt and returns a term number that must be exceeded, even
	// if the store has forgotten it.
	Run(ctx context.Context, minTerm func() uint64, lead func(context.Context, Leading)) error

	// Trouble returns how long the store has been reachable without accepting any lease, as far as this candidate
	// knows, and why; 0 while it accepts leases.
	Trouble() (time.Duration, string)

	// Slow returns why this leader's renewals are late, "" while they are not.
	Slow() string
}

// Leading is one period of leadership.
type Leading struct {
	Term    Term
	Until   fleettime.Mono        // leadership is certain until then, by the own clock
	Extends <-chan fleettime.Mono // every extension of Until; a newer one replaces an unread one
	Behind  bool                  // the store did not know a term seen earlier: it has lost writes
	Before  bool                  // another leader preceded this one, so the fleet is not new
	Last    Term                  // the newest earlier term that was observed, of any candidate; the zero Term for none
}

// Written is the time of the last write of a document, and its revision.
type Written struct {
	At       time.Time
	Revision uint64
}

// ErrChanged reports that the document was changed since it was read: nothing was written.
var ErrChanged = errors.New("document changed meanwhile")

// ErrFenced reports that a newer term owns the data.
var ErrFenced = errors.New("a newer term has taken over")

// FencedError is [ErrFenced] with the newer term.
type FencedError struct{ Term uint64 }

func (e *FencedError) Error() string { return fmt.Sprintf("%v: term %d", ErrFenced, e.Term) }

// Is makes errors.Is match ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// PromiseStore holds the stored promises of a data centre across its aggregators. Its methods are used by one goroutine
// at a time.
type PromiseStore interface {
	// Open claims the promises for term, which fences every older term from then on, and returns them as the
	// predecessor left them. It returns a FencedError if a newer term owns them.
	Open(ctx context.Context, term Term) (Durable, error)

	// Put stores d; nil means that d is stored. It returns ErrFenced if the opened term is over. After any other error
	// d may or may not be stored, and Put must be called again.
	Put(ctx context.Context, d Durable) error
}

// AuditEntry is an entry of the audit stream.
type AuditEntry struct {
	Sequence uint64
	Data     []byte
}
