package global_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ledger/root"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/global"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

const bucket = "vestibule_documents"

var within = testkit.Within

// operator reaches the store as an operator does.
func operator(t *testing.T, s nats.InProcessConnProvider) jetstream.JetStream {
	t.Helper()
	return testkit.JetStream(t, "", nats.InProcessServer(s))
}

// store returns the content of each document in the store, nil for a missing one.
func store(t *testing.T, js jetstream.JetStream) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	kv, err := js.KeyValue(within(t), bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return out
	}
	testkit.NoError(t, err)
	for _, key := range []string{node.RoomsDocument, node.KeysDocument} {
		e, err := kv.Get(within(t), key)
		switch {
		case err == nil:
			out[key] = e.Value()
		case !errors.Is(err, jetstream.ErrKeyNotFound):
			t.Fatal(err)
		}
	}
	return out
}

// putBack replaces the store by a backup.
func putBack(t *testing.T, js jetstream.JetStream, backup map[string][]byte) {
	t.Helper()
	testkit.NoError(t, js.DeleteKeyValue(within(t), bucket))
	kv := testkit.Must(js.CreateOrUpdateKeyValue(within(t), jetstream.KeyValueConfig{
		Bucket: bucket, History: 1,
		Storage: jetstream.FileStorage,
	}))(t)
	for key, value := range backup {
		testkit.Must(kv.Put(within(t), key, value))(t)
	}
}

// A store that loses its documents, or gets older ones back, while global leads gets them back from global. No node
// goes back meanwhile.
func TestTheStoreIsGivenBackWhatItLost(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, js jetstream.JetStream, backup map[string][]byte){
		"purged": func(t *testing.T, js jetstream.JetStream, _ map[string][]byte) {
			stream := testkit.Must(js.Stream(within(t), "KV_"+bucket))(t)
			testkit.NoError(t, stream.Purge(within(t)))
		},
		"deleted": func(t *testing.T, js jetstream.JetStream, _ map[string][]byte) {
			testkit.NoError(t, js.DeleteKeyValue(within(t), bucket))
		},
		"older": putBack,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			file := roomsFile(t, 5, "", "a")
			c, f := stand(t, s, "one", file, func(c *global.Config) { c.KeyRotation = ticket.MinRotation }), reader(t, s)
			eventually(t, "the first rooms are known",
				func() bool { return total(f.Set(), "a") == 5 && len(f.Ring().Keys) == 2 })
			js := operator(t, s)
			backup := store(t, js)
			writeRooms(t, file, 7, "", "a")
			eventually(t, "the change is known", func() bool { return total(f.Set(), "a") == 7 })
			version, ring := f.Set().Version(), f.Ring()
			spoil(t, js, backup)
			eventually(t, "the store holds again what is in use", func() bool {
				if total(f.Set(), "a") != 7 || f.Set().Version() < version || f.Ring().Version < ring.Version {
					t.Fatalf("went back to %d of version %d, keys %d", total(f.Set(), "a"), f.Set().Version(), f.Ring().Version)
				}
				held := store(t, js)
				v, _, err := roomdoc.DecodeRooms(held[node.RoomsDocument])
				if err != nil || v < version {
					return false
				}
				keys, err := ticket.DecodeKeyring(held[node.KeysDocument])
				return err == nil && keys.Version >= ring.Version && keys.Keys[0] == ring.Keys[0]
			})
			eventually(t, "no alarm is left", func() bool { return len(f.Alarms()) == 0 && len(c.Ready().Alarms) == 0 })
		})
	}
}

// The list of data centres and the controls too: older ones, or none, are replaced by those that
// the leading global knows.
func TestTheStoreIsGivenBackTheListOfDataCentresAndTheControls(t *testing.T) {
	t.Parallel()
	s := serve(t)
	c := stand(t, s, "one", roomsFile(t, 5, "", "a"), nil)
	eventually(t, "it leads, and the bucket is there",
		func() bool { return c.leads() && c.Status().Rooms["a"].Total == 5 })
	kv := testkit.Must(operator(t, s).KeyValue(within(t), bucket))(t)
	old := node.NewMembers(time.Now(), []string{"dublin"})
	newest := testkit.Must(old.Add(time.Now(), "lima"))(t)
	limited := func(version uint64, to int) *room.Controls {
		mark := room.Mark{Since: 1, By: "test", Until: time.Now().Add(time.Hour).UnixMilli()}
		return &room.Controls{
			Version: version,
			Rooms:   map[string]*room.Control{room.PublicID("a"): {Limits: &room.Limits{Mark: mark, TotalActiveUsers: to}}},
		}
	}
	put := func(m *node.Members, in *room.Controls) {
		t.Helper()
		members := testkit.Must(node.EncodeMembers(m))(t)
		controls := testkit.Must(room.EncodeControls(in))(t)
		for key, data := range map[string][]byte{node.MembersDocument: members, node.ControlsDocument: controls} {
			testkit.Must(kv.Put(within(t), key, data))(t)
		}
	}
	put(newest, limited(2, 3))
	listed := func() bool {
		return slices.ContainsFunc(c.Status().Rooms["a"].Centres, func(d root.CentreLedger) bool { return d.Name == "lima" })
	}
	eventually(t, "it goes by the list without a restart", listed)
	limits := func() bool { return c.Status().Rooms["a"].Total == 3 }
	eventually(t, "it goes by the controls", limits)
	for what, spoil := range map[string]func(){
		"older": func() { put(old, limited(1, 4)) },
		"gone": func() {
			for _, key := range []string{node.MembersDocument, node.ControlsDocument} {
				testkit.NoError(t, kv.Delete(within(t), key))
			}
		},
	} {
		spoil()
		eventually(t, what+": the store holds the list again", func() bool {
			e, err := kv.Get(within(t), node.MembersDocument)
			if err != nil {
				return false
			}
			m, err := node.DecodeMembers(e.Value())
			return err == nil && m.Version == newest.Version && len(c.Ready().Alarms) == 0
		})
		eventually(t, what+": and the controls", func() bool {
			e, err := kv.Get(within(t), node.ControlsDocument)
			if err != nil {
				return false
			}
			have, err := room.DecodeControls(e.Value())
			return err == nil && have.Version == 2 && len(c.Ready().Alarms) == 0
		})
		if !listed() || !limits() {
			t.Errorf("%s: it went back to the older ones", what)
		}
	}
}

// Everything of global is lost with the store; a node that lives knows more. Its keys and
// its list of data centres come back, and a node that begins meanwhile never has others.
// The rooms file wins, by a version above all that were ever seen.
func TestWhoLivesKnowsWhatTheStoreLost(t *testing.T) {
	t.Parallel()
	s := serve(t)
	file := roomsFile(t, 5, "", "a")
	first, f := stand(t, s, "one", file, nil), regional(t, s, t.TempDir())
	eventually(t, "rooms and keys are known", func() bool { return total(f.Set(), "a") == 5 && len(f.Ring().Keys) == 2 })
	js := operator(t, s)
	kv := testkit.Must(js.KeyValue(within(t), bucket))(t)
	put := func(doc string, data []byte, err error) {
		t.Helper()
		if err == nil {
			_, err = kv.Put(within(t), doc, data)
		}
		testkit.NoError(t, err)
	}
	list := testkit.Must(node.NewMembers(time.Now(), []string{"dublin"}).Add(time.Now(), "lima"))(t)
	members, err := node.EncodeMembers(list)
	put(node.MembersDocument, members, err)
	eventually(t, "the list is known", func() bool { return f.Members() != nil && f.Members().Version == list.Version })
	first.stop()
	ahead := f.Set().Version() + uint64(time.Hour/time.Millisecond) // by a clock that was ahead
	_, rooms, err := roomdoc.DecodeRooms(store(t, js)[node.RoomsDocument])
	testkit.NoError(t, err)
	data, err := roomdoc.EncodeRooms(ahead, rooms)
	put(node.RoomsDocument, data, err)
	eventually(t, "the newest rooms are known", func() bool { return f.Set().Version() == ahead })
	for _, name := range []string{bucket, "vestibule_leases"} {
		testkit.NoError(t, js.DeleteKeyValue(within(t), name))
	}

	empty := reader(t, s)
	stand(t, s, "two", roomsFile(t, 99, "", "a"), func(c *global.Config) { c.Bootstrap = false })
	ring := f.Ring()
	eventually(t, "the store holds everything again", func() bool {
		if r := empty.Ring(); len(r.Keys) > 0 && r.Keys[0] != ring.Keys[0] {
			t.Fatal("a node that begins has foreign keys")
		}
		return len(empty.Ring().Keys) > 0 && total(f.Set(), "a") == 99 && len(f.Alarms()) == 0
	})
	if v := f.Set().Version(); v <= ahead {
		t.Errorf("rooms of version %d after %d", v, ahead)
	}
	if got := f.Ring(); got.Version != ring.Version || got.Keys[0] != ring.Keys[0] {
		t.Errorf("keys of version %d, want %d", got.Version, ring.Version)
	}
	e, err := kv.Get(within(t), node.MembersDocument)
	if err != nil || !slices.Equal(e.Value(), members) {
		t.Errorf("the store does not hold the list of data centres: %v", err)
	}
}

// If JetStream has no room for a lease, nobody can lead: every candidate raises an alarm with the store's error. Once
// there is room, they go on.
func TestAStoreThatTakesNoLeasesIsAnAlarm(t *testing.T) {
	t.Parallel()
	const most = 4 << 20
	s := testkit.Must(server.NewServer(&server.Options{
		DontListen: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
		JetStreamMaxStore: most,
	}))(t)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("no server")
	}
	file := roomsFile(t, 5, "", "a")
	both := []*candidate{stand(t, s, "one", file, nil), stand(t, s, "two", file, nil)}
	leads := func() bool { return both[0].leads() != both[1].leads() }
	eventually(t, "one of them leads", leads)
	js := operator(t, s)
	filler, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: "filler", Subjects: []string{"filler"}})
	for err == nil {
		_, err = js.Publish(within(t), "filler", make([]byte, 256<<10))
	}
	for err = nil; err == nil; { // to the last byte
		_, err = js.Publish(within(t), "filler", []byte("x"))
	}
	for _, c := range both {
		eventually(t, "there is an alarm", func() bool {
			return !c.leads() && value(t, c, "vestibule_global_lease_trouble_seconds") > 0 &&
				slices.ContainsFunc(c.Ready().Alarms, func(a string) bool {
					return strings.Contains(a, "no process can lead") && strings.Contains(a, "resource")
				})
		})
	}
	testkit.NoError(t, filler.Purge(within(t)))
	eventually(t, "one of them leads again, and no alarm is left", func() bool {
		return leads() && len(both[0].Ready().Alarms)+len(both[1].Ready().Alarms) == 0
	})
}

// A global without keys makes the first ones only after it has asked for them long enough.
func TestFirstKeysAreAskedForFirst(t *testing.T) {
	t.Parallel()
	s := serve(t)
	conn := connect(t, s, "listener")
	asked := make(chan []byte, 64)
	stop := testkit.Must(conn.Subscribe(wire.AskSubject, func(_ string, data []byte) { asked <- data }))(t)
	defer stop()
	f := reader(t, s)
	list, err := node.EncodeMembers(node.NewMembers(time.Now(), []string{"dublin"})) // the fleet has begun
	if err == nil {
		_, err = natsbus.NewDocuments(conn, 1).Put(within(t), node.MembersDocument, list, 0)
	}
	testkit.NoError(t, err)
	begun := time.Now()
	stand(t, s, "one", roomsFile(t, 5, "", "a"), func(c *global.Config) { c.Bootstrap = false })
	eventually(t, "keys are made", func() bool { return len(f.Ring().Keys) == 2 })
	if d := time.Since(begun); len(asked) < 5 || d < 5*time.Second {
		t.Errorf("keys are made after %v, and after asking %d times", d, len(asked))
	}
}

// Two rings were begun independently: tickets sealed under either can be opened everywhere, and one of them seals.
// The other one may be found in the store or at a node.
func TestTwoRingsBecomeOneRing(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(t *testing.T, s *embedded.Server, data []byte){
		"in the store": func(t *testing.T, s *embedded.Server, data []byte) {
			kv, err := operator(t, s).KeyValue(within(t), bucket)
			if err == nil {
				_, err = kv.Put(within(t), node.KeysDocument, data)
			}
			testkit.NoError(t, err)
		},
		"at a node": func(t *testing.T, s *embedded.Server, data []byte) {
			dir := t.TempDir()
			testkit.NoError(t, os.WriteFile(filepath.Join(dir, "keys.json"), data, 0o600))
			regional(t, s, dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			stand(t, s, "one", roomsFile(t, 5, "", "a"), nil)
			f := reader(t, s)
			eventually(t, "the keys are known", func() bool { return len(f.Ring().Keys) == 2 && f.Set() != nil })
			ours := f.Ring()
			other := ticket.Keyring{}
			for i := range 3 { // until their version is higher
				var err error
				if other, err = other.Rotate(fleettime.TimeOf(time.Now().Add(time.Duration(i-2)*time.Hour)), time.Hour,
					zeros{}); err != nil {
					t.Fatal(err)
				}
			}
			data := testkit.Must(ticket.EncodeKeyring(other))(t)
			now := fleettime.TimeOf(time.Now())
			var sealed []string
			for _, ring := range []ticket.Keyring{ours, other} {
				c := testkit.Must(ticket.NewCodec(ring, room.IDOf("a"), "c"))(t)
				sealed = append(sealed,
					string(c.Seal(nil, now, &ticket.Ticket{ID: 7, Joined: now}, ticket.NewScratch([32]byte{1}))))
			}
			write(t, s, data)
			eventually(t, "both are one", func() bool { return len(f.Ring().Keys) > 2 && len(f.Alarms()) == 0 })
			c := testkit.Must(ticket.NewCodec(f.Ring(), room.IDOf("a"), "c"))(t)
			for i, value := range sealed {
				var got ticket.Ticket
				if err := c.Open(&got, value, &ticket.Scratch{}); err != nil || got.ID != 7 {
					t.Errorf("a ticket of ring %d is lost: %v", i, err)
				}
			}
		})
	}
}

// zeros is a source of keys that are not ours.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'z'
	}
	return len(p), nil
}
