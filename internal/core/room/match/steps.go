package match

import (
	"bytes"
	"strings"
)

// Each step returns the path with one transformation applied everywhere, and whether it changed; an unchanged path
// is returned without allocating. A path begins with a slash before and after each step.

// decode decodes every percent-escape once. Invalid escapes (possible only after a first decoding) stay, as in
// lenient decoders.
func decode(s string) (string, bool) { return unescape(s, false) }

// decodeInside decodes once, but keeps the escapes of separators: many origins treat "a%2fb" as one segment.
// Without such an escape it reports no change, since decode covers the path.
func decodeInside(s string) (string, bool) {
	for i := range len(s) {
		if s[i] != '%' {
			continue
		}
		if c, ok := escapeAt(s, i); ok && isSeparator(c) {
			return unescape(s, true)
		}
	}
	return s, false
}

func isSeparator(c byte) bool { return c == '/' || c == '\\' }

func unescape(s string, keepSeparators bool) (string, bool) {
	var b []byte
	from := 0 // s[:from] is in b
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			continue
		}
		c, ok := escapeAt(s, i)
		if !ok || keepSeparators && isSeparator(c) {
			continue
		}
		if b == nil {
			b = make([]byte, 0, len(s))
		}
		b = append(append(b, s[from:i]...), c)
		i += 2
		from = i + 1
	}
	if b == nil {
		return s, false
	}
	return string(append(b, s[from:]...)), true
}

// slashes replaces backslashes by slashes, like Windows and browsers.
func slashes(s string) (string, bool) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, false
	}
	return strings.ReplaceAll(s, `\`, "/"), true
}

// dropParams drops the text after a semicolon in each segment (Java servlets).
func dropParams(s string) (string, bool) {
	return eachSegment(s, func(seg string) string {
		seg, _, _ = strings.Cut(seg, ";")
		return seg
	})
}

// cut ends the path at a decoded question mark or hash: for an origin that decodes before it parses, a query or
// fragment begins there.
func cut(s string) (string, bool) {
	i := strings.IndexAny(s, "?#")
	if i < 0 {
		return s, false
	}
	return s[:i], true
}

// collapse drops empty segments.
func collapse(s string) (string, bool) {
	if !strings.Contains(s, "//") {
		return s, false
	}
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		if s[i] != '/' || i == 0 || s[i-1] != '/' {
			b = append(b, s[i])
		}
	}
	return string(b), true
}

// dropAuthority reads "//host/path" as a reference to another host, like URL parsers, and returns its path. Any
// number of slashes counts, since browsers and Node skip more than two.
func dropAuthority(s string) (string, bool) {
	_, rest, ok := splitAuthority(s)
	return rest, ok
}

func splitAuthority(s string) (authority, rest string, ok bool) {
	if !strings.HasPrefix(s, "//") {
		return "", s, false
	}
	s = strings.TrimLeft(s, "/")
	if i := strings.IndexByte(s, '/'); i >= 0 {
		return s[:i], s[i:], true
	}
	return s, "/", true
}

// resolveDots removes dot segments (RFC 3986, 5.2.4).
func resolveDots(s string) (string, bool) {
	b := make([]byte, 0, len(s))
	changed := false
	for rest := s; rest != ""; {
		seg := rest[1:] // rest begins with a slash
		if i := strings.IndexByte(seg, '/'); i >= 0 {
			seg = seg[:i]
		}
		rest = rest[1+len(seg):]
		switch seg {
		case ".", "..":
			changed = true
			if seg == ".." {
				b = b[:max(0, bytes.LastIndexByte(b, '/'))]
			}
			if rest == "" {
				b = append(b, '/')
			}
		default:
			b = append(append(b, '/'), seg...)
		}
	}
	if !changed {
		return s, false
	}
	if len(b) == 0 {
		return "/", true
	}
	return string(b), true
}

// trimNames reads each segment as a Windows file name: without trailing dots and spaces and without the name of an
// NTFS stream.
func trimNames(s string) (string, bool) {
	return eachSegment(s, func(seg string) string {
		if i := strings.Index(seg, ":$"); i >= 0 {
			seg = strings.TrimRight(seg[:i], ":")
		}
		seg = strings.TrimRight(seg, " ")
		if seg == "." || seg == ".." {
			return seg
		}
		return strings.TrimRight(seg, ". ")
	})
}

// dropSessions drops the segments "/(S(...))" of ASP.NET's cookieless sessions. It drops the slash before but not
// the rest of the same segment, like ASP.NET: "/a/(S(x))b" is "/ab".
func dropSessions(s string) (string, bool) {
	var b []byte
	from := 0 // s[:from] is in b
	for i := 0; i < len(s); i++ {
		n := sessionAt(s[i:])
		if n == 0 {
			continue
		}
		if b == nil {
			b = make([]byte, 0, len(s))
		}
		b = append(b, s[from:i]...)
		from = i + n
		i = from - 1
	}
	if b == nil {
		return s, false
	}
	b = append(b, s[from:]...)
	if len(b) == 0 || b[0] != '/' {
		b = append([]byte{'/'}, b...)
	}
	return string(b), true
}

// sessionAt returns the length of the session segment at the start of s, or 0: a slash and, in parentheses, one or
// more of a letter with a value in parentheses.
func sessionAt(s string) int {
	if !strings.HasPrefix(s, "/(") {
		return 0
	}
	i := 2
	for {
		if i+1 >= len(s) || !IsLetterOrDigit(rune(s[i])) || s[i+1] != '(' {
			return 0
		}
		n := strings.IndexAny(s[i:], ")/")
		if n < 0 || s[i+n] == '/' {
			return 0
		}
		i += n + 1
		if i < len(s) && s[i] == ')' {
			return i + 1
		}
	}
}

// eachSegment applies f, which only ever shortens, to each segment of s.
func eachSegment(s string, f func(string) string) (string, bool) {
	b := make([]byte, 0, len(s))
	for rest := s[1:]; ; {
		seg, after, more := strings.Cut(rest, "/")
		b = append(append(b, '/'), f(seg)...)
		if !more {
			break
		}
		rest = after
	}
	if len(b) == len(s) {
		return s, false
	}
	return string(b), true
}

// IsLetterOrDigit reports whether r is an ASCII letter or digit.
func IsLetterOrDigit(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}
