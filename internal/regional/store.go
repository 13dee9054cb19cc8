package regional

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"vestibule/internal/core/wire"
)

// storeAgain is the interval for storing unchanged promises again: a store that was emptied or restored meanwhile
// must hold them before a successor needs them.
const storeAgain = 5 * time.Second

// storeTime is the timeout of one attempt.
const storeTime = 5 * time.Second

// trouble records why a repeated operation fails, and since when. It is safe for concurrent use.
type trouble struct {
	mu    sync.Mutex
	since time.Time
	last  time.Time // time of the last failure
	why   string
}

// troubleFor is how long after the last failure there is still trouble: another process may lead since.
const troubleFor = 30 * time.Second

// record records a result, nil for success, and reports whether it is new.
func (t *trouble) record(err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.since, t.why = time.Time{}, ""
		return false
	}
	if t.since.IsZero() {
		t.since = time.Now()
	}
	t.last = time.Now()
	news := t.why != err.Error()
	t.why = err.Error()
	return news
}

// now returns how long there has been trouble, 0 for none, and why.
func (t *trouble) now() (time.Duration, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.since.IsZero() || time.Since(t.last) > troubleFor {
		return 0, ""
	}
	return time.Since(t.since), t.why
}

// Backoff of failed writes.
const (
	storeSoon = 50 * time.Millisecond
	storeLate = 2 * time.Second
)

// storer writes promises one at a time, always the newest.
type storer struct {
	trouble *trouble
	keep    func(d *wire.Durable) error // in the data folder; before the store has it
	want    chan wire.Durable
	// handles the result of a write; blocks until ctx ends at most
	saved   func(ctx context.Context, version uint64, err error)
	offered uint64
	last    wire.Durable // stored, and stored again periodically
	cancel  context.CancelFunc
	done    chan struct{}
}

func newStorer(
	ctx context.Context, store wire.PromiseStore, keep func(d *wire.Durable) error, trouble *trouble,
	log *slog.Logger, saved func(context.Context, uint64, error),
) *storer {
	ctx, cancel := context.WithCancel(ctx)
	w := &storer{
		keep: keep, trouble: trouble, want: make(chan wire.Durable, 1), saved: saved, cancel: cancel,
		done: make(chan struct{}),
	}
	go func() {
		defer close(w.done)
		again := time.NewTicker(storeAgain)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case d := <-w.want:
				w.write(ctx, store, d, log)
			case <-again.C:
				if w.last.Version > 0 {
					w.write(ctx, store, w.last, log)
				}
			}
		}
	}()
	return w
}

// write retries to store d until success, a newer version, or the end of the term.
func (w *storer) write(ctx context.Context, store wire.PromiseStore, d wire.Durable, log *slog.Logger) {
	for wait := storeSoon; ; wait = min(2*wait, storeLate) {
		err := w.keep(&d)
		if err == nil {
			try, cancel := context.WithTimeout(ctx, storeTime)
			err = store.Put(try, d)
			cancel()
		}
		if err == nil || errors.Is(err, wire.ErrFenced) {
			w.trouble.record(nil)
			w.last = d
			w.saved(ctx, d.Version, err)
			return
		}
		if ctx.Err() != nil {
			return // the term ends; flush stores the rest
		}
		if w.trouble.record(err) {
			log.Warn("promises not stored yet: new edges get no lease", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		select {
		case d = <-w.want: // a newer version
		default:
		}
	}
}

// offer queues promises for storing. It replaces an older version that was not begun.
func (w *storer) offer(d wire.Durable) {
	if d.Version <= w.offered {
		return
	}
	w.offered = d.Version
	select {
	case <-w.want:
	default:
	}
	w.want <- d
}

func (w *storer) stop() {
	w.cancel()
	<-w.done
	w.trouble.record(nil) // the next leader's
}

// flush stores unsaved promises at the end of a term.
func (l *leadership) flush() error {
	l.s.mu.Lock()
	d, ok := l.agg.Unsaved()
	l.s.mu.Unlock()
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for {
		err := l.s.Promises.Put(ctx, d)
		if err == nil {
			l.s.fresh = false
		}
		if err == nil || errors.Is(err, wire.ErrFenced) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("store promises at the end of the term: %w", err)
		case <-time.After(storeSoon):
		}
	}
}
