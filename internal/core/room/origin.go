package room

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"vestibule/internal/core/room/match"
)

// RefusedAddr reports whether a is forbidden for origins: link-local (clouds have their metadata services there),
// multicast, unspecified or broadcast, also when wrapped in IPv6. Settings with such an address are refused. A dialer
// must check each address that the name of an origin resolves to.
func RefusedAddr(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() ||
		thisNet.Contains(a) || a == broadcast || a == metadataV6
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	thisNet    = netip.MustParsePrefix("0.0.0.0/8")
	broadcast  = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	metadataV6 = netip.MustParseAddr("fd00:ec2::254")
)

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
