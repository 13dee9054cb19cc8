package edge

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/testkit"
)

// slowStore stores changes, each after a moment.
type slowStore struct {
	takes time.Duration
	mu    sync.Mutex
	down  bool
	order []uint64 // visitors
	last  map[uint64]string
}

func (s *slowStore) store(ctx context.Context, _, visitor uint64, record []byte) error {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errors.New("away")
	}
	if s.last == nil {
		s.last = map[uint64]string{}
	}
	s.order, s.last[visitor] = append(s.order, visitor), string(record)
	return nil
}

func (s *slowStore) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// newest returns the record stored last of a visitor.
func (s *slowStore) newest(visitor uint64) (record string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	record, ok = s.last[visitor]
	return record, ok
}

// storing runs the queue of changes of an edge in virtual time until do returns.
func storing(t *testing.T, s *slowStore, do func(p *pushes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPushes(s.store, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.run(ctx) })
		do(p)
		end()
		running.Wait()
		if p.n != 0 || len(p.changes) != 0 || len(p.lanes) != 0 {
			t.Errorf("%d changes wait, %d are known, of %d prefixes", p.n, len(p.changes), len(p.lanes))
		}
	})
}

func network(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n)}), 24)
}

// TestEndsOfOneTicketAreStoredOnceASecond while the changes of others are stored at once.
func TestEndsOfOneTicketAreStoredOnceASecond(t *testing.T) {
	s := &slowStore{takes: 5 * time.Millisecond}
	lost := 0
	storing(t, s, func(p *pushes) {
		for i := range 30_000 {
			if !p.add(room.ID(1), 1, network(1), nil) {
				t.Fatal("an end is refused")
			}
			if i%1000 == 0 {
				visitor := uint64(i + 2)
				if !p.add(room.ID(1), visitor, network(2), []byte("x")) {
					t.Fatal("another is refused")
				}
				time.Sleep(time.Second)
				if record, _ := s.newest(visitor); record != "x" {
					t.Logf("%d is not stored after a second", i)
					lost++
				}
			}
		}
	})
	figures.Check(t, "notify: changes of others lost beside 30,000 ends", "", float64(lost))
	ends := 0
	for _, v := range s.order {
		if v == 1 {
			ends++
		}
	}
	if ends > 32 {
		t.Errorf("%d ends of one ticket were stored in 30 s", ends)
	}
}

// TestPrefixesTakeTurns: the changes of a prefix that floods the queue wait behind those of all others, and the ends of
// a prefix go before its new subscriptions.
func TestPrefixesTakeTurns(t *testing.T) {
	s := &slowStore{takes: 20 * time.Millisecond}
	storing(t, s, func(p *pushes) {
		refused := 0
		for v := range uint64(100_000) {
			if !p.add(room.ID(1), v, network(int(v%5)), []byte("junk")) {
				refused++
			}
		}
		p.mu.Lock()
		wait := p.n
		p.mu.Unlock()
		if refused == 0 || wait > pushQueue {
			t.Errorf("%d are refused, %d wait", refused, wait)
		}
		const others = 1 << 40
		p.add(room.ID(1), 77_777, network(0), nil) // a visitor behind such a prefix enters
		for v := range uint64(200) {
			if !p.add(room.ID(1), others+v, network(100+int(v)), []byte("x")) {
				t.Errorf("another is refused")
			}
		}
		time.Sleep(time.Second)
		for v := range uint64(200) {
			if record, _ := s.newest(others + v); record != "x" {
				t.Errorf("%d is not stored after a second", v)
			}
		}
		if at, ok := s.newest(77_777); !ok || at != "" {
			t.Errorf("the end is not stored after a second")
		}
	})
}

// TestTheNewestChangeIsStoredLast, also when it comes while an earlier one is being stored, or as the edge stops.
func TestTheNewestChangeIsStoredLast(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 3 * time.Second} {
		s := &slowStore{takes: 5 * time.Millisecond, down: true}
		storing(t, s, func(p *pushes) {
			p.add(room.ID(1), 7, network(1), []byte("a"))
			time.Sleep(wait)
			p.add(room.ID(1), 7, network(1), nil)
			time.Sleep(wait)
			s.set(false)
			p.add(room.ID(1), 7, network(1), []byte("b"))
		})
		if s.last[7] != "b" || len(s.order) > 2 || slices.Contains(s.order, 8) {
			t.Errorf("after %v: %v, the last is %q", wait, s.order, s.last[7])
		}
	}
}

// What an edge cannot store as it stops is counted as lost: its visitor gets no notification.
func TestAChangeThatIsNotStoredAtTheEndIsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := &slowStore{down: true}
	p := newPushes(s.store, slog.New(slog.DiscardHandler), reg)
	p.add(room.ID(1), 7, network(1), []byte("a"))
	p.finish(t.Context())
	if n := testkit.Metric(t, reg, "vestibule_edge_push_changes_total", "result", "lost"); n != 1 {
		t.Errorf("%v changes are counted as lost, want 1", n)
	}
}
