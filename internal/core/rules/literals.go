package rules

import (
	"net/netip"
	"slices"
	"strconv"
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

// token scans a number, an address or a network.
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
	n.numbers = merged(n.numbers)
}

// network parses an address, a network or a range of a set.
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

// quoted parses a text. In a regular expression it unescapes only \".
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
