package match_test

import (
	"slices"
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/match"
)

// attackDoc has one room to attack and one beside it, which distinguishes a path gated because a reading matches
// the room from one gated because it is ambiguous.
var attackDoc = room.Document{
	Rooms: []room.Settings{
		valid("sale", "shop.test", "/sale"),
		valid("other", "shop.test", "/other/room"),
	},
	Hosts: []room.Host{{Name: "static.test", Origin: "http://10.0.0.9"}},
}

func valid(name, host, path string) room.Settings {
	return room.Settings{
		Name: name, Host: host, Path: path,
		TotalActiveUsers: 1000, NewUsersPerMinute: 600, Origin: "http://10.0.0.5:8080",
	}
}

type how int

const (
	reads  how = iota // some reading is under /sale
	opaque            // unreadable: every room gates
)

// pathAttacks are spellings for which some origin serves content under /sale. The room must gate each.
var pathAttacks = []struct {
	path string
	how  how
}{
	// Literal.
	{"/sale", reads},
	{"/sale/", reads},
	{"/sale/x", reads},
	{"/sale/../x", reads}, // an origin that does not resolve dots
	// Empty segments.
	{"//sale", reads},
	{"///sale", reads},
	{"/sale//x", reads},
	{"////sale////", reads},
	// Dot segments.
	{"/./sale", reads},
	{"/x/../sale", reads},
	{"/../sale", reads},
	{"/../../../sale", reads},
	{"/x/y/../../sale/z", reads},
	{"/x//../sale", reads},
	{"/x/.//../sale", reads},
	// Escapes.
	{"/s%61le", reads},
	{"/%73%61%6c%65", reads},
	{"/%73%61%6C%65/x", reads},
	{"/%2e/sale", reads},
	{"/x/%2e%2e/sale", reads},
	{"/x/.%2e/sale", reads},
	{"/x/%2E./sale", reads},
	{"/%2fsale", reads},
	{"/x%2f..%2fsale", reads},
	{"/x/..%2Fsale", reads},
	{"/x%2fy/../s%61le", reads}, // an origin that keeps %2f in its segment
	{"/x%2fy/%2e%2e/sale", reads},
	{"/x%5cy/%2e%2e/sale", reads},
	{"/sale%2fx", reads},
	{"/sale%2f", reads},
	// Double and more.
	{"/s%2561le", reads},
	{"/s%252561le", reads},
	{"/x/%252e%252e/sale", reads},
	{"/x%252f..%252fsale", reads},
	{"/%252fsale", reads},
	{"/x%25252f..%25252fsale", reads},
	// Backslashes.
	{`/\sale`, reads},
	{`/x\..\sale`, reads},
	{"/x/..%5csale", reads},
	{"/x%5c..%5csale", reads},
	{"/x/..%255csale", reads},
	{`/sale\x`, reads},
	{"/sale%5Cx", reads},
	// Parameters.
	{"/sale;x", reads},
	{"/sale;x=1/y", reads},
	{"/;a=b/sale", reads},
	{"/x/..;/sale", reads},
	{"/x/..;v=1/sale", reads},
	{"/sale%3bx", reads},
	{"/x/..%3b/sale", reads},
	{"/x/%2e%2e;/sale", reads},
	{"/.;/sale", reads},
	// A query or fragment that begins too early.
	{"/sale%3fx", reads},
	{"/sale%23x", reads},
	{"/sale#x", reads},
	{"/sale%253Fx", reads},
	// Letter case.
	{"/SALE", reads},
	{"/Sale/x", reads},
	{"/sAlE", reads},
	{"/%53ALE", reads},
	{"/x/../SALE", reads},
	{"/ſale", reads}, // upper-cases to SALE
	{"/%C5%BFale", reads},
	// Compatibility forms and invisible characters.
	{"/ｓａｌｅ", reads},
	{"/%EF%BD%93ale", reads},
	{"/%EF%BC%B3ALE", reads},
	{"/x/．．/sale", reads},
	{"/x/%EF%BC%8E%EF%BC%8E/sale", reads},
	{"/x%EF%BC%8F..%EF%BC%8Fsale", reads},
	{"/x／..／sale", reads},
	{"/x/‥/sale", reads},
	{"/x%E2%88%95..%E2%88%95sale", reads},
	{"/%EF%BC%8573ale", reads},
	{"/𝓼𝓪𝓵𝓮", reads},
	{"/sa%E2%80%8Ble", reads},
	{"/sa%C2%ADle", reads},
	// The network-path form.
	{"//evil.test/sale", reads},
	{"//evil.test:80/sale", reads},
	{"//shop.test/sale", reads},
	{"///evil.test/sale", reads},
	{`/\evil.test/sale`, reads},
	{"/%2fevil.test/sale", reads},
	{"//user@evil.test/sale", reads},
	{"//evil.test;x/sale", reads},
	// Names read by Windows, and ASP.NET.
	{"/sale.", reads},
	{"/sale%20", reads},
	{"/sale%2e", reads},
	{"/sale.../x", reads},
	{"/sale%20.%20/x", reads},
	{"/sale::$DATA", reads},
	{"/sale:$i30:$INDEX_ALLOCATION/x", reads},
	{"/x/..%20/sale", reads},
	{"/(S(abc))/sale", reads},
	{"/(A(b)F(c))/sale", reads},
	{"/sa/(S(abc))le", reads},
	{"/sale/(S(abc))", reads},
	// Several at once.
	{"/x/%252e%252e;a=1%255cSALE", reads},
	{"/x;y/%2e%2e;z//s%61le;w", reads},
	{`/X\%2e%2e//;a/SA%4cE`, reads},
	// Unreadable paths.
	{"/sale%00", opaque},
	{"/sale%00.jpg", opaque},
	{"/x%00/../sale", opaque},
	{"/sale%2500", opaque},
	{"/sale\x00", opaque},
	{"/sale%0a", opaque},
	{"/sale%0d%0aX:%20y", opaque},
	{"/sale%09", opaque},
	{"/x\tsale", opaque},
	{"/%c0%afsale", opaque},
	{"/x/%c0%ae%c0%ae/sale", opaque},
	{"/x/..%c1%9csale", opaque},
	{"/%e0%80%afsale", opaque},
	{"/%f0%80%80%afsale", opaque},
	{"/%25c0%25afsale", opaque},
	{"/s%u0061le", opaque},
	{"/%u2215sale", opaque},
	{"/s%6", opaque},
	{"/s%zzle", opaque},
	{"/%", opaque},
	{"/\xff", opaque},
	{"", opaque},
	{"*", opaque},
	{"sale", opaque},
	{`\sale`, opaque},
	{"http://shop.test/sale", opaque},
	{"/%2525252e/%25252e%2e/a;%2525;b//c/d%5c%2525/../SALE", opaque}, // too many readings
}

func gatesSale(t testing.TB, s *room.Set, host, path string) (by how, ok bool) {
	t.Helper()
	m := s.Match(host, path)
	if !m.Known {
		t.Fatalf("%q %q: host unknown", host, path)
	}
	for _, r := range m.Rooms() {
		switch r.Name {
		case "sale":
			ok = true
		case "other":
			by = opaque
		}
	}
	return by, ok
}

func TestPathAttacks(t *testing.T) {
	s := mustSet(t, attackDoc)
	seen := make(map[string]bool)
	for _, a := range pathAttacks {
		if seen[a.path] {
			t.Errorf("%q stands here twice", a.path)
		}
		seen[a.path] = true
		by, ok := gatesSale(t, s, "shop.test", a.path)
		if !ok {
			t.Errorf("%q passes the room", a.path)
		} else if by != a.how {
			t.Errorf("%q is gated by the wrong rule: %d, want %d", a.path, by, a.how)
		}
	}
	t.Logf("%d path spellings", len(pathAttacks))
}

// TestStepsAreNeeded removes the steps one by one: the attacks that need the step must then get through. It shows
// that the table above can fail.
func TestStepsAreNeeded(t *testing.T) {
	s := mustSet(t, attackDoc)
	for i := range match.Steps() {
		restore := match.WithoutStep(i)
		through := slices.ContainsFunc(pathAttacks, func(a struct {
			path string
			how  how
		},
		) bool {
			_, ok := gatesSale(t, s, "shop.test", a.path)
			return !ok
		})
		restore()
		if !through {
			t.Errorf("no attack needs step %d", i)
		}
	}
}

// TestHonestPaths checks that paths that no origin reads as under /sale are not gated.
func TestHonestPaths(t *testing.T) {
	s := mustSet(t, attackDoc)
	for _, path := range []string{
		"/", "/sales", "/salesman/x", "/sal", "/sale-2", "/sale_x", "/sale.json", "/saleé", "/x/sale", "/x//sale",
		"/x/./sale",
		"/other", "/other/rooms", "/%73ales", "/SALES", "/x%2fsale", `/x\sale`, "/sales;sale", "/x/sale;y",
		"/sale/../../x/../sales/sale/.."[5:],
		"/caf%C3%A9/%E8%B2%A9%E5%A3%B2", "/100%25", "/50%25-off/shoes", "/a%20b/c%20d", "/Foo_(bar)", "/wiki/Talk:Foo",
		"/.well-known/x", "/(S)/sale",
		"/assets/Main-3f2a.min.js", "/a;jsessionid=1F", "/x/..hidden/sale", "/@scope/pkg", "/a+b", "/$sale", "/ｓales",
	} {
		if m := s.Match("shop.test", path); m.Refuse || len(m.Rooms()) > 0 {
			t.Errorf("%q is gated by %v, refused %v", path, names(&m), m.Refuse)
		}
	}
}

// hostAttacks are spellings of the host of a request for /sale. Each must be gated or unknown: an unknown host is
// never forwarded.
var hostAttacks = []struct {
	host  string
	known bool
}{
	{"shop.test", true},
	{"SHOP.TEST", true},
	{"Shop.Test", true},
	{"shop.test.", true},
	{"SHOP.test.", true},
	{"shop.test:80", true},
	{"shop.test:443", true},
	{"shop.test:8080", true},
	{"shop.test.:80", true},
	{"ShOp.TeSt.:65535", true},
	{"shop.test:", true},
	{"shop.test:0", true},
	{"", false},
	{".", false},
	{":80", false},
	{"shop.test..", false},
	{".shop.test", false},
	{"shop..test", false},
	{"shop.test,shop.test", false},
	{"static.test,shop.test", false},
	{"shop.test, static.test", false},
	{"static.test shop.test", false},
	{" shop.test", false},
	{"shop.test ", false},
	{"shop.test\t", false},
	{"shop.test\x00", false},
	{"shop.test\r\nX: y", false},
	{"user@shop.test", false},
	{"user:pw@shop.test", false},
	{"static.test:80@shop.test", false},
	{"shop.test:80@static.test", false},
	{"shop.test:80:80", false},
	{"shop.test:999999", false},
	{"shop.test:8o", false},
	{"shop.test:-1", false},
	{"shop.test:+80", false},
	{"shop.test: 80", false},
	{"shop.test/", false},
	{"shop.test/sale", false},
	{"shop.test?", false},
	{"shop.test#", false},
	{`shop.test\`, false},
	{"shop.test%00", false},
	{"shop%2etest", false},
	{"%73hop.test", false},
	{"http://shop.test", false},
	{"//shop.test", false},
	{"[shop.test]", false},
	{"shop.test]", false},
	{"ｓhop.test", false},
	{"shop。test", false},
	{"shop．test", false},
	{"ſhop.test", false},
	{"shop.tes\u200bt", false},
	{"*.test", false},
	{"shop_.test", false},
	{"www.shop.test", false},
	{"test", false},
	{"127.0.0.1", false},
	{"[::1]", false},
}

func TestHostAttacks(t *testing.T) {
	s := mustSet(t, attackDoc)
	for _, a := range hostAttacks {
		m := s.Match(a.host, "/sale")
		switch {
		case m.Known != a.known:
			t.Errorf("%q: known %v, want %v", a.host, m.Known, a.known)
		case m.Known && !slices.Equal(names(&m), []string{"sale"}):
			t.Errorf("%q passes the room: %v", a.host, names(&m))
		case !m.Known && m != (room.Match{}):
			t.Errorf("%q is unknown, but the answer is %+v", a.host, m)
		}
	}
	t.Logf("%d host spellings", len(hostAttacks))
}

// TestOtherHostInPath checks that a path that can be read as naming another host of the set is refused, also
// without a room nearby.
func TestOtherHostInPath(t *testing.T) {
	s := mustSet(t, attackDoc)
	for _, c := range []struct {
		host, path string
		refuse     bool
	}{
		{"static.test", "//shop.test/sale", true},
		{"static.test", "///shop.test/sale", true},
		{"static.test", `/\shop.test/sale`, true},
		{"static.test", "/%2fshop.test:80/sale", true},
		{"static.test", "//user:pw@SHOP.test./sale", true},
		{"static.test", "//shop.test", true},
		{"static.test", "//static.test/sale", false},
		{"static.test", "//unknown.test/sale", false},
		{"static.test", "/shop.test/sale", false},
		{"static.test", "/x//shop.test/sale", false},
		{"shop.test", "//static.test/x", true},
	} {
		m := s.Match(c.host, c.path)
		if !m.Known || m.Refuse != c.refuse {
			t.Errorf("%q %q: known %v, refuse %v, want %v", c.host, c.path, m.Known, m.Refuse, c.refuse)
		}
	}
}
