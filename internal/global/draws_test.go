package global

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
	"vestibule/internal/node"
)

// memoryStore is a store of documents in memory. interrupt, called between the read and the write of one, may write
// others.
type memoryStore struct {
	*fakes.Documents
	fails     bool // it takes nothing
	interrupt func()
}

func newMemoryStore() *memoryStore { return &memoryStore{Documents: fakes.NewDocuments()} }

func (s *memoryStore) Current(context.Context) error { return nil }

func (s *memoryStore) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	data, revision, err := s.Documents.Get(ctx, key)
	if interrupt := s.interrupt; interrupt != nil {
		s.interrupt = nil
		interrupt()
	}
	return data, revision, err
}

func (s *memoryStore) Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	if s.fails {
		return 0, errors.New("the store takes nothing")
	}
	return s.Documents.Put(ctx, key, data, revision)
}

func (*memoryStore) Watch(ctx context.Context, _ func(string, []byte)) error {
	<-ctx.Done()
	return ctx.Err()
}

// hall is a fleet in which events begin with draws, with leaders that tend them.
type hall struct {
	t             *testing.T
	docs, secrets *memoryStore
	now           fleettime.Time
	bound         time.Duration
	waiting       uint64
	fetched       func(closes time.Time) (*draw.Beacon, error)
}

func openHall(t *testing.T) *hall {
	return &hall{
		t: t, docs: newMemoryStore(), secrets: newMemoryStore(),
		now: fleettime.TimeOf(time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)), bound: 20 * time.Millisecond, waiting: 3,
	}
}

// launchAt is an event with a draw that begins then.
func launchAt(start fleettime.Time) room.Event {
	return room.Event{
		Name: "launch", Prequeue: int64(start.Add(-30 * time.Minute)), Start: int64(start),
		End: int64(start.Add(time.Hour)), Shuffle: true,
	}
}

// leader returns a leader that knows the event.
func (h *hall) leader(beacon string, events ...room.Event) *drawer {
	h.t.Helper()
	f, err := node.NewFleet(h.t.TempDir(), h.docs, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), func() {})
	testkit.NoError(h.t, err)
	d := &drawer{
		docs: h.docs, secrets: h.secrets, fleet: f, name: "g", log: slog.New(slog.DiscardHandler), beacon: beacon,
		clock:   func() (fleettime.Time, time.Duration) { return h.now, h.bound },
		waiting: func(string) uint64 { return h.waiting },
		fetch:   func(_ context.Context, closes time.Time) (*draw.Beacon, error) { return h.fetched(closes) },
	}
	h.give(d, 1, events...)
	return d
}

// give makes events those of the room.
func (h *hall) give(d *drawer, version uint64, events ...room.Event) {
	h.t.Helper()
	data := testkit.Must(roomdoc.EncodeRooms(version, room.Document{Rooms: []room.Settings{{
		Name: "sale", Host: "sale.example", Origin: "http://10.0.0.1", TotalActiveUsers: 10, NewUsersPerMinute: 60,
		Events: events,
	}}}))(h.t)
	d.fleet.Offer(h.t.Context(), node.RoomsDocument, data)
	if d.fleet.Set().Version() != version {
		h.t.Fatal(d.fleet.Alarm(node.RoomsDocument))
	}
}

// hear has a leader read the store.
func (h *hall) hear(d *drawer) {
	data, _, err := h.docs.Get(h.t.Context(), node.DrawsDocument)
	testkit.NoError(h.t, err)
	d.fleet.Offer(h.t.Context(), node.DrawsDocument, data)
}

// tend runs a leader's due work once.
func (h *hall) tend(d *drawer) error {
	h.hear(d)
	err := d.runDue(h.t.Context())
	h.hear(d)
	return err
}

// notice returns the public part of the only draw, nil if there is none.
func (h *hall) notice() *draw.Notice {
	h.t.Helper()
	data, _, err := h.docs.Get(h.t.Context(), node.DrawsDocument)
	if err != nil || data == nil {
		return nil
	}
	b := testkit.Must(draw.DecodeBoard(data))(h.t)
	if len(b.Notices) != 1 {
		h.t.Fatalf("%d notices", len(b.Notices))
	}
	return b.Notices[0]
}

// TestADrawIsAnnouncedAndPublished: the commit is public from the event on, the secret is published after entries
// have closed, and the record matches the commit.
func TestADrawIsAnnouncedAndPublished(t *testing.T) {
	h := openHall(t)
	start := h.now.Add(10 * time.Minute)
	d := h.leader(draw.BeaconNone, launchAt(start))
	testkit.NoError(t, h.tend(d))
	n := h.notice()
	if n == nil || n.Drawn() != nil || n.Committed != h.now || n.Commit == (draw.Hash{}) {
		t.Fatalf("announced: %+v", n)
	}
	for key := range h.docs.Data {
		if key != node.DrawsDocument {
			t.Errorf("%s is where every node reads", key)
		}
	}
	h.now = start.Add(-draw.Lead + fleettime.Guard)
	if err := h.tend(d); err != nil || h.notice().Drawn() != nil {
		t.Fatalf("perhaps before the close: %v, %+v", err, h.notice())
	}
	h.now = h.now.Add(h.bound)
	testkit.NoError(t, h.tend(d))
	r := h.notice().Drawn()
	if r == nil || r.Commit != n.Commit || r.Entrants != 3 || !r.Closes.Equal(start.Add(-draw.Lead).Std()) ||
		r.Room != room.PublicID("sale") {
		t.Fatalf("published: %+v", r)
	}
	if faults := r.Check(func(*draw.Beacon, time.Time) error { return errors.New("none") }); len(faults) > 0 {
		t.Error(errors.Join(faults...))
	}
	first := string(h.notice().Record)
	h.now, h.waiting = h.now.Add(time.Minute), 9
	if err := h.tend(h.leader(draw.BeaconNone, launchAt(start))); err != nil || string(h.notice().Record) != first {
		t.Errorf("a later leader published another record: %v, %s", err, h.notice().Record)
	}
}

// TestLeadersBesideEachOther: with any number of leaders, and any pauses of one of them, there is one commit, one
// record of it, and never another one.
func TestLeadersBesideEachOther(t *testing.T) {
	for seed := range uint64(200) {
		h, rng := openHall(t), rand.New(rand.NewPCG(seed, 1))
		start := h.now.Add(10 * time.Minute)
		leaders := []*drawer{h.leader(draw.BeaconNone, launchAt(start)), h.leader(draw.BeaconNone, launchAt(start))}
		var commit draw.Hash
		record := ""
		for range 12 {
			a := rng.IntN(2)
			for _, s := range []*memoryStore{h.docs, h.secrets} { // one stops after its read, and the other goes on
				if rng.IntN(2) == 0 {
					s.interrupt = func() { leaders[1-a].runDue(t.Context()) } //nolint:errcheck // the last attempts are judged
				}
			}
			if rng.IntN(4) == 0 {
				h.docs.fails = true
			}
			leaders[a].runDue(t.Context()) //nolint:errcheck // likewise
			h.docs.fails, h.docs.interrupt, h.secrets.interrupt = false, nil, nil
			if rng.IntN(2) == 0 {
				h.hear(leaders[rng.IntN(2)])
			}
			if h.now < start && rng.IntN(4) == 0 {
				h.now, h.waiting = start, rng.Uint64N(1000)
			}
			n := h.notice()
			if n == nil {
				continue
			}
			if commit != (draw.Hash{}) && n.Void == "" && n.Commit != commit {
				t.Fatalf("seed %d: another commit", seed)
			}
			if commit = n.Commit; record != "" && string(n.Record) != record {
				t.Fatalf("seed %d: another record:\n%s\n%s", seed, record, n.Record)
			}
			record = string(n.Record)
		}
		h.now = max(h.now, start)
		for range 2 {
			if err := h.tend(leaders[0]); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if n := h.notice(); n.Void == "" && n.Drawn() == nil {
			t.Fatalf("seed %d: no record", seed)
		}
	}
}

// TestAChangedEventHasADrawOfItsOwn: another start has another commit, an event deleted before its draw leaves
// nothing, and a store that lost the draw registry gets it back.
func TestAChangedEventHasADrawOfItsOwn(t *testing.T) {
	h := openHall(t)
	start := h.now.Add(10 * time.Minute)
	d := h.leader(draw.BeaconNone, launchAt(start))
	testkit.NoError(t, h.tend(d))
	before := h.notice()
	h.give(d, 2, launchAt(start.Add(time.Minute)))
	testkit.NoError(t, h.tend(d))
	if n := h.notice(); n.Commit == before.Commit || n.Start != start.Add(time.Minute) {
		t.Errorf("moved: %+v", n)
	}
	h.docs.Documents = fakes.NewDocuments()
	if err := d.runDue(t.Context()); err != nil {
		t.Errorf("nothing is due: %v", err)
	}
	h.now = start.Add(time.Minute)
	if err := d.runDue(t.Context()); err == nil {
		t.Error("a store that came back empty is written over")
	}
	if err := d.ensure(t.Context()); err != nil || h.notice() == nil {
		t.Fatalf("not given back: %v", err)
	}
	if err := h.tend(d); err != nil || h.notice().Drawn() == nil {
		t.Errorf("after that: %v", err)
	}
}

// TestAnEventWithoutItsDraw: if a draw cannot be fair, visitors enter in the order of joining, and the reason is
// published.
func TestAnEventWithoutItsDraw(t *testing.T) {
	h := openHall(t)
	d := h.leader(draw.BeaconNone, launchAt(h.now.Add(20*time.Second)))
	if err := h.tend(d); err != nil || h.notice().Void == "" {
		t.Errorf("too late: %v, %+v", err, h.notice())
	}
	h = openHall(t)
	start := h.now.Add(10 * time.Minute)
	d = h.leader(draw.BeaconNone, launchAt(start))
	testkit.NoError(t, h.tend(d))
	h.secrets.Documents = fakes.NewDocuments()
	h.now = start
	if err := h.tend(d); err == nil || h.notice().Void != "" {
		t.Errorf("a secret that is not there is lost at once: %v", err)
	}
	h.now = start.Add(secretLost)
	if err := h.tend(d); err != nil || h.notice().Void == "" || h.notice().Opens() != 0 {
		t.Errorf("a lost secret: %v, %+v", err, h.notice())
	}
}

// TestADrawWaitsForItsBeacon as long as its policy says.
func TestADrawWaitsForItsBeacon(t *testing.T) {
	for _, c := range []struct {
		policy string
		after  time.Duration // the close
		drawn  bool
	}{
		{draw.BeaconPreferred, 19 * time.Second, false},
		{draw.BeaconPreferred, 20 * time.Second, true},
		{draw.BeaconRequired, time.Hour, false},
	} {
		h := openHall(t)
		start := h.now.Add(10 * time.Minute)
		d := h.leader(c.policy, launchAt(start))
		down := errors.New("no mirror answers")
		h.fetched = func(closes time.Time) (*draw.Beacon, error) {
			if !closes.Equal(start.Add(-draw.Lead).Std()) {
				t.Errorf("asked for the round after %v", closes)
			}
			return nil, down
		}
		if err := h.tend(d); err != nil || h.notice().Beacon != c.policy {
			t.Fatalf("%v, %+v", err, h.notice())
		}
		h.now = start.Add(-draw.Lead).Add(c.after)
		err := h.tend(d)
		if r := h.notice().Drawn(); (r != nil) != c.drawn || c.drawn && (err != nil || r.Beacon != nil) || !c.drawn &&
			!errors.Is(err, down) {
			t.Errorf("%s after %v: %+v, %v", c.policy, c.after, r, err)
		}
	}
}
