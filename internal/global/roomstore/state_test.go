package roomstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/testkit"
)

// shop is a room of its own host.
func shop(name string, total int) room.Settings {
	return room.Settings{
		Name: name, Host: name + ".example", TotalActiveUsers: total, NewUsersPerMinute: 10,
		Origin: "http://10.0.0.1",
	}
}

func shops(names ...string) room.Document {
	var d room.Document
	for _, n := range names {
		d.Rooms = append(d.Rooms, shop(n, 5))
	}
	return d
}

// written returns the state after changes, each of the version of its place.
func written(t testing.TB, changes ...func(d *Draft)) *State {
	t.Helper()
	s := &State{}
	for i := range changes {
		d := NewDraft(s)
		changes[i](d)
		next := testkit.Must(d.Apply(int64(1000+i), uint64(i+1)))(t)
		s = next
	}
	return s
}

func put(rooms ...room.Settings) func(*Draft) {
	return func(d *Draft) {
		for _, r := range rooms {
			d.Put(r)
		}
	}
}

// follow makes a file the authority.
func follow(doc room.Document) func(*Draft) {
	return func(d *Draft) {
		if err := d.Follow(doc); err != nil {
			panic(err)
		}
	}
}

func set(d room.Document) func(*Draft) { return func(w *Draft) { w.Set(d) } }

func (s *State) String() string {
	var b strings.Builder
	if s.FromFile {
		b.WriteString("file: ")
	}
	for _, r := range s.Rooms {
		fmt.Fprintf(&b, "%s@%d ", r.Name, r.Revision)
	}
	for _, h := range s.Hosts {
		fmt.Fprintf(&b, "host %s@%d ", h.Name, h.Revision)
	}
	return strings.TrimSpace(b.String())
}

func TestChanges(t *testing.T) {
	host := room.Host{Name: "h.example", Origin: "http://10.0.0.2"}
	base := written(t, put(shop("a", 5), shop("b", 5)), func(d *Draft) { d.PutHost(host) })
	const begun = "a@1 b@1 host h.example@2"
	doc := func(rooms ...room.Settings) room.Document {
		return room.Document{Rooms: rooms, Hosts: []room.Host{host}}
	}
	for _, c := range []struct {
		what string
		edit func(*Draft)
		want string
	}{
		{"nothing", func(*Draft) {}, begun},
		{"one room more", put(shop("c", 5)), "a@1 b@1 c@9 host h.example@2"},
		{"the same room again", put(shop("a", 5)), begun},
		{"changed", put(shop("a", 7)), "a@9 b@1 host h.example@2"},
		{"changed and back", put(shop("a", 7), shop("a", 5)), "a@9 b@1 host h.example@2"},
		{"deleted", func(d *Draft) { mustDelete(t, d, "a") }, "b@1 host a.example@9 host h.example@2"},
		{"deleted with its site", func(d *Draft) {
			mustDelete(t, d, "a")
			d.PutHost(room.Host{Name: "a.example", Origin: "http://10.0.0.2"})
			d.DeleteHost("a.example")
		}, "b@1 host h.example@2"},
		{
			"renamed", func(d *Draft) { mustDelete(t, d, "a"); d.Put(shop("z", 5)) },
			"b@1 z@9 host a.example@9 host h.example@2",
		},
		{
			"a host", func(d *Draft) { d.PutHost(room.Host{Name: "i.example", Origin: "http://10.0.0.2"}) },
			begun + " host i.example@9",
		},
		{
			"another site", func(d *Draft) { d.PutHost(room.Host{Name: "h.example", Origin: "http://10.0.0.3"}) },
			"a@1 b@1 host h.example@9",
		},
		{"no host", func(d *Draft) { d.DeleteHost("h.example") }, "a@1 b@1"},
		{"all as it was", set(doc(shop("b", 5), shop("a", 5))), begun},
		{"all anew", set(doc(shop("b", 6), shop("c", 5))), "b@9 c@9 host h.example@2"},
		{"nothing at all", set(room.Document{}), ""},
		{"a part as it was", func(d *Draft) { d.Merge(shops("b")) }, begun},
		{
			"a part", func(d *Draft) { d.Merge(room.Document{Rooms: []room.Settings{shop("c", 5), shop("b", 6)}}) },
			"a@1 b@9 c@9 host h.example@2",
		},
		{"the file is the authority", follow(doc(shop("a", 5), shop("b", 5))), "file: " + begun},
		{"it stays the store", (*Draft).Detach, begun},
	} {
		d := NewDraft(base)
		c.edit(d)
		got, err := d.Apply(5000, 9)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if got.String() != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		if (got == base) != (c.want == begun) {
			t.Errorf("%s: version %d", c.what, got.Version)
		}
		for _, r := range got.Rooms {
			if old := base.Room(r.Name); old != nil && r.Created != old.Created {
				t.Errorf("%s: %s was created at %d, and now at %d", c.what, r.Name, old.Created, r.Created)
			}
			if r.Revision == 9 && r.Changed != 5000 || r.Created == 0 {
				t.Errorf("%s: %s: %+v", c.what, r.Name, r.Mark)
			}
		}
	}
	if err := NewDraft(base).Delete("nobody"); !errors.Is(err, ErrNotThere) {
		t.Errorf("deleted nobody: %v", err)
	}
}

// A file becomes the authority if it agrees with the store. From then on it decides, until there is none.
func TestTheAuthorityChangesOverTheSameRooms(t *testing.T) {
	store := func(*testing.T) *State {
		return written(t, put(shop("a", 5), shop("b", 5)),
			func(d *Draft) { d.PutHost(room.Host{Name: "h.example", Origin: "http://10.0.0.2"}) })
	}
	same := store(t).Document()
	other := store(t).Document()
	other.Rooms = []room.Settings{shop("a", 6), shop("c", 5)}
	other.Hosts = []room.Host{{Name: "i.example", Origin: "http://10.0.0.2"}}
	for _, c := range []struct {
		what string
		base *State
		doc  room.Document
		want string
		says string // of the error
	}{
		{"an empty store", &State{}, shops("a"), "file: a@9", ""},
		{"nothing in either", &State{}, room.Document{}, "", ""},
		{"a store that says the same", store(t), same, "file: a@1 b@1 host h.example@2", ""},
		{
			"a store that says something else", store(t), other, "",
			`(not in the file: b, host h.example; not in the store: c, host i.example; different: a)`,
		},
		{"a store with more", store(t), shops("a", "b"), "", `(not in the file: host h.example)`},
		{"an empty file", store(t), room.Document{}, "", `(not in the file: a, b, host h.example)`},
		{
			"many", written(t, set(shops("a", "b", "c", "d", "e", "f", "g"))), shops("a"), "",
			`(not in the file: b, c, d, e, f and 1 more)`,
		},
		{"a file that followed before", written(t, follow(same)), other, "file: a@9 c@9 host i.example@9", ""},
		{
			"a file that was emptied before", written(t, follow(same), follow(room.Document{})), other,
			"file: a@9 c@9 host i.example@9", "",
		},
		{"a store that was detached", written(t, follow(same), (*Draft).Detach), other, "", "different: a"},
		{
			"a store that was detached, as it is", written(t, follow(same), (*Draft).Detach), same,
			"file: a@1 b@1 host h.example@1", "",
		},
	} {
		d := NewDraft(c.base)
		err := d.Follow(c.doc)
		if _, ok := errors.AsType[*DiffersError](err); ok != (c.says != "") || ok && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s", c.what, err, c.says)
		}
		got, e := d.Apply(5000, 9)
		if e != nil {
			t.Errorf("%s: %v", c.what, e)
		}
		if err != nil && got != c.base || err == nil && got.String() != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
	if _, ok := errors.AsType[room.Faults](NewDraft(store(t)).Follow(shops("a", "a"))); !ok {
		t.Error("a file with a fault is followed")
	}
}

func mustDelete(t *testing.T, d *Draft, name string) {
	t.Helper()
	testkit.NoError(t, d.Delete(name))
}

// All faults are reported at once, and two conflicting rooms are both named: those of a file by their place in it.
func TestTheWholeIsChecked(t *testing.T) {
	club := shop("x", 5)
	club.AdditionalRoutes = []room.Route{{Host: "both.example", Path: "/sale"}}
	base := written(t, func(d *Draft) {
		put(club)(d)
		d.PutHost(room.Host{Name: "h.example", Origin: "http://10.0.0.2"})
	})
	clash := shop("c", 5)
	clash.Host, clash.Path = "BOTH.example", "/Sale/"
	d := NewDraft(base)
	d.Merge(room.Document{
		Rooms: []room.Settings{shop("a", 0), clash, shop("c", 5)},
		Hosts: []room.Host{{Name: "no host", Origin: "http://10.0.0.3"}},
	})
	_, err := d.Apply(1, 9)
	faults, _ := errors.AsType[room.Faults](err)
	if got := faults.Error(); !strings.HasPrefix(got, `hosts[0] "no host": name: `) || !strings.HasSuffix(got, `
rooms[0] "a": total_active_users: must be 1 to 2147483647, got 0
rooms[1] "c": path: names both.example/Sale, which room "x" covers already
rooms[2] "c": name: is the name of rooms[1] already`) {
		t.Errorf("of a file:\n%v", err)
	}

	d = NewDraft(base)
	mine := shop("m", 5)
	mine.Host = "x.example"
	d.Put(mine)
	if _, err = d.Apply(1, 9); err == nil ||
		err.Error() != `room "m": path: names x.example/, which room "x" covers already` {
		t.Errorf("of one room: %v", err)
	}
}
