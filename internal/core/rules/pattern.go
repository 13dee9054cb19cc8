package rules

import "strings"

// pattern is a wildcard pattern. Its pieces occur in a value in this order, the first at the start and the last at
// the end, with any text between.
type pattern struct {
	pieces []piece
	fold   bool // ignores the case of ASCII letters
}

// piece is a text with its table for a search in linear time (Knuth, Morris and Pratt).
type piece struct {
	text string // in lower case if case is ignored
	back []int  // length of the longest prefix of text that ends at each byte
}

func newPiece(text string) piece {
	p := piece{text: text, back: make([]int, len(text))}
	for i, k := 1, 0; i < len(text); i++ {
		for k > 0 && text[i] != text[k] {
			k = p.back[k-1]
		}
		if text[i] == text[k] {
			k++
		}
		p.back[i] = k
	}
	return p
}

// newPattern parses a pattern: * is any text, \* and \\ are literal characters.
func newPattern(text string, fold bool) (p *pattern, reason string) {
	p = &pattern{fold: fold}
	var b strings.Builder
	add := func() {
		s := b.String()
		if fold {
			s = lowerASCII(s)
		}
		p.pieces = append(p.pieces, newPiece(s))
		b.Reset()
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			if i++; i == len(text) || text[i] != '*' && text[i] != '\\' {
				return nil, `a backslash in a wildcard pattern stands before * or \ (in a quoted string it is itself written twice)`
			}
			b.WriteByte(text[i])
		case '*':
			if i+1 < len(text) && text[i+1] == '*' {
				return nil, "** is not allowed in a wildcard pattern"
			}
			add()
		default:
			b.WriteByte(c)
		}
	}
	if add(); len(p.pieces)-1 > MaxStars {
		return nil, "a wildcard pattern may have 16 stars"
	}
	return p, ""
}

func (p *pattern) match(s string) bool {
	first, last := &p.pieces[0], &p.pieces[len(p.pieces)-1]
	if len(s) < len(first.text) || !p.same(s[:len(first.text)], first.text) {
		return false
	}
	if len(p.pieces) == 1 {
		return len(s) == len(first.text)
	}
	s = s[len(first.text):]
	if len(s) < len(last.text) || !p.same(s[len(s)-len(last.text):], last.text) {
		return false
	}
	s = s[:len(s)-len(last.text)]
	for i := 1; i < len(p.pieces)-1; i++ {
		end := p.find(s, &p.pieces[i])
		if end < 0 {
			return false
		}
		s = s[end:]
	}
	return true
}

func (p *pattern) same(s, text string) bool {
	for i := range len(text) {
		if p.byteOf(s[i]) != text[i] {
			return false
		}
	}
	return true
}

func (p *pattern) byteOf(c byte) byte {
	if p.fold && 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// find returns the end of the first q in s, or -1.
func (p *pattern) find(s string, q *piece) int {
	k := 0
	for i := range len(s) {
		if k == len(q.text) {
			return i
		}
		c := p.byteOf(s[i])
		for k > 0 && c != q.text[k] {
			k = q.back[k-1]
		}
		if c == q.text[k] {
			k++
		}
	}
	if k == len(q.text) {
		return len(s)
	}
	return -1
}
