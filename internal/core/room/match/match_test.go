package match_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/match"
	"vestibule/internal/lab/testkit"
)

func mustSet(t rapid.TB, doc room.Document) *room.Set {
	t.Helper()
	s := testkit.Must(room.NewSet(doc, 1))(t)
	return s
}

func names(m *room.Match) (all []string) {
	for _, r := range m.Rooms() {
		all = append(all, r.Name)
	}
	return all
}

func TestMatch(t *testing.T) {
	other := valid("annex", "shop.test", "/annex")
	other.Origin = "http://10.0.0.6"
	mobile := valid("mobile", "m.test", "/")
	mobile.AdditionalRoutes = []room.Route{{Host: "shop.test", Path: "/m/"}}
	s := mustSet(t, room.Document{
		Rooms: []room.Settings{
			valid("sale", "shop.test", "/sale"),
			valid("vip", "Shop.Test.", "/sale/vip"),
			valid("upper", "shop.test", "/Sale/Box"),
			valid("cafe", "shop.test", "/caf%c3%a9"),
			valid("space", "shop.test", "/my sale"),
			other, mobile,
			valid("site", "whole.test", "/"),
			valid("part", "whole.test", "/Part"),
			valid("wcafe", "whole.test", "/café"),
			valid("six", "::0001", "/six"),
			valid("one", "many.test", "/1"),
			valid("two", "many.test", "/2"),
			valid("three", "many.test", "/3"),
			valid("four", "many.test", "/4"),
			valid("five", "many.test", "/5"),
		},
		Hosts: []room.Host{
			{Name: "shop.test", Origin: "http://Pass.test:80/"},
			{Name: "static.test", Origin: "https://static.internal"},
		},
	})
	for _, c := range []struct {
		host, path string
		want       []string
		origin     string
		target     string
		refuse     bool
	}{
		{"shop.test", "/", nil, "http://pass.test", "http://pass.test", false},
		{"shop.test", "/sale", []string{"sale"}, "http://pass.test", "http://10.0.0.5:8080", false},
		{"shop.test", "/sale/vip/x", []string{"vip"}, "http://pass.test", "http://10.0.0.5:8080", false},
		{"shop.test", "/sale/vipx", []string{"sale"}, "http://pass.test", "http://10.0.0.5:8080", false},
		{"shop.test", "/sale/VIP", []string{"sale", "vip"}, "http://pass.test", "http://10.0.0.5:8080", false},
		{"shop.test", "/Sale/Box", []string{"upper"}, "http://pass.test", "http://10.0.0.5:8080", false},
		{"shop.test", "/sale/box", []string{"sale", "upper"}, "http://pass.test", "http://10.0.0.5:8080", false},
		{"shop.test", "/SALE/BOX", []string{"upper"}, "http://pass.test", "http://10.0.0.5:8080", false},
		{"shop.test", "/x/../sale/box", []string{"upper", "sale"}, "http://pass.test", "http://10.0.0.5:8080", false},
		{"shop.test", "/annex", []string{"annex"}, "http://pass.test", "http://10.0.0.6", false},
		{"shop.test", "/annex/../sale", []string{"annex", "sale"}, "http://pass.test", "http://10.0.0.6", false},
		{"shop.test", "/sale/../sale/vip", []string{"sale", "vip"}, "http://pass.test", "http://10.0.0.5:8080", false},
		{"shop.test", "/x/../sale/../annex", []string{"annex"}, "http://pass.test", "http://10.0.0.6", false},
		{"shop.test", "/m", []string{"mobile"}, "http://pass.test", "http://10.0.0.5:8080", false},
		{"shop.test", "/my%20sale", []string{"space"}, "http://pass.test", "http://10.0.0.5:8080", false},
		{"shop.test", "/caf%C3%A9/x", []string{"cafe"}, "http://pass.test", "http://10.0.0.5:8080", false},
		{"m.test", "/anything", []string{"mobile"}, "http://10.0.0.5:8080", "http://10.0.0.5:8080", false},
		{"m.test", "/%", []string{"mobile"}, "http://10.0.0.5:8080", "http://10.0.0.5:8080", false},
		{"[::1]:443", "/six", []string{"six"}, "http://10.0.0.5:8080", "http://10.0.0.5:8080", false},
		{"static.test", "/sale", nil, "https://static.internal", "https://static.internal", false},
		{"static.test", "/%zz", nil, "https://static.internal", "https://static.internal", false},
		// Honest requests for the more specific of two rooms are gated once, in every required spelling.
		{"whole.test", "/x", []string{"site"}, "http://10.0.0.5:8080", "http://10.0.0.5:8080", false},
		{"whole.test", "/Part/x", []string{"part"}, "http://10.0.0.5:8080", "http://10.0.0.5:8080", false},
		{"whole.test", "/part/x", []string{"site", "part"}, "http://10.0.0.5:8080", "http://10.0.0.5:8080", false},
		{"whole.test", "/caf%C3%A9", []string{"wcafe"}, "http://10.0.0.5:8080", "http://10.0.0.5:8080", false},
		{"whole.test", "/caf%c3%a9/x", []string{"wcafe"}, "http://10.0.0.5:8080", "http://10.0.0.5:8080", false},
		{"whole.test", "/café", []string{"wcafe"}, "http://10.0.0.5:8080", "http://10.0.0.5:8080", false},
		{"whole.test", "/%", []string{"site", "wcafe", "part"}, "http://10.0.0.5:8080", "http://10.0.0.5:8080", false},
		{"many.test", "/3", []string{"three"}, "http://10.0.0.5:8080", "http://10.0.0.5:8080", false},
		{"many.test", "/3%00", nil, "http://10.0.0.5:8080", "http://10.0.0.5:8080", true},
	} {
		m := s.Match(c.host, c.path)
		if !m.Known || m.Refuse != c.refuse || m.Origin != c.origin {
			t.Errorf("Match(%q, %q) = known %v, refuse %v, origin %s", c.host, c.path, m.Known, m.Refuse, m.Origin)
		}
		if got := names(&m); !c.refuse && !slices.Equal(got, c.want) {
			t.Errorf("Match(%q, %q) gates by %v, want %v", c.host, c.path, got, c.want)
		}
		if m.Target() != c.target {
			t.Errorf("Match(%q, %q) goes to %s, want %s", c.host, c.path, m.Target(), c.target)
		}
		if c.refuse && len(m.Rooms()) == 0 {
			t.Errorf("Match(%q, %q) is refused, but open to who forgets to ask", c.host, c.path)
		}
	}
}

// TestMatchOrder has a room that gates by two of its paths: the longer counts.
func TestMatchOrder(t *testing.T) {
	a := valid("a", "x.test", "/b")
	a.AdditionalRoutes = []room.Route{{Host: "x.test", Path: "/longest"}}
	s := mustSet(t, room.Document{Rooms: []room.Settings{a, valid("b", "x.test", "/mid"), valid("c", "x.test", "/c")}})
	m := s.Match("x.test", "/c/../b/%2e%2e/mid/%252e%252e/longest")
	if got := names(&m); !slices.Equal(got, []string{"c", "a", "b"}) {
		t.Errorf("gated by %v", got)
	}
}

// TestMatchEndsAtSegments: the set's longest path is only a textual prefix of the request's path, not of its
// segments.
func TestMatchEndsAtSegments(t *testing.T) {
	s := mustSet(t, room.Document{Rooms: []room.Settings{valid("sale", "x.test", "/sale")}})
	for path, want := range map[string]int{
		"/sales": 0, "/SALES": 0, "/SALE": 1, "/SALE/": 1, "/SALE/X": 1, "/sal": 0, "/SAL": 0, "/": 0, "/%73ales": 0,
		"/x/../SALES": 0,
	} {
		if m := s.Match("x.test", path); len(m.Rooms()) != want {
			t.Errorf("%s is gated by %v", path, names(&m))
		}
	}
}

func TestMatchOfEmptySets(t *testing.T) {
	for _, s := range []*room.Set{nil, {}, mustSet(t, room.Document{})} {
		if m := s.Match("shop.test", "/"); m != (room.Match{}) || m.Rooms() == nil && len(m.Rooms()) != 0 {
			t.Errorf("Match = %+v", m)
		}
	}
}

// randomDoc draws a valid document of neighbouring rooms.
func randomDoc() *rapid.Generator[room.Document] {
	segment := rapid.SampledFrom([]string{
		"sale", "Sale", "SALE", "vip", "a", "b", "é", "É", "my sale", "k", "a.test",
		"s%61le",
	})
	host := rapid.SampledFrom([]string{"a.test", "B.test", "c.test"})
	return rapid.Custom(func(t *rapid.T) room.Document {
		var doc room.Document
		for _, h := range []string{"a.test", "b.test", "c.test"} {
			if rapid.Bool().Draw(t, "pass") {
				doc.Hosts = append(doc.Hosts, room.Host{Name: h, Origin: "http://pass." + h})
			}
		}
		route := func() room.Route {
			path := ""
			for _, seg := range rapid.SliceOfN(segment, 0, 3).Draw(t, "segments") {
				path += "/" + seg
			}
			return room.Route{Host: host.Draw(t, "host"), Path: path}
		}
		for i := range rapid.IntRange(0, 8).Draw(t, "rooms") {
			r := route()
			s := valid(fmt.Sprintf("room%d", i), r.Host, r.Path)
			for range rapid.IntRange(0, 2).Draw(t, "routes") {
				s.AdditionalRoutes = append(s.AdditionalRoutes, route())
			}
			next := doc
			next.Rooms = append(slices.Clone(doc.Rooms), s)
			if len(next.Validate()) == 0 {
				doc = next
			}
		}
		return doc
	})
}

func checkLikeTwin(t rapid.TB, s *room.Set, doc room.Document, host, path string) {
	m := s.Match(host, path)
	want := twinMatchOf(t, doc, host, path)
	got := twinMatch{Known: m.Known, Refuse: m.Refuse, Origin: m.Origin, Rooms: names(&m)}
	if want.Refuse && len(want.Rooms) > match.Most {
		got.Rooms, want.Rooms = nil, nil // the choice of four is not specified
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("Match(%q, %q) of %v:\n%s", host, path, doc.Rooms, diff)
	}
}

func TestMatchLikeTwin(t *testing.T) {
	hosts := rapid.SampledFrom([]string{"a.test", "b.test", "c.test", "A.test:80", "d.test", "b.test."})
	rapid.Check(t, func(t *rapid.T) {
		doc := randomDoc().Draw(t, "doc")
		s := testkit.Must(room.NewSet(doc, 1))(t)
		for range 30 {
			checkLikeTwin(t, s, doc, hosts.Draw(t, "host"), nastyPath().Draw(t, "path"))
		}
	})
}

func FuzzMatch(f *testing.F) {
	doc := attackDoc
	doc.Rooms = append(slices.Clone(doc.Rooms),
		valid("vip", "shop.test", "/Sale/vip"), valid("cafe", "shop.test", "/café"), valid("site", "whole.test", "/"))
	s := mustSet(f, doc)
	for _, a := range pathAttacks {
		f.Add("shop.test", a.path)
		f.Add("whole.test", a.path)
	}
	for _, a := range hostAttacks {
		f.Add(a.host, "/sale")
		f.Add("static.test", "//"+a.host+"/sale")
	}
	f.Fuzz(func(t *testing.T, host, path string) {
		if len(path) > 200 {
			return // the twin is slow
		}
		checkLikeTwin(t, s, doc, host, path)
	})
}

func TestMatchDoesNotAllocate(t *testing.T) {
	s := mustSet(t, attackDoc)
	for _, c := range [][2]string{
		{"shop.test", "/sale/x"},
		{"shop.test", "/assets/css/main-3f2a.min.css"},
		{"shop.test:443", "/Sale/Mixed/Case"},
		{"unknown.test", "/sale"},
	} {
		gated := 0
		if n := testing.AllocsPerRun(100, func() {
			m := s.Match(c[0], c[1])
			gated += len(m.Rooms())
		}); n != 0 {
			t.Errorf("Match(%q, %q) allocates %v times", c[0], c[1], n)
		}
	}
}

// TestRoomPathsArePlain: a valid room path has one reading once decoded, so the extent of a room is unambiguous.
func TestRoomPathsArePlain(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		path := nastyPath().Draw(t, "path")
		key, rule := match.Key(path)
		if rule != "" {
			return
		}
		accepted++
		if all := twinReadings(key); len(all) != 1 {
			t.Fatalf("the path %q is held as %q, which has the readings %v", path, key, all)
		}
		if again, rule := match.Key(key); rule != "" || again != key {
			t.Fatalf("the path %q is held as %q, which is held as %q (%s)", path, key, again, rule)
		}
	})
	if accepted == 0 {
		t.Error("no path was accepted")
	}
}

// TestDefaultsAreStable: filling in defaults is idempotent, and keeps a valid document valid.
func TestDefaultsAreStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := randomDoc().Draw(t, "doc")
		once := doc.WithDefaults()
		if diff := cmp.Diff(once, once.WithDefaults()); diff != "" {
			t.Fatal(diff)
		}
		if fs := once.Validate(); len(fs) > 0 {
			t.Fatal(fs)
		}
	})
}
