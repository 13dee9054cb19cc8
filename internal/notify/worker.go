package notify

import (
	"bytes"
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
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/page"
)

// Times and bounds.
const (
	tickEvery   = 100 * time.Millisecond
	helloEvery  = time.Second
	helloGood   = 3 * time.Second
	backupAfter = 5 * time.Second // a shard of a notifier that is gone is looked after by all
	againAfter  = time.Second     // a stream was lost
	settleFor   = 5 * time.Second // then others store whom they have told meanwhile, before anybody is told again
	storeWithin = 2 * time.Second
	deliverFor  = 9 * time.Second // to look, to send, and before: together less than a process holds a notification
	maxBook     = 1 << 20
	atOnce      = 256 // messages on their way, which a kill has told twice: 2,500 a second where an answer takes 100 ms
	storeLanes  = 4   // groups of marks on their way
	keepFor     = 25 * time.Hour
	staleAfter  = 30 * time.Second // what is not told is stored again
	staleMost   = 9 * time.Minute  // while the outbox knows copies by their IDs
	staleEvery  = 5 * time.Second
	batch       = 2000             // jobs of a shard and room at a time
	tooLate     = 15 * time.Minute // a message tells nothing any more
	maxDead     = 100
	toldRooms   = 2000 // in a message to globals
	lagFor      = time.Minute
)

// backoff is the delay after each attempt, and each further one, if the push service names none.
var backoff = [...]time.Duration{time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute}

// lives are how long a push service keeps a message of each stage.
var lives = map[push.Stage]time.Duration{push.Confirmed: time.Hour, push.Soon: 5 * time.Minute, push.Called: 10 * time.Minute}

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
}

// Worker is one notifier. Any number share the work: each subscription that is due is stored once, by its ID, and a
// process holds what it delivers.
type Worker struct {
	Options
	limit chan struct{}  // a slot for each message on its way
	busy  sync.WaitGroup // deliveries
	marks chan *group    // to store

	mu      sync.Mutex
	book    *push.Book
	current bool          // the book has everything that was stored
	read    time.Time     // until then
	news    chan struct{} // closed when read changes
	settled time.Time     // nobody is told before
	told    *group        // to be stored next
	calls   []call
	alive   map[string]time.Time // notifiers, when last heard
	dead    []DeadLetter
	slow    time.Time     // of the latest message of a minute
	lag     time.Duration // its age
	tools   *tools        // nil without a secret
	none    bool          // there is no secret yet: no room notifies
	lost    string        // why the streams cannot be used, "" for no reason
}

// group is marks that are stored together.
type group struct {
	marks []push.Mark
	done  chan struct{} // closed when they are stored
}

// call is a message of the leading global.
type call struct {
	push.Calls
	mine bool // this notifier's shards are done
}

// tools are made of the fleet's secret.
type tools struct {
	secret ticket.Secret
	sealer *push.Sealer
	sender *sender
}

// DeadLetter is a notification that was given up.
type DeadLetter struct {
	At    time.Time `json:"at"`
	Room  string    `json:"room"`
	Stage string    `json:"stage"`
	Cause string    `json:"cause"`
	Error string    `json:"error"`
}

// New returns a worker.
func New(o Options) *Worker {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Worker{
		Options: o, limit: make(chan struct{}, atOnce), marks: make(chan *group, 1), news: make(chan struct{}), book: push.NewBook(maxBook),
		alive: map[string]time.Time{},
	}
}

// Run works until ctx ends.
func (w *Worker) Run(ctx context.Context) error {
	unsubscribe, err := w.Bus.Subscribe(wire.CallSubject, w.hearCalls)
	if err != nil {
		return err
	}
	defer unsubscribe()
	deafToo, err := w.Bus.Subscribe(wire.NotifierSubject, func(_ string, name []byte) {
		if len(name) > 64 {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, known := w.alive[string(name)]; known || len(w.alive) < 1000 {
			w.alive[string(name)] = w.Now()
		}
	})
	if err != nil {
		return err
	}
	defer deafToo()
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
	loop(againAfter, w.learn)
	loop(againAfter, w.follow)
	loop(helloEvery, w.hello)
	loop(tickEvery, func(ctx context.Context) error { return w.target(ctx, (*Worker).dueJobs) })
	loop(staleEvery, func(ctx context.Context) error { return w.target(ctx, (*Worker).staleJobs) })
	for shard := range wire.OutboxShards {
		loop(againAfter, func(ctx context.Context) error {
			if w.tool() == nil {
				return nil
			}
			return w.Store.Deliver(ctx, shard, atOnce/wire.OutboxShards, func(d *natsbus.Delivery) { w.take(ctx, d) })
		})
	}
	storing, end := context.WithCancel(context.WithoutCancel(ctx))
	var store sync.WaitGroup
	for range storeLanes {
		store.Go(func() { w.storeMarks(storing) })
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

func (w *Worker) tool() *tools {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tools
}

// learn reads the secret, now and from time to time.
func (w *Worker) learn(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	data, err := w.Store.Secret(ask)
	if err != nil {
		return err
	}
	had := w.tool()
	w.mu.Lock()
	w.none = data == nil && had == nil
	w.mu.Unlock()
	if data == nil {
		return nil
	}
	t := &tools{}
	if err := json.Unmarshal(data, &t.secret); err != nil {
		return fmt.Errorf("the secret of notifications: %w", err)
	}
	if had != nil && had.secret == t.secret {
		return nil
	}
	if t.sealer, err = push.NewSealer(t.secret); err != nil {
		return err
	}
	id, err := push.NewIdentity(t.secret)
	if err != nil {
		return err
	}
	if t.sender = newSender(id, w.Config.Contact, w.Config.Services, w.Out); w.Tune != nil {
		w.Tune(t.sender.client)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tools = t
	return nil
}

// follow keeps the book.
func (w *Worker) follow(ctx context.Context) error {
	if w.tool() == nil {
		return nil
	}
	w.mu.Lock()
	if !w.read.IsZero() {
		w.settled = time.Now().Add(settleFor)
	}
	w.book, w.current = push.NewBook(maxBook), false
	w.mu.Unlock()
	return w.Store.Follow(ctx, natsbus.Follower{Set: w.set, Told: w.setTold, Read: func(until time.Time) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.current, w.lost = true, ""
		if until.After(w.settled) {
			w.read = until
			close(w.news)
			w.news = make(chan struct{})
		}
		w.Count.subscribed.Set(float64(w.book.Len()))
	}})
}

// set takes a stored subscription.
func (w *Worker) set(id, visitor, seq uint64, data []byte) {
	var r *push.Record
	if len(data) > 0 {
		got, err := push.DecodeRecord(data)
		if err != nil {
			w.Count.failed.WithLabelValues(causeSealed).Inc()
			return
		}
		r = &got
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.book.Set(w.now(), room.ID(id), visitor, seq, r) {
		w.Count.failed.WithLabelValues(causeRefused).Inc()
	}
}

// setTold takes stored marks.
func (w *Worker) setTold(data []byte) {
	var marks []push.Mark
	if err := json.Unmarshal(data, &marks); err != nil {
		w.Log.Warn("marks refused", slog.Any("error", err))
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range marks {
		w.book.Told(m)
	}
}

// wait waits until the book has everything that was stored before at, which is after any loss of the stream.
func (w *Worker) wait(ctx context.Context, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, deliverFor)
	defer cancel()
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

// hello tells the other notifiers that this one works.
func (w *Worker) hello(context.Context) error {
	w.mu.Lock()
	current, now := w.current, w.Now()
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
	err = errors.Join(w.Bus.Publish(wire.NotifierSubject, []byte(w.Config.Name)), w.Bus.Publish(wire.NotifyingSubject, state))
	if errors.Is(err, wire.ErrDown) {
		return nil
	}
	return err
}

// state returns what operators see of this notifier.
func (w *Worker) state() push.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := push.State{
		Name: w.Config.Name, Subscribed: w.book.Len(), Due: total(w.Count.due), Sent: total(w.Count.sent), Failed: total(w.Count.failed), Dead: total(w.Count.dead),
		Rooms: w.book.Rooms(toldRooms),
	}
	if w.Now().Sub(w.slow) < lagFor {
		s.Late = w.lag.Seconds()
	}
	return s
}

// mine reports whether a shard is this notifier's. The caller holds the lock.
func (w *Worker) mine(shard int) bool {
	names := []string{w.Config.Name}
	for name, at := range w.alive {
		if name != w.Config.Name && w.Now().Sub(at) <= helloGood {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names[shard%len(names)] == w.Config.Name
}

// hearCalls takes a message of the leading global.
func (w *Worker) hearCalls(_ string, data []byte) {
	var c push.Calls
	if err := json.Unmarshal(data, &c); err != nil {
		w.Log.Warn("calls refused", slog.Any("error", err))
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	const most = 64
	if c.At = w.now(); len(w.calls) == most {
		w.calls = w.calls[1:]
	}
	w.calls = append(w.calls, call{Calls: c})
}

// staleJobs returns what this notifier has stored, and nobody has told for long. The caller holds the lock.
func (w *Worker) staleJobs() []push.Job { return w.book.Stale(w.now(), staleAfter, staleMost) }

// target stores what is due in the outbox.
func (w *Worker) target(ctx context.Context, find func(*Worker) []push.Job) error {
	w.mu.Lock()
	jobs := find(w)
	w.mu.Unlock()
	if len(jobs) == 0 {
		return nil
	}
	w.Count.due.Add(float64(len(jobs)))
	due := make([]natsbus.Due, len(jobs))
	for i := range jobs {
		data, err := jobs[i].Encode()
		if err != nil {
			return err
		}
		due[i] = natsbus.Due{Shard: push.Shard(jobs[i].Visitor), ID: jobs[i].ID, Data: data}
	}
	within, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	if err := w.Store.Enqueue(within, due); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.book.Again(jobs) // one that was stored all the same is stored once
		return err
	}
	return nil
}

// dueJobs returns what is due now in this notifier's shards, and what was due a while ago in the others. The caller holds
// the lock.
func (w *Worker) dueJobs() (jobs []push.Job) {
	if !w.current {
		return nil
	}
	now := w.now()
	due := func(shard int, c *call) {
		for _, room := range c.Rooms {
			jobs = append(jobs, w.book.Due(now, shard, room, batch)...)
		}
	}
	for shard := range wire.OutboxShards {
		mine := w.mine(shard)
		if mine {
			jobs = append(jobs, w.book.Confirm(now, shard, batch)...)
		}
		for i := range w.calls {
			if c := &w.calls[i]; mine && !c.mine || !mine && now.Sub(c.At) >= backupAfter {
				due(shard, c)
			}
		}
	}
	for i := range w.calls {
		w.calls[i].mine = true
	}
	w.calls = slices.DeleteFunc(w.calls, func(c call) bool { return now.Sub(c.At) >= backupAfter })
	return jobs
}

// take delivers a notification, within the limit of messages at once.
func (w *Worker) take(ctx context.Context, d *natsbus.Delivery) {
	select {
	case w.limit <- struct{}{}:
	case <-ctx.Done():
		w.note(d.Again(0))
		return
	}
	w.busy.Go(func() {
		defer func() { <-w.limit }()
		if err := w.deliver(ctx, d); err != nil {
			w.note(err)
		}
	})
}

// ready is a notification that can be sent at once.
type ready struct {
	sealed  []byte // the subscription that it is for
	room    string
	request *http.Request
	failed  Result // without a request
}

// deliver delivers a notification, unless its subscription has ended or was told. The last look is right before the
// message is sent, with all that was stored until then.
func (w *Worker) deliver(ctx context.Context, d *natsbus.Delivery) error {
	var j push.Job
	t := w.tool()
	if err := json.Unmarshal(d.Data, &j); err != nil || t == nil {
		return errors.Join(err, d.Drop())
	}
	get := func() ([]byte, uint64, push.Mark) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.book.Get(&j)
	}
	var r ready
	if sealed, _, mark := get(); sealed != nil {
		r = t.prepare(w.Now(), &j, sealed, mark)
	}
	if err := w.wait(ctx, time.Now()); ctx.Err() != nil {
		return d.Again(0) // for another
	} else if err != nil {
		return errors.Join(err, d.Again(backoff[0]))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deliverFor)
	defer cancel()
	sealed, seq, mark := get()
	if sealed == nil {
		w.Count.skipped.Inc()
		return d.Done()
	}
	if !bytes.Equal(r.sealed, sealed) {
		r = t.prepare(w.Now(), &j, sealed, mark)
	}
	age, res := w.Now().Sub(j.Due.Std()), r.failed
	switch {
	case res.Err != nil:
	case age > tooLate:
		res, seq = Result{Cause: causeBusy, Err: errors.New("it is too late")}, 0
	default:
		res = t.sender.send(ctx, w.Now(), r.request)
	}
	switch {
	case res.Cause == "":
		w.delivered(&j)
		return errors.Join(w.mark(ctx, mark), d.Done())
	case res.Again:
		w.Count.failed.WithLabelValues(res.Cause).Inc()
		w.late(age)
		return d.Again(max(res.After, backoff[min(d.Tries, len(backoff))-1]))
	default:
		return w.giveUp(ctx, d, &j, r.room, res, seq)
	}
}

// prepare makes the message of a notification.
func (t *tools) prepare(now time.Time, j *push.Job, sealed []byte, mark push.Mark) ready {
	r := ready{sealed: sealed}
	sub, err := t.sealer.Open(j.Room, j.Visitor, sealed)
	if err != nil {
		r.failed = Result{Cause: causeSealed, Err: err}
		return r
	}
	r.room = sub.Room
	text, err := page.PushText(page.LangOf(sub.Language), j.Stage.String(), sub.Room, sub.Page, mark.Nonce, t.sealer.Code(j.Room, j.Visitor))
	if err != nil {
		r.failed = Result{Cause: causeSealed, Err: err}
		return r
	}
	m := &Message{Text: text, Topic: fmt.Sprintf("%016x", j.Visitor), TTL: lives[j.Stage]}
	r.request, r.failed = t.sender.request(now, sub, m)
	return r
}

// mark stores that a subscription was told. A restarted server has forgotten which notifications it had, so that only this
// tells others not to repeat it.
func (w *Worker) mark(ctx context.Context, m push.Mark) error {
	w.mu.Lock()
	w.book.Told(m)
	g := w.told
	if g == nil {
		g = &group{done: make(chan struct{})}
		w.told = g
	}
	if g.marks = append(g.marks, m); len(g.marks) == 1 {
		w.marks <- g // the one before is being stored
	}
	w.mu.Unlock()
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// storeMarks stores marks until ctx ends: while some are stored, more gather. There are at most atOnce.
func (w *Worker) storeMarks(ctx context.Context) {
	for {
		var g *group
		select {
		case g = <-w.marks:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		w.told = nil
		w.mu.Unlock()
		data, err := json.Marshal(g.marks)
		if err != nil {
			w.note(err)
			continue
		}
		for ctx.Err() == nil {
			within, cancel := context.WithTimeout(ctx, storeWithin)
			err = w.Store.Mark(within, data)
			cancel()
			if err == nil {
				close(g.done)
				break
			}
			w.note(err)
			select {
			case <-time.After(tickEvery):
			case <-ctx.Done():
			}
		}
	}
}

// delivered counts a delivery.
func (w *Worker) delivered(j *push.Job) {
	age := w.Now().Sub(j.Due.Std())
	w.Count.sent.WithLabelValues(j.Stage.String()).Inc()
	w.Count.age.Observe(age.Seconds())
	w.late(age)
}

// late records the age of a message, sent or not: the longest of a minute.
func (w *Worker) late(age time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.Now(); age >= w.lag || now.Sub(w.slow) >= lagFor {
		w.slow, w.lag = now, age
	}
}

// giveUp drops a notification for good, and its subscription if that is number seq still.
func (w *Worker) giveUp(ctx context.Context, d *natsbus.Delivery, j *push.Job, in string, res Result, seq uint64) error {
	w.Count.failed.WithLabelValues(res.Cause).Inc()
	if res.Cause != causeGone {
		w.mu.Lock()
		if len(w.dead) == maxDead {
			w.dead = w.dead[1:]
		}
		w.dead = append(w.dead, DeadLetter{w.Now(), in, j.Stage.String(), res.Cause, res.Err.Error()})
		w.mu.Unlock()
		w.Count.dead.Inc()
		w.Log.Warn("a notification is given up", slog.String("room", in), slog.String("stage", j.Stage.String()), slog.String("cause", res.Cause), slog.Any("error", res.Err))
	}
	if res.Again || seq == 0 {
		return d.Drop()
	}
	return errors.Join(w.Store.End(ctx, uint64(j.Room), j.Visitor, seq), d.Drop())
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
	r := node.Readiness{Ready: w.current || w.none}
	switch {
	case r.Ready:
	case w.tools == nil:
		r.Reasons = append(r.Reasons, "the secret of notifications is not read yet: "+w.lost)
	default:
		r.Reasons = append(r.Reasons, "the subscriptions are not read yet: "+w.lost)
	}
	if w.lag >= push.LateAfter && w.Now().Sub(w.slow) < lagFor {
		r.Alarms = append(r.Alarms, fmt.Sprintf("notifications are late: one was due %v before", w.lag.Round(time.Second)))
	}
	return r
}
