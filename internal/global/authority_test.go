package global_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/room/roomfile"
	"vestibule/internal/global"
	"vestibule/internal/global/roomstore"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

// editor changes rooms as the API does, at a candidate that does not lead.
func editor(t *testing.T, s *embedded.Server) func(edit func(*roomstore.Draft)) error {
	t.Helper()
	docs := natsbus.NewDocuments(connect(t, s, "api"), 1)
	store := roomstore.New(roomstore.Options{
		Docs: docs, Log: slog.New(slog.DiscardHandler),
		Floor: func() uint64 { return 0 },
	})
	return func(edit func(*roomstore.Draft)) error {
		_, err := store.Change(within(t), func(d *roomstore.Draft) error {
			edit(d)
			return nil
		})
		return err
	}
}

// decided reports whether the file is the authority, as the store says.
func decided(t *testing.T, s *embedded.Server) bool {
	t.Helper()
	docs := natsbus.NewDocuments(connect(t, s, "reader"), 1)
	store := roomstore.New(roomstore.Options{
		Docs: docs, Log: slog.New(slog.DiscardHandler),
		Floor: func() uint64 { return 0 },
	})
	state, err := store.Read(within(t))
	return err == nil && state.FromFile
}

func put(r room.Settings) func(*roomstore.Draft) { return func(d *roomstore.Draft) { d.Put(r) } }

func club(total int) room.Settings {
	return room.Settings{
		Name: "club", Host: "club.example", TotalActiveUsers: total, NewUsersPerMinute: 10,
		Origin: "http://10.0.0.1",
	}
}

// fromFile reports whether an error says that rooms come from a file.
func fromFile(err error) bool {
	_, ok := errors.AsType[*roomstore.FromFileError](err)
	return ok
}

// alarmed reports whether a candidate refuses its file, with an alarm that says so.
func alarmed(t *testing.T, c *candidate, says string) bool {
	return value(t, c, "vestibule_global_rooms_file_valid") == 0 &&
		slices.ContainsFunc(c.Ready().Alarms, func(a string) bool {
			return strings.HasPrefix(a, "the rooms file is refused") && strings.Contains(a, says)
		})
}

func calm(t *testing.T, c *candidate) bool {
	return value(t, c, "vestibule_global_rooms_file_valid") == 1 && len(c.Ready().Alarms) == 0
}

// A fleet with a rooms file: it decides, over a store that was lost and over a change of the leader,
// before which the file was changed.
func TestTheFileIsTheAuthority(t *testing.T) {
	t.Parallel()
	s := serve(t)
	file := roomsFile(t, 5, "", "a", "b")
	c, f, edit := stand(t, s, "one", file, nil), reader(t, s), editor(t, s)
	eventually(t, "the file is in force", func() bool { return total(f.Set(), "a") == 5 && total(f.Set(), "b") == 5 })
	if err := edit(put(club(7))); !fromFile(err) {
		t.Errorf("the API makes a room: %v", err)
	}
	writeRooms(t, file, 6, "", "a", "c")
	eventually(t, "the file changes all rooms", func() bool {
		return total(f.Set(), "a") == 6 && total(f.Set(), "c") == 6 && total(f.Set(), "b") == -1
	})
	js := operator(t, s)
	testkit.NoError(t, js.DeleteKeyValue(within(t), bucket))
	eventually(t, "the store has them again", func() bool {
		_, doc, err := roomdoc.DecodeRooms(store(t, js)[roomdoc.RoomsDocument])
		return err == nil && len(doc.Rooms) == 2 && len(f.Alarms()) == 0 && calm(t, c)
	})
	if err := edit(put(club(7))); !fromFile(err) {
		t.Errorf("the API makes a room: %v", err)
	}
	c.stop()
	writeRooms(t, file, 8, "", "c")
	next := stand(t, s, "two", file, nil)
	eventually(t, "the next leader publishes the file as it is", func() bool {
		return total(f.Set(), "c") == 8 && total(f.Set(), "a") == -1 && next.leads() && calm(t, next)
	})
}

// Under a leader without a file the rooms of a file stay, and the API changes them. A leader with a different file
// keeps the store's rooms, reports the difference, and follows once both agree, whichever was changed.
func TestTheAuthorityChanges(t *testing.T) {
	t.Parallel()
	s := serve(t)
	file := roomsFile(t, 5, "", "a", "b")
	f, edit := reader(t, s), editor(t, s)
	one := stand(t, s, "one", file, nil)
	eventually(t, "the file is in force", func() bool { return total(f.Set(), "b") == 5 && one.leads() })
	two := stand(t, s, "two", "", nil)
	one.stop()
	eventually(t, "the API makes a room where the leader has no file", func() bool { return edit(put(club(7))) == nil })
	eventually(t, "nodes are updated", func() bool { return total(f.Set(), "club") == 7 && total(f.Set(), "a") == 5 })
	if !calm(t, two) {
		t.Errorf("alarms of a leader without a file: %q", two.Ready().Alarms)
	}

	two.stop()
	three := stand(t, s, "three", file, nil)
	eventually(t, "the file is refused, with what differs",
		func() bool { return three.leads() && alarmed(t, three, "not in the file: club") })
	writeRooms(t, file, 6, "", "b", "c")
	eventually(t, "the alarm follows the file",
		func() bool { return alarmed(t, three, "not in the file: a, club; not in the store: c; different: b") })
	if err := edit(put(club(8))); err != nil {
		t.Errorf("the store is the authority, and the API is refused: %v", err)
	}
	eventually(t, "nodes are updated", func() bool {
		return total(f.Set(), "club") == 8 && total(f.Set(), "a") == 5 && total(f.Set(), "b") == 5
	})

	overwrite(t, file, string(exported(t, f.Set())))
	eventually(t, "a file that says the same is followed", func() bool { return calm(t, three) && decided(t, s) })
	if err := edit(put(club(9))); !fromFile(err) {
		t.Errorf("the API changes a room of the file: %v", err)
	}
	writeRooms(t, file, 6, "", "a")
	eventually(t, "the file changes all rooms",
		func() bool { return total(f.Set(), "a") == 6 && len(f.Set().Rooms()) == 1 })

	three.stop()
	four := stand(t, s, "four", "", nil)
	eventually(t, "the API makes a room again", func() bool { return edit(put(club(9))) == nil && four.leads() })
	four.stop()
	five := stand(t, s, "five", file, nil)
	eventually(t, "the file is refused", func() bool { return alarmed(t, five, "not in the file: club") })
	data := testkit.Must(os.ReadFile(file))(t)
	doc := testkit.Must(roomfile.Parse(data))(t)
	testkit.NoError(t, edit(func(d *roomstore.Draft) { d.Set(doc) })) // vestibule rooms apply --prune
	eventually(t, "a store that says the same is followed", func() bool {
		return calm(t, five) && decided(t, s) && len(f.Set().Rooms()) == 1
	})
}

// exported is a set as a rooms file.
func exported(t *testing.T, s *room.Set) []byte {
	t.Helper()
	var doc room.Document
	for _, r := range s.Rooms() {
		doc.Rooms = append(doc.Rooms, r.Settings)
	}
	return testkit.Must(roomfile.Format(doc))(t)
}

// A global without a file leads with the rooms of the store, also after its own restart over an empty store.
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
	testkit.NoError(t, editor(t, s)(put(club(7))))
	eventually(t, "nodes are updated", func() bool {
		return total(f.Set(), "club") == 7 && c.Ready().Ready && c.Status().Rooms["club"].Total == 7
	})
	js := operator(t, s)
	version, _, err := roomdoc.DecodeRooms(store(t, js)[roomdoc.RoomsDocument])
	testkit.NoError(t, err)
	eventually(t, "its copy on disk has them", func() bool {
		data, err := os.ReadFile(filepath.Join(dir, roomstore.OwnedDocument+".json"))
		return err == nil && strings.Contains(string(data), fmt.Sprintf(`"version":%d,`, version))
	})
	c.stop()
	testkit.NoError(t, js.DeleteKeyValue(within(t), bucket))
	again := stand(t, s, "two", "", func(c *global.Config) { without(c); c.DataDir = dir })
	eventually(t, "the rooms are back in the store", func() bool {
		_, doc, err := roomdoc.DecodeRooms(store(t, js)[roomdoc.RoomsDocument])
		return err == nil && len(doc.Rooms) == 1 && len(f.Alarms()) == 0 && len(again.Ready().Alarms) == 0
	})
}
