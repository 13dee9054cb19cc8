package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/mutant"
	"vestibule/internal/wire"
)

// Promises are what a data centre must remember across its aggregators: whom
// it follows, and its roster of edges.
type Promises struct {
	conn     *Conn
	dc       string
	replicas int

	kv  jetstream.KeyValue
	val promiseValue
	rev uint64
}

var _ wire.PromiseStore = (*Promises)(nil)

type promiseValue struct {
	Owner   wire.Term    `json:"owner"`
	Write   uint64       `json:"write"`
	Durable wire.Durable `json:"durable"`
}

const promisesBucket = "vestibule_promises"

// NewPromises returns the promises of data centre dc; replicas is for the
// bucket, if it has to be made.
func NewPromises(conn *Conn, dc string, replicas int) *Promises {
	return &Promises{conn: conn, dc: dc, replicas: replicas}
}

// Open implements [wire.PromiseStore].
func (p *Promises) Open(ctx context.Context, term wire.Term) (wire.Durable, error) {
	kv, err := p.conn.bucket(ctx, promisesBucket, p.replicas)
	if err != nil {
		return wire.Durable{}, err
	}
	p.kv = kv
	for {
		e, err := kv.Get(ctx, p.dc)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			p.val, p.rev = promiseValue{}, 0
		case err != nil:
			return wire.Durable{}, fmt.Errorf("promises of %s: %w", p.dc, err)
		default:
			p.val, p.rev = promiseValue{}, e.Revision()
			if err := json.Unmarshal(e.Value(), &p.val); err != nil {
				return wire.Durable{}, fmt.Errorf("promises of %s: %w", p.dc, err)
			}
		}
		if p.val.Owner.N > term.N {
			return wire.Durable{}, &wire.FencedError{Term: p.val.Owner.N}
		}
		// The read may have been stale: only this write decides, and it makes
		// every older owner's next write fail.
		p.val.Owner = term
		err = p.write(ctx)
		if err == nil {
			return p.val.Durable, nil
		}
		// Nothing is written over what was not read: a predecessor may have stored
		// more meanwhile.
		if !errors.Is(err, wire.ErrFenced) && !errors.Is(err, errWriteAgain) {
			return wire.Durable{}, err
		}
		select {
		case <-ctx.Done():
			return wire.Durable{}, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// errWriteAgain says that a write was refused and the next one may not be.
var errWriteAgain = errors.New("write again")

// Put implements [wire.PromiseStore].
func (p *Promises) Put(ctx context.Context, d wire.Durable) error {
	p.val.Durable = d
	return p.write(ctx)
}

func (p *Promises) write(ctx context.Context) error {
	if !p.conn.Connected() {
		return fmt.Errorf("promises of %s: %w", p.dc, wire.ErrDown)
	}
	p.val.Write++
	data, err := json.Marshal(p.val)
	if err != nil {
		return fmt.Errorf("promises of %s: %w", p.dc, err)
	}
	var rev uint64
	if p.rev == 0 {
		rev, err = p.kv.Create(ctx, p.dc, data)
	} else {
		rev, err = p.kv.Update(ctx, p.dc, data, p.rev)
	}
	if err == nil {
		p.rev = rev
		return nil
	}
	if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound) {
		kv, berr := p.conn.bucket(ctx, promisesBucket, p.replicas)
		if berr != nil {
			return fmt.Errorf("promises of %s: %w", p.dc, berr)
		}
		p.kv, p.rev = kv, 0
		return fmt.Errorf("promises of %s: the store has lost them all: %w", p.dc, errWriteAgain)
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("promises of %s: %w", p.dc, err)
	}
	// Refused. Ours all the same, if an earlier write that timed out happened.
	e, gerr := p.kv.Get(ctx, p.dc)
	if errors.Is(gerr, jetstream.ErrKeyNotFound) {
		// Nobody has opened them since, or they would be there: ours are the newest.
		p.rev = 0
		return fmt.Errorf("promises of %s: the store has lost them: %w", p.dc, errWriteAgain)
	}
	if gerr != nil {
		return fmt.Errorf("promises of %s: %w", p.dc, gerr)
	}
	var have promiseValue
	if err := json.Unmarshal(e.Value(), &have); err != nil {
		return fmt.Errorf("promises of %s: %w", p.dc, err)
	}
	if have.Owner.N < p.val.Owner.N {
		// The store came back older than we are. The next compare-and-set decides.
		p.rev = e.Revision()
		return fmt.Errorf("promises of %s: the store holds those of term %d, older than ours: %w", p.dc, have.Owner.N, errWriteAgain)
	}
	if have.Owner != p.val.Owner && !mutant.On(mutant.StoreNotFencing) {
		return wire.ErrFenced
	}
	p.rev = e.Revision()
	return fmt.Errorf("promises of %s: an earlier write had happened: %w", p.dc, errWriteAgain)
}
