package rules

import (
	"cmp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// text compiles an expression of text type.
func (c compiler) text(n *node) textFn {
	switch n.op {
	case opField:
		return n.field.text
	case opText:
		v := n.text
		return func(*Scratch) (string, bool) { return v, true }
	case opEach:
		return func(s *Scratch) (string, bool) { return s.elem, true }
	case opAt:
		list, index := c.list(n.args[0]), n.number
		return func(s *Scratch) (string, bool) {
			v, pos, ok := list(s, 0)
			for range index {
				if !ok {
					break
				}
				v, pos, ok = list(s, pos)
			}
			return v, ok
		}
	default:
		v := c.called(n)
		if c.folded && n.ofPath && n.text != "lower" && n.text != "upper" && n.text != "substring" {
			return foldText(v)
		}
		return v
	}
}

func foldText(v textFn) textFn {
	return func(s *Scratch) (string, bool) {
		t, ok := v(s)
		if !ok {
			return "", false
		}
		return s.fold(t)
	}
}

// called compiles a function that returns a text.
func (c compiler) called(n *node) textFn {
	first := c.text
	switch n.text {
	case "lower":
		v := first(n.args[0])
		return func(s *Scratch) (string, bool) {
			t, ok := v(s)
			if !ok {
				return "", false
			}
			return lowered(s, t)
		}
	case "upper":
		v := first(n.args[0])
		if c.folded && n.ofPath {
			return v
		}
		return func(s *Scratch) (string, bool) {
			t, ok := v(s)
			if !ok || !s.spend(4+2*len(t)) {
				return "", false
			}
			at := len(s.buf)
			for i := range len(t) {
				b := t[i]
				if 'a' <= b && b <= 'z' {
					b -= 'a' - 'A'
				}
				s.buf = append(s.buf, b)
			}
			return s.text(at), true
		}
	case "concat":
		return c.concat(n)
	case "url_decode":
		v, again := first(n.args[0]), len(n.args) > 1 && strings.Contains(n.args[1].text, "r")
		wide := len(n.args) > 1 && strings.Contains(n.args[1].text, "u")
		return func(s *Scratch) (string, bool) {
			t, ok := v(s)
			for ok {
				was := t
				if t, ok = decoded(s, t, wide); t == was || !again {
					break
				}
			}
			return t, ok
		}
	default: // substring
		v, from := first(n.args[0]), n.args[1].number
		to, hasTo := int64(0), len(n.args) > 2
		if hasTo {
			to = n.args[2].number
		}
		return func(s *Scratch) (string, bool) {
			t, ok := v(s)
			if !ok {
				return "", false
			}
			size := int64(len(t))
			a, b := fromEnd(from, size), size
			if hasTo {
				b = fromEnd(to, size)
			}
			if a >= b {
				return "", true
			}
			return t[a:b], true
		}
	}
}

// fromEnd resolves an offset; a negative one counts from the end.
func fromEnd(i, size int64) int64 {
	if i < 0 {
		i += size
	}
	return min(max(i, 0), size)
}

// decoded undoes percent-encoding; invalid escapes stay.
func decoded(s *Scratch, t string, wide bool) (string, bool) {
	if !s.spend(4 + 4*len(t)) {
		return "", false
	}
	if strings.IndexByte(t, '%') < 0 && strings.IndexByte(t, '+') < 0 {
		return t, true
	}
	at := len(s.buf)
	for i := 0; i < len(t); i++ {
		switch {
		case t[i] == '+':
			s.buf = append(s.buf, ' ')
		case t[i] == '%' && wide && i+5 < len(t) && (t[i+1] == 'u' || t[i+1] == 'U'):
			v, err := strconv.ParseUint(t[i+2:i+6], 16, 16)
			if err != nil {
				s.buf = append(s.buf, t[i])
				continue
			}
			s.buf = utf8.AppendRune(s.buf, rune(v))
			i += 5
		case t[i] == '%' && i+2 < len(t) && isHex(t[i+1]) && isHex(t[i+2]):
			s.buf = append(s.buf, hex(t[i+1])<<4|hex(t[i+2]))
			i += 2
		default:
			s.buf = append(s.buf, t[i])
		}
	}
	return s.text(at), true
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func hex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}

func (c compiler) concat(n *node) textFn {
	parts := make([]textFn, len(n.args))
	for i, a := range n.args {
		if a.kind == textKind {
			parts[i] = c.text(a)
			continue
		}
		v := c.number(a)
		parts[i] = func(s *Scratch) (string, bool) {
			n, ok := v(s)
			if !ok || !s.spend(30) {
				return "", false
			}
			at := len(s.buf)
			s.buf = strconv.AppendInt(s.buf, n, 10)
			return s.text(at), true
		}
	}
	return func(s *Scratch) (string, bool) {
		// Evaluate the parts first: they may write to the buffer themselves.
		var few [8]string
		all, size := few[:0], 0
		for _, p := range parts {
			t, ok := p(s)
			if !ok || !s.spend(4+len(t)) {
				return "", false
			}
			all, size = append(all, t), size+len(t)
		}
		at := len(s.buf)
		for _, t := range all {
			s.buf = append(s.buf, t...)
		}
		return s.text(at), true
	}
}

// affix compiles starts_with and ends_with.
func (c compiler) affix(n *node) test {
	has := strings.HasPrefix
	if n.text == "ends_with" {
		has = strings.HasSuffix
	}
	whole, part := c.text(n.args[0]), c.text(n.args[1])
	folds := c.folded && n.ofPath
	if folds && !n.args[0].ofPath {
		whole = foldText(whole)
	}
	if n.args[1].op == opText {
		lit := n.args[1].text
		if folds {
			lit = fold(lit)
		}
		cost := 4 + len(lit)/8
		if n.text == "starts_with" {
			return func(s *Scratch) bool {
				v, ok := whole(s)
				return ok && s.spend(cost) && strings.HasPrefix(v, lit)
			}
		}
		return func(s *Scratch) bool {
			v, ok := whole(s)
			return ok && s.spend(cost) && strings.HasSuffix(v, lit)
		}
	}
	if folds && !n.args[1].ofPath {
		part = foldText(part)
	}
	return func(s *Scratch) bool {
		v, ok := whole(s)
		if !ok {
			return false
		}
		w, ok := part(s)
		return ok && s.spend(4+len(w)/8) && has(v, w)
	}
}

// compareText compiles comparisons of a text.
func (c compiler) compareText(n *node) test {
	v, lit := c.text(n.args[0]), n.text
	folds := c.folded && n.args[0].ofPath
	if folds {
		lit = fold(lit)
	}
	switch n.op {
	case opEq:
		cost := 4 + len(lit)/8
		return func(s *Scratch) bool {
			t, ok := v(s)
			return ok && s.spend(cost) && t == lit
		}
	case opContains:
		return contains(v, lit)
	case opMatches:
		a := n.automaton
		if folds {
			a = n.foldedAutomaton
		}
		return func(s *Scratch) bool {
			t, ok := v(s)
			return ok && s.spend(6+4*len(t)) && a.match(t)
		}
	case opWildcard:
		p := n.pattern
		if folds {
			p = n.foldedPattern
		}
		return func(s *Scratch) bool {
			t, ok := v(s)
			return ok && s.spend(6+4*len(t)) && p.match(t)
		}
	case opIn:
		texts, longest := n.texts, n.longest
		if folds {
			if texts = n.folded; len(texts) > 0 {
				longest *= 3 // a folded letter may be longer
			}
		}
		return func(s *Scratch) bool {
			t, ok := v(s)
			if !ok || len(t) > longest || !s.spend(24+len(t)/2) {
				return false
			}
			_, found := texts[t]
			return found
		}
	default:
		holds := holdsFor(n.op)
		cost := 6 + len(lit)/8
		return func(s *Scratch) bool {
			t, ok := v(s)
			return ok && s.spend(cost) && holds(cmp.Compare(t, lit))
		}
	}
}

// contains searches a short text with strings.Contains and a long one in linear time.
func contains(v textFn, lit string) test {
	if len(lit) > 32 {
		p := &pattern{}
		q := newPiece(lit)
		return func(s *Scratch) bool {
			t, ok := v(s)
			return ok && s.spend(6+4*len(t)) && p.find(t, &q) >= 0
		}
	}
	return func(s *Scratch) bool {
		t, ok := v(s)
		return ok && s.spend(6+len(t)/2) && strings.Contains(t, lit)
	}
}
