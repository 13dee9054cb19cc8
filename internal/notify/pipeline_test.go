package notify

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/push"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/leak"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

var (
	subscribers = flag.Int("subscribers", 600, "subscribers of TestDeliveryInTime: the figure is of 100,000")
	turns       = flag.Int("turns", 200, "turns a second in TestDeliveryInTime: the figure is of 2,000")
	killing     = flag.Duration("killing", 5*time.Second, "how long TestKilledNotifiers kills: the figure is of ten minutes")
)

func TestMain(m *testing.M) { leak.WithNATS(m) }

var (
	quiet  = slog.New(slog.DiscardHandler)
	secret = ticket.Secret{5}
	shop   = room.IDOf("shop")
)

// pipeline is a NATS server, a push service, and what visitors and global do.
type pipeline struct {
	t      testing.TB
	nats   *embedded.Server
	opts   embedded.Options
	push   *pushService
	conn   *natsbus.Conn
	sealer *push.Sealer
	keys   push.Subscription

	mu    sync.Mutex
	heard map[uint64][]heard // by visitor
	fate  func(visitor uint64, try int) int
	tries map[uint64]int
}

// heard is a message that the push service took.
type heard struct {
	topic string
	at    time.Time
}

func newPipeline(t testing.TB) *pipeline {
	p := &pipeline{t: t, heard: map[uint64][]heard{}, tries: map[uint64]int{}, keys: browserKeys(t)}
	p.opts = embedded.Options{Name: "test", Dir: t.TempDir(), Listen: testkit.FreeAddr(t), Log: quiet}
	p.startNATS()
	t.Cleanup(func() { p.nats.Stop() })
	p.push = newPushService(t, http.HandlerFunc(p.take))
	var err error
	if p.sealer, err = push.NewSealer(secret); err != nil {
		t.Fatal(err)
	}
	p.conn = p.connect("global")
	ctx := testkit.Within(t)
	if err := p.conn.EnsurePushes(ctx, 1); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := natsbus.NewDocuments(p.conn, 1, "notifier").Put(ctx, "notifier", data, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pipeline) startNATS() {
	var err error
	if p.nats, err = embedded.Start(p.opts); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pipeline) connect(name string) *natsbus.Conn {
	c, err := natsbus.Connect(natsbus.Options{URL: p.nats.URL(), Name: name, Log: quiet})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.Close)
	return c
}

// take is the push service: the path names the visitor.
func (p *pipeline) take(w http.ResponseWriter, r *http.Request) {
	visitor, err := strconv.ParseUint(strings.TrimPrefix(r.URL.Path, "/"), 10, 64)
	if err != nil {
		p.t.Error(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries[visitor]++
	if p.fate != nil {
		if code := p.fate(visitor, p.tries[visitor]); code != 0 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(code)
			return
		}
	}
	p.heard[visitor] = append(p.heard[visitor], heard{r.Header.Get("TTL"), time.Now()})
	w.WriteHeader(http.StatusCreated)
}

// told returns how often the push service took a message of a stage for a visitor; their lives tell them apart.
func (p *pipeline) told(visitor uint64, stage push.Stage) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.heard[visitor] {
		if h.topic == strconv.Itoa(int(lives[stage].Seconds())) {
			n++
		}
	}
	return n
}

// subscribe stores the subscription of a visitor, whose place is its number in seconds.
func (p *pipeline) subscribe(ctx context.Context, visitor uint64) error {
	sub := p.keys
	sub.Endpoint, sub.Room = fmt.Sprintf("https://example.com/%d", visitor), "shop"
	sealed, err := p.sealer.Seal(shop, visitor, &sub)
	if err != nil {
		return err
	}
	data, err := (&push.Record{Place: fleettime.Time(visitor * 1000), Sealed: sealed}).Encode()
	if err != nil {
		return err
	}
	return p.conn.StorePush(ctx, uint64(shop), visitor, data)
}

// call says that the visitors up to a number are called, and those up to another soon are.
func (p *pipeline) call(called, soon uint64) {
	data, err := json.Marshal(push.Calls{Rooms: []push.Call{{Room: shop, Called: fleettime.Time(called * 1000), Soon: fleettime.Time(soon * 1000)}}})
	if err == nil {
		err = p.conn.Publish(wire.CallSubject, data)
	}
	if err != nil && !errors.Is(err, wire.ErrDown) {
		p.t.Error(err)
	}
}

// worker starts a notifier and returns what ends it.
func (p *pipeline) worker(name string) (w *Worker, end func()) {
	cfg := DefaultConfig()
	cfg.Name, cfg.Contact, cfg.Services = name, "mailto:ops@shop.example", []string{"example.com"}
	conn := p.connect(name)
	w = New(Options{Config: cfg, Bus: conn, Store: natsbus.NewPushes(conn), Log: quiet, Count: NewMetrics(prometheus.NewRegistry()), Out: p.push.out, Tune: p.push.tune})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Run(ctx); err != nil {
			p.t.Error(err)
		}
	}()
	end = sync.OnceFunc(func() {
		cancel()
		<-done
		conn.Close()
	})
	p.t.Cleanup(end)
	return w, end
}

// TestThePipeline: two notifiers tell each visitor each stage once; who has left is told nothing, a busy push service is
// asked again, one that knows the browser no more ends the subscription, and one that refuses is a dead letter.
func TestThePipeline(t *testing.T) {
	p := newPipeline(t)
	const left, busy, gone, refused = 3, 20, 21, 22
	p.fate = func(visitor uint64, try int) int {
		switch {
		case visitor == busy && try == 1:
			return http.StatusTooManyRequests
		case visitor == gone:
			return http.StatusGone
		case visitor == refused:
			return http.StatusForbidden
		}
		return 0
	}
	ctx := testkit.Within(t)
	for v := uint64(1); v <= 40; v++ {
		if err := p.subscribe(ctx, v); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := p.worker("a")
	b, _ := p.worker("b")
	workers := []*Worker{a, b}
	for v := uint64(1); v <= 40; v++ {
		if v != gone && v != refused {
			testkit.Eventually(t, fmt.Sprintf("%d is told that it will be", v), func() bool { return p.told(v, push.Confirmed) == 1 })
		}
	}
	if err := p.conn.StorePush(ctx, uint64(shop), left, nil); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "those up to 10 are told their turn, and those up to 25 that it comes", func() bool {
		p.call(10, 25)
		for v := uint64(1); v <= 25; v++ {
			if v == left || v == gone || v == refused {
				continue
			}
			if v <= 10 && p.told(v, push.Called) == 0 || v > 10 && p.told(v, push.Soon) == 0 {
				return false
			}
		}
		return true
	})
	testkit.Eventually(t, "the others are called", func() bool {
		p.call(40, 40)
		for v := uint64(11); v <= 40; v++ {
			if v != gone && v != refused && p.told(v, push.Called) == 0 {
				return false
			}
		}
		return true
	})
	for v := uint64(1); v <= 40; v++ {
		soon := 0
		if v > 10 && v <= 25 {
			soon = 1
		}
		if v == left || v == gone || v == refused {
			if n := p.told(v, push.Called) + p.told(v, push.Soon); n != 0 {
				t.Errorf("%d was told %d times", v, n)
			}
		} else if c, s, f := p.told(v, push.Called), p.told(v, push.Soon), p.told(v, push.Confirmed); c != 1 || s != soon || f != 1 {
			t.Errorf("%d: %d, %d and %d messages", v, f, s, c)
		}
	}
	dead := 0
	for _, w := range workers {
		for _, d := range w.Status().Dead {
			if dead++; d.Cause != causeRefused || d.Room != "shop" || d.Stage != "confirm" {
				t.Errorf("%+v", d)
			}
		}
		testkit.Eventually(t, "the book is empty", func() bool { return w.Status().Subscribed == 0 })
		if r := w.Ready(); !r.Ready {
			t.Errorf("%+v", r)
		}
	}
	if dead != 1 {
		t.Errorf("%d dead letters", dead)
	}
	for _, v := range []uint64{1, gone, refused} {
		data, _, err := natsbus.NewPushes(p.conn).Get(ctx, uint64(shop), v)
		if err != nil || strings.Contains(string(data), "sealed") {
			t.Errorf("%d: the endpoint is still stored: %s, %v", v, data, err)
		}
	}
}

// TestKilledNotifiers: notifiers end at random moments, and others take over what they left, while the NATS server is
// restarted: nobody is forgotten, few are told twice, and nobody after entering.
func TestKilledNotifiers(t *testing.T) {
	p := newPipeline(t)
	chance := rand.New(rand.NewPCG(1, 2))
	ctx, cancel := context.WithTimeout(context.Background(), *killing+5*time.Minute)
	defer cancel()
	var last uint64
	ends := make([]func(), 2)
	for i := range ends {
		_, ends[i] = p.worker(fmt.Sprint("w", i))
	}
	entered := map[uint64]time.Time{}
	begun, restart := time.Now(), time.Now()
	for n := 0; time.Since(begun) < *killing; n++ {
		for range 40 {
			if err := p.subscribe(ctx, last+1); err != nil {
				break
			}
			last++
		}
		if last > 200 {
			p.call(last-200, last-100)
			if v := last - 100 + chance.Uint64N(100); entered[v].IsZero() {
				if err := p.conn.StorePush(ctx, uint64(shop), v, nil); err == nil {
					entered[v] = time.Now()
				}
			}
		}
		switch i := n % 10; {
		case i == 9:
			k := chance.IntN(len(ends))
			ends[k]()
			_, ends[k] = p.worker(fmt.Sprint("w", k))
		case time.Since(restart) > max(*killing/3, 2*time.Second):
			restart = time.Now()
			p.nats.Stop()
			p.startNATS()
		}
		time.Sleep(50 * time.Millisecond) // the pace of arrivals
	}
	lost := -1
	testkit.Eventually(t, "all are told", func() bool {
		p.call(last, last)
		lost = 0
		for v := uint64(1); v <= last; v++ {
			if entered[v].IsZero() && p.told(v, push.Called) == 0 {
				lost++
			}
		}
		return lost == 0
	})
	twice, late := 0, 0
	for v := uint64(1); v <= last; v++ {
		if p.told(v, push.Called) > 1 {
			twice++
		}
		if at := entered[v]; !at.IsZero() {
			for _, h := range p.heard[v] {
				if h.at.After(at.Add(100 * time.Millisecond)) {
					late++
				}
			}
		}
	}
	t.Logf("%d visitors, %d entered before: lost %d, told twice %d, told after having entered %d", last, len(entered), lost, twice, late)
	if late > 0 || twice > 1+int(last)/100 {
		t.Errorf("told twice %d, told after having entered %d", twice, late)
	}
}

// TestDeliveryInTime measures the time from a turn to the push service, of one notifier.
func TestDeliveryInTime(t *testing.T) {
	p := newPipeline(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var adding sync.WaitGroup
	n := uint64(*subscribers)
	for lane := range uint64(16) {
		adding.Go(func() {
			for v := lane + 1; v <= n; v += 16 {
				sub := p.keys
				sub.Endpoint, sub.Room = fmt.Sprintf("https://example.com/%d", v), "shop"
				sealed, err := p.sealer.Seal(shop, v, &sub)
				if err != nil {
					t.Error(err)
				}
				data, err := (&push.Record{Place: fleettime.Time(v * 1000), Told: push.Soon, Sealed: sealed}).Encode()
				if err == nil {
					err = p.conn.StorePush(ctx, uint64(shop), v, data)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	adding.Wait()
	w, _ := p.worker("one")
	testkit.Eventually(t, "the book is read", func() bool { return w.Ready().Ready })
	turn := make([]time.Time, n+1)
	for last := uint64(0); last < n; {
		now, next := time.Now(), min(n, last+uint64(*turns))
		for v := last + 1; v <= next; v++ {
			turn[v] = now
		}
		last = next
		p.call(last, last)
		time.Sleep(time.Second) // the pace of turns
	}
	var ages []time.Duration
	testkit.Eventually(t, "all are told", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.heard) == int(n)
	})
	for v, all := range p.heard {
		ages = append(ages, all[0].at.Sub(turn[v]))
	}
	slices.Sort(ages)
	p99 := ages[len(ages)*99/100]
	t.Logf("%d subscribers, %d turns a second: p50 %v, p99 %v, worst %v", n, *turns, ages[len(ages)/2], p99, ages[len(ages)-1])
	if p99 > 2*time.Second {
		t.Errorf("p99 %v, want 2 s at most", p99)
	}
}
