package global_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/global"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

// The room whose limit says which rooms are known, and the one under a control.
var plainRoom, ruledRoom = fakes.Rooms(2).Rooms[0].Name, fakes.Rooms(2).Rooms[1].Name

// change makes rooms and a control as the API does.
func change(t *testing.T, conn *natsbus.Conn, total int) {
	t.Helper()
	docs := natsbus.NewDocuments(conn, 1)
	rooms := roomstore.New(roomstore.Options{Docs: docs, Log: quiet, Floor: func() uint64 { return 0 }})
	doc := fakes.Rooms(50)
	doc.Rooms[0].TotalActiveUsers, doc.Rooms[1].TotalActiveUsers = total, total
	testkit.Must(rooms.Change(within(t), func(d *roomstore.Draft) error { d.Merge(doc); return nil }))(t)
	mark := room.Mark{Since: 1, By: "test", Until: time.Now().Add(time.Hour).UnixMilli()}
	controls := testkit.Must(room.EncodeControls(&room.Controls{Version: uint64(total), Rooms: map[string]*room.Control{
		room.PublicID(ruledRoom): {Limits: &room.Limits{Mark: mark, TotalActiveUsers: total - 1}},
	}}))(t)
	_, revision, err := docs.Get(within(t), node.ControlsDocument)
	if err == nil {
		_, err = docs.Put(within(t), node.ControlsDocument, controls, revision)
	}
	testkit.NoError(t, err)
}

// all returns all documents of the store.
func all(t *testing.T, js jetstream.JetStream) map[string][]byte {
	t.Helper()
	kv := testkit.Must(js.KeyValue(within(t), bucket))(t)
	keys := testkit.Must(kv.Keys(within(t)))(t)
	out := map[string][]byte{}
	for _, key := range keys {
		e := testkit.Must(kv.Get(within(t), key))(t)
		out[key] = e.Value()
	}
	return out
}

// The store and every global's folder are lost, or come back older. One node has the newest rooms and controls: the
// leader gets them from it and writes them back.
func TestALeaderGetsRoomsBackFromANode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		older bool
		holds func(t *testing.T, s *embedded.Server) (f *node.Fleet, join func() []*candidate)
	}{
		{"one of three globals", false, standby},
		{"one of three globals, the store is older", true, standby},
		{"a regional", false, func(t *testing.T, s *embedded.Server) (*node.Fleet, func() []*candidate) {
			return regional(t, s, t.TempDir()), func() []*candidate { return nil }
		}},
		{"a regional, the store is older", true, func(t *testing.T, s *embedded.Server) (*node.Fleet, func() []*candidate) {
			return regional(t, s, t.TempDir()), func() []*candidate { return nil }
		}},
		{"an edge", false, func(t *testing.T, s *embedded.Server) (*node.Fleet, func() []*candidate) {
			return edgeNode(t, s, t.TempDir()), func() []*candidate { return nil }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			js, conn := operator(t, s), connect(t, s, "writer")
			first := stand(t, s, "one", "", nil)
			election := eventually(t, "it leads", func() bool { return first.leads() })
			change(t, conn, 3)
			eventually(t, "rooms and controls are known", func() bool { return first.Status().Rooms[ruledRoom].Total == 2 })
			backup := all(t, js)
			change(t, conn, 7)
			f, join := c.holds(t, s)
			eventually(t, "the newest are known", func() bool {
				return total(f.Set(), plainRoom) == 7 && first.Status().Rooms[ruledRoom].Total == 6 && len(f.Ring().Keys) > 0
			})
			first.stop()
			testkit.NoError(t, js.DeleteKeyValue(within(t), "vestibule_leases"))
			if c.older {
				putBack(t, js, backup)
			} else if err := js.DeleteKeyValue(within(t), bucket); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			second := stand(t, s, "two", "", func(c *global.Config) { c.Bootstrap = false })
			third := stand(t, s, "three", "", func(c *global.Config) { c.Bootstrap = false })
			eventually(t, "one of them leads", func() bool { return second.leads() || third.leads() })
			candidates := append(join(), second, third) // any of them may lead, also after a pause of this machine
			controlled := func() (sum uint64) {
				for _, c := range candidates {
					sum += c.Status().Rooms[ruledRoom].Total
				}
				return sum
			}
			empty := reader(t, s)
			eventually(t, "rooms and controls are back", func() bool {
				if total(f.Set(), plainRoom) != 7 {
					t.Fatalf("the node went back: %v", total(f.Set(), plainRoom))
				}
				if total(empty.Set(), plainRoom) == 7 && controlled() == 6 && len(f.Alarms()) == 0 {
					return true
				}
				if time.Since(begun) > max(20*time.Second, 20*election) { // a busy machine elects slowly too
					t.Fatalf("after %v: rooms %d, controlled %d, alarms %v", time.Since(begun), total(empty.Set(), plainRoom),
						controlled(), f.Alarms())
				}
				return false
			})
			t.Logf("rooms are back after %v (goal 20 s)", time.Since(begun).Round(time.Millisecond))
		})
	}
}

func stored(dir, file string) bool {
	_, err := os.Stat(filepath.Join(dir, file))
	return err == nil
}

// standby is a standby that stops, and comes back by join with its folder.
func standby(t *testing.T, s *embedded.Server) (*node.Fleet, func() []*candidate) {
	t.Helper()
	f := reader(t, s)
	dir := t.TempDir()
	held := func(c *global.Config) { c.DataDir, c.Bootstrap = dir, false }
	two := stand(t, s, "holder", "", held)
	eventually(t, "the standby knows the rooms", func() bool { return two.Ready().Ready })
	testkit.Eventually(t, "and has stored them",
		func() bool { return stored(dir, roomstore.OwnedDocument+".json") && stored(dir, "controls.json") })
	two.stop()
	return f, func() []*candidate { return []*candidate{stand(t, s, "holder", "", held)} }
}

// An edge is exposed to visitors: its rooms are not taken while anybody else has any.
func TestAnEdgeCannotPlantRooms(t *testing.T) {
	t.Parallel()
	s := serve(t)
	file := roomsFile(t, 5, "", "a")
	dir := t.TempDir()
	stand(t, s, "one", file, func(c *global.Config) { c.DataDir = dir })
	f := reader(t, s)
	eventually(t, "the rooms are known", func() bool { return total(f.Set(), "a") == 5 })
	planted := testkit.Must(roomdoc.EncodeRooms(f.Set().Version()+1_000_000, room.Document{Rooms: []room.Settings{{
		Name: "a", Host: "a.example", Origin: "http://127.0.0.1:1", TotalActiveUsers: 1_000, NewUsersPerMinute: 1_000,
	}}}))(t)
	evil := t.TempDir()
	overwrite(t, filepath.Join(evil, "rooms.json"), string(planted))
	edgeNode(t, s, evil)
	conn := connect(t, s, "looker")
	asked := make(chan struct{}, 8)
	stop, err := conn.Subscribe("vestibule.v1.global.copy.edge-rooms.dublin", func(string, []byte) { asked <- struct{}{} })
	testkit.NoError(t, err)
	defer stop()
	for range 2 {
		select {
		case <-asked:
		case <-time.After(25 * time.Second):
			t.Fatal("the edge announced nothing")
		}
	}
	if n := total(f.Set(), "a"); n != 5 {
		t.Errorf("T is %d", n)
	}
}
