package room

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"vestibule/internal/core/room/match"
)

// RefusedAddr reports whether a is forbidden for origins: link-local, the metadata services of clouds, multicast,
// unspecified or broadcast, also when wrapped in IPv6. Settings with such an address are refused. A dialer must check
// each address that the name of an origin resolves to.
func RefusedAddr(a netip.Addr) bool {
	outer := a.WithZone("")
	a = Unwrap(a)
	return !a.IsValid() || outer.IsLinkLocalUnicast() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() ||
		thisNet.Contains(a) || a == broadcast || slices.Contains(metadata, a)
}

// LoopbackAddr reports whether a is an address of the machine itself, also when wrapped in IPv6.
func LoopbackAddr(a netip.Addr) bool { return Unwrap(a).IsLoopback() }

// Unwrap returns the IPv4 address that an IPv6 address stands for: mapped, compatible, translated or tunnelled; a itself
// if there is none.
func Unwrap(a netip.Addr) netip.Addr {
	a = a.WithZone("").Unmap()
	if !a.Is6() {
		return a
	}
	b := a.As16()
	switch {
	case nat64.Contains(a), nat64Local.Contains(a), compatible.Contains(a) && !a.IsUnspecified() && !a.IsLoopback(),
		isatap(b):
		return netip.AddrFrom4([4]byte(b[12:]))
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	case teredo.Contains(a):
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})
	}
	return a
}

// isatap reports whether the interface identifier is that of RFC 5214.
func isatap(b [16]byte) bool { return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe }

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")   // RFC 6052
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215
	compatible = netip.MustParsePrefix("::/96")          // RFC 4291
	sixToFour  = netip.MustParsePrefix("2002::/16")      // RFC 3056
	teredo     = netip.MustParsePrefix("2001::/32")      // RFC 4380
	thisNet    = netip.MustParsePrefix("0.0.0.0/8")      // RFC 1122
	broadcast  = netip.AddrFrom4([4]byte{255, 255, 255, 255})

	// Metadata services of clouds beside the link-local ones.
	metadata = []netip.Addr{
		netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd20:ce::254"), netip.MustParseAddr("100.100.100.200"),
		netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
	}
)

// LoopbackOrigin reports whether the host of a valid origin is the machine itself, as an address or by its standard
// name.
func LoopbackOrigin(origin string) bool {
	u, rule := parseOrigin(origin)
	if rule != "" {
		return false
	}
	if a, err := netip.ParseAddr(strings.TrimSuffix(u.Hostname(), ".")); err == nil {
		return LoopbackAddr(a)
	}
	return LoopbackName(u.Hostname())
}

// LoopbackName reports whether a host name means the machine itself (RFC 6761).
func LoopbackName(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// spellOrigin returns the canonical form of an origin (scheme and host in lower case, no default port, no slash at the
// end), or raw itself if it is invalid. Two rooms have the same origin if these are equal.
func spellOrigin(raw string) string {
	u, rule := parseOrigin(raw)
	if rule != "" {
		return raw
	}
	host := spellHost(u.Hostname())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	host = strings.ToLower(host)
	p := u.Port()
	standard := (u.Scheme == "http" && p == "80") || (u.Scheme == "https" && p == "443")
	if p != "" && !standard {
		host += ":" + p
	}
	return u.Scheme + "://" + host
}

// CheckOrigin returns the rule that an origin violates, "" if it is valid.
func CheckOrigin(raw string) string {
	if raw == "" {
		return "is required"
	}
	_, rule := parseOrigin(raw)
	return rule
}

func parseOrigin(raw string) (u *url.URL, rule string) {
	if strings.Contains(raw, "@") {
		// First, so that no message contains a password.
		return nil, "must not carry a user name or password"
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, "must be an absolute URL such as http://10.0.0.5:8080" + got(raw)
	}
	switch {
	case strings.ContainsAny(raw, "?#"):
		return nil, "must not have a query or a fragment" + got(raw)
	case u.Path != "" && u.Path != "/":
		return nil, "must not have a path: requests are forwarded with the path they came with" + got(raw)
	case strings.HasSuffix(u.Host, ":"):
		return nil, "must have a port after the colon" + got(raw)
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 || p[0] == '0' {
			return nil, "must have a port of 1 to 65535" + got(raw)
		}
	}
	if rule := checkOriginHost(u); rule != "" {
		return nil, rule + got(raw)
	}
	return u, ""
}

func checkOriginHost(u *url.URL) string {
	const malformed = "must name its host by DNS name or IP address"
	host := u.Hostname()
	if a, err := netip.ParseAddr(host); err == nil {
		switch {
		case a.Zone() != "":
			return "must not have an address with a zone"
		case a.Is6() != strings.HasPrefix(u.Host, "["):
			return malformed
		case RefusedAddr(a):
			return "must not be a link-local, metadata, multicast or unspecified address"
		}
		return ""
	}
	// Names of containers and of service discovery often have underscores.
	name := strings.TrimSuffix(host, ".")
	if _, ok := match.CheckName(name, true); !ok || match.IsNumericName(name) {
		return malformed
	}
	return ""
}
