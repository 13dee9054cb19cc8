package rules

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// lowered returns v with ASCII letters in lower case.
func lowered(s *Scratch, v string) (string, bool) {
	if !s.spend(4 + 2*len(v)) {
		return "", false
	}
	if !hasUpper(v) {
		return v, true
	}
	n := len(s.buf)
	s.buf = append(s.buf, v...)
	for i, c := range s.buf[n:] {
		if 'A' <= c && c <= 'Z' {
			s.buf[n+i] = c + ('a' - 'A')
		}
	}
	return s.text(n), true
}

func hasUpper(v string) bool {
	for i := range len(v) {
		if 'A' <= v[i] && v[i] <= 'Z' {
			return true
		}
	}
	return false
}

func lowerASCII(v string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, v)
}

// fold maps letters that a case-insensitive site may treat as equal to one, like match.Fold.
func fold(v string) string {
	for i := range len(v) {
		if c := v[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return strings.Map(func(r rune) rune {
				if r < utf8.RuneSelf {
					if 'A' <= r && r <= 'Z' {
						r += 'a' - 'A'
					}
					return r
				}
				return unicode.ToLower(unicode.ToUpper(r))
			}, v)
		}
	}
	return v
}

// fold is fold with its cost: non-ASCII text is slow.
func (s *Scratch) fold(v string) (string, bool) {
	cost := 4 + len(v)
	for i := range len(v) {
		if v[i] >= utf8.RuneSelf {
			cost = 4 + 32*len(v)
			break
		}
		if 'A' <= v[i] && v[i] <= 'Z' {
			cost = 4 + 6*len(v)
		}
	}
	if !s.spend(cost) {
		return "", false
	}
	return fold(v), true
}

// sameName compares a header name, which is ASCII, with one in lower case.
func sameName(name, lower string) bool {
	return len(name) == len(lower) && strings.EqualFold(name, lower)
}
