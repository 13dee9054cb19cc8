package match

import (
	"net/netip"
	"strings"
)

// maxHost is the longest name that DNS can carry, in text.
const maxHost = 253

// CanonicalHost returns the host of a Host header (or an HTTP/2 :authority) in lower case, without port, trailing
// dot and the brackets of an IPv6 address. ok is false unless raw is exactly one valid DNS name (letters, digits
// and hyphens) or IP address with at most a port. It rejects an empty value, a list, userinfo, spaces, control
// bytes and the odd spellings of IPv4 addresses (octal, hexadecimal, fewer than four parts).
//
// It does not allocate if raw is canonical but for port and brackets.
func CanonicalHost(raw string) (host string, ok bool) {
	if strings.HasPrefix(raw, "[") {
		end := strings.IndexByte(raw, ']')
		if end < 0 || !ValidPort(raw[end+1:]) {
			return "", false
		}
		return CanonicalIPv6(raw[1:end])
	}
	if i := strings.IndexByte(raw, ':'); i >= 0 {
		if !ValidPort(raw[i:]) {
			return "", false
		}
		raw = raw[:i]
	}
	return CanonicalName(raw)
}

// ValidPort reports whether s is empty, or a colon and up to five digits. RFC 3986 allows the empty port, and some
// clients send it.
func ValidPort(s string) bool {
	if s == "" {
		return true
	}
	if s[0] != ':' || len(s) > 6 {
		return false
	}
	for _, c := range []byte(s[1:]) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// CanonicalName is CanonicalHost for a DNS name or an IPv4 address without port.
func CanonicalName(name string) (string, bool) {
	name = strings.TrimSuffix(name, ".")
	upper, ok := CheckName(name, false)
	if !ok {
		return "", false
	}
	if IsNumericName(name) {
		// The resolvers of many systems read "127.1" and "0x7f000001" as
		// addresses; only the one plain spelling may name a room.
		if a, err := netip.ParseAddr(name); err != nil || !a.Is4() {
			return "", false
		}
	}
	if upper {
		name = strings.ToLower(name)
	}
	return name, true
}

// CheckName reports whether name follows the rules of DNS host names (RFC 1123),
// and whether it has upper-case letters.
func CheckName(name string, underscore bool) (upper, ok bool) {
	if name == "" || len(name) > maxHost {
		return false, false
	}
	label := 0 // length of the label so far
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_' && underscore:
		case 'A' <= c && c <= 'Z':
			upper = true
		case c == '-':
			if label == 0 {
				return false, false
			}
		case c == '.':
			if label == 0 || name[i-1] == '-' {
				return false, false
			}
			label = 0
			continue
		default:
			return false, false
		}
		if label++; label > 63 {
			return false, false
		}
	}
	return upper, label > 0 && name[len(name)-1] != '-'
}

// IsNumericName reports whether name ends in a label that some resolver reads as a part of an IPv4 address, by the
// rule of the WHATWG URL standard: a number in decimal or after "0x". Such a name is valid only as an IPv4 address.
func IsNumericName(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last == "" {
		return false
	}
	digits := "0123456789"
	if len(last) >= 2 && last[0] == '0' && last[1]|0x20 == 'x' {
		last, digits = last[2:], "0123456789abcdefABCDEF"
	}
	for i := range len(last) {
		if strings.IndexByte(digits, last[i]) < 0 {
			return false
		}
	}
	return true
}

// CanonicalIPv6 returns the text of RFC 5952 for an IPv6 address without zone.
func CanonicalIPv6(s string) (string, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.Zone() != "" {
		return "", false
	}
	var buf [64]byte
	text := a.AppendTo(buf[:0])
	if string(text) == s {
		return s, true
	}
	return string(text), true
}
