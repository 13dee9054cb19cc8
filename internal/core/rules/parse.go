package rules

import (
	"net/netip"
	"slices"
	"unicode/utf8"
)

// op is the operation of a node.
type op uint8

const (
	opField  op = iota
	opText      // a literal
	opNumber    // a literal
	opAt        // element of a list by index
	opNamed     // list of a map by name
	opEach      // every element of a list, inside any or all
	opCall
	opNot
	opAnd
	opOr
	opXor
	opAny
	opAll
	opEq
	opNe
	opLt
	opLe
	opGt
	opGe
	opContains
	opMatches
	opWildcard
	opIn
)

// node is a node of the syntax tree.
type node struct {
	op     op
	kind   kindOf
	at     int // first byte
	args   []*node
	ofPath bool // depends on the path
	each   int  // number of [*] in it, outside any and all
	spread bool // of a call: [*] follows it

	text   string // literal, name of a field or a function, key
	number int64  // literal, index
	addr   netip.Addr
	field  field

	pattern, foldedPattern     *pattern
	automaton, foldedAutomaton *automaton
	texts                      map[string]struct{}
	folded                     map[string]struct{} // texts after folding
	longest                    int                 // length of the longest text in bytes
	numbers                    []numberRange
	ranges                     []addrRange
	networks                   *Networks
}

type numberRange = span[int64]

// parser parses an expression into a tree and checks its types.
type parser struct {
	scanner
	from    Sources
	depth   int
	matches int
	needs   Needs
}

func (p *parser) parse() (root *node) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(stop); !ok {
				panic(r)
			}
		}
	}()
	if !utf8.ValidString(p.in) {
		p.fail(0, "an expression is UTF-8")
	}
	if n := utf8.RuneCountInString(p.in); n > MaxExpression {
		p.fail(0, "an expression has at most %d characters, this one has %d", MaxExpression, n)
	}
	root = p.or()
	if p.space(); p.at < len(p.in) {
		p.expected("and, or, xor or the end")
	}
	if root.kind != boolKind && root.kind != badKind {
		p.fault(root.at, "the expression is %v: it must be true or false", root.kind)
	}
	p.noEach(root)
	return root
}

func (p *parser) or() *node {
	return p.chain(opOr, "or", "||", func() *node {
		return p.chain(opXor, "xor", "^^", func() *node {
			return p.chain(opAnd, "and", "&&", p.simple)
		})
	})
}

// chain parses operands joined by words of one kind.
func (p *parser) chain(o op, word, sign string, next func() *node) *node {
	one := next()
	all := []*node{one}
	for p.word(word) || p.sign(sign) {
		all = append(all, next())
	}
	if len(all) == 1 {
		return one
	}
	n := &node{op: o, kind: boolKind, at: one.at, args: all}
	for _, a := range all {
		p.truth(a, "%v is an operand of %s: it must be true or false", word)
		n.inherit(a)
	}
	return n
}

// inherit adds the dependencies of an argument.
func (n *node) inherit(a *node) {
	n.ofPath = n.ofPath || a.ofPath
	n.each += a.each
}

// truth requires a Boolean.
func (p *parser) truth(n *node, format, word string) {
	if n.kind != boolKind && n.kind != badKind {
		p.fault(n.at, format, n.kind, word)
	}
}

// noEach requires that [*] is inside any or all.
func (p *parser) noEach(n *node) {
	if n.each > 0 {
		p.fault(n.at, "[*] stands for many values: put the comparison into any(…) or all(…)")
	}
}

// deeper counts the nesting depth.
func (p *parser) deeper() func() {
	if p.depth++; p.depth > MaxDepth {
		p.fail(p.at, "more than %d parentheses, negations and calls inside each other", MaxDepth)
	}
	return func() { p.depth-- }
}

func (p *parser) simple() *node {
	p.space()
	at := p.at
	switch {
	case p.sign("("):
		defer p.deeper()()
		n := p.or()
		if !p.sign(")") {
			p.expected("and, or, xor or )")
		}
		return n
	case p.word("not"), p.sign("!"):
		defer p.deeper()()
		a := p.simple()
		p.truth(a, "%v is the operand of %s: it must be true or false", "not")
		n := &node{op: opNot, kind: boolKind, at: at, args: []*node{a}}
		n.inherit(a)
		return n
	}
	o := opAny
	switch wordAt(p.in[p.at:]) {
	case "all":
		o = opAll
	case "any":
	default:
		return p.comparison()
	}
	p.at += 3
	if !p.sign("(") {
		p.expected("(")
	}
	defer p.deeper()()
	a := p.or()
	if !p.sign(")") {
		p.expected(")")
	}
	p.truth(a, "%v is inside %s: it must be true or false", "any or all")
	if a.each != 1 && a.kind != badKind && !a.hasBad() {
		p.fault(a.at, "any and all take a comparison with one [*], got %d of them", a.each)
	}
	return &node{op: o, kind: boolKind, at: at, args: []*node{a}, ofPath: a.ofPath}
}

// hasBad reports whether a fault in n was already reported.
func (n *node) hasBad() bool { return n.kind == badKind || slices.ContainsFunc(n.args, (*node).hasBad) }

var operators = []struct {
	word, sign string
	op         op
}{
	{"eq", "==", opEq},
	{"ne", "!=", opNe},
	{"le", "<=", opLe},
	{"lt", "<", opLt},
	{"ge", ">=", opGe},
	{"gt", ">", opGt},
	{"contains", "", opContains},
	{"matches", "~", opMatches},
	{"wildcard", "", opWildcard},
	{"in", "", opIn},
}

// comparison parses a value and its comparison.
func (p *parser) comparison() *node {
	v := p.value()
	p.space()
	at, strict := p.at, p.word("strict")
	for _, o := range operators {
		if strict && o.op != opWildcard {
			continue
		}
		if p.word(o.word) || o.sign != "" && p.sign(o.sign) {
			n := &node{op: o.op, kind: boolKind, at: v.at, args: []*node{v}}
			n.inherit(v)
			p.operand(n, v, at, strict)
			return n
		}
	}
	if strict {
		p.expected("wildcard")
	}
	if wordAt(p.in[p.at:]) == "not" {
		p.fail(p.at, "not precedes the value: not %s in …", p.in[v.at:at])
	}
	if v.kind != boolKind && v.kind != badKind {
		p.fault(v.at, "%v must be compared with something: eq, ne, lt, le, gt, ge, contains, matches, wildcard or in", v.kind)
		v.kind = badKind
	}
	return v
}

// operand parses the right side of a comparison of v.
func (p *parser) operand(n, v *node, at int, strict bool) {
	kind := v.kind
	bad := func(what string) {
		p.fault(at, "%s, not with %v", what, kind)
		kind = badKind
	}
	switch {
	case kind == badKind:
	case kind == boolKind:
		bad("a Boolean is used alone or after not: an operator takes a text, a number or an address")
	case kind == textsKind || kind == mapKind:
		bad("one value is compared: pick one by [0], or all by [*] in any(…) or all(…)")
	case (n.op == opContains || n.op == opMatches || n.op == opWildcard) && kind != textKind:
		bad("contains, matches and wildcard go with a text")
	}
	p.space()
	from := p.at
	switch n.op {
	case opIn:
		p.members(n, kind)
	case opMatches:
		text := p.quoted(true)
		if p.matches++; p.matches > MaxMatches {
			p.fault(from, "more than %d regular expressions in one expression", MaxMatches)
		} else if len(text) > MaxPattern {
			p.fault(from, "a regular expression has at most %d bytes, this one has %d", MaxPattern, len(text))
		} else {
			n.text = text
			reason := ""
			if n.automaton, reason = newAutomaton(text, false); reason == "" && v.ofPath {
				n.foldedAutomaton, reason = newAutomaton(text, true)
			}
			if reason != "" {
				p.fault(from, "%s", reason)
			}
		}
	case opWildcard:
		n.text, n.number = p.quoted(false), 1
		if strict {
			n.number = 0
		}
		reason := ""
		if n.pattern, reason = newPattern(n.text, !strict); reason == "" && v.ofPath {
			n.foldedPattern, reason = newPattern(fold(n.text), true)
		}
		if reason != "" {
			p.fault(from, "%s", reason)
		}
	default:
		p.literal(n, kind)
	}
}
