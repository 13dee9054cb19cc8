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

// op is what a node of an expression does.
type op uint8

const (
	opField  op = iota
	opText      // a literal
	opNumber    // a literal
	opAt        // a list's element by its number
	opNamed     // a map's list by its name
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

// node is a part of an expression.
type node struct {
	op     op
	kind   kindOf
	at     int // byte where it begins
	args   []*node
	ofPath bool // depends on the path
	each   int  // how many [*] are in it, outside any and all

	text   string // literal, name of a field or a function, key
	number int64  // literal, index
	addr   netip.Addr
	field  field

	pattern, foldedPattern     *pattern
	automaton, foldedAutomaton *automaton
	texts                      map[string]struct{}
	folded                     map[string]struct{} // texts, folded
	longest                    int                 // bytes of the longest of texts
	numbers                    []numberRange
	ranges                     []addrRange
	networks                   *Networks
}

type numberRange struct{ from, to int64 }

// stop ends parsing: what comes cannot be told apart.
type stop struct{}

type parser struct {
	in      string
	from    Sources
	at      int
	depth   int
	matches int
	faults  []Fault // At is a byte, from 0
	needs   Needs
}

// told returns the faults in their order, by characters.
func (p *parser) told() Faults {
	slices.SortStableFunc(p.faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	for i := range p.faults {
		p.faults[i].At = utf8.RuneCountInString(p.in[:min(p.faults[i].At, len(p.in))]) + 1
	}
	return p.faults
}

func (p *parser) fault(at int, format string, a ...any) {
	p.faults = append(p.faults, Fault{at, fmt.Sprintf(format, a...)})
}

// fail tells a fault behind which nothing can be read.
func (p *parser) fail(at int, format string, a ...any) {
	p.fault(at, format, a...)
	panic(stop{})
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

func (p *parser) space() {
	for p.at < len(p.in) && strings.IndexByte(" \t\r\n", p.in[p.at]) >= 0 {
		p.at++
	}
}

// expected fails with what is there instead.
func (p *parser) expected(what string) {
	p.space()
	rest := p.in[p.at:]
	if rest == "" {
		p.fail(p.at, "expected %s, and the expression ends", what)
	}
	word := wordAt(rest)
	if word == "" {
		_, n := utf8.DecodeRuneInString(rest)
		word = rest[:n]
	}
	if lower := strings.ToLower(word); lower != word && slices.Contains([]string{"and", "or", "xor", "not", "in", "eq", "ne", "lt", "le", "gt", "ge", "contains", "matches", "wildcard", "strict", "any", "all"}, lower) {
		p.fail(p.at, "%q: words are in lower case: %s", word, lower)
	}
	p.fail(p.at, "expected %s, got %q", what, word)
}

func wordAt(s string) string {
	n := 0
	for n < len(s) && (s[n] == '_' || s[n] == '.' || '0' <= s[n] && s[n] <= '9' || 'a' <= s[n] && s[n] <= 'z' || 'A' <= s[n] && s[n] <= 'Z') {
		n++
	}
	return s[:n]
}

// word takes a word if it comes next.
func (p *parser) word(w string) bool {
	p.space()
	if wordAt(p.in[p.at:]) != w {
		return false
	}
	p.at += len(w)
	return true
}

// sign takes a sign if it comes next.
func (p *parser) sign(s string) bool {
	p.space()
	if !strings.HasPrefix(p.in[p.at:], s) {
		return false
	}
	p.at += len(s)
	return true
}

func (p *parser) or() *node {
	return p.chain(opOr, "or", "||", func() *node {
		return p.chain(opXor, "xor", "^^", func() *node {
			return p.chain(opAnd, "and", "&&", p.simple)
		})
	})
}

// chain reads what stands between words of one kind.
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
		p.truth(a, "%v stands beside %s: it must be true or false", word)
		n.take(a)
	}
	return n
}

// take notes what an argument depends on.
func (n *node) take(a *node) {
	n.ofPath = n.ofPath || a.ofPath
	n.each += a.each
}

// truth demands a Boolean.
func (p *parser) truth(n *node, format, word string) {
	if n.kind != boolKind && n.kind != badKind {
		p.fault(n.at, format, n.kind, word)
	}
}

// noEach demands that [*] stands inside any or all.
func (p *parser) noEach(n *node) {
	if n.each > 0 {
		p.fault(n.at, "[*] stands for many values: put the comparison into any(…) or all(…)")
	}
}

// deeper counts what is inside each other.
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
		p.truth(a, "%v stands behind %s: it must be true or false", "not")
		n := &node{op: opNot, kind: boolKind, at: at, args: []*node{a}}
		n.take(a)
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

// hasBad reports whether a fault in n was told, so that no more is said of it.
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

// comparison reads a value, and what it is compared with.
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
			n.take(v)
			p.operand(n, v, at, strict)
			return n
		}
	}
	if strict {
		p.expected("wildcard")
	}
	if wordAt(p.in[p.at:]) == "not" {
		p.fail(p.at, "not stands before the value: not %s in …", p.in[v.at:at])
	}
	if v.kind != boolKind && v.kind != badKind {
		p.fault(v.at, "%v must be compared with something: eq, ne, lt, le, gt, ge, contains, matches, wildcard or in", v.kind)
		v.kind = badKind
	}
	return v
}

// operand reads what v is compared with.
func (p *parser) operand(n, v *node, at int, strict bool) {
	kind := v.kind
	bad := func(what string) {
		p.fault(at, "%s, not with %v", what, kind)
		kind = badKind
	}
	switch {
	case kind == badKind:
	case kind == boolKind:
		bad("a Boolean stands alone or behind not: an operator goes with a text, a number or an address")
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

// literal reads what a value of this type is compared with.
func (p *parser) literal(n *node, kind kindOf) {
	from := p.at
	switch kind {
	case textKind:
		n.text = p.quoted(false)
	case intKind:
		n.number = p.number(p.token())
	case addrKind:
		n.addr = p.address(from, p.token())
	case badKind, boolKind, textsKind, mapKind: // told already
		if p.quotes() {
			p.quoted(false)
		} else if p.token() == "" {
			p.expected("a value")
		}
	}
}

// token reads a number, an address or a network.
func (p *parser) token() string {
	from := p.at
	for p.at < len(p.in) && strings.IndexByte(" \t\r\n(){}[]\"$,&|^!=<>", p.in[p.at]) < 0 {
		p.at++
	}
	return p.in[from:p.at]
}

func (p *parser) number(t string) int64 {
	at := p.at - len(t)
	if t == "" {
		p.expected("a number")
	}
	if strings.ContainsAny(t, "_bBoO") && !strings.HasPrefix(strings.TrimPrefix(t, "-"), "0x") || strings.HasPrefix(t, "+") || strings.Contains(t, "_") {
		p.fault(at, "%q is not a whole number", clip(t))
		return 0
	}
	v, err := strconv.ParseInt(t, 0, 64)
	if err != nil {
		p.fault(at, "%q is not a whole number", clip(t))
	}
	return v
}

func (p *parser) address(at int, t string) netip.Addr {
	if t == "" {
		p.expected("an address")
	}
	if strings.Contains(t, "/") {
		p.fault(at, "a network stands only in braces: ip.src in {%s}", clip(t))
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(t)
	if err != nil || a.Zone() != "" {
		p.fault(at, "%q is not an address", clip(t))
		return netip.Addr{}
	}
	return a.Unmap()
}

func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// members reads a set or the name of a list.
func (p *parser) members(n *node, kind kindOf) {
	at := p.at
	if p.sign("$") {
		p.list(n, kind, at)
		return
	}
	if !p.sign("{") {
		p.expected("{ or $")
	}
	var ranges []addrRange
	n.texts = map[string]struct{}{}
	count := 0
	for p.space(); !p.sign("}"); p.space() {
		if p.at == len(p.in) {
			p.expected("}")
		}
		if p.in[p.at] == ',' {
			p.fail(p.at, "members of a set have spaces between them, no commas")
		}
		if count++; count == MaxSet+1 {
			p.fault(p.at, "a set has at most %d members", MaxSet)
		}
		from := p.at
		if kind == textKind || kind == badKind && p.quotes() {
			text := p.quoted(false)
			n.texts[text] = struct{}{}
			n.longest = max(n.longest, len(text))
			continue
		}
		t := p.token()
		if t == "" {
			p.expected("a member of the set or }")
		}
		low, high, isRange := strings.Cut(t, "..")
		switch kind {
		case badKind:
		case intKind:
			p.at = from + len(low)
			r := numberRange{from: p.number(low)}
			r.to = r.from
			if p.at = from + len(t); isRange {
				r.to = p.number(high)
			}
			if r.from > r.to {
				p.fault(from, "the range %s ends before it begins", clip(t))
			}
			n.numbers = append(n.numbers, r)
		default:
			if r, ok := p.network(from, low, high, isRange); ok {
				ranges = append(ranges, r)
			}
		}
	}
	if count == 0 {
		p.fault(at, "a set has a member at least")
	}
	if n.args[0].ofPath {
		n.folded = map[string]struct{}{}
		for text := range n.texts {
			n.folded[fold(text)] = struct{}{}
		}
	}
	n.ranges, n.networks = ranges, newNetworks(ranges)
	n.numbers = merged(n.numbers)
}

// network reads an address, a network or a range of a set.
func (p *parser) network(at int, low, high string, isRange bool) (addrRange, bool) {
	if !isRange && strings.Contains(low, "/") {
		n, err := netip.ParsePrefix(low)
		switch {
		case err != nil:
			p.fault(at, "%q is not a network", clip(low))
			return addrRange{}, false
		case n.Masked() != n:
			p.fault(at, "%s has bits behind its network: it is %s", low, n.Masked())
			return addrRange{}, false
		}
		return rangeOf(n), true
	}
	before := len(p.faults)
	r := addrRange{from: p.address(at, low)}
	if r.to = r.from; isRange {
		r.to = p.address(at, high)
	}
	if len(p.faults) > before {
		return addrRange{}, false
	}
	if r.from.BitLen() != r.to.BitLen() || r.to.Less(r.from) {
		p.fault(at, "the range %s..%s ends before it begins", low, high)
		return addrRange{}, false
	}
	return r, true
}

func (p *parser) list(n *node, kind kindOf, at int) {
	name := wordAt(p.in[p.at:])
	if name == "" {
		p.expected("the name of a list")
	}
	p.at += len(name)
	n.text = name
	if kind != addrKind && kind != badKind {
		p.fault(at, "a named list holds addresses, and this is %v", kind)
		return
	}
	if !slices.Contains(p.needs.Lists, name) {
		p.needs.Lists = append(p.needs.Lists, name)
	}
	if p.from.Unknown {
		return
	}
	if n.networks = p.from.Lists[name]; n.networks == nil {
		p.fault(at, "there is no list $%s", clip(name))
	}
}

// quotes reports whether a quoted text comes next.
func (p *parser) quotes() bool {
	rest := p.in[p.at:]
	if strings.HasPrefix(rest, `"`) {
		return true
	}
	if !strings.HasPrefix(rest, "r") {
		return false
	}
	return strings.HasPrefix(strings.TrimLeft(rest[1:], "#"), `"`)
}

// quoted reads a text. Of a regular expression only \" is unescaped.
func (p *parser) quoted(regex bool) string {
	if p.space(); !p.quotes() {
		p.expected("a text in quotation marks")
	}
	start := p.at
	if p.in[p.at] == 'r' {
		hashes := len(p.in[p.at+1:]) - len(strings.TrimLeft(p.in[p.at+1:], "#"))
		from := p.at + 1 + hashes + 1
		end := `"` + p.in[p.at+1:p.at+1+hashes]
		n := strings.Index(p.in[from:], end)
		if n < 0 || hashes > 255 {
			p.fail(start, "the text is not closed")
		}
		p.at = from + n + len(end)
		return p.in[from : from+n]
	}
	var b strings.Builder
	for i := p.at + 1; i < len(p.in); i++ {
		switch c := p.in[i]; {
		case c == '"':
			p.at = i + 1
			return b.String()
		case c != '\\':
			b.WriteByte(c)
		case i+1 == len(p.in):
		case p.in[i+1] == '"' || p.in[i+1] == '\\' && !regex:
			i++
			b.WriteByte(p.in[i])
		case regex:
			b.WriteByte(c)
			i++
			b.WriteByte(p.in[i])
		default:
			n, base := 3, 8
			digits := i + 1
			if p.in[i+1] == 'x' {
				n, base, digits = 2, 16, i+2
			}
			v, err := uint64(0), strconv.ErrSyntax
			if digits+n <= len(p.in) {
				v, err = strconv.ParseUint(p.in[digits:digits+n], base, 8)
			}
			if err != nil {
				p.fail(i, `a backslash stands before ", \, xHH or three octal digits; r"…" takes it as it is`)
			}
			b.WriteByte(byte(v))
			i = digits + n - 1
		}
	}
	p.fail(start, "the text is not closed")
	return ""
}

// value reads a field or a call, and what is picked of it.
func (p *parser) value() *node {
	p.space()
	at := p.at
	if p.quotes() {
		p.fail(at, "a comparison begins with a field or a function, its text stands behind")
	}
	name := wordAt(p.in[p.at:])
	if name == "" || '0' <= name[0] && name[0] <= '9' {
		p.expected("a field, a function, not or (")
	}
	if slices.Contains([]string{"AND", "OR", "XOR", "NOT"}, name) || slices.Contains([]string{"and", "or", "xor", "in", "eq", "ne"}, name) {
		p.expected("a field, a function, not or (")
	}
	p.at += len(name)
	var n *node
	if p.sign("(") {
		n = p.call(at, name)
	} else {
		n = p.field(at, name)
	}
	for p.sign("[") {
		n = p.pick(n)
	}
	return n
}

func (p *parser) field(at int, name string) *node {
	n := &node{op: opField, at: at, text: name}
	f, ok := fields[name]
	switch {
	case ok:
	case functions[name] != nil || name == "any" || name == "all":
		p.fault(at, "%s is a function: %s(…)", name, name)
		return n
	case strings.HasPrefix(name, "cf.bot_management.") || name == "cf.threat_score" || strings.HasPrefix(name, "http.response."):
		p.fault(at, "%s is not there for rules of waiting rooms", name)
		return n
	default:
		p.fault(at, "unknown field %s", clip(name))
		return n
	}
	if f.geo {
		if p.needs.Geo = true; !p.from.Unknown && !p.from.Geo {
			p.fault(at, "%s needs a file of countries and networks (geo.file), and there is none", name)
		}
	}
	if f.bot {
		if p.needs.Crawlers = true; !p.from.Unknown && !p.from.Crawlers {
			p.fault(at, "%s needs the address ranges of crawlers (rules.crawlers), and there are none", name)
		}
	}
	p.needs.Visitor = p.needs.Visitor || !f.url
	n.kind, n.field, n.ofPath = f.kind, f, f.ofPath
	return n
}

// pick reads what is picked of a list or a map.
func (p *parser) pick(from *node) *node {
	p.space()
	n := &node{at: from.at, args: []*node{from}}
	n.take(from)
	at := p.at
	switch {
	case p.quotes():
		n.op, n.text = opNamed, p.quoted(false)
		if from.kind == mapKind {
			n.kind = textsKind
			if strings.HasSuffix(from.text, ".headers") && lowerASCII(n.text) != n.text {
				p.fault(at, "names of headers are in lower case: %q", lowerASCII(n.text))
			}
		} else if from.kind != badKind {
			p.fault(at, "%v has no names", from.kind)
		}
	case p.sign("*"):
		n.op = opEach
		switch from.kind {
		case mapKind:
			n.kind = textsKind // of all names; a second [*] goes through them
		case textsKind:
			n.kind = textKind
			n.each++
		case badKind:
		case boolKind, intKind, textKind, addrKind:
			p.fault(at, "%v is one value: [*] goes through a list", from.kind)
		}
	default:
		n.op = opAt
		t := p.token()
		if n.number = p.number(t); n.number < 0 || n.number > 1<<16 {
			p.fault(at, "an index is 0 to %d", 1<<16)
		}
		if from.kind == textsKind && from.op != opEach {
			n.kind = textKind
		} else if from.kind != badKind {
			p.fault(at, "%v has no elements: only a list has", from.kind)
		}
	}
	if !p.sign("]") {
		p.expected("]")
	}
	return n
}

// function is what can be called.
type function struct {
	args   []kindOf // textKind, or what it says; the last may be left out up to least
	least  int
	more   bool // the last may be repeated
	result kindOf
}

var functions = map[string]*function{
	"lower":       {args: []kindOf{textKind}, least: 1, result: textKind},
	"upper":       {args: []kindOf{textKind}, least: 1, result: textKind},
	"starts_with": {args: []kindOf{textKind, textKind}, least: 2, result: boolKind},
	"ends_with":   {args: []kindOf{textKind, textKind}, least: 2, result: boolKind},
	"len":         {args: []kindOf{textKind}, least: 1, result: intKind},
	"concat":      {args: []kindOf{textKind}, least: 1, more: true, result: textKind},
	"url_decode":  {args: []kindOf{textKind, textKind}, least: 1, result: textKind},
	"substring":   {args: []kindOf{textKind, intKind, intKind}, least: 2, result: textKind},
}

// elsewhere are functions of the language that waiting rooms do not have.
var elsewhere = []string{
	"regex_replace", "wildcard_replace", "to_string", "uuidv4", "split", "join", "cidr", "cidr6", "decode_base64", "encode_base64", "sha256", "remove_bytes",
	"remove_query_args", "lookup_json_string", "lookup_json_integer", "is_timed_hmac_valid_v0", "bit_slice", "has_key", "has_value",
}

func (p *parser) call(at int, name string) *node {
	defer p.deeper()()
	n := &node{op: opCall, at: at, text: name}
	f := functions[name]
	if f == nil {
		if slices.Contains(elsewhere, name) {
			p.fault(at, "%s is not there for rules of waiting rooms", name)
		} else {
			p.fault(at, "unknown function %s", clip(name))
		}
	} else {
		n.kind = f.result
	}
	for !p.sign(")") {
		if len(n.args) > 0 && !p.sign(",") {
			p.expected(", or )")
		}
		a := p.argument()
		n.args = append(n.args, a)
		n.take(a)
	}
	if f == nil {
		return n
	}
	if len(n.args) < f.least || len(n.args) > len(f.args) && !f.more {
		p.fault(at, "%s takes %s, got %d", name, counted(f), len(n.args))
		n.kind = badKind
		return n
	}
	for i, a := range n.args {
		want := f.args[min(i, len(f.args)-1)]
		switch {
		case a.kind == want || a.kind == badKind:
		case name == "len" && a.kind == textsKind && a.op != opEach:
		case name == "concat" && a.kind == intKind:
		default:
			p.fault(a.at, "argument %d of %s is %v, not %v", i+1, name, want, a.kind)
		}
		if want == intKind && a.kind == intKind && a.op != opNumber {
			p.fault(a.at, "argument %d of %s is a literal number", i+1, name)
		}
	}
	if name == "url_decode" && len(n.args) > 1 {
		if o := n.args[1]; o.op != opText || strings.Trim(o.text, "ru") != "" {
			p.fault(o.at, `the options of url_decode are "r" and "u"`)
		}
	}
	if a := n.args[0]; a.op == opText && name != "concat" {
		p.fault(a.at, "the first argument of %s is no literal", name)
	}
	return n
}

func counted(f *function) string {
	switch {
	case f.more:
		return "one argument or more"
	case f.least == len(f.args) && f.least == 1:
		return "one argument"
	case f.least == len(f.args):
		return fmt.Sprintf("%d arguments", f.least)
	}
	return fmt.Sprintf("%d or %d arguments", f.least, len(f.args))
}

// argument reads a literal or a value.
func (p *parser) argument() *node {
	p.space()
	at := p.at
	if p.quotes() {
		return &node{op: opText, kind: textKind, at: at, text: p.quoted(false)}
	}
	if p.at < len(p.in) && (p.in[p.at] == '-' || '0' <= p.in[p.at] && p.in[p.at] <= '9') {
		return &node{op: opNumber, kind: intKind, at: at, number: p.number(p.token())}
	}
	return p.value()
}
