package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// twin evaluates an expression naively: by walking its tree, with maps, copies and package regexp.
type twin struct {
	req    *Request
	path   string
	folded bool
	elem   string
}

func twinMatch(root *node, req *Request) bool {
	for _, path := range req.Paths {
		exact := twin{req: req, path: path}
		folded := twin{req: req, path: fold(path), folded: true}
		if exact.value(root) != true || folded.value(root) != true {
			return false
		}
	}
	return len(req.Paths) > 0
}

func (w twin) header(name string) (all []string) {
	for _, h := range w.req.Headers {
		if strings.EqualFold(h.Name, name) {
			all = append(all, h.Value)
		}
	}
	return all
}

func (w twin) pairs(n *node) (names, values []string) {
	switch {
	case strings.Contains(n.text, "uri.args"):
		for a := range strings.SplitSeq(w.req.Query, "&") {
			if name, value, _ := strings.Cut(a, "="); a != "" {
				names, values = append(names, name), append(values, value)
			}
		}
	case strings.Contains(n.text, "headers"):
		for _, h := range w.req.Headers {
			names, values = append(names, lowerASCII(h.Name)), append(values, h.Value)
		}
	default:
		for _, line := range w.header("cookie") {
			for c := range strings.SplitSeq(line, ";") {
				name, value, _ := strings.Cut(c, "=")
				names, values = append(names, strings.Trim(name, " \t")), append(values, strings.Trim(value, " \t"))
			}
		}
	}
	return names, values
}

func orNil(v string) any {
	if v == "" {
		return nil
	}
	return v
}

// value returns the value of a node, or nil if it is missing.
func (w twin) value(n *node) any {
	all := func() (out []any) {
		for _, a := range n.args {
			out = append(out, w.value(a))
		}
		return out
	}
	switch n.op {
	case opText:
		return n.text
	case opNumber:
		return n.number
	case opEach:
		if n.kind == textKind {
			return w.elem
		}
		_, values := w.pairs(n.args[0])
		return values
	case opNamed:
		names, values := w.pairs(n.args[0])
		var out []string
		for i := range names {
			if names[i] == n.text {
				out = append(out, values[i])
			}
		}
		return out
	case opAt:
		if l := w.value(n.args[0]).([]string); n.number < int64(len(l)) {
			return l[n.number]
		}
		return nil
	case opField:
		return w.field(n)
	case opCall:
		return w.call(n, all())
	case opNot:
		return w.value(n.args[0]) != true
	case opAnd:
		return !slices.ContainsFunc(all(), func(v any) bool { return v != true })
	case opOr:
		return slices.Contains(all(), any(true))
	case opXor:
		count := 0
		for _, v := range all() {
			if v == true {
				count++
			}
		}
		return count%2 == 1
	case opAny, opAll:
		l := w.value(n.args[0].eachOf()).([]string)
		for _, w.elem = range l {
			if (w.value(n.args[0]) == true) != (n.op == opAll) {
				return n.op == opAny
			}
		}
		return n.op == opAll && len(l) > 0
	default:
		return w.compare(n)
	}
}

func (w twin) field(n *node) any {
	r := w.req
	full := w.path
	if r.Query != "" {
		full += "?" + r.Query
	}
	casing := func(s string) string {
		if w.folded {
			return fold(s)
		}
		return s
	}
	name := strings.TrimPrefix(n.text, "raw.")
	switch strings.Replace(name, "ip.geoip.", "ip.src.", 1) {
	case "http.host":
		return r.Host
	case "http.request.method":
		return r.Method
	case "http.request.version":
		return orNil(r.Version)
	case "http.request.uri.path":
		return w.path
	case "http.request.uri":
		return casing(full)
	case "http.request.full_uri":
		return casing(r.Scheme + "://" + r.Host + full)
	case "http.request.uri.query":
		return r.Query
	case "http.request.uri.path.extension":
		last := w.path[strings.LastIndex(w.path, "/")+1:]
		if i := strings.LastIndex(last, "."); i >= 0 {
			return lowerASCII(last[i+1:])
		}
		return ""
	case "http.user_agent", "http.referer":
		if l := w.header(map[string]string{"http.user_agent": "user-agent", "http.referer": "referer"}[n.text]); len(l) > 0 {
			return l[0]
		}
		return nil
	case "http.cookie":
		if l := w.header("cookie"); len(l) > 0 {
			return strings.Join(l, "; ")
		}
		return nil
	case "http.request.timestamp.sec":
		return r.Time
	case "ip.src":
		if r.Client.IsValid() {
			return r.Client.Unmap()
		}
		return nil
	case "ip.src.country":
		return orNil(r.Country)
	case "ip.src.asnum":
		if r.ASN != 0 {
			return r.ASN
		}
		return nil
	case "ip.src.is_in_european_union":
		return r.EU
	case "cf.client.bot":
		return r.Crawler
	case "ssl":
		return r.Scheme == "https"
	case "http.request.headers.names", "http.request.uri.args.names":
		names, _ := w.pairs(n)
		return names
	case "http.request.headers.values", "http.request.uri.args.values":
		_, values := w.pairs(n)
		return values
	}
	panic("the twin does not know " + n.text)
}

func (w twin) call(n *node, args []any) any {
	if slices.Contains(args, nil) {
		if n.text == "starts_with" || n.text == "ends_with" {
			return false
		}
		return nil
	}
	s, _ := args[0].(string)
	var out string
	switch n.text {
	case "len":
		if l, ok := args[0].([]string); ok {
			if len(l) == 0 {
				return nil
			}
			return int64(len(l))
		}
		return int64(len(s))
	case "starts_with", "ends_with":
		t := args[1].(string)
		if w.folded && n.ofPath {
			s, t = fold(s), fold(t)
		}
		if n.text == "starts_with" {
			return strings.HasPrefix(s, t)
		}
		return strings.HasSuffix(s, t)
	case "lower":
		out = lowerASCII(s)
	case "upper":
		out = strings.Map(func(r rune) rune {
			if 'a' <= r && r <= 'z' {
				r -= 32
			}
			return r
		}, s)
	case "concat":
		for _, a := range args {
			out += fmt.Sprint(a)
		}
	case "substring":
		from, to := args[1].(int64), int64(len(s))
		if len(args) > 2 {
			to = args[2].(int64)
		}
		from, to = fromEnd(from, int64(len(s))), fromEnd(to, int64(len(s)))
		return s[from:max(from, to)]
	case "url_decode":
		for {
			was := s
			s = regexp.MustCompile(`\+|%[0-9A-Fa-f]{2}`).ReplaceAllStringFunc(s, func(m string) string {
				if m == "+" {
					return " "
				}
				var b byte
				fmt.Sscanf(m, "%%%02x", &b) //nolint:errcheck // the pattern takes nothing else
				return string([]byte{b})
			})
			if out = s; s == was || len(args) == 1 {
				break
			}
		}
	}
	if w.folded && n.ofPath {
		out = fold(out)
	}
	return out
}

func (w twin) compare(n *node) any {
	v := w.value(n.args[0])
	if v == nil {
		return false
	}
	folds := w.folded && n.args[0].ofPath
	lit := n.text
	if folds {
		lit = fold(lit)
	}
	switch n.op {
	case opContains:
		return strings.Contains(v.(string), lit)
	case opMatches:
		if lit = n.text; folds {
			lit = "(?i:" + lit + ")"
		}
		return regexp.MustCompile(lit).MatchString(v.(string))
	case opWildcard:
		parts := strings.Split(lit, "*") // these patterns have no backslashes
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		flags := "(?s)"
		if n.number == 1 || folds {
			flags = "(?si)"
		}
		return regexp.MustCompile(flags + "^" + strings.Join(parts, ".*") + "$").MatchString(v.(string))
	case opIn:
		switch v := v.(type) {
		case string:
			for t := range n.texts {
				if t == v || folds && fold(t) == v {
					return true
				}
			}
			return false
		case int64:
			return slices.ContainsFunc(n.numbers, func(r numberRange) bool { return r.from <= v && v <= r.to })
		default:
			return slices.ContainsFunc(n.ranges, func(r addrRange) bool {
				a := v.(netip.Addr)
				return a.BitLen() == r.from.BitLen() && a.Compare(r.from) >= 0 && a.Compare(r.to) <= 0
			})
		}
	default:
	}
	order := 0
	switch v := v.(type) {
	case string:
		order = cmp.Compare(v, lit)
	case int64:
		order = cmp.Compare(v, n.number)
	case netip.Addr:
		if v.BitLen() != n.addr.BitLen() {
			return n.op == opNe
		}
		order = v.Compare(n.addr)
	}
	return map[op]bool{
		opEq: order == 0, opNe: order != 0, opLt: order < 0, opLe: order <= 0, opGt: order > 0,
		opGe: order >= 0,
	}[n.op]
}

// words are the random values: few, so that they are often equal.
var words = []string{
	"", "/", "/a", "/A/b", "a", "A", "b", "ab", "aB.Js", "%41", "/a%2fb", "+", "k", "K", "x-a", "=",
	"é", "a\nb", "aab",
}

func pick(t *rapid.T, from ...string) string { return rapid.SampledFrom(from).Draw(t, "word") }

func someText(t *rapid.T, depth int) string {
	if depth > 0 && rapid.IntRange(0, 3).Draw(t, "call") == 0 {
		inner := someText(t, depth-1)
		switch rapid.IntRange(0, 5).Draw(t, "function") {
		case 0:
			return "lower(" + inner + ")"
		case 1:
			return "upper(" + inner + ")"
		case 2:
			return "url_decode(" + inner + pick(t, "", `,"r"`) + ")"
		case 3:
			return fmt.Sprintf("substring(%s,%d,%d)", inner, rapid.IntRange(-3, 3).Draw(t, "from"),
				rapid.IntRange(-3, 3).Draw(t, "to"))
		default:
			return "concat(" + inner + "," + someText(t, depth-1) + `, "a")`
		}
	}
	return pick(t, "http.host", "http.request.uri.path", "http.request.uri", "http.request.full_uri",
		"http.request.uri.query", "http.referer", "http.user_agent", "http.cookie",
		"http.request.uri.path.extension", `http.request.headers["x-a"][1]`, `http.request.cookies["a"][0]`,
		`http.request.uri.args["a"][0]`, "http.request.headers.names[1]", "ip.src.country")
}

func someTest(t *rapid.T, value string) string {
	lit := fmt.Sprintf("%q", pick(t, words...))
	switch rapid.IntRange(0, 6).Draw(t, "test") {
	case 0:
		return value + pick(t, " eq ", " != ", " < ", " ge ") + strings.ReplaceAll(lit, `\n`, `\x0a`)
	case 1:
		return value + " contains " + strings.ReplaceAll(lit, `\n`, `\012`)
	case 2:
		return value + " in {\"" + pick(t, "a", "/A/b", "") + "\" \"" + pick(t, "b", "/a", "K") + "\"}"
	case 3:
		return value + " matches " + pick(t, `"^/a"`, `"b$"`, `"(?m)^b"`, `"A|.{2,3}b"`, `"\b[a-k]+\b"`, `"[^a]"`, `"(?i)K"`,
			`"^$"`, `"é|\PL"`, `""`, `"\Ba"`, `"a+?b*c?$"`)
	case 4:
		return value + pick(t, " wildcard ", " strict wildcard ") + pick(t, `"*"`, `"/A*"`, `"*a*b"`, `"a*"`, `"*aab*a"`,
			`""`, `"K*"`)
	default:
		return pick(t, "starts_with(", "ends_with(") + value + "," + strings.ReplaceAll(lit, `\n`, `\x0a`) + ")"
	}
}

func someExpression(t *rapid.T, depth int) string {
	if depth == 0 {
		switch rapid.IntRange(0, 9).Draw(t, "leaf") {
		case 0:
			return pick(t, "ssl", "cf.client.bot", "ip.src.is_in_european_union")
		case 1:
			return "ip.src " + pick(t, "eq 10.0.0.1", "ne ::1", "in {10.0.0.0/30 ::/64}", "lt 10.0.0.3",
				"in {10.0.0.0..10.0.0.5 10.0.0.4..10.0.0.9}")
		case 2:
			return pick(t, "len(http.host)", "http.request.timestamp.sec", "ip.src.asnum",
				`len(http.request.headers["x-a"])`) + pick(t, " eq 1", " > 2", " in {0..1 1..3 2}", " ne 0")
		case 3, 4:
			list := pick(t, `http.request.headers["x-a"]`, `http.request.cookies["a"]`, `http.request.uri.args["a"]`,
				"http.request.headers.names", "http.request.uri.args.values", "http.request.cookies[*]")
			value := pick(t, list+"[*]", "lower("+list+"[*])", "concat("+list+"[*],http.request.uri.path)")
			return pick(t, "any(", "all(") + someTest(t, value) + ")"
		default:
			return someTest(t, someText(t, 2))
		}
	}
	a, b := someExpression(t, depth-1), someExpression(t, depth-1)
	switch rapid.IntRange(0, 4).Draw(t, "logic") {
	case 0:
		return "not (" + a + ")"
	case 1:
		return "(" + a + " or " + b + ")"
	case 2:
		return a + " xor " + b
	default:
		return a + " and " + b
	}
}

func someRequest(t *rapid.T) *Request {
	word := func() string { return pick(t, words...) }
	r := &Request{
		Method: "GET", Scheme: pick(t, "http", "https"), Host: word(), Query: word() + pick(t, "", "a=", "a=b&A=c&a=", "&&a"),
		Version: "HTTP/1.1", Time: int64(rapid.IntRange(0, 3).Draw(t, "time")),
		Client: rapid.SampledFrom([]netip.Addr{
			{},
			netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::1"),
			netip.MustParseAddr("::ffff:10.0.0.4"),
		}).Draw(t, "ip"),
		Country: pick(t, "", "DE", "a"), ASN: int64(rapid.IntRange(0, 3).Draw(t, "asn")), EU: rapid.Bool().Draw(t, "eu"),
		Crawler: rapid.Bool().Draw(t, "bot"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "readings") {
		r.Paths = append(r.Paths, "/"+word())
	}
	for range rapid.IntRange(0, 5).Draw(t, "headers") {
		r.Headers = append(r.Headers, Header{
			pick(t, "X-A", "x-a", "Cookie", "Referer", "User-Agent", "Host"),
			word() + pick(t, "", "a=b;A=c; a=", ";a=x"),
		})
	}
	return r
}

// The closures agree with the naive twin for any expression and request.
func TestTwin(t *testing.T) {
	var s Scratch // shared, so that leftovers of one evaluation would affect the next
	seen := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		expression := someExpression(t, rapid.IntRange(0, 2).Draw(t, "depth"))
		r, err := Compile(expression, sources)
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		p := &parser{scanner: scanner{in: expression}, from: sources}
		root := p.parse()
		for range 4 {
			req := someRequest(t)
			s.Ask(req)
			got, want := r.Match(&s), twinMatch(root, req)
			if seen[got]++; got != want {
				t.Fatalf("%s\non %+v: %v, the twin says %v", expression, req, got, want)
			}
		}
	})
	if seen[true] < seen[false]/50 {
		t.Errorf("%d of %d match: too few to tell", seen[true], seen[false])
	}
}

// For any input the parser ends, and the closures agree with the twin within the budget.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		`ssl and not http.host eq "a" or ip.src in {10.0.0.0/8 ::1}`,
		`any(lower(http.request.headers["x-a"][*]) contains r#"b"#)`,
		`http.request.uri.path matches "^/a[^b]{1,3}\b" xor len(concat(http.host, 5)) gt 0x1f`,
		`substring(url_decode(http.request.uri, "ru"), -4, 2) wildcard "*\x41*"`,
		`http.request.cookies["a"][0] strict wildcard "a\\*" && ip.src.asnum in {1..2 -5}`, `ip.src in $office`,
		`http.request.headers[*][*] eq "`, "not not (((",
	} {
		f.Add(seed)
	}
	req := sample()
	req.Paths = []string{"/A/b%2f../K.JS", "/A/K.js"}
	f.Fuzz(func(t *testing.T, expression string) {
		r, err := Compile(expression, sources)
		if err != nil {
			fs, ok := err.(Faults) //nolint:errorlint // Compile promises the type itself
			if !ok || len(fs) == 0 || fs[0].At < 1 || fs[0].Reason == "" {
				t.Fatalf("%q: %#v", expression, err)
			}
			return
		}
		var s Scratch
		s.Ask(req)
		got := r.Match(&s)
		if again := r.Match(&s); again != got {
			t.Fatalf("%s: %v, then %v", expression, got, again)
		}
	})
}

// An automaton matches like package regexp.
func FuzzAutomaton(f *testing.F) {
	for _, seed := range []string{
		`^a|b$`, `(?i)k\b.`, `[^\n]{2,5}\B`, `(?m)^x$`, `\PL+é?`, `(a|ab)(c|bcd)(d*)`,
		`\x{10FFFF}`, `\A\z`,
	} {
		f.Add(seed, "aKé\nx\nabcd\xff", true)
	}
	f.Fuzz(func(t *testing.T, pattern, text string, ignoreCase bool) {
		if len(pattern) > 200 || len(text) > 1000 {
			return
		}
		a, reason := newAutomaton(pattern, ignoreCase)
		if reason != "" {
			return
		}
		if ignoreCase {
			pattern = "(?i:" + pattern + ")"
		}
		re, err := regexp.Compile(pattern)
		if err != nil {
			return // a pattern that closes the group
		}
		if got, want := a.match(text), re.MatchString(text); got != want {
			t.Fatalf("%q on %q: %v, regexp says %v", pattern, text, got, want)
		}
	})
}
