package rules

import (
	"cmp"
	"slices"
	"strings"
)

// literal parses the literal that a value of this type is compared with.
func (p *parser) literal(n *node, kind kindOf) {
	from := p.at
	switch kind {
	case textKind:
		n.text = p.quoted(false)
	case intKind:
		n.number = p.number(p.token())
	case addrKind:
		n.addr = p.address(from, p.token())
	case badKind, boolKind, textsKind, mapKind: // already reported
		if p.quotes() {
			p.quoted(false)
		} else if p.token() == "" {
			p.expected("a value")
		}
	}
}

// members parses a set or the name of a list.
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
	n.numbers = merged(n.numbers, cmp.Compare[int64])
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
