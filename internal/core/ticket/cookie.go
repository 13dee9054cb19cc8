package ticket

import (
	"iter"
	"strings"
)

// CookieStem is part of every ticket cookie's name.
const CookieStem = "vestibule-"

// placeEnd ends the name of a cookie with a place. Room names have no dot.
const placeEnd = ".place"

// pushEnd ends the name of a cookie with a subscription to notifications.
const pushEnd = ".push"

// IsCookieName reports whether a cookie of this name holds a ticket.
func IsCookieName(name string) bool {
	return strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "__Host-"), "__Secure-"), CookieStem)
}

// CookieName returns the name of the room's cookie with a session. Over TLS it has the __Host- prefix, which no
// subdomain and no plain-text response can set.
func CookieName(room string, tls bool) string {
	if tls {
		return "__Host-" + CookieStem + room
	}
	return CookieStem + room
}

// SharedCookieName returns the name of the cookie with a session in a room whose hosts share one by a domain. It
// differs from [CookieName], which cannot have a domain over TLS, so that a browser can hold both.
func SharedCookieName(room string, tls bool) string {
	if tls {
		return "__Secure-" + CookieStem + room + ".all"
	}
	return CookieStem + room + ".all"
}

// PlaceCookieName returns the name of the cookie with a place, beside the cookie with a session that is called session.
// A browser holds both: the answer to a tab that waits must not replace the session that another tab was given.
func PlaceCookieName(session string) string { return session + placeEnd }

// PushCookieName returns the name of the cookie of a visitor that is subscribed to notifications.
func PushCookieName(session string) string { return session + pushEnd }

// Pairs yields the names and values of the cookies in one Cookie header, in order. It does not allocate.
func Pairs(header string) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for header != "" {
			var pair string
			pair, header, _ = strings.Cut(header, ";")
			k, v, ok := strings.Cut(strings.Trim(pair, " \t"), "=")
			if !ok {
				continue
			}
			if len(v) >= 2 && v[0] == '"' && v[len(v)-1] == '"' {
				v = v[1 : len(v)-1]
			}
			if !yield(k, v) {
				return
			}
		}
	}
}
