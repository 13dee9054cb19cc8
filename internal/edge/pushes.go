package edge

import (
	"container/list"
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/room"
	"vestibule/internal/edge/clientaddr"
	"vestibule/internal/node"
)

// pushes stores the subscriptions of visitors to notifications. Requests never wait for the store: changes wait in a
// bounded queue, at most one for each ticket, the newest. Address prefixes take turns, and the ends of one go before its
// new subscriptions. In a full queue the prefix with the most changes gives way.
type pushes struct {
	store func(ctx context.Context, room, visitor uint64, record []byte) error // nil for no store
	log   *slog.Logger
	state *prometheus.CounterVec // by result
	after func(time.Duration) <-chan time.Time

	mu      sync.Mutex
	changes map[ticketKey]*pushed
	turns   list.List // of *lane: the prefixes with changes that wait, by turn
	lanes   map[netip.Prefix]*lane
	waiting *clientaddr.Tally
	n       int           // changes that wait
	ready   chan struct{} // has room for one: there is something for another worker
}

type ticketKey struct {
	room    room.ID
	visitor uint64
}

// pushed is the newest change of the subscription of a ticket. It waits, is being stored, or was stored a moment ago.
type pushed struct {
	key    ticketKey
	from   netip.Prefix
	record []byte
	at     *list.Element // in its lane while it waits
	busy   bool          // it is being stored, or was a moment ago
	news   bool          // it has changed since that began
}

// lane has the changes of a prefix that wait.
type lane struct {
	ends, begins list.List // of *pushed
	turn         *list.Element
}

const (
	pushWorkers = 16
	pushQueue   = 16 << 10        // changes that wait
	pushWithin  = 2 * time.Second // an attempt
	pushTries   = 30
	pushRate    = 1000        // changes a second that are stored
	pushRest    = time.Second // between two changes of one ticket
)

// pushResults label the metric of changes of subscriptions. The set is closed.
var pushResults = []string{"stored", "full", "lost"}

func newPushes(
	store func(context.Context, uint64, uint64, []byte) error, log *slog.Logger, reg prometheus.Registerer,
) *pushes {
	p := &pushes{
		store: store, log: log, after: time.After, changes: map[ticketKey]*pushed{}, lanes: map[netip.Prefix]*lane{},
		waiting: clientaddr.NewTally(), ready: make(chan struct{}, 1),
	}
	p.state = node.Meter{Registerer: reg}.Counters("vestibule_edge_push_changes_total",
		"Changes of subscriptions to notifications, by result.", "result", pushResults...)
	return p
}

// add stores a change soon; a nil record ends the subscription. It returns false if there is no store, or too much to
// store.
func (p *pushes) add(id room.ID, visitor uint64, from netip.Prefix, record []byte) bool {
	if p.store == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.changes[ticketKey{id, visitor}]
	switch {
	case c != nil && c.busy:
		c.record, c.news = record, true
		return true
	case c != nil:
		p.unqueue(c)
	case p.n >= pushQueue:
		p.state.WithLabelValues("full").Inc()
		if !p.makeRoom(from, len(record) == 0) {
			return false
		}
	}
	if c == nil {
		c = &pushed{key: ticketKey{id, visitor}, from: from}
		p.changes[c.key] = c
	}
	c.record = record
	p.queue(c)
	return true
}

// makeRoom drops a change for one of a prefix: the newest of the prefix with the most, new subscriptions first. An end
// also replaces a new subscription of its own prefix. It reports whether there is room. The caller holds the lock.
func (p *pushes) makeRoom(from netip.Prefix, ends bool) bool {
	most, ok := p.waiting.GivesWay(from)
	if !ok {
		most = from
	}
	l := p.lanes[most]
	var last *list.Element
	switch {
	case l == nil:
		return false
	case l.begins.Len() > 0 && (ok || ends):
		last = l.begins.Back()
	case ok:
		last = l.ends.Back()
	default:
		return false
	}
	c := last.Value.(*pushed)
	p.unqueue(c)
	delete(p.changes, c.key)
	return true
}

// queue has a change wait for its turn. The caller holds the lock.
func (p *pushes) queue(c *pushed) {
	l := p.lanes[c.from]
	if l == nil {
		l = &lane{}
		l.turn = p.turns.PushBack(l)
		p.lanes[c.from] = l
	}
	if len(c.record) == 0 {
		c.at = l.ends.PushBack(c)
	} else {
		c.at = l.begins.PushBack(c)
	}
	p.waiting.Add(c.from)
	p.n++
	p.wake()
}

// unqueue is the inverse of queue, before the record of c is changed. The caller holds the lock.
func (p *pushes) unqueue(c *pushed) {
	l := p.lanes[c.from]
	if len(c.record) == 0 {
		l.ends.Remove(c.at)
	} else {
		l.begins.Remove(c.at)
	}
	if l.ends.Len()+l.begins.Len() == 0 {
		p.turns.Remove(l.turn)
		delete(p.lanes, c.from)
	}
	c.at = nil
	p.waiting.Remove(c.from)
	p.n--
}

func (p *pushes) wake() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// next returns the change whose turn it is, nil for none.
func (p *pushes) next() *pushed {
	p.mu.Lock()
	defer p.mu.Unlock()
	front := p.turns.Front()
	if front == nil {
		return nil
	}
	l := front.Value.(*lane)
	p.turns.MoveToBack(front)
	first := l.ends.Front()
	if first == nil {
		first = l.begins.Front()
	}
	c := first.Value.(*pushed)
	p.unqueue(c)
	c.busy, c.news = true, false
	if p.n > 0 {
		p.wake()
	}
	return c
}

// newest returns the record of a change that is being stored.
func (p *pushes) newest(c *pushed) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.news = false
	return c.record
}

// rested has a change wait again if there was another one since it was stored, and forgets it otherwise.
func (p *pushes) rested(c *pushed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.busy = false
	if c.news {
		p.queue(c)
	} else {
		delete(p.changes, c.key)
	}
}

// run stores changes until ctx ends, and then those that wait, with one attempt each.
func (p *pushes) run(ctx context.Context) {
	if p.store == nil {
		return
	}
	stored := make(chan *pushed, pushRate)
	var workers sync.WaitGroup
	for range pushWorkers {
		workers.Go(func() { p.work(ctx, stored) })
	}
	p.rest(ctx, stored)
	workers.Wait()
	close(stored)
	for c := range stored {
		p.rested(c)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushWithin)
	defer cancel()
	for range pushWorkers {
		workers.Go(func() { p.finish(last) })
	}
	workers.Wait()
}

// work stores changes until ctx ends.
func (p *pushes) work(ctx context.Context, stored chan<- *pushed) {
	for {
		select {
		case <-p.ready:
		case <-ctx.Done():
			return
		}
		for c := p.next(); c != nil; c = p.next() {
			paced := p.after(pushWorkers * time.Second / pushRate)
			p.put(ctx, c)
			select {
			case stored <- c:
			case <-ctx.Done():
				p.rested(c)
				return
			}
			select {
			case <-paced:
			case <-ctx.Done():
				return
			}
		}
	}
}

// rest lets stored changes rest until ctx ends.
func (p *pushes) rest(ctx context.Context, stored <-chan *pushed) {
	for {
		var some []*pushed
		select {
		case c := <-stored:
			some = append(some, c)
		case <-ctx.Done():
			return
		}
		for range len(stored) {
			some = append(some, <-stored)
		}
		select {
		case <-p.after(pushRest):
		case <-ctx.Done():
		}
		for _, c := range some {
			p.rested(c)
		}
	}
}

// finish stores what waits, until ctx ends.
func (p *pushes) finish(ctx context.Context) {
	for c := p.next(); c != nil; c = p.next() {
		record := p.newest(c)
		if err := p.store(ctx, uint64(c.key.room), c.key.visitor, record); err != nil {
			p.lose(record, err)
		}
		p.rested(c)
	}
}

// put stores a change, with attempts for about a minute.
func (p *pushes) put(ctx context.Context, c *pushed) {
	for try := 1; ; try++ {
		record := p.newest(c)
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushWithin)
		err := p.store(one, uint64(c.key.room), c.key.visitor, record)
		cancel()
		if err == nil {
			p.state.WithLabelValues("stored").Inc()
			return
		}
		if try == pushTries || ctx.Err() != nil {
			p.lose(record, err)
			return
		}
		select {
		case <-p.after(min(time.Duration(try)*100*time.Millisecond, pushWithin)):
		case <-ctx.Done():
		}
	}
}

func (p *pushes) lose(record []byte, err error) {
	p.state.WithLabelValues("lost").Inc()
	p.log.Warn("a change of a subscription to notifications is lost",
		slog.Bool("ends", len(record) == 0), slog.Any("error", err))
}
