package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// stop is panicked to end parsing: the rest is ambiguous.
type stop struct{}

// scanner reads the words, signs and literals of an expression, and collects the faults.
type scanner struct {
	in     string
	at     int     // byte offset
	faults []Fault // At is a byte offset, from 0
}

// sorted returns the faults in order, with positions in characters.
func (s *scanner) sorted() Faults {
	slices.SortStableFunc(s.faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	for i := range s.faults {
		s.faults[i].At = utf8.RuneCountInString(s.in[:min(s.faults[i].At, len(s.in))]) + 1
	}
	return s.faults
}

func (s *scanner) fault(at int, format string, a ...any) {
	s.faults = append(s.faults, Fault{at, fmt.Sprintf(format, a...)})
}

// fail reports a fault and ends parsing.
func (s *scanner) fail(at int, format string, a ...any) {
	s.fault(at, format, a...)
	panic(stop{})
}

func (s *scanner) space() {
	for s.at < len(s.in) && strings.IndexByte(" \t\r\n", s.in[s.at]) >= 0 {
		s.at++
	}
}

// expected fails and quotes the text found instead.
func (s *scanner) expected(what string) {
	s.space()
	rest := s.in[s.at:]
	if rest == "" {
		s.fail(s.at, "expected %s, and the expression ends", what)
	}
	word := wordAt(rest)
	if word == "" {
		_, n := utf8.DecodeRuneInString(rest)
		word = rest[:n]
	}
	if lower := strings.ToLower(word); lower != word && slices.Contains(keywords, lower) {
		s.fail(s.at, "%q: words are in lower case: %s", word, lower)
	}
	s.fail(s.at, "expected %s, got %q", what, word)
}

// keywords are the operators. One in upper case is refused with its right spelling.
var keywords = []string{
	"and", "or", "xor", "not",
	"in", "eq", "ne", "lt", "le", "gt", "ge",
	"contains", "matches", "wildcard", "strict",
	"any", "all",
}

func wordAt(s string) string {
	n := 0
	for n < len(s) && (s[n] == '_' || s[n] == '.' || '0' <= s[n] && s[n] <= '9' ||
		'a' <= s[n] && s[n] <= 'z' || 'A' <= s[n] && s[n] <= 'Z') {
		n++
	}
	return s[:n]
}

// word consumes a word if it comes next.
func (s *scanner) word(w string) bool {
	s.space()
	if wordAt(s.in[s.at:]) != w {
		return false
	}
	s.at += len(w)
	return true
}

// sign consumes a sign if it comes next.
func (s *scanner) sign(c string) bool {
	s.space()
	if !strings.HasPrefix(s.in[s.at:], c) {
		return false
	}
	s.at += len(c)
	return true
}

// token scans a number, an address or a network.
func (s *scanner) token() string {
	from := s.at
	for s.at < len(s.in) && strings.IndexByte(" \t\r\n(){}[]\"$,&|^!=<>", s.in[s.at]) < 0 {
		s.at++
	}
	return s.in[from:s.at]
}

func (s *scanner) number(t string) int64 {
	at := s.at - len(t)
	if t == "" {
		s.expected("a number")
	}
	if strings.ContainsAny(t, "_bBoO") && !strings.HasPrefix(strings.TrimPrefix(t, "-"), "0x") ||
		strings.HasPrefix(t, "+") || strings.Contains(t, "_") {
		s.fault(at, "%q is not a whole number", clip(t))
		return 0
	}
	v, err := strconv.ParseInt(t, 0, 64)
	if err != nil {
		s.fault(at, "%q is not a whole number", clip(t))
	}
	return v
}

func (s *scanner) address(at int, t string) netip.Addr {
	if t == "" {
		s.expected("an address")
	}
	if strings.Contains(t, "/") {
		s.fault(at, "a network is only valid in braces: ip.src in {%s}", clip(t))
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(t)
	if err != nil || a.Zone() != "" {
		s.fault(at, "%q is not an address", clip(t))
		return netip.Addr{}
	}
	return a.Unmap()
}

// network parses an address, a network or a range of a set.
func (s *scanner) network(at int, low, high string, isRange bool) (addrRange, bool) {
	if !isRange && strings.Contains(low, "/") {
		n, err := netip.ParsePrefix(low)
		switch {
		case err != nil:
			s.fault(at, "%q is not a network", clip(low))
			return addrRange{}, false
		case n.Masked() != n:
			s.fault(at, "%s has bits behind its network: it is %s", low, n.Masked())
			return addrRange{}, false
		}
		return rangeOf(n), true
	}
	before := len(s.faults)
	r := addrRange{from: s.address(at, low)}
	if r.to = r.from; isRange {
		r.to = s.address(at, high)
	}
	if len(s.faults) > before {
		return addrRange{}, false
	}
	if r.from.BitLen() != r.to.BitLen() || r.to.Less(r.from) {
		s.fault(at, "the range %s..%s ends before it begins", low, high)
		return addrRange{}, false
	}
	return r, true
}

// quotes reports whether a quoted text comes next.
func (s *scanner) quotes() bool {
	rest := s.in[s.at:]
	if strings.HasPrefix(rest, `"`) {
		return true
	}
	if !strings.HasPrefix(rest, "r") {
		return false
	}
	return strings.HasPrefix(strings.TrimLeft(rest[1:], "#"), `"`)
}

// quoted parses a text. In a regular expression it unescapes only \".
func (s *scanner) quoted(regex bool) string {
	if s.space(); !s.quotes() {
		s.expected("a text in quotation marks")
	}
	start := s.at
	if s.in[s.at] == 'r' {
		hashes := len(s.in[s.at+1:]) - len(strings.TrimLeft(s.in[s.at+1:], "#"))
		from := s.at + 1 + hashes + 1
		end := `"` + s.in[s.at+1:s.at+1+hashes]
		n := strings.Index(s.in[from:], end)
		if n < 0 || hashes > 255 {
			s.fail(start, "the text is not closed")
		}
		s.at = from + n + len(end)
		return s.in[from : from+n]
	}
	var b strings.Builder
	for i := s.at + 1; i < len(s.in); i++ {
		switch c := s.in[i]; {
		case c == '"':
			s.at = i + 1
			return b.String()
		case c != '\\':
			b.WriteByte(c)
		case i+1 == len(s.in):
		case s.in[i+1] == '"' || s.in[i+1] == '\\' && !regex:
			i++
			b.WriteByte(s.in[i])
		case regex:
			b.WriteByte(c)
			i++
			b.WriteByte(s.in[i])
		default:
			n, base := 3, 8
			digits := i + 1
			if s.in[i+1] == 'x' {
				n, base, digits = 2, 16, i+2
			}
			v, err := uint64(0), strconv.ErrSyntax
			if digits+n <= len(s.in) {
				v, err = strconv.ParseUint(s.in[digits:digits+n], base, 8)
			}
			if err != nil {
				s.fail(i, `a backslash stands before ", \, xHH or three octal digits; r"…" takes it as it is`)
			}
			b.WriteByte(byte(v))
			i = digits + n - 1
		}
	}
	s.fail(start, "the text is not closed")
	return ""
}

func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
