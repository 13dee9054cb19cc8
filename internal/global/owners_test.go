package global_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/global"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/node/natsbus"
)

// writer is who changes rooms as the API does, at a candidate that does not lead.
func writer(t *testing.T, docs *natsbus.Documents) func(rooms ...room.Settings) error {
	t.Helper()
	s := roomstore.New(roomstore.Options{Docs: docs, Log: slog.New(slog.DiscardHandler), Floor: func() uint64 { return 0 }})
	return func(rooms ...room.Settings) error {
		_, err := s.Change(within(t), roomstore.API, func(d *roomstore.Draft) error {
			for _, r := range rooms {
				if err := d.Put(r); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	}
}

func club(total int) room.Settings {
	return room.Settings{Name: "club", Host: "club.example", TotalActiveUsers: total, NewUsersPerMinute: 10, Origin: "http://10.0.0.1"}
}

// Two writers: the file and somebody else. Each changes its own rooms; a file that collides with the
// other's is refused with both named, and what the store lost comes back with its owners.
func TestTheFileIsOneSourceOfTwo(t *testing.T) {
	t.Parallel()
	s := serve(t)
	file := roomsFile(t, 5, "", "a")
	c, f := stand(t, s, "one", file, nil), reader(t, s)
	eventually(t, "the file is in force", func() bool { return total(f.Set(), "a") == 5 })
	put := writer(t, natsbus.NewDocuments(connect(t, s, "api"), 1))
	if err := put(club(7)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nodes are told", func() bool { return total(f.Set(), "club") == 7 })
	writeRooms(t, file, 6, "", "a", "b")
	eventually(t, "the file changes its part", func() bool {
		return total(f.Set(), "a") == 6 && total(f.Set(), "b") == 6 && total(f.Set(), "club") == 7
	})
	writeRooms(t, file, 8, "", "a", "club")
	eventually(t, "a file with a room of the API is refused", func() bool {
		return value(t, c, "vestibule_global_rooms_file_valid") == 0 && slices.ContainsFunc(c.Ready().Alarms, func(a string) bool {
			return strings.Contains(a, `rooms[1] "club": name: is the name of a room of the API already`)
		})
	})
	if total(f.Set(), "a") != 6 || total(f.Set(), "club") != 7 {
		t.Error("a refused file changed something")
	}
	writeRooms(t, file, 8, "", "a")
	eventually(t, "it is repaired", func() bool {
		return value(t, c, "vestibule_global_rooms_file_valid") == 1 && total(f.Set(), "a") == 8 && len(c.Ready().Alarms) == 0
	})
	js := operator(t, s)
	if err := js.DeleteKeyValue(within(t), bucket); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store holds both again", func() bool {
		_, doc, err := roomdoc.DecodeRooms(store(t, js)[roomdoc.RoomsDocument])
		return err == nil && len(doc.Rooms) == 2 && len(f.Alarms()) == 0 && len(c.Ready().Alarms) == 0
	})
	eventually(t, "and the API goes on", func() bool { return put(club(9)) == nil && total(f.Set(), "club") == 9 })
	if total(f.Set(), "a") != 8 {
		t.Error("the file's part is not what it was")
	}
}

// A global without a file leads over what the store has, also after a restart of its own over an empty
// store.
func TestAGlobalNeedsNoFile(t *testing.T) {
	t.Parallel()
	s := serve(t)
	without := func(c *global.Config) { c.Rooms = "" }
	dir := t.TempDir()
	c, f := stand(t, s, "one", "", func(c *global.Config) { without(c); c.DataDir = dir }), reader(t, s)
	eventually(t, "it leads, and says that there are no rooms", func() bool {
		r := c.Ready()
		return c.leads() && !r.Ready && len(r.Reasons) == 1 && len(r.Alarms) == 0
	})
	put := writer(t, natsbus.NewDocuments(connect(t, s, "api"), 1))
	if err := put(club(7)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nodes are told", func() bool {
		return total(f.Set(), "club") == 7 && c.Ready().Ready && c.Status().Rooms["club"].Total == 7
	})
	js := operator(t, s)
	version, _, err := roomdoc.DecodeRooms(store(t, js)[roomdoc.RoomsDocument])
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "its copy on disk has them", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, roomstore.OwnedDocument+".json"))
		return err == nil && strings.Contains(string(data), fmt.Sprintf(`"version":%d,`, version))
	})
	c.stop()
	if err := js.DeleteKeyValue(within(t), bucket); err != nil {
		t.Fatal(err)
	}
	again := stand(t, s, "two", "", func(c *global.Config) { without(c); c.DataDir = dir })
	eventually(t, "the rooms are back in the store", func() bool {
		_, doc, err := roomdoc.DecodeRooms(store(t, js)[roomdoc.RoomsDocument])
		return err == nil && len(doc.Rooms) == 1 && len(f.Alarms()) == 0 && len(again.Ready().Alarms) == 0
	})
}
