package room

import (
	"net/netip"
	"testing"
)

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
		"100.100.100.200":          true,
		"168.63.129.16":            true,
		"192.0.0.192":              true,
		"::ffff:100.100.100.200":   true,
		"64:ff9b::168.63.129.16":   true,
		"64:ff9b:1::a9fe:a9fe":     true,
		"::169.254.169.254":        true,
		"2002:a9fe:a9fe::1":        true,
		"2001:0:1:2:3:4:5601:5601": true, // Teredo
		"fe80::5efe:a00:1":         true,
		"2001:db8::5efe:a9fe:a9fe": true, // ISATAP
		"fd20:ce::254":             true,
		"2002:a00:5::1":            false,
		"100.100.100.201":          false,
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

func TestLoopbackOrigin(t *testing.T) {
	for origin, want := range map[string]bool{
		"http://127.0.0.1:8080": true, "http://127.9.9.9": true, "http://[::1]": true, "http://[::ffff:127.0.0.1]": true,
		"http://[64:ff9b::7f00:1]": true, "http://[2002:7f00:1::]": true, "http://localhost:1": true,
		"http://LOCALHOST.": true, "http://a.localhost": true,
		"http://10.0.0.1": false, "http://localhost.example": false, "http://shop": false, "not an origin": false,
	} {
		if got := LoopbackOrigin(origin); got != want {
			t.Errorf("%s: %v", origin, got)
		}
	}
}
