package match

import "unicode/utf8"

// traits are the features of a path that some origins do not take literally.
type traits uint16

const (
	hasUpper     traits = 1 << iota // A-Z
	hasHigh                         // a byte beyond ASCII
	hasControl                      // a control byte
	hasPercent                      // %
	hasBackslash                    // \
	hasParam                        // ;
	hasCut                          // ? or #
	hasEmpty                        // an empty segment before the last
	hasDot                          // a segment that begins with a dot
	hasTail                         // a segment that ends in a dot or a space
	hasSession                      // a segment that begins with a parenthesis
	hasStream                       // a colon and a dollar sign
	isShape                         // a byte whose meaning depends on its neighbours
)

// byteTraits are the traits of each byte by itself.
var byteTraits = func() (t [256]traits) {
	for c := range t {
		switch {
		case c < 0x20 || c == 0x7f:
			t[c] = hasControl
		case c >= 0x80:
			t[c] = hasHigh
		case 'A' <= c && c <= 'Z':
			t[c] = hasUpper
		}
	}
	t['%'], t['\\'], t[';'], t['?'], t['#'] = hasPercent, hasBackslash, hasParam, hasCut, hasCut
	for _, c := range "/.($" {
		t[c] = isShape
	}
	return t
}()

// scan returns the traits of path in one pass.
func scan(path string) traits {
	var found traits
	for i := range len(path) {
		t := byteTraits[path[i]]
		if t == 0 {
			continue
		}
		if t == isShape {
			if i == 0 {
				continue
			}
			t = shape(path[i-1], path[i])
		}
		found |= t
	}
	if n := len(path); n > 0 && (path[n-1] == '.' || path[n-1] == ' ') {
		found |= hasTail
	}
	return found
}

// shape returns the traits of byte c after byte prev.
func shape(prev, c byte) traits {
	switch {
	case c == '/' && prev == '/':
		return hasEmpty
	case c == '/' && (prev == '.' || prev == ' '):
		return hasTail
	case c == '.' && prev == '/':
		return hasDot
	case c == '(' && prev == '/':
		return hasSession
	case c == '$' && prev == ':':
		return hasStream
	}
	return 0
}

// plain reports whether a path with these traits has exactly one reading. Letter case does not matter here: see
// [Fold].
func (t traits) plain() bool { return t&^hasUpper == 0 }

// Readable reports whether s is UTF-8 without control characters.
func Readable(s string) bool {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < 0x20 || c == 0x7f {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if n == 1 || r < 0xa0 {
			return false
		}
		i += n
	}
	return true
}

// validEscapes reports whether two hexadecimal digits follow each % in s.
func validEscapes(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			continue
		}
		if _, ok := escapeAt(s, i); !ok {
			return false
		}
		i += 2
	}
	return true
}

// escapeAt returns the byte of the percent-escape at s[i].
func escapeAt(s string, i int) (byte, bool) {
	if i+2 >= len(s) {
		return 0, false
	}
	hi, ok1 := hexDigit(s[i+1])
	lo, ok2 := hexDigit(s[i+2])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
