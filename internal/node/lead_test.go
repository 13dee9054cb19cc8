package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/wire"
)

// won is a leadership that every candidacy wins at once.
type won struct {
	wire.Leadership
	terms   int
	extends chan fleettime.Mono
	above   []uint64 // the term that each candidacy had to exceed
}

func (w *won) Run(ctx context.Context, minTerm func() uint64, lead func(context.Context, wire.Leading)) error {
	for range w.terms {
		w.above = append(w.above, minTerm())
		lead(ctx, wire.Leading{Term: wire.Term{N: minTerm() + 1}, Until: 1, Extends: w.extends, Behind: true})
	}
	return nil
}

// fakeLedger is a ledger that records its calls.
type fakeLedger struct {
	until fleettime.Mono
	rooms int // number of calls
	by    uint64
}

func (l *fakeLedger) SetLease(until fleettime.Mono)                { l.until = until }
func (l *fakeLedger) SetRooms(fleettime.Mono, []ledger.RoomConfig) { l.rooms++ }
func (l *fakeLedger) SetMembers(fleettime.Mono, ledger.Members)    {}
func (l *fakeLedger) Fenced() (by uint64, fenced bool)             { return l.by, l.by != 0 }

func (w *won) candidate(t *testing.T) (*Candidate, *Fleet) {
	return w.candidateOf(t, NewClock())
}

func (w *won) candidateOf(t *testing.T, c *Clock) (*Candidate, *Fleet) {
	t.Helper()
	f, err := NewFleet(t.TempDir(), nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return NewCandidate(CandidateOptions{
		Lease: w, Clock: c, Log: slog.New(slog.DiscardHandler),
		Dropped:     prometheus.NewCounter(prometheus.CounterOpts{Name: "dropped_total", Help: "h"}),
		Regressions: prometheus.NewCounter(prometheus.CounterOpts{Name: "regressions_total", Help: "h"}),
	}), f
}

var errBroken = errors.New("broken")

// A term ends for every reason of its leader, and a leader that met a newer term stands for one above it.
func TestWhyATermEnds(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(*Term, *fakeLedger, *Clock) error // at the first pump
		want    error
		above   uint64 // at the next candidacy
	}{
		"pump": {func(*Term, *fakeLedger, *Clock) error { return errBroken }, errBroken, 0},
		"outcome": {func(t *Term, _ *fakeLedger, _ *Clock) error {
			t.Outcome(context.Background(), func() error { return errBroken })
			return nil
		}, errBroken, 0},
		"fenced": {
			func(t *Term, l *fakeLedger, _ *Clock) error { t.Offer(func() { l.by = 7 }); return nil },
			wire.ErrFenced, 7,
		},
		"asleep": {func(_ *Term, _ *fakeLedger, c *Clock) error {
			c.skew.Add(-int64(time.Hour))
			c.Now()
			return nil
		}, ErrAsleep, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, clock := &won{terms: 2}, NewClock()
			candidate, f := w.candidateOf(t, clock)
			var lock sync.Mutex
			var got []error
			err := candidate.Run(t.Context(), f, func(ctx context.Context, term *Term) error {
				if len(got) == 1 {
					got = append(got, nil)
					return nil
				}
				l, pumped := &fakeLedger{}, false
				err := term.Drive(ctx, l, &lock, func() (time.Duration, error) {
					if pumped {
						return time.Millisecond, nil
					}
					pumped = true
					return time.Millisecond, c.happens(term, l, clock)
				})
				got = append(got, err)
				return err
			})
			if err != nil || !errors.Is(got[0], c.want) {
				t.Errorf("the term ended with %v (%v), want %v", got[0], err, c.want)
			}
			if want := []uint64{0, c.above}; !slices.Equal(w.above, want) {
				t.Errorf("stood for terms above %v, want %v", w.above, want)
			}
			if n := testutil.ToFloat64(candidate.Regressions); n != 2 {
				t.Errorf("%v terms were led from a store that was behind, want 2", n)
			}
		})
	}
}

// Events reach the ledger in order, up to the limit of the inbox; and the end of the lease is no error.
func TestALeaderTellsItsLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &won{terms: 1, extends: make(chan fleettime.Mono, 1)}
		candidate, f := w.candidate(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l, taken := &fakeLedger{}, []int{}
		var lock sync.Mutex
		var pumps atomic.Int64
		var led error
		done := make(chan error, 1)
		go func() {
			done <- candidate.Run(ctx, f, func(ctx context.Context, term *Term) error {
				term.Brief(l)
				for i := range inboxSize + 1 {
					term.Offer(func() { taken = append(taken, i) })
				}
				led = term.Drive(ctx, l, &lock, func() (time.Duration, error) {
					pumps.Add(1)
					return time.Hour, nil
				})
				return led
			})
		}()
		synctest.Wait()
		if l.until != 1 || l.rooms != 1 || testutil.ToFloat64(candidate.Dropped) != 1 {
			t.Errorf("lease until %d, rooms set %d times, %v dropped; want 1, 1, 1", l.until, l.rooms,
				testutil.ToFloat64(candidate.Dropped))
		}
		if len(taken) != inboxSize || !slices.IsSorted(taken) {
			t.Errorf("took %d messages, in order: %v; want %d, true", len(taken), slices.IsSorted(taken), inboxSize)
		}
		if n := pumps.Load(); n < 2 || n > inboxSize/inboxBatch+1 {
			t.Errorf("pumped %d times for %d messages at once; want 2 to %d", n, inboxSize, inboxSize/inboxBatch+1)
		}
		before := pumps.Load()
		w.extends <- 9
		candidate.Changed()
		candidate.Changed() // repeated before it was handled: no effect
		synctest.Wait()
		if l.until != 9 || l.rooms < 2 || pumps.Load() != before+int64(l.rooms) {
			t.Errorf("lease until %d, rooms set %d times, pumped %d times more", l.until, l.rooms, pumps.Load()-before)
		}
		before = pumps.Load()
		time.Sleep(time.Hour) // nothing due for that time
		synctest.Wait()
		if pumps.Load() != before+1 {
			t.Errorf("pumped %d times within an hour in which nothing was due, want once", pumps.Load()-before)
		}
		cancel()
		if err := <-done; err != nil || led != nil {
			t.Errorf("the lease ended with %v, %v", err, led)
		}
	})
}

// lockedLedger is a ledger that is read concurrently: whoever changes it holds the lock.
type lockedLedger struct {
	fakeLedger
	lock     sync.Mutex
	unlocked []string // calls without it
}

func (l *lockedLedger) check(call string) {
	if l.lock.TryLock() {
		l.unlocked = append(l.unlocked, call)
		l.lock.Unlock()
	}
}

func (l *lockedLedger) SetLease(until fleettime.Mono) {
	l.check("SetLease")
	l.fakeLedger.SetLease(until)
}

func (l *lockedLedger) SetRooms(now fleettime.Mono, rooms []ledger.RoomConfig) {
	l.check("SetRooms")
	l.fakeLedger.SetRooms(now, rooms)
}

func TestALedgerIsChangedUnderItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &won{terms: 1, extends: make(chan fleettime.Mono, 1)}
		candidate, f := w.candidate(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := &lockedLedger{}
		done := make(chan error, 1)
		go func() {
			done <- candidate.Run(ctx, f, func(ctx context.Context, term *Term) error {
				return term.Drive(ctx, l, &l.lock, func() (time.Duration, error) { return time.Hour, nil })
			})
		}()
		w.extends <- 9
		candidate.Changed()
		synctest.Wait()
		if l.until != 9 || l.rooms == 0 || len(l.unlocked) > 0 {
			t.Errorf("lease until %d, rooms set %d times; without the lock: %v", l.until, l.rooms, l.unlocked)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
