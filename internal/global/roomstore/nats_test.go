package roomstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/leak"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

func TestMain(m *testing.M) { leak.WithNATS(m) }

var quiet = slog.New(slog.DiscardHandler)

func serve(t testing.TB) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Name: "test", Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: quiet})
	testkit.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

// candidate is a store of rooms on a server, that follows it until the test ends.
func candidate(t testing.TB, server *embedded.Server, name string) (*roomstore.Store, *natsbus.Documents) {
	t.Helper()
	c := testkit.Must(natsbus.Connect(natsbus.Options{InProcess: server, Name: name, Log: quiet}))(t)
	t.Cleanup(c.Close)
	docs := natsbus.NewDocuments(c, 1, roomstore.OwnedDocument)
	s := roomstore.New(roomstore.Options{
		Docs: docs, Log: quiet, Floor: func() uint64 { return 0 },
		Keep: func(string, []byte) error { return nil },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() { _ = s.Run(ctx) })
	g.Go(func() { _ = docs.Watch(ctx, func(_ string, data []byte) { s.Offer(data) }) })
	t.Cleanup(func() { cancel(); g.Wait() })
	return s, docs
}

func shop(name string, total int) room.Settings {
	return room.Settings{
		Name: name, Host: name + ".example", TotalActiveUsers: total, NewUsersPerMinute: 10,
		Origin: "http://10.0.0.1",
	}
}

// Eight candidates change rooms at once on a real server, seven as the API does and one as the leader
// does: every change is made exactly once, and everybody knows
// the same in the end.
func TestEightWritersLoseNothing(t *testing.T) {
	server := serve(t)
	const writers, changes = 8, 4
	var all []*roomstore.Store
	var docs *natsbus.Documents
	for i := range writers {
		var s *roomstore.Store
		s, docs = candidate(t, server, fmt.Sprint("writer-", i))
		all = append(all, s)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	calls, unknown := make([]int, writers), make([]int, writers)
	var g sync.WaitGroup
	for i, s := range all {
		g.Go(func() {
			for n := range changes {
				for done := false; !done; {
					var err error
					if i == 0 {
						_, err = s.Publish(ctx, false, func(d *roomstore.Draft) error {
							calls[i]++
							d.Merge(room.Document{Rooms: []room.Settings{shop("file", n+1), shop("constant", 5)}})
							return nil
						})
					} else {
						_, err = s.Change(ctx, func(d *roomstore.Draft) error {
							calls[i]++
							one, shared := shop(fmt.Sprint("own-", i, "-", n), 1), shop("shared", 0)
							if r := d.Room("shared"); r != nil {
								shared = r.Settings
							}
							shared.TotalActiveUsers++
							d.Put(one)
							d.Put(shared)
							return nil
						})
					}
					if errors.Is(err, roomstore.ErrUnknown) { // on a machine that is very busy
						unknown[i]++
					}
					if done = err == nil; ctx.Err() != nil {
						t.Errorf("writer %d, change %d: %v", i, n, err)
						return
					}
				}
			}
		})
	}
	g.Wait()
	total, maybe := 0, 0
	for i := range writers {
		total, maybe = total+calls[i], maybe+unknown[i]
	}
	t.Logf("%d changes took %d tries; of %d more nobody knows", writers*changes, total, maybe)
	if total == writers*changes {
		t.Error("no two writers ever met")
	}
	// The leader repairs the remains of a writer that got no answer.
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := all[0].Publish(ctx, false, func(*roomstore.Draft) error { return nil })
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	last := all[0].Known()
	for i, s := range all {
		for deadline := time.Now().Add(15 * time.Second); s.Known().Version < last.Version; time.Sleep(2 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("writer %d knows version %d of %d", i, s.Known().Version, last.Version)
			}
		}
		if v := s.Known(); v.Version > last.Version {
			last = v
		}
	}
	rooms := map[string]int{}
	for _, r := range last.Rooms {
		rooms[r.Name] = r.TotalActiveUsers
	}
	if want := (writers - 1) * changes; rooms["shared"] < want || rooms["shared"] > want+maybe ||
		rooms["file"] != changes || len(rooms) != want+3 {
		t.Errorf("shared was changed %d times and there are %d rooms, want %d; the file says %d", rooms["shared"], len(rooms),
			want, rooms["file"])
	}
	head, _, err := docs.Get(ctx, roomdoc.RoomsDocument)
	testkit.NoError(t, err)
	version, doc, err := roomdoc.DecodeRooms(head)
	if err != nil || version != last.Version || len(doc.Rooms) != len(last.Rooms) {
		t.Errorf("nodes have version %d with %d rooms, want %d with %d: %v", version, len(doc.Rooms), last.Version,
			len(last.Rooms), err)
	}
}

// 10,000 rooms by the API on the embedded server, with its small messages.
func TestTenThousandRoomsOnTheEmbeddedServer(t *testing.T) {
	server := serve(t)
	one, docs := candidate(t, server, "one")
	two, _ := candidate(t, server, "two")
	put := func(s *roomstore.Store, rooms ...room.Settings) {
		t.Helper()
		begun := time.Now()
		for {
			_, err := s.Change(t.Context(), func(d *roomstore.Draft) error {
				for _, r := range rooms {
					d.Put(r)
				}
				return nil
			})
			if err == nil {
				break
			}
			if time.Since(begun) > time.Minute { // a machine that is very busy may need more than one
				t.Fatal(err)
			}
		}
		t.Logf("%d rooms in %v", len(rooms), time.Since(begun).Round(time.Millisecond))
	}
	var rooms []room.Settings
	for i := range room.MaxRooms {
		rooms = append(rooms, shop(fmt.Sprintf("room-%d", i), 5))
	}
	put(one, rooms...)
	put(one, shop("room-7", 6))
	put(two, shop("room-8", 7))
	put(one, shop("room-9", 8))
	state := one.Known()
	if len(state.Rooms) != room.MaxRooms || state.Room("room-7").TotalActiveUsers != 6 ||
		state.Room("room-8").TotalActiveUsers != 7 {
		t.Errorf("%d rooms, %v, %v", len(state.Rooms), state.Room("room-7").TotalActiveUsers,
			state.Room("room-8").TotalActiveUsers)
	}
	if _, err := one.Change(t.Context(), func(d *roomstore.Draft) error {
		d.Put(shop("one-more", 8))
		return nil
	}); err == nil || !strings.Contains(err.Error(), "at most 10000") {
		t.Errorf("one more: %v", err)
	}
	stored := testkit.Must(docs.List(t.Context(), "section.*"))(t)
	t.Logf("%d sections in the store, values of at most %d bytes", len(stored), docs.Limit())
}

func BenchmarkChange(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			server := serve(b)
			s, _ := candidate(b, server, "one")
			put := func(rooms ...room.Settings) {
				if _, err := s.Change(b.Context(), func(d *roomstore.Draft) error {
					for _, r := range rooms {
						d.Put(r)
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			var rooms []room.Settings
			for i := range n {
				rooms = append(rooms, shop(fmt.Sprintf("room-%d", i), 5))
			}
			put(rooms...)
			for i := 0; b.Loop(); i++ {
				put(shop(fmt.Sprintf("room-%d", i%n), 6+i))
			}
		})
	}
}
