package origin

import (
	"context"
	"net/netip"
	"testing"
)

func TestDialRefusesAddressesThatAreNoSites(t *testing.T) {
	d := &Dials{}
	d.Refuse([]netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:81"), netip.MustParseAddrPort("[::]:82")})
	for addr, want := range map[string]struct{ literal, name bool }{
		"169.254.169.254:80": {true, true}, "[fe80::1]:80": {true, true}, "[2001:db8::1]:443": {}, "name:80": {true, true},
		"127.0.0.1:80": {false, true}, "[::1]:80": {false, true}, "[::ffff:127.0.0.1]:80": {false, true},
		"127.0.0.1:81": {true, true}, "127.0.0.2:81": {false, true}, "127.0.0.1:82": {true, true}, "[::1]:82": {true, true}, "192.0.2.1:82": {},
	} {
		for byName, refused := range map[bool]bool{false: want.literal, true: want.name} {
			ctx := context.WithValue(t.Context(), resolved{}, byName)
			if err := d.refuseAddr(ctx, "tcp", addr, nil); (err != nil) != refused {
				t.Errorf("%s, by name: %v: %v", addr, byName, err)
			}
		}
	}
}
