package room

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/lab/testkit"
)

func TestDocumentFaults(t *testing.T) {
	at := func(s Settings, origin string) Settings { s.Origin = origin; return s }
	also := func(s Settings, routes ...Route) Settings { s.AdditionalRoutes = routes; return s }
	for _, c := range []struct {
		name string
		doc  Document
		want string // the faults, one a line
	}{
		{"empty", Document{}, ""},
		{"one origin", Document{Rooms: []Settings{
			at(valid("a", "x.test", "/a"), "http://o:80"), at(valid("b", "X.test", "/b"), "HTTP://O/"),
		}}, ""},
		{"fields", Document{Rooms: []Settings{valid("a", "x.test", "/a"), {Name: "b", Host: "x.test", TotalActiveUsers: 1}}}, `
rooms[1] "b": new_users_per_minute: must be 1 to 2147483647, got 0
rooms[1] "b": origin: is required`},
		{"no name", Document{Rooms: []Settings{valid("", "x.test", "/a")}}, `
rooms[0]: name: is required`},
		{"names", Document{Rooms: []Settings{valid("a", "x.test", "/a"), valid("b", "x.test", "/b"), valid("a", "x.test", "/c")}}, `
rooms[2] "a": name: is the name of rooms[0] already`},
		{"paths", Document{Rooms: []Settings{
			valid("a", "x.test", "/sale"),
			valid("b", "X.TEST.", "/SALE/"),
			also(valid("c", "y.test", "/"), Route{"x.test", "/s%61le"}, Route{"y.test", ""}),
		}}, `
rooms[1] "b": path: names x.test/SALE, which rooms[0] "a" covers already
rooms[2] "c": additional_routes[0].path: names x.test/sale, which rooms[0] "a" covers already
rooms[2] "c": additional_routes[1].path: names y.test/ a second time`},
		{"a broken room does not take part", Document{Rooms: []Settings{
			valid("a", "x.test", "sale"), valid("b", "x.test", "/sale"), at(valid("c", "x.test", "/c"), "nonsense"),
			valid("d", "", "/sale"),
		}}, `
rooms[0] "a": path: must begin with a slash, got "sale"
rooms[2] "c": origin: must be an absolute URL such as http://10.0.0.5:8080, got "nonsense"
rooms[3] "d": host: is required`},
		{"origins", Document{Rooms: []Settings{
			also(at(valid("a", "x.test", "/a"), "http://o"), Route{"y.test", "/"}),
			at(valid("b", "x.test", "/b"), "http://p"),
			at(valid("c", "x.test", "/c"), "http://q"), // said once a host
			at(valid("d", "z.test", "/d"), "http://p"),
			also(at(valid("e", "z.test", "/e"), "http://p"), Route{"y.test", "/e"}),
		}}, `
rooms[1] "b": origin: differs from that of rooms[0] "a", so x.test needs an entry in hosts that says where paths no room covers go
rooms[4] "e": origin: differs from that of rooms[0] "a", so y.test needs an entry in hosts that says where paths no room covers go`},
		{"origins with an entry", Document{
			Rooms: []Settings{at(valid("a", "x.test", "/a"), "http://o"), at(valid("b", "x.test", "/b"), "http://p")},
			Hosts: []Host{{"X.test", "http://q"}, {"static.test", "http://q"}},
		}, ""},
		{"hosts", Document{
			Rooms: []Settings{at(valid("a", "x.test", "/a"), "http://o"), at(valid("b", "x.test", "/b"), "http://p")},
			Hosts: []Host{{"x.test", "http://169.254.169.254"}, {"y.test:80", ""}, {"X.test", "http://a"}},
		}, `
hosts[0] "x.test": origin: must not be a link-local, metadata, multicast or unspecified address, got "http://169.254.169.254"
hosts[1] "y.test:80": name: must not have a port: a room covers its host on every port, got "y.test:80"
hosts[1] "y.test:80": origin: is required
hosts[2] "x.test": name: has an entry already`},
		{"too many rooms", Document{Rooms: make([]Settings, MaxRooms+1)}, "\nrooms: must be at most 10000, got 10001"},
		{"too many hosts", Document{Hosts: make([]Host, MaxRooms+1)}, "\nhosts: must be at most 10000, got 10001"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := "\n" + c.doc.Validate().Error()
			if len(c.doc.Validate()) == 0 {
				got = ""
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			s, err := NewSet(c.doc, 7)
			if (err == nil) != (c.want == "") || (s == nil) == (err == nil) {
				t.Errorf("NewSet = %v, %v", s, err)
			}
			if err != nil && "\n"+err.Error() != got {
				t.Errorf("NewSet fails with other faults: %v", err)
			}
		})
	}
}

// TestIDsAreUnique uses a hash that collides, since SHA-256 will not.
func TestIDsAreUnique(t *testing.T) {
	doc := Document{Rooms: []Settings{valid("a", "x.test", "/a"), valid("b", "x.test", "/b")}}
	fs := doc.validate(func(string) ID { return 1 }, Labels{})
	if len(fs) != 1 || fs[0].String() != `rooms[1] "b": name: has the same ID as rooms[0] "a", choose another` {
		t.Errorf("faults %v", fs)
	}
}

func TestFaultString(t *testing.T) {
	f := Fault{
		Line: 7, Item: "rooms[2]", Name: "tickets", Field: "total_active_users",
		Rule: "must be 1 to 2147483647, got 0",
	}
	if got, want := f.Error(),
		`line 7: rooms[2] "tickets": total_active_users: must be 1 to 2147483647, got 0`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := (Faults{}).Err(); err != nil {
		t.Errorf("no faults are the error %v", err)
	}
}

func TestSet(t *testing.T) {
	doc := Document{}
	for i := range 100 {
		doc.Rooms = append(doc.Rooms, valid(fmt.Sprintf("room-%d", i), "X.test", fmt.Sprintf("/%d", i)))
	}
	doc.Rooms[5].AdditionalRoutes = []Route{{Host: "Y.test"}}
	s := mustSet(t, doc)
	doc.Rooms[5].AdditionalRoutes[0].Host = "changed.test"

	if s.Version() != 1 || len(s.Rooms()) != 100 {
		t.Fatalf("version %d, %d rooms", s.Version(), len(s.Rooms()))
	}
	for i, r := range s.Rooms() {
		if r.Index != i || r.ID != IDOf(r.Name) || i > 0 && s.Rooms()[i-1].ID >= r.ID {
			t.Errorf("room %d is %+v", i, r)
		}
		if s.ByID(r.ID) != r || s.ByName(r.Name) != r {
			t.Errorf("room %s is not found", r.Name)
		}
		if r.Host != "x.test" || r.SessionDuration != 5*time.Minute || r.QueueingStatus != 200 {
			t.Errorf("room %s lacks its defaults: %+v", r.Name, r.Settings)
		}
	}
	if got := s.ByName("room-5").AdditionalRoutes; !slices.Equal(got, []Route{{"y.test", "/"}}) {
		t.Errorf("routes %v", got)
	}
	if s.ByID(1) != nil || s.ByName("nobody") != nil {
		t.Error("found rooms that are not there")
	}
	var none *Set
	if none.Version() != 0 || none.Rooms() != nil || none.ByID(1) != nil || none.ByName("a") != nil {
		t.Error("a nil set is not empty")
	}
}

// TestNewSetAtTheLimit checks that the largest document is taken.
func TestNewSetAtTheLimit(t *testing.T) {
	doc := Document{}
	for i := range MaxRooms {
		doc.Rooms = append(doc.Rooms, valid(fmt.Sprintf("room-%d", i), "x.test", "/"+strings.Repeat("a", i%7)+fmt.Sprint(i)))
	}
	if s := mustSet(t, doc); len(s.Rooms()) != MaxRooms {
		t.Errorf("%d rooms", len(s.Rooms()))
	}
}

func TestRenamed(t *testing.T) {
	set := testkit.Must(NewSet(Document{Rooms: []Settings{valid("a", "x.test", "/a"), valid("b", "x.test", "/b")}}, 1))(t)
	next := Document{Rooms: []Settings{
		valid("a", "x.test", "/a"), valid("sale", "X.test", "/b"),
		valid("new", "x.test", "/c"),
	}}
	if got, want := set.Renamed(next), map[string]string{"sale": "b"}; !cmp.Equal(got, want) {
		t.Errorf("renamed %v, want %v", got, want)
	}
	if got := (*Set)(nil).Renamed(next); len(got) != 0 {
		t.Errorf("renamed %v where there was no set", got)
	}
}

// TestARenamedRoomIsTheSameRoom: by its identity, which is what tickets know it by.
func TestARenamedRoomIsTheSameRoom(t *testing.T) {
	one := Settings{
		Name: "fair", Identity: "shop", Host: "a.example", Origin: "http://10.0.0.1", TotalActiveUsers: 1,
		NewUsersPerMinute: 1,
	}
	set, err := NewSet(Document{Rooms: []Settings{one}}, 1)
	if err != nil || set.ByName("fair").ID != IDOf("shop") || set.ByName("fair").TicketName() != "shop" {
		t.Fatalf("%+v %v", set, err)
	}
	if one.Identity = "fair"; one.WithDefaults().Identity != "" {
		t.Error("a room whose identity is its name says so")
	}
	one.Identity = "shop"
	other := one
	other.Name, other.Identity, other.Path = "shop", "", "/other"
	faults := Document{Rooms: []Settings{one, other}}.Validate()
	if len(faults) != 1 || faults[0].Field != "name" {
		t.Errorf("two rooms that tickets cannot tell apart: %v", faults)
	}
	if got := set.Renamed(Document{Rooms: []Settings{{
		Name: "again", Identity: "shop",
		Host: "a.example",
	}}}); len(got) != 0 {
		t.Errorf("asked to begin anew: %v", got)
	}
}
