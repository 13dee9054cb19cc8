package match

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Fold returns s with letter case folded: two strings that a case-insensitive origin may treat as equal have the
// same Fold. It merges everything that upper-casing or lower-casing merges, such as the Kelvin sign with k and the
// dotless i with i. It does not allocate if s is already folded.
func Fold(s string) string {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return strings.Map(foldRune, s)
		}
	}
	return s
}

func foldRune(r rune) rune {
	if r < utf8.RuneSelf {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	return unicode.ToLower(unicode.ToUpper(r))
}

// lookalikes are not compatibility forms in Unicode, but the best-fit tables of Windows and some filters map them
// to separators.
var lookalikes = map[rune]string{
	0x2044: "/", 0x2215: "/", 0x2216: `\`, 0x29f5: `\`, 0x29f8: "/", 0x29f9: `\`,
}

// compatOf returns the ASCII text that an origin may substitute for r: a lookalike, or the compatibility form (NFKC).
func compatOf(r rune) (string, bool) {
	if to, ok := lookalikes[r]; ok {
		return to, true
	}
	to := norm.NFKC.PropertiesString(string(r)).Decomposition()
	for _, c := range to {
		if c >= utf8.RuneSelf {
			return "", false
		}
	}
	return string(to), len(to) > 0
}

// ignorable reports whether r is invisible by Unicode's property Default_Ignorable_Code_Point: file systems and
// normalisers drop such runes.
func ignorable(r rune) bool {
	switch {
	case r == 0xad, r == 0x34f, r == 0x61c, r == 0x3164, r == 0xfeff, r == 0xffa0,
		0x115f <= r && r <= 0x1160, 0x17b4 <= r && r <= 0x17b5, 0x180b <= r && r <= 0x180f,
		0x200b <= r && r <= 0x200f, 0x202a <= r && r <= 0x202e, 0x2060 <= r && r <= 0x206f,
		0xfe00 <= r && r <= 0xfe0f, 0xfff0 <= r && r <= 0xfff8, 0x1bca0 <= r && r <= 0x1bca3,
		0x1d173 <= r && r <= 0x1d17a, 0xe0000 <= r && r <= 0xe0fff:
		return true
	}
	return false
}

// foldCompat replaces compatibility forms of ASCII by ASCII and drops invisible characters, like Unicode
// normalisation (NFKC_Casefold). Other characters stay.
func foldCompat(s string) (string, bool) {
	var b []byte
	from := 0 // s[:from] is in b
	for i, r := range s {
		if r < utf8.RuneSelf {
			continue
		}
		to, ok := compatOf(r)
		if !ok && !ignorable(r) {
			continue
		}
		if b == nil {
			b = make([]byte, 0, len(s))
		}
		b = append(append(b, s[from:i]...), to...)
		from = i + utf8.RuneLen(r)
	}
	if b == nil {
		return s, false
	}
	return string(append(b, s[from:]...)), true
}
