package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"vestibule/internal/core/room"
)

// ErrPrivate means that a URL leads to an address that is not public.
var ErrPrivate = errors.New("the address is not public")

// Outbound makes clients for URLs that operators or visitors choose.
type Outbound struct {
	Networks  []netip.Prefix // private ones that may be reached; public addresses always may
	Timeout   time.Duration  // of a request
	KeepAlive bool
	Resolver  *net.Resolver  // nil for the system's
	Roots     *x509.CertPool // nil for the system's
}

// Allows reports whether clients connect to an address: never to one that no site may have.
func (o *Outbound) Allows(a netip.Addr) bool {
	return !room.RefusedAddr(a) && (Public(a) || within(a, o.Networks))
}

// Client returns a client that connects to allowed addresses only, checked after a name is resolved, and that follows
// no redirect.
func (o Outbound) Client() *http.Client {
	dialer := &net.Dialer{
		Timeout: 5 * time.Second, Resolver: o.Resolver,
		Control: func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			if !o.Allows(at.Addr()) {
				return ErrPrivate
			}
			return nil
		},
	}
	return &http.Client{
		Timeout:       o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: nil, DialContext: dialer.DialContext, DisableKeepAlives: !o.KeepAlive, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 5 * time.Second, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots},
			MaxResponseHeaderBytes: 16 << 10, MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64, IdleConnTimeout: time.Minute,
		},
	}
}

// RetryAfter reads a Retry-After, seconds or a date, at most most. It returns 0 for none.
func RetryAfter(now time.Time, text string, most time.Duration) time.Duration {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, most)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(0, at.Sub(now)), most)
}

// special are networks beyond those that [netip.Addr] knows whose addresses are not public, or lead to others.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

// Public reports whether an address is one of the public Internet.
func Public(a netip.Addr) bool {
	a = a.Unmap()
	return a.Zone() == "" && a.IsGlobalUnicast() && !a.IsPrivate() && !within(a, special)
}

func within(a netip.Addr, networks []netip.Prefix) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}
