package rules

import (
	"cmp"
	"slices"
)

// caseSafe reports whether a result of n (true, or false if positive is not set) for a case-sensitive site holds
// for a case-insensitive one too.
func (n *node) caseSafe(positive bool) bool {
	if !n.ofPath {
		return true
	}
	switch n.op {
	case opAnd, opOr:
		return !slices.ContainsFunc(n.args, func(a *node) bool { return !a.caseSafe(positive) })
	case opNot:
		return n.args[0].caseSafe(!positive)
	case opEq, opContains, opWildcard, opIn:
		return positive && n.args[0].keepsCase()
	case opCall:
		return positive && (n.text == "starts_with" || n.text == "ends_with") && n.args[0].keepsCase() &&
			n.args[1].op == opText
	case opField, opText, opNumber, opAt, opNamed, opEach, opXor, opAny, opAll, opNe, opLt, opLe, opGt, opGe, opMatches:
	}
	return false
}

// keepsCase reports whether two paths that differ only in letter case give texts that differ only in letter case.
func (n *node) keepsCase() bool {
	return n.op == opField || n.op == opCall && (n.text == "lower" || n.text == "upper") && n.args[0].keepsCase()
}

// compiler turns nodes into closures. With folded, for sites that ignore the letter case of paths, it folds paths
// and the literals compared with them.
type compiler struct{ folded bool }

func never(*Scratch) bool { return false }

func (c compiler) boolean(n *node) test {
	switch n.op {
	case opNot:
		a := c.boolean(n.args[0])
		return func(s *Scratch) bool { return !a(s) }
	case opAnd, opOr, opXor:
		return c.chain(n)
	case opAny, opAll:
		return c.quantified(n)
	case opField:
		return n.field.truth
	case opCall:
		return c.affix(n)
	case opEq, opNe, opLt, opLe, opGt, opGe, opContains, opMatches, opWildcard, opIn:
		switch n.args[0].kind {
		case textKind:
			return c.compareText(n)
		case intKind:
			return c.compareNumber(n)
		case addrKind:
			return compareAddr(n)
		case badKind, boolKind, textsKind, mapKind:
		}
	case opText, opNumber, opAt, opNamed, opEach:
	}
	return never // rejected by the parser
}

func (c compiler) chain(n *node) test {
	all := make([]test, len(n.args))
	for i, a := range n.args {
		all[i] = c.boolean(a)
	}
	if a, b := all[0], all[1]; len(all) == 2 && n.op != opXor {
		if n.op == opAnd {
			return func(s *Scratch) bool { return a(s) && b(s) }
		}
		return func(s *Scratch) bool { return a(s) || b(s) }
	}
	switch n.op {
	case opAnd:
		return func(s *Scratch) bool {
			for _, t := range all {
				if !t(s) {
					return false
				}
			}
			return true
		}
	case opOr:
		return func(s *Scratch) bool {
			for _, t := range all {
				if t(s) {
					return true
				}
			}
			return false
		}
	default: // xor
		return func(s *Scratch) bool {
			odd := false
			for _, t := range all {
				odd = odd != t(s)
			}
			return odd
		}
	}
}

// quantified compiles any and all. Over an empty list both are false: the value is missing.
func (c compiler) quantified(n *node) test {
	list := c.list(n.args[0].eachOf())
	one := c.boolean(n.args[0])
	all := n.op == opAll
	return func(s *Scratch) bool {
		v, pos, ok := list(s, 0)
		if !ok {
			return false
		}
		for ok {
			s.elem = v
			if one(s) != all {
				return !all
			}
			v, pos, ok = list(s, pos)
		}
		return all && s.left >= 0
	}
}

// eachOf returns the list under the [*] in n.
func (n *node) eachOf() *node {
	if n.op == opEach && n.kind == textKind {
		return n.args[0]
	}
	for _, a := range n.args {
		if a.each > 0 {
			return a.eachOf()
		}
	}
	return nil
}

func (c compiler) list(n *node) listFn {
	switch n.op {
	case opNamed:
		return n.args[0].field.byName(n.text)
	case opEach: // all lists of a map
		return n.args[0].field.list
	default:
		return n.field.list
	}
}

func (c compiler) number(n *node) intFn {
	switch {
	case n.op == opNumber:
		v := n.number
		return func(*Scratch) (int64, bool) { return v, true }
	case n.op == opField:
		return n.field.number
	case n.args[0].kind == textsKind: // len
		list := c.list(n.args[0])
		return func(s *Scratch) (int64, bool) {
			count := int64(0)
			_, pos, ok := list(s, 0)
			for ; ok; count++ {
				_, pos, ok = list(s, pos)
			}
			return count, count > 0
		}
	}
	v := c.text(n.args[0])
	return func(s *Scratch) (int64, bool) {
		t, ok := v(s)
		return int64(len(t)), ok
	}
}

// holdsFor returns whether an operator accepts the order of two values.
func holdsFor(o op) func(order int) bool {
	switch o {
	case opNe:
		return func(o int) bool { return o != 0 }
	case opLt:
		return func(o int) bool { return o < 0 }
	case opLe:
		return func(o int) bool { return o <= 0 }
	case opGt:
		return func(o int) bool { return o > 0 }
	case opGe:
		return func(o int) bool { return o >= 0 }
	default:
		return func(o int) bool { return o == 0 }
	}
}

func (c compiler) compareNumber(n *node) test {
	v, lit, holds := c.number(n.args[0]), n.number, holdsFor(n.op)
	if n.op == opIn {
		all := n.numbers
		return func(s *Scratch) bool {
			i, ok := v(s)
			if !ok || !s.spend(20) {
				return false
			}
			return has(all, i)
		}
	}
	return func(s *Scratch) bool {
		i, ok := v(s)
		return ok && s.spend(3) && holds(cmp.Compare(i, lit))
	}
}

func compareAddr(n *node) test {
	if n.op == opIn {
		all := n.networks
		return func(s *Scratch) bool {
			return s.spend(60) && all.Has(s.req.Client)
		}
	}
	lit, holds, ne := n.addr, holdsFor(n.op), n.op == opNe
	return func(s *Scratch) bool {
		a := s.req.Client.Unmap().WithZone("")
		switch {
		case !a.IsValid() || !s.spend(6):
			return false
		case a.BitLen() != lit.BitLen():
			return ne
		}
		return holds(a.Compare(lit))
	}
}
