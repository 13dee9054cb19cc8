package rules

import (
	"fmt"
	"slices"
	"strings"
)

// value parses a field or a call, and its index.
func (p *parser) value() *node {
	p.space()
	at := p.at
	if p.quotes() {
		p.fail(at, "a comparison begins with a field or a function, followed by the text")
	}
	name := wordAt(p.in[p.at:])
	if name == "" || '0' <= name[0] && name[0] <= '9' {
		p.expected("a field, a function, not or (")
	}
	if slices.Contains([]string{"AND", "OR", "XOR", "NOT"}, name) ||
		slices.Contains([]string{"and", "or", "xor", "in", "eq", "ne"}, name) {
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
	case strings.HasPrefix(name, "cf.bot_management.") || name == "cf.threat_score" ||
		strings.HasPrefix(name, "http.response."):
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

// pick parses the index of a list or a map.
func (p *parser) pick(from *node) *node {
	p.space()
	n := &node{at: from.at, args: []*node{from}}
	n.inherit(from)
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
		if from.op == opCall && from.each == 1 && !from.spread { // a function of each value: its results are a list
			n, from.spread = from, true
			break
		}
		switch from.kind {
		case mapKind:
			n.kind = textsKind // of all names; a second [*] iterates over them
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

// function is a function of the language.
type function struct {
	args   []kindOf // textKind or the listed types; arguments from least on are optional
	least  int
	more   bool // the last may repeat
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

// elsewhere are functions of the language that waiting rooms do not support.
var elsewhere = []string{
	"regex_replace", "wildcard_replace", "to_string", "uuidv4", "split", "join", "cidr", "cidr6", "decode_base64",
	"encode_base64", "sha256", "remove_bytes", "remove_query_args", "lookup_json_string", "lookup_json_integer",
	"is_timed_hmac_valid_v0", "bit_slice", "has_key", "has_value",
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
		n.inherit(a)
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

// argument parses a literal or a value.
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
