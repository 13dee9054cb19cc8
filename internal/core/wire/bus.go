package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vestibule/internal/core/fleettime"
)

// ErrDown says that the bus has no connection: the message was not sent and
// will not be. State is sent again anyway, so nobody retries.
var ErrDown = errors.New("bus: not connected")

// Bus carries messages between nodes, at most once and without memory. Its
// methods are safe for concurrent use.
type Bus interface {
	// Publish sends data on subject without waiting for anybody to take it. It
	// returns ErrDown while there is no connection.
	Publish(subject string, data []byte) error

	// Subscribe calls handle with every message on subject, one at a time, until
	// cancel is called; handle may not be running any more when cancel returns.
	// The subject may hold a wildcard; handle gets the one it was sent on.
	Subscribe(subject string, handle func(subject string, data []byte)) (cancel func(), err error)

	// Flush waits until whatever was published here before has left, and what others had
	// published until then was handled here. It gives up when ctx ends.
	Flush(ctx context.Context) error
}

// Desk answers questions that are asked on the bus. Its methods are safe for
// concurrent use.
type Desk interface {
	// Answer calls handle with every question on subject, one at a time, and sends
	// what it returns to who asked, until cancel is called.
	Answer(subject string, handle func(question []byte) (answer []byte)) (cancel func(), err error)
}

// Leadership is the right to lead under one name, for which any number of
// candidates may stand.
type Leadership interface {
	// Run stands for leadership until ctx ends, whose error it returns. Each
	// time it is won, lead is called: leading is being inside lead, which must
	// return when its context ends; when it returns early the leadership is
	// given up, and Run stands again. minTerm is asked before every candidature
	// for a term number that must be exceeded, whatever a store remembers.
	Run(ctx context.Context, minTerm func() uint64, lead func(context.Context, Leading)) error

	// Trouble returns for how long the store has taken nobody's lease although it can be
	// reached, as far as this candidate knows, and why; 0 where it takes them.
	Trouble() (time.Duration, string)
}

// Leading is one time of leadership.
type Leading struct {
	Term    Term
	Until   fleettime.Mono        // certain until then, by the own clock
	Extends <-chan fleettime.Mono // every extension of Until; a newer one replaces one not taken yet
	Behind  bool                  // the store did not know of a term that was seen: it lost writes
	Before  bool                  // somebody led under this name before: what is said of a fleet that begins is not true
	Rival   bool                  // somebody else led since this candidate did, as far as it watched
}

// Written is when a document was written, and its revision since.
type Written struct {
	At       time.Time
	Revision uint64
}

// ErrChanged says that a document was changed by somebody else since it was
// read: nothing was written.
var ErrChanged = errors.New("document changed meanwhile")

// ErrFenced says that what is asked for belongs to a newer term.
var ErrFenced = errors.New("a newer term has taken over")

// FencedError is [ErrFenced] with the term that has taken over.
type FencedError struct{ Term uint64 }

func (e *FencedError) Error() string { return fmt.Sprintf("%v: term %d", ErrFenced, e.Term) }

// Is makes it ErrFenced for errors.Is.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// PromiseStore is where a data centre keeps its promises across its
// aggregators. Its methods are used by one goroutine at a time.
type PromiseStore interface {
	// Open makes the promises those of term, which fences every older term from
	// that moment, and returns them as the predecessor left them. It returns
	// a FencedError if a newer term has them.
	Open(ctx context.Context, term Term) (Durable, error)

	// Site returns the site that is stored, 0 for none. It may be called while another process
	// has the promises, and beside the other methods.
	Site(ctx context.Context) (uint64, error)

	// Put stores d; when it returns nil, d is stored. It returns ErrFenced when
	// the term that was opened is over. Any other error leaves open whether d is
	// stored, and Put is to be called again.
	Put(ctx context.Context, d Durable) error
}

// AuditEntry is an entry of the audit trail, as its stream holds it.
type AuditEntry struct {
	Sequence uint64
	Data     []byte
}
