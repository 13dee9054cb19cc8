package edge

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/room"
	"vestibule/internal/node"
)

// pushes stores the subscriptions of visitors to notifications. Requests never wait for the store: they go through a
// bounded queue. A lane keeps the order of each visitor's changes.
type pushes struct {
	store func(ctx context.Context, room, visitor uint64, record []byte) error // nil for no store
	lanes [pushLanes]chan pushed
	log   *slog.Logger
	state *prometheus.CounterVec // by result
	after func(time.Duration) <-chan time.Time
}

// pushed is a change of a subscription.
type pushed struct {
	room    room.ID
	visitor uint64
	record  []byte
}

const (
	pushLanes  = 16
	pushQueue  = 1024            // changes in a lane
	pushWithin = 2 * time.Second // an attempt
	pushTries  = 30
)

// pushResults label the metric of changes of subscriptions. The set is closed.
var pushResults = []string{"stored", "full", "lost"}

func newPushes(
	store func(context.Context, uint64, uint64, []byte) error, log *slog.Logger, reg prometheus.Registerer,
) *pushes {
	p := &pushes{store: store, log: log, after: time.After}
	p.state = node.Meter{Registerer: reg}.Counters("vestibule_edge_push_changes_total",
		"Changes of subscriptions to notifications, by result.", "result", pushResults...)
	for i := range p.lanes {
		p.lanes[i] = make(chan pushed, pushQueue)
	}
	return p
}

// add stores a change soon. It returns false if there is no store, or too much to store.
func (p *pushes) add(id room.ID, visitor uint64, record []byte) bool {
	if p.store == nil {
		return false
	}
	select {
	case p.lanes[visitor%pushLanes] <- pushed{id, visitor, record}:
		return true
	default:
		p.state.WithLabelValues("full").Inc()
		return false
	}
}

// run stores changes until ctx ends, and then those that wait, with one attempt each.
func (p *pushes) run(ctx context.Context) {
	if p.store == nil {
		return
	}
	var lanes sync.WaitGroup
	defer lanes.Wait()
	for _, lane := range p.lanes {
		lanes.Go(func() {
			for {
				select {
				case c := <-lane:
					p.put(ctx, c)
				case <-ctx.Done():
					p.rest(context.WithoutCancel(ctx), lane)
					return
				}
			}
		})
	}
}

// rest stores what waits in a lane, for as long as one attempt may take.
func (p *pushes) rest(ctx context.Context, lane chan pushed) {
	ctx, cancel := context.WithTimeout(ctx, pushWithin)
	defer cancel()
	for {
		select {
		case c := <-lane:
			if err := p.store(ctx, uint64(c.room), c.visitor, c.record); err != nil {
				p.lose(c, err)
			}
		default:
			return
		}
	}
}

// put stores a change, with attempts for about a minute.
func (p *pushes) put(ctx context.Context, c pushed) {
	for try := 1; ; try++ {
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushWithin)
		err := p.store(one, uint64(c.room), c.visitor, c.record)
		cancel()
		if err == nil {
			p.state.WithLabelValues("stored").Inc()
			return
		}
		if try == pushTries || ctx.Err() != nil {
			p.lose(c, err)
			return
		}
		select {
		case <-p.after(min(time.Duration(try)*100*time.Millisecond, pushWithin)):
		case <-ctx.Done():
		}
	}
}

func (p *pushes) lose(c pushed, err error) {
	p.state.WithLabelValues("lost").Inc()
	p.log.Warn("a change of a subscription to notifications is lost",
		slog.Bool("ends", len(c.record) == 0), slog.Any("error", err))
}
