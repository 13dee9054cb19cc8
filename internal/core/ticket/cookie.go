package ticket

import (
	"iter"
	"strings"
)

const (
	// MaxRead bounds the cookies tried per name: a browser sends one, a tossed cookie adds another.
	MaxRead = 4

	// maxHeader bounds the searched part of a Cookie header, in bytes.
	maxHeader = 16 << 10
)

// CookieStem is part of every ticket cookie's name.
const CookieStem = "vestibule-"

// IsCookieName reports whether a cookie of this name holds a ticket.
func IsCookieName(name string) bool {
	return strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "__Host-"), "__Secure-"), CookieStem)
}

// CookieName returns the name of the room's cookie. Over TLS it has the __Host- prefix, which no subdomain and no
// plain-text response can set.
func CookieName(room string, tls bool) string {
	if tls {
		return "__Host-" + CookieStem + room
	}
	return CookieStem + room
}

// SharedCookieName returns the cookie name of a room whose hosts share one cookie by a domain. It differs from
// [CookieName], which cannot have a domain over TLS, so that a browser can hold both. Room names have no dot.
func SharedCookieName(room string, tls bool) string {
	if tls {
		return "__Secure-" + CookieStem + room + ".all"
	}
	return CookieStem + room + ".all"
}

// Values yields the values of the cookies called name in one Cookie header, in order, at most MaxRead. It does not
// allocate.
func Values(header, name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if len(header) > maxHeader {
			header = header[:maxHeader]
		}
		for n := 0; header != "" && n < MaxRead; {
			var pair string
			pair, header, _ = strings.Cut(header, ";")
			k, v, ok := strings.Cut(strings.Trim(pair, " \t"), "=")
			if !ok || k != name {
				continue
			}
			if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
				v = v[1 : len(v)-1]
			}
			n++
			if !yield(v) {
				return
			}
		}
	}
}
