package origin

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What frees places goes on while a caller waits: another caller may have taken the first place.
func TestShortIsCalledWhileACallerWaits(t *testing.T) {
	d := NewDials(1, time.Minute, NewMetrics(prometheus.NewRegistry()))
	d.places <- struct{}{}
	var calls atomic.Int32
	d.Short = func(full bool) {
		if !full {
			t.Error("there is a free place")
		}
		if calls.Add(1) == 3 {
			<-d.places
		}
	}
	if _, err := d.acquire(t.Context()); err != nil || calls.Load() < 3 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

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
