package origin

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// One prefix does not keep others behind its callers: half of those that may wait are left for them.
func TestPrefixesShareTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDials(1, time.Minute, NewMetrics(prometheus.NewRegistry()))
		d.places <- struct{}{}
		var full, served atomic.Int32
		var all sync.WaitGroup
		ask := func(client string) {
			all.Go(func() {
				_, err := d.acquire(ForClient(t.Context(), netip.MustParseAddr(client)))
				switch {
				case err == nil:
					served.Add(1)
				case errors.Is(err, ErrFull):
					full.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		for range 2 * leastWaiting {
			ask("192.0.2.1")
		}
		synctest.Wait()
		if n := full.Load(); n != 2*leastWaiting-leastWaiting/2 {
			t.Errorf("%d callers of one prefix are refused", n)
		}
		full.Store(0)
		ask("198.51.100.1")
		synctest.Wait()
		if full.Load() > 0 {
			t.Error("a caller of another prefix is refused")
		}
		for range leastWaiting/2 + 1 {
			<-d.places
			synctest.Wait()
		}
		all.Wait()
		if served.Load() != leastWaiting/2+1 || d.waiting.Free() != leastWaiting || d.waiting.Prefixes() != 0 {
			t.Errorf("%d callers got a place, %d wait", served.Load(), leastWaiting-d.waiting.Free())
		}
	})
}

func TestDialRefusesAddressesThatAreNoSites(t *testing.T) {
	d := &Dials{}
	d.Refuse(func() []net.Addr {
		return []net.Addr{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 81}, &net.TCPAddr{IP: net.IPv6unspecified, Port: 82}}
	})
	d.RefuseServers(func() []string { return []string{"127.0.0.1:84", "nats.internal:4222"} })
	for addr, want := range map[string]struct{ literal, name bool }{
		"169.254.169.254:80": {true, true}, "[fe80::1]:80": {true, true}, "[2001:db8::1]:443": {}, "name:80": {true, true},
		"127.0.0.1:80": {false, true}, "[::1]:80": {false, true}, "[::ffff:127.0.0.1]:80": {false, true},
		"127.0.0.1:81": {true, true}, "127.0.0.2:81": {false, true}, "127.0.0.1:82": {true, true}, "[::1]:82": {true, true},
		"192.0.2.1:82": {}, "127.0.0.1:84": {true, true}, "[::ffff:127.0.0.1]:84": {true, true}, "127.0.0.2:84": {false, true},
	} {
		for byName, refused := range map[bool]bool{false: want.literal, true: want.name} {
			ctx := context.WithValue(t.Context(), resolved{}, byName)
			if err := d.refuseAddr(ctx, "tcp", addr, nil); (err != nil) != refused {
				t.Errorf("%s, by name: %v: %v", addr, byName, err)
			}
		}
	}
}
