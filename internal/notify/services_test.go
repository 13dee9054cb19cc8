package notify

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/push"
	"vestibule/internal/lab/testkit"
)

// TestARefusedTokenEndsNothing: the push service refuses the fleet's token for a while; then it is mended, and the
// visitors are told their turn.
func TestARefusedTokenEndsNothing(t *testing.T) {
	p := newPipeline(t)
	var answer atomic.Int32
	p.fate = func(uint64, int) int { return int(answer.Load()) }
	const people = 12
	p.worker("n1")
	for v, code := range []int32{
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusInternalServerError,
	} {
		answer.Store(code)
		first := uint64(v)*3 + 1
		for v := first; v < first+3; v++ {
			testkit.NoError(t, p.subscribe(testkit.Within(t), v))
		}
		testkit.Eventually(t, "all were tried", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.tries) == int(first)+2
		})
	}
	answer.Store(0)
	testkit.Eventually(t, "all are told their turn", func() bool {
		p.call(100, 100)
		for v := uint64(1); v <= people; v++ {
			if p.delivered(v, push.Called) != 1 {
				return false
			}
		}
		return true
	})
}

// TestAFailingServiceIsNamed in an alarm, until it works again.
func TestAFailingServiceIsNamed(t *testing.T) {
	var s services
	now := time.Now()
	bad := Result{Cause: causeRefused, Err: errors.New("the push service answered 403")}
	for range failingFrom {
		if s.note(now, "fcm.googleapis.com", &bad) {
			t.Error("it works")
		}
	}
	if got := s.failing(now); len(got) != 0 {
		t.Errorf("at once: %q", got)
	}
	now = now.Add(failingAfter)
	if got := s.failing(now); len(got) != 1 || !strings.Contains(got[0], "push service fcm.googleapis.com fails since ") {
		t.Errorf("%q", got)
	}
	if !s.note(now, "fcm.googleapis.com", &Result{}) || len(s.failing(now)) != 0 {
		t.Error("it works again")
	}
}

// TestAServiceHasItsSlots: a burst after a quiet time waits for slots, without a failed attempt, and for as long as the
// service answers; a service that hangs keeps nobody waiting, and takes none of the slots of others.
func TestAServiceHasItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s services
		const slow, other = "fcm.googleapis.com", "updates.push.services.mozilla.com"
		fill := func() {
			for range perService {
				if taken, _ := s.try(time.Now(), slow); !taken {
					t.Fatal("no slot")
				}
			}
		}
		fill()
		for range perService {
			s.note(time.Now(), slow, &Result{})
			s.leave(slow)
		}
		time.Sleep(time.Hour)
		fill()
		const burst = 100
		var got, refused atomic.Int32
		waits := func() {
			if taken, waits := s.try(time.Now(), slow); taken || !waits {
				t.Fatalf("after a quiet hour: %t, %t", taken, waits)
			}
			go func() {
				if s.wait(t.Context(), slow) {
					got.Add(1)
				} else {
					refused.Add(1)
				}
			}()
		}
		for range burst {
			waits()
		}
		for range burst / 2 {
			time.Sleep(hangsAfter / 10)
			s.note(time.Now(), slow, &Result{})
			s.leave(slow)
		}
		synctest.Wait()
		if got.Load() != burst/2 || refused.Load() != 0 {
			t.Errorf("%d have a slot, %d refused", got.Load(), refused.Load())
		}
		time.Sleep(2*hangsAfter + 1)
		s.note(time.Now(), slow, &Result{Cause: causeNetwork, Err: errors.New("its time is over")})
		if got.Load() != burst/2 || refused.Load() != burst/2 {
			t.Errorf("it hangs: %d have a slot, %d refused", got.Load(), refused.Load())
		}
		if taken, waits := s.try(time.Now(), slow); taken || waits {
			t.Error("the people of a service that hangs wait for a slot")
		}
		if taken, _ := s.try(time.Now(), other); !taken {
			t.Error("a service that hangs takes the slots of others")
		}
		s.note(time.Now(), slow, &Result{})
		for range mostWaiting {
			waits()
		}
		if taken, waits := s.try(time.Now(), slow); taken || waits {
			t.Error("any number may wait")
		}
		time.Sleep(2 * slotWithin)
	})
}

// TestFewAreOnTheirWay: what is ready at the same moment is spread over moments, without delaying anybody for long: not
// where the push service is far, nor where it hangs.
func TestFewAreOnTheirWay(t *testing.T) {
	const near, far = 3 * time.Millisecond, 100 * time.Millisecond
	for _, c := range []struct {
		name         string
		first, takes time.Duration // of a message before, and of those of the burst
		burst, waits int           // ready, and waiting for a slot
		most         int           // on their way
		within       time.Duration
	}{
		{"near, as every tenth of a second", near, near, 15, 0, 1, 50 * time.Millisecond},
		{"near, after a pause", near, near, perService, 2048, 55, spreadOver},
		{"far", far, far, perService, mostWaiting, perService, far},
		{"far, and few", far, far, 15, 0, 2, 12 * far},
		{"it hangs", near, time.Minute, 15, 0, 15, time.Minute + spreadMost},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s services
				x := s.of("fcm.googleapis.com")
				x.waiting = c.waits
				going := func() int {
					s.mu.Lock()
					defer s.mu.Unlock()
					return x.going
				}
				send := func(takes time.Duration) {
					s.enter("fcm.googleapis.com")
					time.Sleep(takes)
					s.arrived("fcm.googleapis.com", takes)
				}
				for range perService {
					send(c.first)
				}
				for range 5 {
					var all sync.WaitGroup
					begun, most := time.Now(), 0
					for range c.burst {
						all.Go(func() { send(c.takes) })
					}
					for synctest.Wait(); going() > 0; synctest.Wait() {
						most = max(most, going())
						time.Sleep(time.Millisecond)
					}
					all.Wait()
					if took := time.Since(begun); most > c.most || took > c.within {
						t.Errorf("%d at once, after %v; want at most %d, %v", most, took, c.most, c.within)
					}
				}
			})
		})
	}
}

// TestTheFirstMessagesAreFew: a new process knows a service by messages that opened connections; it has as many on their
// way as were marked.
func TestTheFirstMessagesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name, n = "fcm.googleapis.com", 100
		var s services
		x := s.of(name)
		x.waiting = mostWaiting
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				s.enter(name)
				s.mu.Lock()
				if x.going > x.done+1 {
					t.Errorf("%d on their way after %d", x.going, x.done)
				}
				s.mu.Unlock()
				time.Sleep(100 * time.Millisecond)
				s.arrived(name, 100*time.Millisecond)
			})
		}
		begun := time.Now()
		all.Wait()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestTheLineMoves: under a processor that is too busy a message may wait for more than spreadMost; those in line do not
// go at the same moment while others are marked.
func TestTheLineMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name, n, takes = "fcm.googleapis.com", 50, 40 * time.Millisecond
		var s services
		x := s.of(name)
		var all sync.WaitGroup
		most := 0
		for range n {
			all.Go(func() {
				s.enter(name)
				s.mu.Lock()
				most = max(most, x.going)
				x.took = fastest{now: time.Nanosecond, since: time.Now()} // as of one on an idle processor
				s.mu.Unlock()
				time.Sleep(takes)
				s.arrived(name, takes)
			})
		}
		begun := time.Now()
		all.Wait()
		if took := time.Since(begun); took < 2*spreadMost || most > 5 {
			t.Errorf("%d on their way at a time, %v for all", most, took)
		}
	})
}

// TestSlotsInOrder: a message that has waited for long gets a slot before those that came later.
func TestSlotsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "fcm.googleapis.com"
		var s services
		for range perService {
			s.try(time.Now(), name)
		}
		var got []int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 4 {
			if taken, waits := s.try(time.Now(), name); taken || !waits {
				t.Fatal(i, taken, waits)
			}
			all.Go(func() {
				if s.wait(t.Context(), name) {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, i)
				}
			})
			time.Sleep(hangsAfter * 2 / 5)
			s.note(time.Now(), name, &Result{})
		}
		for range 4 {
			s.leave(name)
			time.Sleep(hangsAfter / 5)
			s.note(time.Now(), name, &Result{})
		}
		all.Wait()
		if !slices.Equal(got, []int{0, 1, 2, 3}) {
			t.Errorf("slots went to %v", got)
		}
	})
}

// TestNothingIsSentThatCannotBeMarked: the store goes while a message stands in line; a notifier that was killed then
// would have sent it without a mark. Where the push service hangs alone, the message goes.
func TestNothingIsSentThatCannotBeMarked(t *testing.T) {
	for _, c := range []struct {
		name         string
		away, within time.Duration // the store is, from the middle of the time in line on; until the message goes
	}{
		{"the store is there", 0, spreadMost},
		{"it is away for long", 5 * time.Second, spreadMost/2 + 5*time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := New(Options{Config: DefaultConfig(), Count: NewMetrics(prometheus.NewRegistry())})
				begun := time.Now()
				away := func() bool {
					since := time.Since(begun)
					return since >= spreadMost/2 && since < spreadMost/2+c.away
				}
				var reads sync.WaitGroup
				ctx, end := context.WithCancel(t.Context())
				reads.Go(func() {
					for ; ctx.Err() == nil; time.Sleep(tickEvery) {
						if !away() {
							w.hasRead(time.Now())
						}
					}
				})
				for range 2 { // the push service does not answer to the first
					testkit.NoError(t, w.enter(ctx, "fcm.googleapis.com"))
				}
				if took := time.Since(begun); away() || took > c.within+2*tickEvery {
					t.Errorf("sent after %v", took)
				}
				end()
				reads.Wait()
			})
		})
	}
}
