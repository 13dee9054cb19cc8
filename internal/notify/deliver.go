package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"vestibule/internal/core/push"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/page"
)

const (
	deliverFor = 9 * time.Second // to look, to send, and before: together less than a process holds a notification
	maxDead    = 100
	lookAgain  = 200 * time.Millisecond // after the last look, of which there are ten a second

	// An attempt to confirm a subscription comes at least a quarter of its age after the one before, slowest at most.
	slowest = 10 * time.Minute

	// The outbox holds a failed notification for its first attempts. Then the book has it due again, so that the
	// outbox keeps its room for others.
	heldTries = 2
	heldFor   = 5 * time.Second
)

// backoff is the delay after each attempt, and each further one, unless the push service names a longer one.
var backoff = [...]time.Duration{time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute}

// lives are how long a push service keeps a message of each stage.
var lives = map[push.Stage]time.Duration{
	push.Confirmed: time.Hour, push.Soon: 5 * time.Minute, push.Called: 10 * time.Minute,
}

// DeadLetter is a notification that was given up.
type DeadLetter struct {
	At    time.Time `json:"at"`
	Room  string    `json:"room"`
	Stage string    `json:"stage"`
	Cause string    `json:"cause"`
	Error string    `json:"error"`
}

// ready is a notification that can be sent at once.
type ready struct {
	sealed  []byte // the subscription that it is for
	room    string
	request *http.Request
	failed  Result // without a request
}

// take delivers a notification, within the limit of messages at once, and within that of its push service.
func (w *Worker) take(ctx context.Context, d *natsbus.Delivery) {
	var j push.Job
	if err := json.Unmarshal(d.Data, &j); err != nil || w.secret.tools.Load() == nil {
		w.note(errors.Join(err, d.Drop()))
		return
	}
	w.mu.Lock()
	service := w.book.Service(&j)
	w.mu.Unlock()
	busy := func() { w.note(w.failed(d, &j, &Result{Cause: causeBusy, Err: errNoSlot})) }
	taken, waits := w.posts.try(time.Now(), service)
	if !taken && !waits {
		busy()
		return
	}
	w.busy.Go(func() {
		switch {
		case taken || w.posts.wait(ctx, service):
		case ctx.Err() != nil:
			w.note(d.Again(0))
			return
		default:
			busy()
			return
		}
		defer w.posts.leave(service)
		select {
		case w.limit <- struct{}{}:
		case <-ctx.Done():
			w.note(d.Again(0))
			return
		}
		defer func() { <-w.limit }()
		if err := w.deliver(ctx, d, &j, service); err != nil {
			w.note(err)
		}
	})
}

// deliver delivers a notification, unless its subscription has ended or was notified. The last look is right before the
// message is sent, with all that was stored until then.
func (w *Worker) deliver(ctx context.Context, d *natsbus.Delivery, j *push.Job, service string) error {
	t := w.secret.tools.Load()
	get := func() ([]byte, uint64, push.Mark) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.book.Get(j)
	}
	var r ready
	if sealed, _, mark := get(); sealed != nil {
		r = t.prepare(w.Now(), j, sealed, mark)
	}
	if err := w.enter(ctx, service); ctx.Err() != nil {
		return d.Again(0) // for another
	} else if err != nil {
		return errors.Join(err, d.Again(backoff[0]))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deliverFor)
	defer cancel()
	var took time.Duration
	defer func() { w.posts.arrived(service, took) }()
	sealed, seq, mark := get()
	if sealed == nil {
		w.Count.skipped.Inc()
		return d.Done()
	}
	if !bytes.Equal(r.sealed, sealed) {
		r = t.prepare(w.Now(), j, sealed, mark)
	}
	res, begun := r.failed, time.Now()
	if j.Until != 0 && w.now() > j.Until {
		return w.giveUp(d, j, r.room, &Result{Cause: causeBusy, Err: errors.New("its time is over")})
	}
	if res.Err == nil {
		res = t.sender.send(ctx, w.Now(), r.request)
		if w.posts.note(w.Now(), service, &res) {
			w.mu.Lock()
			w.book.Hurry(service)
			w.mu.Unlock()
		}
	}
	switch res.Cause {
	case "":
		w.delivered(j)
		err := w.mark(ctx, mark)
		took = time.Since(begun)
		return errors.Join(err, d.Done())
	case causeGone:
		w.Count.failed.WithLabelValues(res.Cause).Inc()
		return errors.Join(w.Store.End(ctx, uint64(j.Room), j.Visitor, seq), d.Drop())
	}
	return w.failed(d, j, &res)
}

// enter returns when a message with a slot of a service may be sent: the book has everything that was stored until now,
// and few messages are on their way. The store may have gone while the message stood in line: then nothing can be marked,
// and the message waits until the book is read again.
func (w *Worker) enter(ctx context.Context, service string) error {
	ctx, cancel := context.WithTimeout(ctx, deliverFor)
	defer cancel()
	if err := w.wait(ctx, time.Now()); err != nil {
		return err
	}
	begun := time.Now()
	w.posts.enter(service)
	w.mu.Lock()
	old := min(time.Since(begun), time.Since(w.looked)) >= lookAgain
	w.mu.Unlock()
	if !old {
		return nil
	}
	err := w.wait(ctx, time.Now())
	if err != nil {
		w.posts.arrived(service, 0)
	}
	return err
}

// failed has another attempt made at a notification. Only a push service that knows a browser no more ends its
// subscription: anything else may be mended before the visitor's turn is over.
func (w *Worker) failed(d *natsbus.Delivery, j *push.Job, res *Result) error {
	w.Count.failed.WithLabelValues(res.Cause).Inc()
	age := w.Now().Sub(j.Due.Std())
	w.late.record(w.Now(), age)
	after := max(res.After, backoff[min(max(d.Tries-1, j.Attempt), len(backoff)-1)])
	if j.Attempt == 0 && d.Tries <= heldTries && after <= heldFor {
		return d.Again(after)
	}
	if j.Stage == push.Confirmed {
		after = max(after, min(age/4, slowest))
	}
	w.mu.Lock()
	w.book.Failed(j, w.now().Add(after))
	w.mu.Unlock()
	return d.Done()
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
	text, err := page.PushText(page.LangOf(sub.Language), j.Stage.String(), sub.Room, sub.Page, mark.Nonce,
		t.sealer.Code(j.Room, j.Visitor))
	if err != nil {
		r.failed = Result{Cause: causeSealed, Err: err}
		return r
	}
	m := &Message{Text: text, Topic: fmt.Sprintf("%016x", j.Visitor), TTL: lives[j.Stage]}
	r.request, r.failed = t.sender.request(now, sub, m)
	return r
}

// mark stores that a subscription was notified. A restarted server has forgotten which notifications it had, so that
// only this tells others not to repeat it.
func (w *Worker) mark(ctx context.Context, m push.Mark) error {
	w.mu.Lock()
	w.book.Mark(m)
	w.mu.Unlock()
	return w.marks.add(ctx, m)
}

// delivered counts a delivery.
func (w *Worker) delivered(j *push.Job) {
	age := w.Now().Sub(j.Due.Std())
	w.Count.sent.WithLabelValues(j.Stage.String()).Inc()
	w.Count.age.Observe(age.Seconds())
	w.late.record(w.Now(), age)
}

// giveUp drops a notification whose time is over.
func (w *Worker) giveUp(d *natsbus.Delivery, j *push.Job, in string, res *Result) error {
	w.Count.failed.WithLabelValues(res.Cause).Inc()
	w.mu.Lock()
	w.book.Over(j)
	if len(w.dead) == maxDead {
		w.dead = w.dead[1:]
	}
	w.dead = append(w.dead, DeadLetter{w.Now(), in, j.Stage.String(), res.Cause, res.Err.Error()})
	w.mu.Unlock()
	w.Count.dead.Inc()
	w.Log.Warn("a notification is given up",
		slog.String("room", in), slog.String("stage", j.Stage.String()), slog.Any("error", res.Err))
	return d.Drop()
}
