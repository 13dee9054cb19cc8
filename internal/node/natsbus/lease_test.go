package natsbus_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// tenure is the oracle of leaders: never two of them, and every term higher than the one before. A pause of the
// machine delays the report of a lease's end.
type tenure struct {
	t  *testing.T
	mu sync.Mutex

	leader  string
	until   time.Time // end of its lease, as last reported
	term    uint64
	leaders []string
}

// enter waits for a leader with an expired lease to step down, as it must.
func (r *tenure) enter(name string, term uint64, until time.Time) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for begun := time.Now(); r.leader != ""; {
		if late := time.Now(); late.Before(r.until) || late.Sub(begun) > testkit.Patience {
			r.t.Errorf("%s leads while %s does", name, r.leader)
			break
		}
		r.mu.Unlock()
		<-tick.C
		r.mu.Lock()
	}
	if term <= r.term {
		r.t.Errorf("%s leads with term %d after term %d", name, term, r.term)
	}
	r.leader, r.term, r.until = name, term, until
	r.leaders = append(r.leaders, name)
}

func (r *tenure) extend(name string, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader == name {
		r.until = until
	}
}

func (r *tenure) leave(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader == name {
		r.leader = ""
	}
}

func (r *tenure) now() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leader
}

func (r *tenure) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.leaders)
}

// candidate stands for leadership until the test ends, or it is stopped.
type candidate struct {
	name    string
	conn    *natsbus.Conn
	ahead   atomic.Int64 // offset of its clock, as after a suspend
	renewed atomic.Int64
	behind  atomic.Int64 // terms with a store that had lost data
	before  atomic.Int64 // terms with an earlier leader reported
	rivals  atomic.Int64 // terms with another leader in between reported
	resign  chan struct{}
	minTerm atomic.Uint64
	stop    func()
	lease   *natsbus.Lease
}

// elected returns a site whose candidate a leads.
func elected(t *testing.T) (s *site, r *tenure, a *candidate) {
	t.Helper()
	s, r = newSite(t), &tenure{t: t}
	a = stand(t, r, s.URL(), "a")
	r.leads("a")
	return s, r, a
}

func stand(t *testing.T, r *tenure, url, name string) *candidate {
	t.Helper()
	return standWith(t, r, url, name, 1)
}

func standWith(t *testing.T, r *tenure, url, name string, replicas int) *candidate {
	t.Helper()
	c := &candidate{name: name, conn: connect(t, url, name), resign: make(chan struct{})}
	clock := node.NewClock()
	now := func() fleettime.Mono { return clock.Now().Add(time.Duration(c.ahead.Load())) }
	// at returns the test's clock at a reading of the candidate, or slightly less.
	at := func(m fleettime.Mono) time.Time {
		wall := time.Now()
		return wall.Add(m.Sub(now()))
	}
	l := natsbus.NewLease(c.conn, "tenure", name, replicas, now)
	c.lease = l
	last := wire.Term{} // of this candidate
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := l.Run(ctx, c.minTerm.Load, func(ctx context.Context, lead wire.Leading) {
			switch left := lead.Until.Sub(now()); {
			case left > natsbus.LongestLease:
				t.Errorf("%s leads for %v", name, left)
			case left <= 0: // the machine paused for as long as a lease
				<-ctx.Done()
				return
			}
			if lead.Term.Nonce == 0 {
				t.Errorf("%s leads without a nonce", name)
			}
			r.enter(name, lead.Term.N, at(lead.Until))
			if lead.Behind {
				c.behind.Add(1)
			}
			if lead.Before {
				c.before.Add(1)
			}
			if lead.Last != last {
				c.rivals.Add(1)
			}
			last = lead.Term
			defer r.leave(name)
			until := lead.Until
			for {
				select {
				case <-ctx.Done():
					return
				case <-c.resign:
					return
				case next := <-lead.Extends:
					if next <= until {
						t.Errorf("%s: extended from %v to %v", name, until, next)
					}
					until = next
					r.extend(name, at(next))
					c.renewed.Add(1)
				}
			}
		})
		if ctx.Err() == nil {
			t.Errorf("%s no longer stands: %v", name, err)
		}
	}()
	c.stop = sync.OnceFunc(func() {
		cancel()
		testkit.Receive(t, name+" stops", done)
	})
	t.Cleanup(c.stop)
	return c
}

// leads waits until the candidate leads.
func (r *tenure) leads(name string) {
	r.t.Helper()
	eventually(r.t, name+" leads", func() bool { return r.now() == name })
}

// renews waits until the candidate has renewed its lease some more.
func (c *candidate) renews(t *testing.T, times int64) {
	t.Helper()
	from := c.renewed.Load()
	eventually(t, c.name+" renews", func() bool { return c.renewed.Load() >= from+times })
}

func TestOneLeadsAndAnotherFollowsWhenItStops(t *testing.T) {
	t.Parallel()
	tries(t, func() string {
		s := newSite(t)
		r := &tenure{t: t}
		a := stand(t, r, s.URL(), "a")
		defer a.stop()
		r.leads("a")
		b := stand(t, r, s.URL(), "b")
		defer b.stop()
		c := stand(t, r, s.URL(), "c")
		defer c.stop()
		from := a.renewed.Load() // longer than one lease: the others keep waiting
		eventually(t, "a renews, or lost its lease", func() bool { return a.renewed.Load() >= from+5 || r.count() > 1 })
		a.stop()
		took := eventually(t, "another leads", func() bool { return r.now() == "b" || r.now() == "c" })
		switch before := b.before.Load() + c.before.Load(); {
		case r.count() != 2:
			return fmt.Sprintf("a led, and then %v", r.leaders[1:])
		case a.before.Load() != 0 || before != 1:
			return fmt.Sprintf("somebody had led before: the first learned so %d times, its successor %d times",
				a.before.Load(), before)
		case took > natsbus.LeaseLength:
			return fmt.Sprintf("a lease that was given up was waited for: %v", took)
		}
		return ""
	})
}

// tries repeats a scenario that a pause of the machine for a second can spoil. play returns the fault; a real
// defect occurs every time.
func tries(t *testing.T, play func() (wrong string)) {
	t.Helper()
	for try := 1; ; try++ {
		switch wrong := play(); {
		case wrong == "":
			return
		case try == 6:
			t.Fatal(wrong)
		default:
			t.Log(wrong)
		}
	}
}

// A returning leader learns whether another one led in between.
func TestALeaderInBetweenIsReported(t *testing.T) {
	t.Parallel()
	s, r, a := elected(t)
	again := func(c *candidate) {
		t.Helper()
		n := r.count()
		c.resign <- struct{}{}
		eventually(t, "somebody leads", func() bool { return r.count() > n && r.now() != "" })
	}
	again(a)
	again(a)
	if n := a.rivals.Load(); n != 0 {
		t.Fatalf("nobody else led, and it learned so %d times", n)
	}
	b := stand(t, r, s.URL(), "b")
	for r.now() != "b" {
		again(a)
	}
	if b.rivals.Load() != 1 {
		t.Error("who leads for the first time did not learn of the one before")
	}
	for r.now() != "a" {
		again(b)
	}
	if n := a.rivals.Load(); n != 1 {
		t.Errorf("somebody else led once, and it learned so %d times", n)
	}
}

// Two candidates with one name stand like any two, and the second reports the mistake.
func TestALeadingNamesakeIsReported(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	r := &tenure{t: t}
	one := stand(t, r, s.URL(), "one")
	r.leads("one")
	logged := &testkit.Log{}
	conn := testkit.Must(natsbus.Connect(natsbus.Options{
		URL: s.URL(), Name: "two",
		Log: slog.New(slog.NewTextHandler(logged, nil)),
	}))(t)
	t.Cleanup(conn.Close)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := natsbus.NewLease(conn, "tenure", "one", 1, node.NewClock().Now).Run(ctx, func() uint64 { return 0 },
			func(context.Context, wire.Leading) {
				t.Error("two of one name lead")
			})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("stood until %v", err)
		}
	}()
	one.renews(t, 5)
	eventually(t, "it is reported",
		func() bool { return strings.Contains(logged.String(), "another process with this one's name leads") })
	one.renews(t, 5)
	if n := strings.Count(logged.String(), "another process with this one's name leads"); n != 1 {
		t.Errorf("reported %d times", n)
	}
	cancel()
	testkit.Receive(t, "it stops", done)
}

// TestWhoLeadsWatchesNoMore: messages that a leader does not read would be buffered as long as it leads, and its
// reader in the NATS library would never end.
func TestWhoLeadsWatchesNoMore(t *testing.T) {
	t.Parallel()
	s, _, a := elected(t)
	a.renews(t, 1)
	js := testkit.JetStream(t, s.URL())
	eventually(t, "nobody watches the lease", func() bool {
		stream, err := js.Stream(t.Context(), "KV_vestibule_leases")
		return err == nil && stream.CachedInfo().State.Consumers == 0
	})
}

func TestWhoReturnsEarlyResigns(t *testing.T) {
	t.Parallel()
	s, r, a := elected(t)
	stand(t, r, s.URL(), "b")
	a.minTerm.Store(1000) // seen by a downstream node
	a.resign <- struct{}{}
	eventually(t, "somebody leads again", func() bool { return r.count() == 2 && r.now() != "" })
	if r.now() == "a" && r.term <= 1000 {
		t.Errorf("term %d is not above the one that was to be exceeded", r.term)
	}
}

// An isolated leader steps down by its own clock before a rival leads.
func TestWhoIsCutOffStepsDownFirst(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*link){
		"silence": func(l *link) { l.up.hold(); l.down.hold() },
		"closed":  func(l *link) { l.up.hold(); l.cut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			path := newLink(t, s.URL())
			r := &tenure{t: t}
			a := stand(t, r, path.url(), "a")
			r.leads("a")
			b := stand(t, r, s.URL(), "b")
			for from := a.renewed.Load(); a.renewed.Load() == from; { // b came first during a pause of the machine
				eventually(t, "a renews, or b leads", func() bool { return a.renewed.Load() > from || r.now() == "b" })
				select {
				case b.resign <- struct{}{}:
				default:
				}
			}
			begun := time.Now()
			cut(path)
			r.leads("b")
			t.Logf("the takeover took %v (goal 2 s)", time.Since(begun).Round(time.Millisecond))
			path.up.free()
			path.down.free()
			eventually(t, "a is connected again", func() bool { return a.conn.Connected() })
			if r.now() != "b" {
				t.Error("the old leader is back without an election")
			}
		})
	}
}

// A write with a late response may have succeeded: the leader finds its nonce in the key and continues.
func TestAnAnswerThatIsLateCostsNoLeadership(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := newLink(t, s.URL())
	r := &tenure{t: t}
	a := stand(t, r, path.url(), "a")
	r.leads("a")
	stand(t, r, s.URL(), "b")
	a.renews(t, 1)
	path.down.hold()
	hold := time.NewTimer(natsbus.LeaseLength / 2) // beyond one write, within the lease
	<-hold.C
	path.down.free()
	a.renews(t, 3)
	if r.count() != 1 {
		t.Errorf("led: %v", r.leaders)
	}
}

// TestASlowStoreKeepsItsLeader: writes that take half a second and a second cost no leadership, and a rival waits for
// as long as the key says.
func TestASlowStoreKeepsItsLeader(t *testing.T) {
	t.Parallel()
	for _, write := range []time.Duration{300 * time.Millisecond, 500 * time.Millisecond, time.Second} {
		t.Run(write.String(), func(t *testing.T) {
			t.Parallel()
			s, r := newSite(t), &tenure{t: t}
			path := newLink(t, s.URL())
			path.delay.Store(int64(write / 2))
			a := stand(t, r, path.url(), "a")
			r.leads("a")
			stand(t, r, s.URL(), "b") // the store is near it
			a.renews(t, 8)
			if text := a.lease.Slow(); !strings.Contains(text, "slow: a renewal of the lease takes ") ||
				!strings.Contains(text, path.url()) {
				t.Errorf("the alarm: %q", text)
			}
			path.delay.Store(0)
			a.renews(t, 8)
			if write < natsbus.LeaseLength/2 { // of a lease that is short again
				path.delay.Store(int64(write / 2))
				a.renews(t, 8)
			}
			if r.count() != 1 {
				t.Errorf("led: %v", r.leaders)
			}
		})
	}
}

// A suspended process finds its lease expired when it resumes, whatever the store holds.
func TestWhoWasFrozenNoLongerLeads(t *testing.T) {
	t.Parallel()
	_, r, a := elected(t)
	a.renews(t, 1)
	a.ahead.Add(int64(10 * time.Second))
	eventually(t, "its leadership ends", func() bool { return r.count() > 1 || r.now() == "" })
	eventually(t, "somebody leads again", func() bool { return r.count() > 1 })
}

func TestLeadershipOutlivesItsServer(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]bool{"with its memory": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			r := &tenure{t: t}
			a, b := stand(t, r, s.URL(), "a"), stand(t, r, s.URL(), "b")
			eventually(t, "somebody leads", func() bool { return r.now() != "" })
			s.Stop()
			eventually(t, "they see it", func() bool { return !a.conn.Connected() && !b.conn.Connected() })
			if forget {
				s.forget()
			}
			s.start()
			eventually(t, "both are back", func() bool { return a.conn.Connected() && b.conn.Connected() })
			was := a.renewed.Load() + b.renewed.Load()
			eventually(t, "one of them leads", func() bool {
				return r.now() != "" && a.renewed.Load()+b.renewed.Load() > was
			})
		})
	}
}

// An invalid value is treated like a lease that ends.
func TestNonsenseInTheKeyIsOvercome(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	kv := testkit.Must(testkit.JetStream(t, s.URL()).CreateKeyValue(within(t), jetstream.KeyValueConfig{
		Bucket:  "vestibule_leases",
		History: 1,
	}))(t)
	testkit.Must(kv.Put(within(t), "tenure", []byte("{nonsense")))(t)
	r := &tenure{t: t}
	stand(t, r, s.URL(), "a")
	r.leads("a")
	// Deleted by hand: the holder must not continue.
	testkit.NoError(t, kv.Delete(within(t), "tenure"))
	eventually(t, "it leads anew", func() bool { return r.count() >= 2 && r.now() == "a" })
}
