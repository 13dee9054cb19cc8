package gate

import (
	crand "crypto/rand"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"runtime"
	rt "runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge/origin"
	"vestibule/internal/edge/sse"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// TestRoomsAreCountedWhileTheyComeAndGo is for the race detector.
func TestRoomsAreCountedWhileTheyComeAndGo(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	var all sync.WaitGroup
	for _, does := range []func(){
		func() { m.room("sale").observe(&m.other, 0.5) },
		func() { m.room("sale").count(&admission.Decision{}) },
		func() { m.keep(nil) },
		func() { m.counted() },
	} {
		all.Go(func() {
			for range 200 {
				does()
			}
		})
	}
	all.Wait()
	if m.keep(nil); len(m.rooms) != 0 {
		t.Errorf("%d rooms are left", len(m.rooms))
	}
}

// Busy rooms beyond the limit share one series, also after their removal.
func TestSeriesAreBounded(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	for i := range node.MaxRoomSeries + 10 {
		m.room(fmt.Sprint("r", i)).count(&admission.Decision{Verdict: admission.Serve, Reason: admission.Session})
	}
	all := m.counted()
	if n := len(all); n != node.MaxRoomSeries+1 {
		t.Errorf("%d labels", n)
	}
	if n := m.other.decisions[admission.Serve][admission.Session].Load(); n != 10 {
		t.Errorf("%d requests of other rooms", n)
	}
	late := m.room("r0")
	m.keep(nil)
	late.count(&admission.Decision{Verdict: admission.Serve, Reason: admission.Session}) // a request in flight
	if n := len(m.counted()); n != 1 || m.other.decisions[admission.Serve][admission.Session].Load() != 10 {
		t.Errorf("%d labels once all rooms went", n)
	}
}

func newGate(t *testing.T) *Gate {
	t.Helper()
	return New(Options{
		Engine: admission.Config{
			Edge: "edge-1", DC: "nairobi", Params: wire.DefaultParams(),
			Rand: rand.New(rand.NewPCG(1, 2)),
		},
		HeldPerPrefix: 1, Clock: node.NewClock(), Wake: func() {}, Finish: func(sse.Place) {}, Reg: prometheus.NewRegistry(),
	})
}

// A panic in a request, also under the engine's lock, leaves the gate usable, and so does a result that no list has.
func TestAPanicLeavesTheGateUsable(t *testing.T) {
	g := newGate(t)
	for what, call := range map[string]func(){
		"a held visitor": func() {
			g.Engine.hold(t.Context(), 1, ticket.Ticket{}, admission.Decision{}, netip.Prefix{}, 1,
				true)
		},
		"any use":  func() { g.Engine.With(func(fleettime.Mono, *admission.Engine) { panic("any") }) },
		"a result": func() { g.Count("of a new kind") },
	} {
		func() {
			defer func() { recover() }() //nolint:errcheck // the panic is what is tested
			call()
		}()
		if !g.Engine.mu.TryLock() {
			t.Fatalf("%s keeps the engine's lock", what)
		}
		g.Engine.mu.Unlock()
	}
}

// TestASlowResponseBringsATicketOfItsTime: the browser may have presented others until then.
func TestASlowResponseBringsATicketOfItsTime(t *testing.T) {
	g := newGate(t)
	ring, err := ticket.Keyring{}.Rotate(fleettime.TimeOf(time.Now().Add(-time.Hour)), 24*time.Hour, crand.Reader)
	testkit.NoError(t, err)
	id, name := room.IDOf("sale"), ticket.CookieName("sale", false)
	codec := testkit.Must(ticket.NewCodec(ring, id, name))(t)
	rm := &roomState{
		Room:   &room.Room{Settings: room.Settings{Name: "sale"}, ID: id},
		cookie: [2]cookieNames{namesOf(name)}, codec: [2]*ticket.Codec{codec},
	}
	for _, late := range []bool{false, true} {
		o := g.Begin()
		o.Kind = Enters
		o.issued.seal(rm, g.Engine.now(), &ticket.Ticket{ID: 7, Admitted: 1, Until: 1 << 31, Stamp: 5, Parent: 4},
			&brought{byHeader: true}, 0)
		if late {
			o.issued.sealed[0].at = o.issued.sealed[0].at.Add(-inFlight - time.Second)
		}
		// Of another room, which held the visitor until now.
		o.issued.seal(rm, g.Engine.now(), &ticket.Ticket{ID: 8, Admitted: 1, Until: 1 << 31, Stamp: 6}, &brought{}, 0)
		fields := o.Tickets()
		value, _, _ := strings.Cut(strings.TrimPrefix(fields[0].Value, name+"="), ";")
		var got ticket.Ticket
		testkit.NoError(t, codec.Open(&got, value, ticket.NewScratch([32]byte{1})))
		if late != (got.Seen != 0) || got.Parent != 4 || got.ID != 7 || got.Stamp != 5 {
			t.Errorf("late %v: %+v", late, got)
		}
		if len(fields) != 4 || fields[3] != (Field{"Cache-Control", "no-store"}) ||
			fields[2] != (Field{TicketHeader, "sale=" + value}) {
			t.Errorf("late %v: %q", late, fields)
		}
		value, _, _ = strings.Cut(strings.TrimPrefix(fields[1].Value, name+"="), ";")
		if err := codec.Open(&got, value, ticket.NewScratch([32]byte{1})); err != nil || got.ID != 8 || got.Seen != 0 {
			t.Errorf("late %v: of the room in which the visitor was held: %+v, %v", late, got, err)
		}
		o.End()
	}
}

// newFleet returns a fleet and functions that offer it rooms and keys.
func newFleet(t testing.TB) (f *node.Fleet, rooms func(version uint64, names ...string), keys func(ticket.Keyring)) {
	t.Helper()
	f, err := node.NewFleet(t.TempDir(), nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), func() {})
	testkit.NoError(t, err)
	offer := func(doc string, data []byte, err error) {
		t.Helper()
		testkit.NoError(t, err)
		f.Offer(t.Context(), doc, data)
	}
	rooms = func(version uint64, names ...string) {
		t.Helper()
		var doc room.Document
		for _, n := range names {
			doc.Rooms = append(doc.Rooms, room.Settings{
				Name: n, Host: n + ".example", TotalActiveUsers: 1, NewUsersPerMinute: 1,
				SessionDuration: room.MinSession, Origin: "http://127.0.0.1:1",
			}.WithDefaults())
		}
		data, err := roomdoc.EncodeRooms(version, doc)
		offer(node.RoomsDocument, data, err)
	}
	keys = func(ring ticket.Keyring) {
		t.Helper()
		data, err := ticket.EncodeKeyring(ring)
		offer(node.KeysDocument, data, err)
	}
	return f, rooms, keys
}

// TestCodecsAreDerivedOncePerKeys: a change of rooms derives codecs of new rooms only, a change of keys all.
func TestCodecsAreDerivedOncePerKeys(t *testing.T) {
	f, rooms, keys := newFleet(t)
	m, log := newMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler)
	now := fleettime.TimeOf(time.Now())
	ring := testkit.Must(ticket.Keyring{}.Rotate(now.Add(-48*time.Hour), 24*time.Hour, crand.Reader))(t)
	rooms(1, "a", "b")
	empty := newSnapshot(f, m, &snapshot{}, log)
	keys(ring)
	first := newSnapshot(f, m, empty, log)
	rooms(2, "b", "c")
	second := newSnapshot(f, m, first, log)
	ring = testkit.Must(ring.Rotate(now, 24*time.Hour, crand.Reader))(t)
	keys(ring)
	third := newSnapshot(f, m, second, log)
	of := func(s *snapshot, name string) *roomState {
		t.Helper()
		for _, r := range s.rooms {
			if r.Name == name {
				return r
			}
		}
		t.Fatalf("no room %s", name)
		return nil
	}
	if !first.ready || !second.ready || !third.ready {
		t.Fatal("rooms and keys, and not ready")
	}
	if of(second, "b").codec != of(first, "b").codec || of(second, "b").cookie != of(first, "b").cookie {
		t.Error("codecs are derived anew where the keys are the same")
	}
	if of(first, "b").codec == of(empty, "b").codec || of(third, "b").codec == of(second, "b").codec {
		t.Error("codecs stay where the keys have changed")
	}
	scratch := ticket.NewScratch([32]byte{1})
	for _, name := range []string{"b", "c"} {
		want := testkit.Must(ticket.NewCodec(ring, room.IDOf(name), ticket.CookieName(name, true)))(t)
		for when, s := range map[string]*snapshot{"before": second, "after": third} {
			var got ticket.Ticket
			sealed := of(s, name).codec[index(true)].Seal(nil, now, &ticket.Ticket{ID: 9}, scratch)
			if err := want.Open(&got, string(sealed), scratch); err != nil || got.ID != 9 {
				t.Errorf("room %s, %s the rotation: %+v, %v", name, when, got, err)
			}
		}
	}
}

// BenchmarkRoomsChange is the cost of one change of the rooms document at an edge with 1,000 rooms, after decoding.
func BenchmarkRoomsChange(b *testing.B) {
	f, rooms, keys := newFleet(b)
	ring, err := ticket.Keyring{}.Rotate(fleettime.TimeOf(time.Now().Add(-time.Hour)), 24*time.Hour, crand.Reader)
	testkit.NoError(b, err)
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint("room-", i)
	}
	rooms(1, names...)
	keys(ring)
	m, log := newMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler)
	s := newSnapshot(f, m, &snapshot{}, log)
	for b.Loop() {
		s = newSnapshot(f, m, s, log)
	}
}

// BenchmarkDecideBesides measures the whole decision about a request within a session, by procs goroutines in
// parallel: its duration and the wait for the engine's lock, if the goroutines do nothing else, and if each does 20
// us of other work between decisions, less than an edge that forwards a request. With more goroutines than cores
// the holder of the lock may be descheduled, and all others wait for it: that shows in the mean, not in the median.
// held is the time under the lock, including its acquisition.
func BenchmarkDecideBesides(b *testing.B) {
	f, rooms, keys := newFleet(b)
	ring, err := ticket.Keyring{}.Rotate(fleettime.TimeOf(time.Now().Add(-time.Hour)), 24*time.Hour, crand.Reader)
	testkit.NoError(b, err)
	rooms(1, "sale")
	keys(ring)
	g := New(Options{
		Engine: admission.Config{
			Edge: "edge-1", DC: "nairobi", Params: wire.DefaultParams(),
			Limits: admission.DefaultLimits(), Rand: rand.New(rand.NewPCG(1, 2)),
		},
		HeldPerPrefix: 1, NewPerPrefix: 1, Clock: node.NewClock(), Wake: func() {}, Finish: func(sse.Place) {},
		Reg: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	g.Use(f)
	name := ticket.CookieName("sale", false)
	codec := testkit.Must(ticket.NewCodec(ring, room.IDOf("sale"), name))(b)
	now := g.Engine.Time()
	session := ticket.Ticket{
		ID: 7, Joined: now.Add(-time.Minute), Seen: uint32(now.Second()),
		Admitted: uint32(now.Second()), Until: uint32(now.Second()) + 3600,
	}
	r := Request{
		Host: "sale.example", Target: "/", Method: methodGet, Client: netip.MustParseAddr("192.0.2.1"),
		Accept:  []string{"text/html"},
		Cookies: []string{"theirs=1; " + name + "=" + string(codec.Seal(nil, now, &session, ticket.NewScratch([32]byte{1})))},
	}
	asks := func(b *testing.B) {
		o := g.Begin()
		defer o.End()
		if g.Decide(b.Context(), &r, o); o.Kind != Enters {
			b.Error("who is inside does not enter")
		}
	}
	rounds := roundsIn(20 * time.Microsecond)
	for _, procs := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("alone/procs=%d", procs), func(b *testing.B) { besides(b, g, procs, func() { asks(b) }) })
		b.Run(fmt.Sprintf("working/procs=%d", procs), func(b *testing.B) {
			besides(b, g, procs, func() {
				asks(b)
				work(rounds)
			})
		})
	}
	b.Run("held", func(b *testing.B) {
		for b.Loop() {
			g.Engine.arrive(room.IDOf("sale"), &brought{session: session}, netip.Prefix{}, false)
		}
	})
}

// besides runs decide in procs parallel goroutines. Every 16th time each measures the engine's lock, including two
// clock readings.
func besides(b *testing.B, g *Gate, procs int, decide func()) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	waited := lockWait()
	var mu sync.Mutex
	var all []time.Duration
	b.RunParallel(func(pb *testing.PB) {
		var waits []time.Duration
		for n := 1; pb.Next(); n++ {
			if decide(); n%16 == 0 {
				begun := time.Now()
				g.Engine.mu.Lock()
				waits = append(waits, time.Since(begun))
				g.Engine.mu.Unlock()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, waits...)
	})
	b.ReportMetric(float64((lockWait()-waited).Nanoseconds())/float64(b.N), "ns-blocked/op")
	if len(all) > 0 {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Nanoseconds()), "ns-lock-p50")
		b.ReportMetric(float64(all[len(all)*99/100].Nanoseconds()), "ns-lock-p99")
	}
}

var pile [1 << 10]byte

// work computes for a number of rounds.
func work(rounds int) {
	for range rounds {
		crc32.ChecksumIEEE(pile[:])
	}
}

// roundsIn returns how many rounds of work take d.
func roundsIn(d time.Duration) int {
	begun := time.Now()
	work(10_000)
	return int(10_000 * d / time.Since(begun))
}

// lockWait returns how long goroutines have waited for locks, by the runtime's metrics.
func lockWait() time.Duration {
	s := []rt.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	rt.Read(s)
	return time.Duration(s[0].Value.Float64() * float64(time.Second))
}

// Visitors can claim a loop: the log has one line of many in a minute.
func TestLoopsAreLoggedOnceAMinute(t *testing.T) {
	var log testkit.Log
	g := newGate(t)
	g.log = slog.New(slog.NewTextHandler(&log, nil))
	for range 3 {
		g.noteLoop("shop.example", &origin.Origin{URL: &url.URL{Host: "10.0.0.1"}})
	}
	if n := strings.Count(log.String(), "leads back to an edge"); n != 1 || !log.Has("shop.example") {
		t.Errorf("%d lines: %s", n, log.String())
	}
}
