package control

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"vestibule/internal/core/room"
)

// lookupWithin bounds how long a change waits for the addresses of a name. A name without an answer is no fault: edges
// refuse the connection.
const lookupWithin = 2 * time.Second

// fleetSite returns the listener of the fleet that an origin leads to, "" for none. listens are the addresses of all.
func fleetSite(ctx context.Context, origin string, listens []string) string {
	u, err := url.Parse(origin)
	if err != nil {
		return ""
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	var addrs []netip.Addr // of the origin, once they are needed
	for _, l := range listens {
		at, p, err := net.SplitHostPort(l)
		if err != nil || p != port {
			continue
		}
		if strings.EqualFold(strings.TrimSuffix(at, "."), strings.TrimSuffix(host, ".")) {
			return l
		}
		if addrs == nil {
			addrs = addrsOf(ctx, host)
		}
		for _, own := range addrsOf(ctx, at) {
			for _, a := range addrs {
				if own == a || own.IsLoopback() && a.IsLoopback() {
					return l
				}
			}
		}
	}
	return ""
}

// addrsOf returns the addresses of a host, without a wrapping in IPv6.
func addrsOf(ctx context.Context, host string) (all []netip.Addr) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(host, ".")); err == nil {
		return []netip.Addr{room.Unwrap(a)}
	}
	if room.LoopbackName(host) {
		return []netip.Addr{netip.IPv6Loopback()}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupWithin)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	for _, a := range found {
		all = append(all, room.Unwrap(a))
	}
	return all
}
