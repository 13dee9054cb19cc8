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
