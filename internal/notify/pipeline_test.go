package notify

import (
	"context"
	"crypto/ecdh"
	crand "crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/push"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/process"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/leak"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

var (
	subscribers = flag.Int("subscribers", 600, "subscribers of TestDeliveryInTime: the figure is of 100,000")
	turns       = flag.Int("turns", 200, "turns a second in TestDeliveryInTime: the figure is of 2,000")
	killing     = flag.Duration("killing", 10*time.Second,
		"how long TestKilledNotifiers kills: the figure is of ten minutes")
)

// roleEnv makes this binary one of the processes that TestKilledNotifiers kills: the NATS server, or a notifier.
const roleEnv, natsEnv, dirEnv, pushEnv, rootEnv = "VESTIBULE_TEST_ROLE", "VESTIBULE_TEST_NATS", "VESTIBULE_TEST_DIR",
	"VESTIBULE_TEST_PUSH", "VESTIBULE_TEST_ROOT"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleEnv); role {
	case "":
		leak.WithNATS(m)
	case "nats":
		if _, err := embedded.Start(embedded.Options{
			Name: "test", Dir: os.Getenv(dirEnv), Listen: os.Getenv(natsEnv),
			Log: quiet,
		}); err != nil {
			panic(err)
		}
		fmt.Println(`READY ""`)
		select {}
	default:
		conn, err := natsbus.Connect(natsbus.Options{URL: "nats://" + os.Getenv(natsEnv), Name: role, Log: quiet})
		if err != nil {
			panic(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(os.Getenv(rootEnv)))
		fmt.Println(`READY ""`)
		if err := newWorker(role, conn, node.Outbound{Roots: roots},
			os.Getenv(pushEnv)).Run(context.Background()); err != nil {
			panic(err)
		}
	}
}

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
	key    *ecdh.PrivateKey // of the browsers; nil: they read nothing

	mu    sync.Mutex
	heard map[uint64][]heard // by visitor
	fate  func(visitor uint64, try int) int
	hold  chan struct{} // the push service answers once it is closed; nil: at once
	tries map[uint64]int
}

// heard is a message that the push service took.
type heard struct {
	topic string
	at    time.Time
	of    string // the subscription, as its service worker reads it
}

func newPipeline(t testing.TB) *pipeline {
	p := newPipelineWithoutRooms(t)
	data := testkit.Must(json.Marshal(secret))(t)
	testkit.Must(natsbus.NewDocuments(p.conn, 1, "notifier").Put(testkit.Within(t), "notifier", data, 0))(t)
	return p
}

// newPipelineWithoutRooms has no secret: no room notifies.
func newPipelineWithoutRooms(t testing.TB) *pipeline {
	p := &pipeline{t: t, heard: map[uint64][]heard{}, tries: map[uint64]int{}, keys: browserKeys(t)}
	p.opts = embedded.Options{Name: "test", Dir: t.TempDir(), Listen: testkit.FreeAddr(t), Log: quiet}
	p.startNATS()
	t.Cleanup(func() { p.nats.Stop() })
	p.push = newPushService(t, http.HandlerFunc(p.take))
	p.sealer = testkit.Must(push.NewSealer(secret))(t)
	p.conn = p.connect("global")
	testkit.NoError(t, p.conn.EnsurePushes(testkit.Within(t), 1))
	return p
}

func (p *pipeline) startNATS() {
	p.nats = testkit.Must(embedded.Start(p.opts))(p.t)
}

func (p *pipeline) connect(name string) *natsbus.Conn {
	c := testkit.Must(natsbus.Connect(natsbus.Options{URL: p.nats.URL(), Name: name, Log: quiet}))(p.t)
	p.t.Cleanup(c.Close)
	return c
}

// take is the push service: the path names the visitor.
func (p *pipeline) take(w http.ResponseWriter, r *http.Request) {
	visitor, err := strconv.ParseUint(strings.TrimPrefix(r.URL.Path, "/"), 10, 64)
	if err != nil {
		p.t.Error(err)
	}
	at, m := time.Now(), struct{ Of string }{}
	if p.key != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // a notifier was killed
		}
		if body, err = testkit.ReadPush(body, p.key, p.keys.Auth); err == nil {
			err = json.Unmarshal(body, &m)
		}
		if err != nil || m.Of == "" {
			p.t.Errorf("%v: %s", err, body)
		}
	}
	if p.hold != nil {
		<-p.hold
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
	p.heard[visitor] = append(p.heard[visitor], heard{r.Header.Get("TTL"), at, m.Of})
	w.WriteHeader(http.StatusCreated)
}

// delivered returns how often the push service took a message of a stage for a visitor; their lives tell them apart.
func (p *pipeline) delivered(visitor uint64, stage push.Stage) (n int) {
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
	data, err := json.Marshal(push.Calls{Rooms: []push.Call{{
		Room: shop, Called: fleettime.Time(called * 1000),
		Soon: fleettime.Time(soon * 1000),
	}}})
	if err == nil {
		err = p.conn.Publish(wire.CallSubject, data)
	}
	if err != nil && !errors.Is(err, wire.ErrDown) {
		p.t.Error(err)
	}
}

// newWorker returns a notifier that reaches the push service at an address.
func newWorker(name string, conn *natsbus.Conn, out node.Outbound, at string) *Worker {
	cfg := DefaultConfig()
	cfg.Name, cfg.Contact, cfg.Services = name, "mailto:ops@shop.example", []string{"example.com"}
	return New(Options{
		Config: cfg, Bus: conn, Store: natsbus.NewPushes(conn), Log: quiet, Count: NewMetrics(prometheus.NewRegistry()),
		Out:  out,
		Tune: func(c *http.Client) { dialTo(c, at) },
	})
}

// spawn starts a process of a role and returns what kills it.
func (p *pipeline) spawn(role string) (kill func()) {
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.push.Certificate().Raw})
	c := testkit.Must(process.Start(process.Options{
		Name: role, Argv: []string{os.Args[0]}, Stderr: os.Stderr,
		Env: []string{
			roleEnv + "=" + role, natsEnv + "=" + p.opts.Listen, dirEnv + "=" + p.opts.Dir,
			pushEnv + "=" + p.push.Listener.Addr().String(), rootEnv + "=" + string(root),
		},
	}))(p.t)
	kill = sync.OnceFunc(func() {
		if err := c.End(syscall.SIGKILL, time.Minute); err != nil {
			p.t.Error(err)
		}
	})
	p.t.Cleanup(kill)
	var ready string
	if err := c.Addresses(time.Minute, &ready); err != nil {
		p.t.Error(err)
	}
	return kill
}

// worker starts a notifier and returns what ends it.
func (p *pipeline) worker(name string) (w *Worker, end func()) {
	conn := p.connect(name)
	w = newWorker(name, conn, p.push.out, p.push.Listener.Addr().String())
	w.settleFor = 0 // no other has sent what it has not marked, where none is killed
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

// TestThePipeline: two notifiers tell each visitor each stage once; who has left gets nothing, a busy push service
// is asked again, and only one that knows the browser no more ends the subscription.
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
		testkit.NoError(t, p.subscribe(ctx, v))
	}
	a, _ := p.worker("a")
	b, _ := p.worker("b")
	workers := []*Worker{a, b}
	testkit.Eventually(t, "operators see who waits for notifications", func() bool {
		s := a.state()
		return s.Name == "a" && s.Subscribed >= 38 && s.Rooms[shop] == s.Subscribed
	})
	for v := uint64(1); v <= 40; v++ {
		if v != gone && v != refused {
			testkit.Eventually(t, fmt.Sprintf("%d is confirmed", v),
				func() bool { return p.delivered(v, push.Confirmed) == 1 })
		}
	}
	testkit.NoError(t, p.conn.StorePush(ctx, uint64(shop), left, nil))
	testkit.Eventually(t, "those up to 10 are called, and those up to 25 notified of their turn soon", func() bool {
		p.call(10, 25)
		for v := uint64(1); v <= 25; v++ {
			if v == left || v == gone || v == refused {
				continue
			}
			if v <= 10 && p.delivered(v, push.Called) == 0 || v > 10 && p.delivered(v, push.Soon) == 0 {
				return false
			}
		}
		return true
	})
	testkit.Eventually(t, "the others are called", func() bool {
		p.call(40, 40)
		for v := uint64(11); v <= 40; v++ {
			if v != gone && v != refused && p.delivered(v, push.Called) == 0 {
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
		c, s, f := p.delivered(v, push.Called), p.delivered(v, push.Soon), p.delivered(v, push.Confirmed)
		if v == left || v == gone || v == refused {
			if c+s != 0 {
				t.Errorf("%d was notified %d times", v, c+s)
			}
		} else if c != 1 || s != soon || f != 1 {
			t.Errorf("%d: %d, %d and %d messages", v, f, s, c)
		}
	}
	for _, w := range workers {
		testkit.Eventually(t, "the book has the refused one alone", func() bool { return w.Status().Subscribed == 1 })
		if r := w.Ready(); !r.Ready || len(w.Status().Dead) != 0 {
			t.Errorf("%+v", r)
		}
	}
	for v, data := range p.stored(ctx) {
		if (v == left || v == gone) != (len(data) == 0) {
			t.Errorf("%d: stored is %q", v, data)
		}
	}
}

// stored returns what is stored of each visitor.
func (p *pipeline) stored(ctx context.Context) map[uint64]string {
	ctx, end := context.WithCancel(ctx)
	defer end()
	out := map[uint64]string{}
	err := natsbus.NewPushes(p.conn).Follow(ctx, natsbus.Follower{
		Set: func(_, visitor, _ uint64, data []byte) { out[visitor] = string(data) }, Marks: func([]byte) {},
		Read: func(time.Time) { end() },
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		p.t.Error(err)
	}
	return out
}

// TestKilledNotifiers: the processes of notifiers and their NATS server are killed at random moments, and global says
// for seconds nothing, as when it is killed: nobody is forgotten, no browser shows a message twice, few get one twice
// or late.
func TestKilledNotifiers(t *testing.T) {
	p := newPipeline(t)
	p.key = testkit.Must(ecdh.P256().GenerateKey(crand.Reader))(t)
	p.keys.Public = p.key.PublicKey().Bytes()
	p.nats.Stop()
	kills := map[string]func(){}
	for _, role := range []string{"nats", "w0", "w1"} {
		kills[role] = p.spawn(role)
	}
	chance := rand.New(rand.NewPCG(1, 2))
	ctx, cancel := context.WithTimeout(context.Background(), *killing+5*time.Minute)
	defer cancel()
	const behind, most, arrivals = 200, 10, 50 * time.Millisecond // visitors in line; of them per step; time of a step
	inFlight := time.Second                                       // between the last look and the push service, on an idle machine
	var paused time.Duration                                      // the longest that a process waited for a processor
	var last uint64
	left, unsure := map[uint64]time.Time{}, map[uint64]bool{}
	begun := time.Now()
	next := map[string]time.Time{}
	killed := 0
	for role, every := range map[string]time.Duration{
		"nats": 10 * time.Second, "w0": 8 * time.Second,
		"w1": 8 * time.Second, "global": 15 * time.Second,
	} {
		next[role] = begun.Add(time.Duration(chance.Int64N(int64(min(every, *killing)))))
	}
	for time.Since(begun) < *killing {
		for range most {
			short, cancel := context.WithTimeout(ctx, time.Second)
			err := p.subscribe(short, last+1)
			cancel()
			if err != nil {
				break
			}
			last++
		}
		if last > behind && time.Now().After(next["global"]) {
			p.call(last-behind, last-behind/2)
			if v := last - behind/2 + chance.Uint64N(behind/2); left[v].IsZero() && !unsure[v] {
				short, cancel := context.WithTimeout(ctx, time.Second)
				if err := p.conn.StorePush(short, uint64(shop), v, nil); err == nil {
					left[v] = time.Now()
				} else {
					unsure[v] = true // it may be stored
				}
				cancel()
			}
		}
		for role, kill := range kills {
			if time.Now().After(next[role]) {
				killed++
				kill()
				kills[role] = p.spawn(role)
				next[role] = time.Now().Add(4*time.Second + time.Duration(chance.Int64N(int64(8*time.Second))))
			}
		}
		if time.Since(next["global"]) > 15*time.Second {
			next["global"] = time.Now().Add(3 * time.Second) // until another leads
		}
		asleep := time.Now()
		time.Sleep(arrivals)
		paused = max(paused, time.Since(asleep)-arrivals)
	}
	inFlight += 4 * paused // store, notifier, its NATS server, push service
	testkit.Eventually(t, "all are notified", func() bool {
		p.call(last, last)
		for v := uint64(1); v <= last; v++ {
			if left[v].IsZero() && !unsure[v] && p.delivered(v, push.Called) == 0 {
				return false
			}
		}
		return true
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	messages, twice, shown, late, latest := 0, 0, 0, 0, time.Duration(0)
	for v := uint64(1); v <= last; v++ {
		var of string
		for i, h := range p.heard[v] {
			messages++
			if slices.ContainsFunc(p.heard[v][:i], func(x heard) bool { return x.topic == h.topic }) {
				twice++
				if h.of != of {
					shown++ // the service worker tells by this that it has shown it
				}
			}
			of = h.of
			if at := left[v]; !at.IsZero() {
				if latest = max(latest, h.at.Sub(at)); h.at.Sub(at) > inFlight {
					late++
				}
			}
		}
	}
	t.Logf("%d visitors, %d processes killed in %v, %d messages, the latest sent %v after having entered", last, killed,
		*killing, messages, latest)
	figures.Check(t, "notify: shown twice", "", float64(shown))
	figures.Check(t, "notify: sent after the visitor had entered", "", float64(late))
	// Messages on their way when a process is killed may be delivered again: the share is one of the ten minutes of
	// make notify, the number for each killed process one of any run.
	figures.Check(t, "notify: delivered twice for each killed process", "", float64(twice)/float64(max(1, killed)))
	if *killing >= 5*time.Minute {
		figures.Check(t, "notify: delivered twice by the push service", "", 100*float64(twice)/float64(messages))
	}
}

// TestAnEndedNotifierGivesBack what it has not sent: another tells those visitors at once, and each once.
func TestAnEndedNotifierGivesBack(t *testing.T) {
	p := newPipeline(t)
	p.hold = make(chan struct{})
	const n = 2 * atOnce
	ctx := testkit.Within(t)
	for v := uint64(1); v <= n; v++ {
		testkit.NoError(t, p.subscribe(ctx, v))
	}
	a, end := p.worker("a")
	testkit.Eventually(t, "all that it may send to one push service are on their way", func() bool { return len(a.limit) == perService })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		end()
	}()
	close(p.hold)
	testkit.Receive(t, "its end", ended)
	begun := time.Now()
	p.worker("b")
	testkit.Eventually(t, "all are notified", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.heard) == n
	})
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("it took %v, as if they were held", took)
	}
	for v := uint64(1); v <= n; v++ {
		if delivered := p.delivered(v, push.Confirmed); delivered != 1 {
			t.Errorf("%d: %d messages", v, delivered)
		}
	}
}

// TestNoRoomNotifiesYet: then a notifier is ready, so that it can be deployed before; it is not while the store is
// away.
func TestNoRoomNotifiesYet(t *testing.T) {
	p := newPipelineWithoutRooms(t)
	docs := natsbus.NewDocuments(p.conn, 1, "notifier")
	testkit.Must(docs.Put(testkit.Within(t), "notifier", []byte("x"), 0))(t)
	w, _ := p.worker("a")
	testkit.Eventually(t, "an unreadable secret is reported", func() bool {
		r := w.Ready()
		return !r.Ready && len(r.Reasons) == 1 && strings.Contains(r.Reasons[0], "the secret of notifications")
	})
	q := newPipelineWithoutRooms(t)
	testkit.Must(natsbus.NewDocuments(q.conn, 1).Put(testkit.Within(t), "rooms", []byte("x"), 0))(t)
	w, _ = q.worker("a")
	testkit.Eventually(t, "it is ready", func() bool { return w.Ready().Ready })
}

// TestLateMessagesAreAnAlarm for a minute, the latest one of it; operators see each delay.
func TestLateMessagesAreAnAlarm(t *testing.T) {
	now := time.Now()
	w := New(Options{
		Config: DefaultConfig(), Count: NewMetrics(prometheus.NewRegistry()),
		Now: func() time.Time { return now },
	})
	want := func(alarms int, late time.Duration) {
		t.Helper()
		if r, s := w.Ready(), w.state(); len(r.Alarms) != alarms || s.Late != late.Seconds() {
			t.Errorf("%v, %+v; want %d alarms, %v", r.Alarms, s, alarms, late)
		}
	}
	want(0, 0)
	w.late.record(now, push.LateAfter-time.Second)
	want(0, push.LateAfter-time.Second)
	w.late.record(now, 2*push.LateAfter)
	now = now.Add(lagFor - 1)
	w.delivered(&push.Job{Stage: push.Called, Due: fleettime.TimeOf(now)})
	want(1, 2*push.LateAfter)
	if s := w.state(); s.Name != "notifier-1" || s.Sent != 1 {
		t.Errorf("%+v", s)
	}
	now = now.Add(1)
	want(0, 0)
	w.late.record(now, time.Second)
	want(0, time.Second)
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
				data, err := (&push.Record{Place: fleettime.Time(v * 1000), Notified: push.Soon, Sealed: sealed}).Encode()
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
		from, begun := last, time.Now()
		time.Sleep(time.Second) // the pace of turns; global tells them every second
		last = min(n, last+uint64(*turns))
		for v := from + 1; v <= last; v++ {
			turn[v] = begun.Add(time.Duration(v-from) * time.Second / time.Duration(*turns))
		}
		p.call(last, last)
	}
	var ages []time.Duration
	testkit.Eventually(t, "all are notified", func() bool {
		p.call(n, n) // as global does every second: more may be due at a time than the outbox has room for
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.heard) == int(n)
	})
	for v, all := range p.heard {
		ages = append(ages, all[0].at.Sub(turn[v]))
	}
	slices.Sort(ages)
	p99 := ages[len(ages)*99/100]
	t.Logf("%d subscribers, %d turns a second: p50 %v, worst %v", n, *turns, ages[len(ages)/2], ages[len(ages)-1])
	figures.CheckTime(t, "notify: from the turn to delivery, p99", "", p99)
}
