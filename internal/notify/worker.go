package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/push"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// Times and bounds.
const (
	tickEvery   = 100 * time.Millisecond
	helloEvery  = time.Second
	helloGood   = 3 * time.Second
	againAfter  = time.Second     // a stream was lost
	settleFor   = 5 * time.Second // others store their marks in it before this one notifies, or notifies again
	storeWithin = 2 * time.Second
	maxBook     = 1 << 20
	atOnce      = 256 // messages on their way, at most: 2,500 a second where an answer takes 100 ms
	keepFor     = 25 * time.Hour
	staleEvery  = 5 * time.Second
	maxRooms    = 2000 // in a message to globals
	lagFor      = time.Minute
)

// Options are the parts of a worker.
type Options struct {
	Config Config
	Bus    wire.Bus
	Store  *natsbus.Pushes
	Log    *slog.Logger
	Count  *Metrics
	Out    node.Outbound
	Now    func() time.Time
	Tune   func(*http.Client) // of tests; nil for none

	Listens string // addresses of its listeners, separated by blanks: no site
}

// Worker is one notifier. Any number share the work: each subscription that is due is stored once, by its ID, and a
// process holds its deliveries.
type Worker struct {
	Options
	limit chan struct{}  // a slot for each message on its way
	busy  sync.WaitGroup // deliveries
	marks marker
	late  lateness
	posts services

	settleFor time.Duration
	secret    fleetSecret

	mu      sync.Mutex
	book    *push.Book
	current bool          // the book has everything that was stored
	read    time.Time     // until then
	looked  time.Time     // when read was set
	news    chan struct{} // closed when read changes
	settles time.Time     // nothing is delivered before
	calls   []call
	alive   map[string]time.Time // notifiers, when last heard
	dead    []DeadLetter
	lost    string // why the streams cannot be used, "" for no reason
}

// New returns a worker.
func New(o Options) *Worker {
	if o.Now == nil {
		o.Now = time.Now
	}
	w := &Worker{
		Options: o, limit: make(chan struct{}, atOnce), news: make(chan struct{}), book: push.NewBook(maxBook),
		alive: map[string]time.Time{}, settleFor: settleFor,
	}
	w.marks = marker{store: o.Store.Mark, fault: w.note, ready: make(chan *group, 1)}
	return w
}

// Run works until ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	unsubscribe, err := w.Bus.Subscribe(wire.CallSubject, w.hearCalls)
	if err != nil {
		return err
	}
	defer unsubscribe()
	unsubscribeNotifiers, err := w.Bus.Subscribe(wire.NotifierSubject, func(_ string, name []byte) {
		if len(name) > 64 {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.read.IsZero() && string(name) != w.Config.Name { // no server was lost of late
			w.settles = time.Now()
		}
		if _, known := w.alive[string(name)]; known || len(w.alive) < 1000 {
			w.alive[string(name)] = w.Now()
		}
	})
	if err != nil {
		return err
	}
	defer unsubscribeNotifiers()
	g, ctx := errgroup.WithContext(ctx)
	loop := func(every time.Duration, do func(context.Context) error) {
		g.Go(func() error {
			for {
				err := do(ctx)
				if ctx.Err() != nil {
					return nil
				}
				w.note(err)
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(every):
				}
			}
		})
	}
	loop(againAfter, func(ctx context.Context) error { return w.secret.learn(ctx, &w.Options) })
	loop(againAfter, w.follow)
	loop(helloEvery, w.hello)
	loop(tickEvery, func(ctx context.Context) error { return w.target(ctx, (*Worker).dueJobs) })
	loop(staleEvery, func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.book.Lost(w.now(), lostAfter)
		return nil
	})
	for shard := range wire.OutboxShards {
		loop(againAfter, func(ctx context.Context) error {
			if !w.settled() { // the others take what is due
				return nil
			}
			return w.Store.Deliver(ctx, shard, atOnce/wire.OutboxShards, func(d *natsbus.Delivery) { w.take(ctx, d) })
		})
	}
	storing, end := context.WithCancel(context.WithoutCancel(ctx))
	var store sync.WaitGroup
	for range storeLanes {
		store.Go(func() { w.marks.run(storing) })
	}
	err = g.Wait()
	w.busy.Wait()
	end()
	store.Wait()
	return err
}

// note records why the streams cannot be used, and logs each new reason.
func (w *Worker) note(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	news := w.lost != err.Error()
	w.lost = err.Error()
	w.mu.Unlock()
	if news {
		w.Log.Warn("notifications wait", slog.Any("error", err))
	}
}

// follow keeps the book.
func (w *Worker) follow(ctx context.Context) error {
	if w.secret.tools.Load() == nil {
		return nil
	}
	w.mu.Lock()
	w.settles = time.Now().Add(w.settleFor)
	w.book, w.current = push.NewBook(maxBook), false
	w.mu.Unlock()
	w.posts.begin()
	return w.Store.Follow(ctx, natsbus.Follower{Set: w.set, Marks: w.setMarks, Read: w.hasRead})
}

// hasRead takes that the book has everything that was stored until then.
func (w *Worker) hasRead(until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current, w.lost = true, ""
	if until.After(w.settles) {
		w.read, w.looked = until, time.Now()
		close(w.news)
		w.news = make(chan struct{})
	}
	w.Count.subscribed.Set(float64(w.book.Len()))
}

// set takes a stored subscription.
func (w *Worker) set(id, visitor, seq uint64, data []byte) {
	var r *push.Record
	service := ""
	if len(data) > 0 {
		got, err := push.DecodeRecord(data)
		if err != nil {
			w.Count.failed.WithLabelValues(causeSealed).Inc()
			return
		}
		r = &got
		if t := w.secret.tools.Load(); t != nil && got.Notified < push.Called {
			sub, err := t.sealer.Open(room.ID(id), visitor, got.Sealed)
			if err == nil {
				service = t.serviceOf(sub)
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.book.Set(w.now(), room.ID(id), visitor, seq, service, r) {
		w.Count.failed.WithLabelValues(causeRefused).Inc()
	}
}

// setMarks takes stored marks.
func (w *Worker) setMarks(data []byte) {
	var marks []push.Mark
	if err := json.Unmarshal(data, &marks); err != nil {
		w.Log.Warn("marks refused", slog.Any("error", err))
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range marks {
		w.book.Mark(m)
	}
}

// settled reports whether the book has had everything that others have sent.
func (w *Worker) settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.read.IsZero()
}

// wait waits until the book has everything that was stored before at, which is after any loss of the stream.
func (w *Worker) wait(ctx context.Context, at time.Time) error {
	for {
		w.mu.Lock()
		read, news := w.current && !w.read.Before(at), w.news
		w.mu.Unlock()
		if read {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *Worker) now() fleettime.Time { return fleettime.TimeOf(w.Now()) }

// hello tells the other notifiers that this one works, and has for a while.
func (w *Worker) hello(context.Context) error {
	w.mu.Lock()
	current, now := w.current && w.read.After(w.settles), w.Now()
	for name, at := range w.alive {
		if now.Sub(at) > helloGood {
			delete(w.alive, name)
		}
	}
	w.book.Prune(w.now(), keepFor)
	w.mu.Unlock()
	if !current {
		return nil
	}
	state, err := json.Marshal(w.state())
	if err != nil {
		return err
	}
	err = errors.Join(w.Bus.Publish(wire.NotifierSubject, []byte(w.Config.Name)),
		w.Bus.Publish(wire.NotifyingSubject, state))
	if errors.Is(err, wire.ErrDown) {
		return nil
	}
	return err
}

// state returns the state of this notifier for operators.
func (w *Worker) state() push.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := push.State{
		Name: w.Config.Name, Subscribed: w.book.Len(), Due: total(w.Count.due), Sent: total(w.Count.sent),
		Failed: total(w.Count.failed), Dead: total(w.Count.dead), Rooms: w.book.Rooms(maxRooms), Listens: w.Listens,
	}
	s.Late, s.Failing = w.late.longest(w.Now()).Seconds(), w.posts.failing(w.Now())
	return s
}

// Status is the state of a worker, for /status.
type Status struct {
	Subscribed int          `json:"subscribed"`
	Notifiers  int          `json:"notifiers"`
	Dead       []DeadLetter `json:"dead_letters"` // the last ones
}

// Status returns the state.
func (w *Worker) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Status{w.book.Len(), len(w.alive), slices.Clone(w.dead)}
}

// Ready reports whether the worker works.
func (w *Worker) Ready() node.Readiness {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := node.Readiness{Ready: w.current && !w.read.IsZero() || w.secret.none.Load()}
	switch {
	case r.Ready:
	case w.secret.tools.Load() == nil:
		r.Reasons = append(r.Reasons, "the secret of notifications is not read yet: "+w.lost)
	case !w.current:
		r.Reasons = append(r.Reasons, "the subscriptions are not read yet: "+w.lost)
	default:
		r.Reasons = append(r.Reasons, fmt.Sprintf("other notifiers have %v to store what they have sent", w.settleFor))
	}
	if late := w.late.longest(w.Now()); late >= push.LateAfter {
		r.Alarms = append(r.Alarms, fmt.Sprintf("notifications are late: one was due %v before", late.Round(time.Second)))
	}
	r.Alarms = append(r.Alarms, w.posts.failing(w.Now())...)
	return r
}
