package notify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"vestibule/internal/core/push"
	"vestibule/internal/core/wire"
)

const (
	perService   = atOnce * 3 / 4                  // messages on their way to one push service: the others have the rest
	mostWaiting  = push.Window * wire.OutboxShards // messages that wait for a slot: all that are due at a time, in one burst
	slotWithin   = 10 * time.Second
	hangsAfter   = time.Second // without an answer, while as many as may be are on their way
	failingAfter = 30 * time.Second
	failingFrom  = 3 // attempts

	spreadOver = time.Second // what waits for a service is sent, in less where it is more than longLine
	longLine   = 50
	beginOver  = 64 * time.Millisecond  // see service.done
	spreadMost = 500 * time.Millisecond // a message waits in line while none of those before it is marked
	fastestFor = 2 * time.Second        // at least, and at most twice as long
)

var errNoSlot = errors.New("the push service does not answer, or does not keep up")

// services are the push services of a notifier. It is safe for concurrent use.
type services struct {
	mu sync.Mutex
	by map[string]*service // one for each of the configuration, and one for all others
}

// service is what is known of a push service.
type service struct {
	slots    chan struct{} // one for each message on its way
	waiting  int           // messages that wait for a slot
	answered time.Time     // last, or when it was asked with nothing else on its way
	since    time.Time     // all attempts fail
	failed   int           // since then
	why      string

	// Those with a slot that may be sent: all of them at the same moment, when the stored changes were read. A kill
	// repeats what is sent and not marked, so as few are on their way as send what waits within spreadOver or less.
	line  []chan struct{} // in order; each is closed when its message may go
	going int             // on their way
	took  fastest         // a message, until it was marked: others beside it only slow it down

	// Messages marked since the start, or since the store was lost. Who was just killed may be killed again, so few are on
	// their way at first: at most as many as were marked, and where they take less than beginOver a part of them.
	done int
}

// fastest is the shortest of the last times.
type fastest struct {
	since     time.Time
	now, last time.Duration // of the seconds since then, and before; 0 for none
}

func (f *fastest) add(now time.Time, took time.Duration) {
	if now.Sub(f.since) >= fastestFor {
		f.since, f.now, f.last = now, 0, f.now
	}
	if f.now == 0 || took < f.now {
		f.now = took
	}
}

func (f *fastest) least() time.Duration {
	if f.now == 0 || f.last > 0 && f.last < f.now {
		return f.last
	}
	return f.now
}

func (s *services) of(name string) *service {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]*service{}
	}
	x := s.by[name]
	if x == nil {
		x = &service{slots: make(chan struct{}, perService)}
		s.by[name] = x
	}
	return x
}

// try takes one of the slots of a service, which leave returns, if one is free. Otherwise it reports whether the message
// may wait for one.
func (s *services) try(now time.Time, name string) (taken, waits bool) {
	x := s.of(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case x.slots <- struct{}{}:
		if len(x.slots) == 1 {
			x.answered = now
		}
		return true, false
	default:
	}
	if x.waiting == mostWaiting || x.hangs(now) {
		return false, false
	}
	x.waiting++
	return false, true
}

// wait waits for a slot of a service, for as long as the service answers. Others do not wait for it.
func (s *services) wait(ctx context.Context, name string) bool {
	x := s.of(name)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		x.waiting--
	}()
	ctx, end := context.WithTimeout(ctx, slotWithin)
	defer end()
	var look *time.Timer
	s.mu.Lock()
	look = time.AfterFunc(hangsAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case ctx.Err() != nil:
		case x.hangs(time.Now()):
			end()
		default:
			look.Reset(hangsAfter)
		}
	})
	s.mu.Unlock()
	defer look.Stop()
	select { // once: a second one would be behind those that came later
	case x.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// hangs reports whether a service whose slots are taken does not answer. The caller holds the lock.
func (x *service) hangs(now time.Time) bool { return now.Sub(x.answered) > hangsAfter }

// enter returns when a message with a slot may be sent. It waits in line for those before it, at most spreadMost after the
// last one that was marked.
func (s *services) enter(name string) {
	x, turn := s.of(name), make(chan struct{})
	s.mu.Lock()
	x.line = append(x.line, turn)
	x.next()
	done := x.done
	s.mu.Unlock()
	late := time.NewTimer(spreadMost)
	defer late.Stop()
	for {
		select {
		case <-turn:
			return
		case <-late.C:
		}
		s.mu.Lock()
		i := slices.Index(x.line, turn)
		hangs := i >= 0 && x.done == done
		if hangs {
			x.line = slices.Delete(x.line, i, i+1)
			x.going++
		}
		done = x.done
		s.mu.Unlock()
		if hangs {
			return
		}
		late.Reset(spreadMost)
	}
}

// arrived takes that a message is not on its way any more, and how long it took until it was marked; 0 for one that was
// not taken.
func (s *services) arrived(name string, took time.Duration) {
	x := s.of(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	x.going--
	if took > 0 {
		x.took.add(time.Now(), took)
		x.done++
	}
	x.next()
}

// next lets those go that may. The caller holds the lock.
func (x *service) next() {
	for len(x.line) > 0 {
		all := x.going + len(x.line) + x.waiting
		took := x.took.least()
		may := time.Duration(all) * took * time.Duration(max(longLine, all)) / longLine / spreadOver
		if x.going > min(x.done, int(time.Duration(x.done)*took/beginOver), int(may)) {
			return
		}
		close(x.line[0])
		x.line = x.line[1:]
		x.going++
	}
}

// begin takes that the store was lost, or that the process starts: few messages are on their way at first.
func (s *services) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.by {
		x.done = 0
	}
}

func (s *services) leave(name string) { <-s.of(name).slots }

// note takes the outcome of an attempt. It reports whether the service works again after it has failed.
func (s *services) note(now time.Time, name string, res *Result) (again bool) {
	x := s.of(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if res.Cause != causeNetwork { // an attempt whose time is over is no answer
		x.answered = now
	}
	if res.Cause == "" || res.Cause == causeGone {
		again = x.failed >= failingFrom && now.Sub(x.since) >= hangsAfter
		x.failed = 0
		return again
	}
	if x.failed == 0 {
		x.since = now
	}
	x.failed++
	x.why = res.Err.Error()
	return false
}

// failing returns the services that have failed for a while, in order, each with what is known of it.
func (s *services) failing(now time.Time) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, x := range s.by {
		if x.failed >= failingFrom && now.Sub(x.since) >= failingAfter {
			out = append(out, fmt.Sprintf("push service %s fails since %s: %s", name, x.since.UTC().Format("15:04:05 UTC"), x.why))
		}
	}
	slices.Sort(out)
	return out
}

// serviceOf returns the name of a subscription's push service.
func (t *tools) serviceOf(sub *push.Subscription) string {
	if name := t.sender.services.Of(sub.Endpoint); name != "" {
		return name
	}
	return "(of no setting)"
}
