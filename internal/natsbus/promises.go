package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/wire"
)

// Promises are what a data centre must remember across its aggregators: whom
// it follows, and its roster of edges. They belong to one term at a time:
// opening them fences every older term from that moment.
type Promises struct {
	kv  jetstream.KeyValue
	key string
	val promiseValue
	rev uint64
}

type promiseValue struct {
	Owner   wire.Term    `json:"owner"`
	Write   uint64       `json:"write"`
	Durable wire.Durable `json:"durable"`
}

const promisesBucket = "vestibule_promises"

// ErrFenced says that an aggregator of a newer term has opened the promises.
var ErrFenced = errors.New("promises belong to a newer term")

// OpenPromises makes the promises of data centre dc those of term, and returns
// them as the predecessor left them. It returns ErrFenced if a newer term has
// them.
func OpenPromises(ctx context.Context, conn *Conn, dc string, term wire.Term, replicas int) (*Promises, wire.Durable, error) {
	kv, err := conn.bucket(ctx, promisesBucket, replicas)
	if err != nil {
		return nil, wire.Durable{}, err
	}
	p := &Promises{kv: kv, key: dc}
	for {
		e, err := kv.Get(ctx, dc)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			p.val, p.rev = promiseValue{}, 0
		case err != nil:
			return nil, wire.Durable{}, fmt.Errorf("promises of %s: %w", dc, err)
		default:
			p.val, p.rev = promiseValue{}, e.Revision()
			if err := json.Unmarshal(e.Value(), &p.val); err != nil {
				return nil, wire.Durable{}, fmt.Errorf("promises of %s: %w", dc, err)
			}
		}
		if p.val.Owner.N > term.N {
			return nil, wire.Durable{}, ErrFenced
		}
		// The read may have been stale: only this write decides, and it makes
		// every older owner's next write fail.
		p.val.Owner = term
		err = p.write(ctx)
		if err == nil {
			return p, p.val.Durable, nil
		}
		if !errors.Is(err, ErrFenced) {
			return nil, wire.Durable{}, err
		}
		select {
		case <-ctx.Done():
			return nil, wire.Durable{}, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Put stores what the aggregator wants stored. When it returns nil it is. It
// returns ErrFenced when the term is over; any other error leaves open whether
// it was stored, and Put is to be called again.
func (p *Promises) Put(ctx context.Context, d wire.Durable) error {
	p.val.Durable = d
	return p.write(ctx)
}

func (p *Promises) write(ctx context.Context) error {
	p.val.Write++
	data, err := json.Marshal(p.val)
	if err != nil {
		return fmt.Errorf("promises of %s: %w", p.key, err)
	}
	var rev uint64
	if p.rev == 0 {
		rev, err = p.kv.Create(ctx, p.key, data)
	} else {
		rev, err = p.kv.Update(ctx, p.key, data, p.rev)
	}
	if err == nil {
		p.rev = rev
		return nil
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("promises of %s: %w", p.key, err)
	}
	// Refused. Ours all the same, if an earlier write that timed out happened.
	e, gerr := p.kv.Get(ctx, p.key)
	if gerr != nil {
		return fmt.Errorf("promises of %s: %w", p.key, gerr)
	}
	var have promiseValue
	if err := json.Unmarshal(e.Value(), &have); err != nil {
		return fmt.Errorf("promises of %s: %w", p.key, err)
	}
	if have.Owner != p.val.Owner {
		return ErrFenced
	}
	p.rev = e.Revision()
	return fmt.Errorf("promises of %s: an earlier write had happened; write again", p.key)
}
