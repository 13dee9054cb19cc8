package notify

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"vestibule/internal/core/push"
)

const (
	storeLanes = 4 // groups of marks on their way
	storeAgain = 100 * time.Millisecond
)

// marker stores the marks of notified subscriptions, in groups: while some are stored, more gather.
type marker struct {
	store func(ctx context.Context, marks []byte) error
	fault func(error)
	ready chan *group // to be stored; at most one

	mu   sync.Mutex
	next *group // the one in ready, which still takes marks; nil for none
}

// group is marks that are stored together.
type group struct {
	marks []push.Mark
	done  chan struct{} // closed when they are stored
}

// add adds a mark, and returns when it is stored.
func (k *marker) add(ctx context.Context, m push.Mark) error {
	k.mu.Lock()
	g := k.next
	if g == nil {
		g = &group{done: make(chan struct{})}
		k.next = g
		k.ready <- g
	}
	g.marks = append(g.marks, m)
	k.mu.Unlock()
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take waits for a group, and returns it with all of its marks; nil once ctx has ended.
func (k *marker) take(ctx context.Context) *group {
	select {
	case g := <-k.ready:
		k.mu.Lock()
		defer k.mu.Unlock()
		k.next = nil
		return g
	case <-ctx.Done():
		return nil
	}
}

// run stores groups until ctx ends. There are at most atOnce marks.
func (k *marker) run(ctx context.Context) {
	for g := k.take(ctx); g != nil; g = k.take(ctx) {
		data, err := json.Marshal(g.marks)
		if err != nil {
			k.fault(err)
			continue
		}
		for ctx.Err() == nil {
			within, cancel := context.WithTimeout(ctx, storeWithin)
			err = k.store(within, data)
			cancel()
			if err == nil {
				close(g.done)
				break
			}
			k.fault(err)
			select {
			case <-time.After(storeAgain):
			case <-ctx.Done():
			}
		}
	}
}
