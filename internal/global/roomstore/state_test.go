package roomstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vestibule/internal/core/room"
)

// shop is a room of its own host.
func shop(name string, total int) room.Settings {
	return room.Settings{Name: name, Host: name + ".example", TotalActiveUsers: total, NewUsersPerMinute: 10, Origin: "http://10.0.0.1"}
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
		by := File
		if i%2 == 1 {
			by = API
		}
		d := NewDraft(s, by)
		changes[i](d)
		next, err := d.Apply(int64(1000+i), uint64(i+1))
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	return s
}

func put(rooms ...room.Settings) func(*Draft) {
	return func(d *Draft) {
		for _, r := range rooms {
			if err := d.Put(r); err != nil {
				panic(err)
			}
		}
	}
}

func set(d room.Document) func(*Draft) { return func(w *Draft) { w.Set(d) } }

func (s *State) String() string {
	var b strings.Builder
	for _, r := range s.Rooms {
		fmt.Fprintf(&b, "%s:%s@%d ", r.Owner, r.Name, r.Revision)
	}
	for _, h := range s.Hosts {
		fmt.Fprintf(&b, "%s:host %s@%d ", h.Owner, h.Name, h.Revision)
	}
	return strings.TrimSpace(b.String())
}

func TestEachOwnerChangesItsPartAlone(t *testing.T) {
	base := written(t, set(shops("a", "b")), put(shop("x", 5), shop("y", 5)))
	const begun = "file:a@1 file:b@1 api:x@2 api:y@2"
	for _, c := range []struct {
		what string
		by   Owner
		edit func(*Draft)
		want string
	}{
		{"nothing", API, func(*Draft) {}, begun},
		{"the file as it was", File, set(shops("b", "a")), begun},
		{"one room of the file more", File, set(shops("a", "b", "c")), "file:a@1 file:b@1 file:c@9 api:x@2 api:y@2"},
		{"one less", File, set(shops("b")), "file:b@1 api:x@2 api:y@2"},
		{"an empty file", File, set(room.Document{}), "api:x@2 api:y@2"},
		{"another total", File, set(room.Document{Rooms: []room.Settings{shop("a", 6), shop("b", 5)}}), "file:a@9 file:b@1 api:x@2 api:y@2"},
		{"a room of the API more", API, put(shop("c", 5)), "file:a@1 file:b@1 api:c@9 api:x@2 api:y@2"},
		{"the same room again", API, put(shop("x", 5)), begun},
		{"changed", API, put(shop("x", 7)), "file:a@1 file:b@1 api:x@9 api:y@2"},
		{"changed and back", API, put(shop("x", 7), shop("x", 5)), "file:a@1 file:b@1 api:x@9 api:y@2"},
		{"deleted", API, func(d *Draft) { mustDelete(t, d, "x") }, "file:a@1 file:b@1 api:y@2"},
		{"renamed", API, func(d *Draft) { mustDelete(t, d, "x"); put(shop("z", 5))(d) }, "file:a@1 file:b@1 api:y@2 api:z@9"},
		{"a host", API, func(d *Draft) { d.SetHosts([]room.Host{{Name: "h.example", Origin: "http://10.0.0.2"}}) }, begun + " api:host h.example@9"},
		{"all for the API", API, func(d *Draft) { d.TakeOver() }, "api:a@9 api:b@9 api:x@2 api:y@2"},
		{"all for the file", File, func(d *Draft) { d.TakeOver(); d.TakeOver() }, "file:a@1 file:b@1 file:x@9 file:y@9"},
	} {
		d := NewDraft(base, c.by)
		c.edit(d)
		got, err := d.Apply(5000, 9)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		want := strings.Fields(c.want)
		have := strings.Fields(got.String())
		slices.Sort(want)
		slices.Sort(have)
		if !slices.Equal(want, have) {
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
}

func mustDelete(t *testing.T, d *Draft, name string) {
	t.Helper()
	if err := d.Delete(name); err != nil {
		t.Fatal(err)
	}
}

func TestWhatSomebodyElseOwnsIsRefusedByName(t *testing.T) {
	base := written(t, set(shops("a")), put(shop("x", 5)))
	for _, c := range []struct {
		by   Owner
		name string
		want string
	}{
		{API, "a", `"a" stands in the rooms file: change it there`},
		{File, "x", `"x" was made by the API: change it there`},
	} {
		d := NewDraft(base, c.by)
		for what, err := range map[string]error{"put": d.Put(shop(c.name, 9)), "delete": d.Delete(c.name)} {
			if owned, ok := errors.AsType[*OwnedError](err); !ok || err.Error() != c.want || owned.Owner == c.by {
				t.Errorf("%s %s by %s: %v", what, c.name, c.by, err)
			}
		}
		if got, err := d.Apply(1, 9); err != nil || got != base {
			t.Errorf("by %s: %v, %v", c.by, got, err)
		}
	}
	if err := NewDraft(base, API).Delete("nobody"); !errors.Is(err, ErrNotThere) {
		t.Errorf("deleted nobody: %v", err)
	}
}

// Everything that is wrong is told at once, and where two owners meet both are named.
func TestTheWholeIsChecked(t *testing.T) {
	api := shop("x", 5)
	api.AdditionalRoutes = []room.Route{{Host: "both.example", Path: "/sale"}}
	base := written(t, set(shops("a")), func(d *Draft) {
		put(api)(d)
		d.SetHosts([]room.Host{{Name: "h.example", Origin: "http://10.0.0.2"}})
	})
	clash := shop("c", 5)
	clash.Host, clash.Path = "BOTH.example", "/Sale/"
	d := NewDraft(base, File)
	d.Set(room.Document{
		Rooms: []room.Settings{shop("a", 0), shop("x", 5), clash, shop("c", 5)},
		Hosts: []room.Host{{Name: "h.example", Origin: "http://10.0.0.3"}},
	})
	_, err := d.Apply(1, 9)
	faults, _ := errors.AsType[room.Faults](err)
	want := `hosts[0] "h.example": name: has an entry already: an entry of the API
rooms[0] "a": total_active_users: must be 1 to 2147483647, got 0
rooms[1] "x": name: is the name of a room of the API already
rooms[1] "x": path: names x.example/, which a room of the API "x" covers already
rooms[2] "c": path: names both.example/Sale, which a room of the API "x" covers already
rooms[3] "c": name: is the name of rooms[2] already`
	if faults.Error() != want {
		t.Errorf("by the file:\n%v\nwant\n%s", err, want)
	}

	d = NewDraft(base, API)
	mine := shop("m", 5)
	mine.Host = "a.example"
	put(mine)(d)
	if _, err = d.Apply(1, 9); err == nil || err.Error() != `room "m": path: names a.example/, which a room of the rooms file "a" covers already` {
		t.Errorf("by the API: %v", err)
	}
	// What one writer takes away may be what a room of the other needs.
	needs := shop("n", 5)
	needs.Host, needs.Path, needs.Origin = "a.example", "/n", "http://10.0.0.9"
	base = written(t, func(d *Draft) {
		d.Set(room.Document{Rooms: shops("a").Rooms, Hosts: []room.Host{{Name: "a.example", Origin: "http://10.0.0.1"}}})
	}, put(needs))
	d = NewDraft(base, File)
	d.Set(shops("a"))
	if _, err = d.Apply(1, 9); err == nil || !strings.Contains(err.Error(), `rooms[0] "a": origin: differs from that of a room of the API "n"`) {
		t.Errorf("without the entry: %v", err)
	}
}

func TestDiff(t *testing.T) {
	before := written(t, set(shops("a", "b")), put(shop("x", 5)))
	d := NewDraft(before, File)
	d.Set(room.Document{Rooms: []room.Settings{shop("b", 6), shop("c", 5)}})
	after, err := d.Apply(1, 9)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range Diff(before, after) {
		got = append(got, fmt.Sprintf("%s %t %t", c.Name, c.Before != nil, c.After != nil))
	}
	if !slices.Equal(got, []string{"a true false", "b true true", "c false true"}) {
		t.Errorf("got %v", got)
	}
	if n := len(Diff(after, after)); n != 0 {
		t.Errorf("%d differences to itself", n)
	}
}
