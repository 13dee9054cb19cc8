package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
)

// memoryStore is a store of pages.
type memoryStore map[string][]byte

func (s memoryStore) Watch(ctx context.Context, _ func(string, []byte)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s memoryStore) Get(_ context.Context, key string) ([]byte, uint64, error) {
	if data, ok := s[key]; ok {
		return data, 1, nil
	}
	return nil, 0, nil
}

func (s memoryStore) Current(context.Context) error { return nil }

// follower is a node that follows documents, with its folder.
type follower struct {
	*Fleet
	dir     string
	docs    memoryStore
	changes int
}

func follow(t *testing.T, dir string, docs memoryStore) *follower {
	t.Helper()
	f := &follower{dir: dir, docs: docs}
	var err error
	f.Fleet, err = NewFleet(dir, docs, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), func() { f.changes++ })
	testkit.NoError(t, err)
	return f
}

func rooms(t *testing.T, version uint64, page string, names ...string) []byte {
	t.Helper()
	d := room.Document{}
	for _, name := range names {
		d.Rooms = append(d.Rooms, room.Settings{
			Name: name, Host: name + ".example", TotalActiveUsers: 1, NewUsersPerMinute: 1,
			SessionDuration: room.MinSession, Origin: "http://127.0.0.1:1", WaitingPage: page,
		}.WithDefaults())
	}
	return testkit.Must(roomdoc.EncodeRooms(version, d))(t)
}

func keys(t *testing.T, rotations int) []byte {
	t.Helper()
	ring := ticket.Keyring{}
	for i := range rotations {
		var err error
		if ring, err = ring.Rotate(fleettime.Time(i)*fleettime.Time(3600_000), time.Hour,
			strings.NewReader(strings.Repeat("k", 64))); err != nil {
			t.Fatal(err)
		}
	}
	return testkit.Must(ticket.EncodeKeyring(ring))(t)
}

// otherKeys are the keys of another fleet, or of this one after it lost its own.
func otherKeys(t *testing.T, rotations int) []byte {
	t.Helper()
	ring := ticket.Keyring{}
	for i := range rotations {
		var err error
		if ring, err = ring.Rotate(fleettime.Time(i)*fleettime.Time(3600_000), time.Hour,
			strings.NewReader(strings.Repeat("x", 64))); err != nil {
			t.Fatal(err)
		}
	}
	return testkit.Must(ticket.EncodeKeyring(ring))(t)
}

func (f *follower) names() []string {
	var out []string
	for _, r := range f.Set().Rooms() {
		out = append(out, r.Name)
	}
	return out
}

func TestTheLastGoodDocumentsStay(t *testing.T) {
	f := follow(t, t.TempDir(), nil)
	if f.Set() != nil || len(f.Ring().Keys) != 0 {
		t.Fatal("something out of nothing")
	}
	f.Offer(t.Context(), RoomsDocument, rooms(t, 3, "", "a", "b"))
	f.Offer(t.Context(), KeysDocument, keys(t, 2))
	if f.changes != 2 {
		t.Fatalf("%d changes, want 2", f.changes)
	}
	good := rooms(t, 4, "", "c")
	for _, c := range []struct {
		name, doc string
		data      []byte
		reason    string // "" for one that is ignored silently
	}{
		{"the same again", RoomsDocument, rooms(t, 3, "", "a", "b"), ""},
		{"older", RoomsDocument, rooms(t, 2, "", "a"), "older"},
		{"truncated", RoomsDocument, good[:len(good)/2], "invalid"},
		{"empty", RoomsDocument, []byte{}, "invalid"},
		{"gone", RoomsDocument, nil, "missing"},
		{"another of the same version", RoomsDocument, rooms(t, 3, "", "a", "c"), "differs"},
		{"gone keys", KeysDocument, nil, "missing"},
		{"other keys of the same version", KeysDocument, otherKeys(t, 2), "differs"},
		{"keys that were begun anew", KeysDocument, otherKeys(t, 3), "foreign"},
		{"keys that were begun anew, rotated a few times", KeysDocument, otherKeys(t, 5), "foreign"},
		{"nonsense", RoomsDocument, []byte("\x00\xff"), "invalid"},
		{"more behind it", RoomsDocument, slices.Concat(good, good), "invalid"},
		{"without a version", RoomsDocument, rooms(t, 0, "", "c"), "invalid"},
		{"two rooms at one place", RoomsDocument, rooms(t, 4, "", "c", "c"), "invalid"},
		{"older keys", KeysDocument, keys(t, 1), "older"},
		{"the same keys", KeysDocument, keys(t, 2), ""},
		{"no keys", KeysDocument, []byte(`{"version":9,"keys":[]}`), "older"},
		{"truncated keys", KeysDocument, keys(t, 3)[:40], "invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			count := func(reason string) float64 {
				return testutil.ToFloat64(f.refused.WithLabelValues(c.doc, reason))
			}
			before := map[string]float64{}
			reasons := []string{"invalid", "older", "missing", "differs", "foreign"}
			for _, reason := range reasons {
				before[reason] = count(reason)
			}
			f.Offer(t.Context(), c.doc, c.data)
			for _, reason := range reasons {
				if got := count(reason) > before[reason]; got != (c.reason == reason) {
					t.Errorf("counted as %s: %v", reason, got)
				}
			}
			if alarm := testutil.ToFloat64(f.raised.WithLabelValues(c.doc)); (alarm == 1) != (c.reason != "") ||
				(f.Alarm(c.doc) != "") != (c.reason != "") {
				t.Errorf("alarm %v %q", alarm, f.Alarm(c.doc))
			}
			if f.changes != 2 || f.Set().Version() != 3 || f.Ring().Version != 2 {
				t.Errorf("taken: rooms %d, keys %d", f.Set().Version(), f.Ring().Version)
			}
		})
	}
	if n := len(f.Alarms()); n != 2 {
		t.Errorf("alarms %q", f.Alarms())
	}
	f.Offer(t.Context(), RoomsDocument, good)
	f.Offer(t.Context(), KeysDocument, keys(t, 2))
	if n := len(f.Alarms()); n != 0 {
		t.Errorf("alarms about what is in use: %q", f.Alarms())
	}
	f.Offer(t.Context(), "other", good)
	again := follow(t, f.dir, nil)
	if got := again.names(); !slices.Equal(got, []string{"c"}) || again.Ring().Version != 2 {
		t.Errorf("after a restart: rooms %v, keys version %d", got, again.Ring().Version)
	}
	if v := testutil.ToFloat64(again.version.WithLabelValues(RoomsDocument)); v != 4 {
		t.Errorf("version %v is current, want 4", v)
	}
	info, err := os.Stat(filepath.Join(f.dir, "keys.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("keys on disk: %v, %v", info.Mode(), err)
	}
}

// A node without copies takes an empty store for a new fleet.
func TestAFleetThatBeginsIsNoAlarm(t *testing.T) {
	f := follow(t, t.TempDir(), nil)
	f.Offer(t.Context(), RoomsDocument, nil)
	f.Offer(t.Context(), KeysDocument, nil)
	if n := len(f.Alarms()); n != 0 || f.changes != 0 {
		t.Errorf("%d changes, alarms %q", f.changes, f.Alarms())
	}
	// With its own copies it knows better.
	f.Offer(t.Context(), RoomsDocument, rooms(t, 3, "", "a"))
	again := follow(t, f.dir, nil)
	again.Offer(t.Context(), RoomsDocument, nil)
	if again.Alarm(RoomsDocument) == "" || !slices.Equal(again.names(), []string{"a"}) {
		t.Errorf("rooms %v, alarms %q", again.names(), again.Alarms())
	}
}

// An unreadable copy on disk does not prevent a start: the store has the document.
func TestABrokenCopyOnDiskIsReplaced(t *testing.T) {
	for name, broken := range map[string][]byte{
		"empty": {}, "truncated": rooms(t, 9, "", "old")[:30], "nonsense": []byte("nonsense"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, doc := range []string{"rooms.json", "keys.json"} {
				testkit.NoError(t, os.WriteFile(filepath.Join(dir, doc), broken, 0o600))
			}
			f := follow(t, dir, nil)
			if f.Set() != nil || len(f.Ring().Keys) != 0 {
				t.Fatal("a broken copy was taken")
			}
			f.Offer(t.Context(), RoomsDocument, rooms(t, 3, "", "a"))
			f.Offer(t.Context(), KeysDocument, keys(t, 1))
			again := follow(t, dir, nil)
			if !slices.Equal(again.names(), []string{"a"}) || again.Ring().Version != 1 {
				t.Errorf("after a restart: %v, %d", again.names(), again.Ring().Version)
			}
		})
	}
}

// A full disk does not prevent a change.
func TestAChangeThatCannotBeKeptIsTakenAllTheSame(t *testing.T) {
	f := follow(t, t.TempDir(), nil)
	testkit.NoError(t, os.RemoveAll(f.dir))
	f.Offer(t.Context(), RoomsDocument, rooms(t, 1, "", "a"))
	if !slices.Equal(f.names(), []string{"a"}) {
		t.Error("not taken")
	}
}

func TestPagesComeWithTheRoomsThatNameThem(t *testing.T) {
	page := []byte("<html>wait</html>")
	hash := roomdoc.Hash(page)
	docs := memoryStore{roomdoc.PageDocument(hash): []byte("something else")}
	f := follow(t, t.TempDir(), docs)
	f.Offer(t.Context(), RoomsDocument, rooms(t, 1, hash, "a"))
	if f.Page(hash) != nil || f.changes != 1 || f.Set() == nil {
		t.Fatal("a page that is not what it is called was taken, or the rooms were not")
	}
	docs[roomdoc.PageDocument(hash)] = compress.Gzip(page)
	f.Offer(t.Context(), RoomsDocument, rooms(t, 2, hash, "a"))
	if string(f.Page(hash)) != string(page) {
		t.Fatal("the page was not fetched")
	}
	again := follow(t, f.dir, memoryStore{})
	again.Offer(t.Context(), RoomsDocument, rooms(t, 3, hash, "a"))
	if string(again.Page(hash)) != string(page) {
		t.Error("the page was not read from the disk")
	}
	again.Offer(t.Context(), RoomsDocument, rooms(t, 4, "", "a"))
	if again.Page(hash) != nil {
		t.Error("a page that nobody names is kept in memory")
	}
	if _, err := os.Stat(copyFile(f.dir, roomdoc.PageDocument(hash))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy of a page that nobody names: %v", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	f := follow(t, t.TempDir(), memoryStore{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || IgnoreEnd(ctx, err) != nil {
		t.Error(err)
	}
}

// A room's partition policy reaches the ledger.
func TestTheLedgerGoesByTheRooms(t *testing.T) {
	d := room.Document{}
	for _, name := range []string{"a", "b"} {
		d.Rooms = append(d.Rooms, room.Settings{
			Name: name, Host: name + ".example", TotalActiveUsers: 5, NewUsersPerMinute: 6, SessionDuration: time.Minute,
			Origin: "http://127.0.0.1:1",
		})
	}
	d.Rooms[1].PartitionPolicy, d.Rooms[1].LostAfter = room.PolicyCap, 2*time.Minute
	set := testkit.Must(room.NewSet(d, 1))(t)
	got := map[room.ID]ledger.RoomConfig{}
	for _, r := range LedgerRooms(set) {
		got[r.ID] = r
	}
	a, b := room.IDOf("a"), room.IDOf("b")
	want := map[room.ID]ledger.RoomConfig{
		a: {ID: a, Total: 5, Rate: 6, Session: time.Minute, LostWait: 15 * time.Minute},
		b: {ID: b, Total: 5, Rate: 6, Session: time.Minute, Cap: true, LostWait: 2 * time.Minute},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
