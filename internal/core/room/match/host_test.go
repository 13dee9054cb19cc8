package room

import (
	"net/netip"
	"strings"
	"testing"
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
		{"a.1", ""}, // some resolver would take it for an address
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
		got, ok := CanonicalHost(c.raw)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("CanonicalHost(%q) = %q, %v; want %q", c.raw, got, ok, c.want)
		}
	}
	for _, a := range hostAttacks {
		if got, ok := CanonicalHost(a.host); a.known && (!ok || got != "shop.test") {
			t.Errorf("CanonicalHost(%q) = %q, %v", a.host, got, ok)
		}
	}
}

func TestCanonicalHostDoesNotAllocate(t *testing.T) {
	for _, raw := range []string{"shop.example.com", "shop.example.com.:443", "10.0.0.5:80", "[2001:db8::a]:443", "a,b", "a b"} {
		ok := 0
		if n := testing.AllocsPerRun(100, func() {
			if _, is := CanonicalHost(raw); is {
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
		host, ok := CanonicalHost(raw)
		if !ok {
			if host != "" {
				t.Fatalf("%q is not ok, but is %q", raw, host)
			}
			return
		}
		if host == "" || len(host) > maxHost || strings.ToLower(host) != host || strings.ContainsAny(host, " ,@/\\%[]?#\x00") || strings.HasSuffix(host, ".") {
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
			if got, ok := CanonicalHost(again + suffix); !ok || got != host {
				t.Fatalf("%q is %q, which is %q, %v", raw, host, got, ok)
			}
		}
		// A host that a request can name, an operator can name.
		if rule := checkHost(host); rule != "" || spellHost(host) != host {
			t.Fatalf("%q is %q, which in a document %s", raw, host, rule)
		}
	})
}

func TestRefusedAddr(t *testing.T) {
	for addr, want := range map[string]bool{
		"169.254.169.254":          true,
		"169.254.0.1":              true,
		"::ffff:169.254.169.254":   true,
		"64:ff9b::169.254.169.254": true,
		"fe80::1":                  true,
		"fe80::1%eth0":             true,
		"febf::1":                  true,
		"fd00:ec2::254":            true,
		"0.0.0.0":                  true,
		"0.1.2.3":                  true,
		"::":                       true,
		"::ffff:0.0.0.0":           true,
		"224.0.0.1":                true,
		"239.1.1.1":                true,
		"ff02::1":                  true,
		"255.255.255.255":          true,
		"10.0.0.5":                 false,
		"127.0.0.1":                false, // a site on the same machine is common
		"::1":                      false,
		"192.0.2.1":                false,
		"64:ff9b::10.0.0.5":        false,
		"fd00:ec2::253":            false,
		"fec0::1":                  false,
		"169.253.0.1":              false,
	} {
		if got := RefusedAddr(netip.MustParseAddr(addr)); got != want {
			t.Errorf("RefusedAddr(%s) = %v", addr, got)
		}
	}
	if !RefusedAddr(netip.Addr{}) {
		t.Error("no address at all is accepted")
	}
}
