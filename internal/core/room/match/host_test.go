package match_test

import (
	"net/netip"
	"strings"
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/match"
)

func TestCanonicalHost(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	name253 := strings.Repeat(label63+".", 3) + strings.Repeat("b", 61)
	for _, c := range []struct {
		raw, want string // "" for not ok
	}{
		{"shop.example.com", "shop.example.com"},
		{"Shop.EXAMPLE.com.:443", "shop.example.com"},
		{"localhost", "localhost"},
		{"a", "a"},
		{"a-b.c--d", "a-b.c--d"},
		{"1a.2b", "1a.2b"},
		{"xn--caf-dma.example", "xn--caf-dma.example"},
		{"-a.example", ""},
		{"a-.example", ""},
		{"a.example-", ""},
		{"a.-example", ""},
		{"a_b.example", ""},
		{label63 + ".example", label63 + ".example"},
		{label63 + "a.example", ""},
		{name253, name253},
		{name253 + ".", name253},
		{name253 + "b", ""},
		{"10.0.0.5", "10.0.0.5"},
		{"10.0.0.5.:80", "10.0.0.5"},
		{"10.0.0.05", ""},
		{"10.0.0.256", ""},
		{"10.5", ""},
		{"167772165", ""},
		{"0x0a000005", ""},
		{"10.0.0.0x5", ""},
		{"10.0.0.0x", ""},
		{"a.1", ""}, // some resolver would read it as an address
		{"a.0x1f", ""},
		{"a.0xg", "a.0xg"},
		{"[::1]", "::1"},
		{"[::1]:443", "::1"},
		{"[0:0::0001]", "::1"},
		{"[2001:DB8::A]", "2001:db8::a"},
		{"[::ffff:10.0.0.5]", "::ffff:10.0.0.5"},
		{"[fe80::1%25eth0]", ""},
		{"[fe80::1%eth0]", ""},
		{"[::1", ""},
		{"[::1]x", ""},
		{"[::1]:", "::1"},
		{"[::1].", ""},
		{"[]", ""},
		{"[10.0.0.5]", ""},
		{"::1", ""},
		{"2001:db8::a", ""},
	} {
		got, ok := match.CanonicalHost(c.raw)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("CanonicalHost(%q) = %q, %v; want %q", c.raw, got, ok, c.want)
		}
	}
	for _, a := range hostAttacks {
		if got, ok := match.CanonicalHost(a.host); a.known && (!ok || got != "shop.test") {
			t.Errorf("CanonicalHost(%q) = %q, %v", a.host, got, ok)
		}
	}
}

func TestCanonicalHostDoesNotAllocate(t *testing.T) {
	for _, raw := range []string{
		"shop.example.com", "shop.example.com.:443", "10.0.0.5:80", "[2001:db8::a]:443", "a,b",
		"a b",
	} {
		ok := 0
		if n := testing.AllocsPerRun(100, func() {
			if _, is := match.CanonicalHost(raw); is {
				ok++
			}
		}); n != 0 {
			t.Errorf("CanonicalHost(%q) allocates %v times", raw, n)
		}
	}
}

func FuzzCanonicalHost(f *testing.F) {
	for _, a := range hostAttacks {
		f.Add(a.host)
	}
	for _, s := range []string{"[::1]:80", "[2001:DB8::A]", "10.0.0.5", "0x7f.1", "a.b-c.d."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		host, ok := match.CanonicalHost(raw)
		if !ok {
			if host != "" {
				t.Fatalf("%q is not ok, but is %q", raw, host)
			}
			return
		}
		if host == "" || len(host) > 253 || strings.ToLower(host) != host || strings.ContainsAny(host, " ,@/\\%[]?#\x00") ||
			strings.HasSuffix(host, ".") {
			t.Fatalf("CanonicalHost(%q) = %q", raw, host)
		}
		again := host
		if strings.Contains(host, ":") {
			if a, err := netip.ParseAddr(host); err != nil || !a.Is6() {
				t.Fatalf("CanonicalHost(%q) = %q, which is no IPv6 address", raw, host)
			}
			again = "[" + host + "]"
		}
		for _, suffix := range []string{"", ":443"} {
			if got, ok := match.CanonicalHost(again + suffix); !ok || got != host {
				t.Fatalf("%q is %q, which is %q, %v", raw, host, got, ok)
			}
		}
		// An operator can name every host that a request can name.
		set, err := room.NewSet(room.Document{Rooms: []room.Settings{valid("sale", host, "/")}}, 1)
		if err != nil || set.Origins()[host] == "" {
			t.Fatalf("%q is %q, which in a document is refused: %v", raw, host, err)
		}
	})
}
