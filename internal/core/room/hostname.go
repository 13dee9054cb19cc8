package room

import (
	"strings"
	"unicode/utf8"

	"vestibule/internal/core/room/match"
)

// spellHost returns the canonical form of a host in an operator's document, or h itself if it is invalid. Unlike in a
// header, an IPv6 address needs no brackets, since there is no port.
func spellHost(h string) string {
	if strings.Count(h, ":") > 1 {
		bare := strings.TrimSuffix(strings.TrimPrefix(h, "["), "]")
		if len(bare) == len(h) || len(bare) == len(h)-2 {
			if c, ok := match.CanonicalIPv6(bare); ok {
				return c
			}
		}
		return h
	}
	if c, ok := match.CanonicalName(h); ok {
		return c
	}
	return h
}

// checkHost returns the rule that the host of a document violates, "" if it is valid. It expects the form of
// spellHost.
func checkHost(h string) string {
	if h == "" {
		return "is required"
	}
	if _, ok := match.CanonicalIPv6(h); ok {
		return ""
	}
	if _, ok := match.CanonicalName(h); ok {
		return ""
	}
	rule := "must be a DNS name (letters, digits, hyphens; at most 253 bytes) or an IP address"
	switch i := strings.IndexByte(h, ':'); {
	case strings.Contains(h, "://"):
		rule = "must be a bare name, without a scheme"
	case strings.Contains(h, "*"):
		rule = "must be one host: wildcards are not supported"
	case strings.ContainsFunc(h, func(r rune) bool { return r >= utf8.RuneSelf }):
		rule = "must be in ASCII: write an international name in its xn-- form"
	case i >= 0 && match.ValidPort(h[i:]):
		rule = "must not have a port: a room covers its host on every port"
	}
	return rule + got(h)
}
