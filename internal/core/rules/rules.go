// Package rules compiles and evaluates expressions about requests, in the rules language of Cloudflare's ruleset
// engine. A request that matches a rule of a room bypasses the room.
//
// [Compile] turns an expression into closures and reports everything wrong with it, with positions. [Rule.Match]
// evaluates it for one [Request], see [Scratch.Ask], without allocations for the usual rules. A comparison with a
// missing value is false, also by ne.
//
// A rule is a way around a room, and sites interpret one path in several ways. So a rule matches only if it does
// under every reading of the path and, if it depends on the path's letter case, also for a case-insensitive site. A
// path without readings never matches.
//
// [Budget] bounds the cost of an evaluation, whatever the rule and the request. A more expensive rule does not
// match.
package rules

import (
	"fmt"
	"net/netip"
	"strings"
	"unsafe"
)

// Limits of an expression.
const (
	MaxExpression = 4096 // characters
	MaxDepth      = 32   // nesting of parentheses, negations and calls
	MaxSet        = 1000 // members of a set
	MaxMatches    = 8    // regular expressions in one expression
	MaxPattern    = 1024 // bytes of a regular expression
	MaxStars      = 16   // in a wildcard pattern
)

// Budget bounds one rule for one request, in steps of about a nanosecond, over all readings of its path. AllBudget
// bounds all rules together. A rule over budget does not match.
const (
	Budget    = 10_000
	AllBudget = 8 * Budget
)

// Request is the request that rules are evaluated for.
type Request struct {
	Method  string
	Scheme  string // http or https
	Host    string // in lower case, without a port
	Query   string // without the question mark, not decoded
	Version string // HTTP/1.1

	// Paths are all readings of the path, the path of the request line first. It is empty if the path is ambiguous
	// without bound.
	Paths []string

	Headers []Header // one per line, in order
	Client  netip.Addr
	Time    int64 // Unix seconds

	Country     string // ISO 3166-1, such as DE; "" if unknown
	Continent   string // AF, AN, AS, EU, NA, OC or SA; "" if unknown
	Subdivision string // ISO 3166-2 without the country, such as BY; "" if unknown
	ASN         int64  // 0 if unknown
	EU          bool   // the country is in the European Union
	Crawler     bool   // the address belongs to a known crawler
}

// Header is one header line.
type Header struct{ Name, Value string }

// Fault is one error in an expression.
type Fault struct {
	At     int // first character, from 1
	Reason string
}

func (f Fault) String() string { return fmt.Sprintf("character %d: %s", f.At, f.Reason) }

// Faults are all errors in an expression, in order. The text names the first ten.
type Faults []Fault

func (fs Faults) Error() string {
	const most = 10
	lines := make([]string, min(len(fs), most))
	for i := range lines {
		lines[i] = fs[i].String()
	}
	if n := len(fs) - len(lines); n > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(lines, "; ")
}

// Sources are the data that rules use beside the request.
type Sources struct {
	Unknown  bool                 // not known here: expressions are not checked against the other fields
	Geo      bool                 // the file of countries and networks
	Crawlers bool                 // address ranges of crawlers
	Lists    map[string]*Networks // named lists
}

// Needs lists the data that a rule uses beside the request.
type Needs struct {
	Geo      bool
	Crawlers bool
	Lists    []string // names, without duplicates
	Visitor  bool     // uses more of the request than method, host and path
}

// Rule is a compiled expression. It is immutable and safe for concurrent use.
type Rule struct {
	Needs Needs

	exact    test // for a case-sensitive site
	folded   test // for a case-insensitive one; nil if it matches whenever exact does
	usesPath bool
	unbound  bool // compiled without sources
}

// test is a compiled Boolean.
type test func(*Scratch) bool

// Scratch is the working memory of evaluations. The zero value is ready. One goroutine at a time uses it, for any
// number of requests, see [Scratch.Ask].
type Scratch struct {
	req    *Request
	path   string // the reading, folded if folded is set
	folded bool
	elem   string // the current element of any or all
	left   int    // rest of the rule's budget
	all    int    // rest of the budget of all rules
	buf    []byte // texts that the rule builds
	lines  [numKnown]int

	pairs    []pair // the cookies, if hasPairs is set
	hasPairs bool
}

// Headers whose first line is cached per request. Scratch.lines holds its number from 1, 0 before the first
// look-up, and the number of lines plus one if the header is missing.
const (
	cookieLine = iota
	agentLine
	numKnown
)

// Ask sets the request for the following evaluations. req must not change meanwhile.
func (s *Scratch) Ask(req *Request) {
	s.req, s.all, s.lines = req, AllBudget, [numKnown]int{}
	clear(s.pairs)
	s.pairs, s.hasPairs = s.pairs[:0], false
}

// Forget releases the request.
func (s *Scratch) Forget() {
	s.req, s.path, s.elem = nil, "", ""
	clear(s.pairs)
	s.pairs = s.pairs[:0]
	if cap(s.buf) > Budget {
		s.buf = nil
	}
}

// spend charges steps to the budgets.
func (s *Scratch) spend(steps int) bool {
	s.left -= steps
	return s.left >= 0
}

// text returns the bytes of buf from n on. They are not overwritten before the evaluation ends, and the text is not
// used afterwards.
func (s *Scratch) text(n int) string {
	b := s.buf[n:]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// Match reports whether the current request matches the rule under every reading of its path. A rule that needs
// sources but was compiled without them never matches.
func (r *Rule) Match(s *Scratch) bool {
	paths := s.req.Paths
	if len(paths) == 0 || r.unbound {
		return false
	}
	if !r.usesPath {
		paths = paths[:1]
	}
	budget := min(Budget, s.all)
	s.left = budget
	all := true
	for i := 0; all && i < len(paths); i++ {
		s.path = paths[i]
		all = r.holds(s) && s.left >= 0
	}
	s.all -= budget - s.left
	return all
}

// Explain is Match with a reason: the reading of the path that does not match.
func (r *Rule) Explain(s *Scratch) (matches bool, why string) {
	switch paths := s.req.Paths; {
	case len(paths) == 0:
		return false, "the path can mean anything"
	case r.unbound:
		return false, "it needs what is not known here"
	case r.Match(s):
		return true, ""
	case s.left < 0:
		return false, "it costs too much on this request"
	case s.folded || s.path != paths[0]:
		return false, fmt.Sprintf("a site may read the path as %s", s.path)
	}
	return false, ""
}

// holds evaluates the rule for one reading.
func (r *Rule) holds(s *Scratch) bool {
	s.buf = s.buf[:0]
	if !r.exact(s) {
		return false
	}
	if r.folded == nil {
		return true
	}
	ok := false
	if s.path, ok = s.fold(s.path); !ok {
		return false
	}
	s.folded = true
	ok = r.folded(s)
	s.folded = false
	return ok
}

// Compile compiles an expression. The error is of type [Faults] and holds every fault that can be found at once.
func Compile(expression string, from Sources) (*Rule, error) {
	p := &parser{scanner: scanner{in: expression}, from: from}
	root := p.parse()
	if len(p.faults) > 0 {
		return nil, p.sorted()
	}
	r := &Rule{Needs: p.needs}
	r.unbound = from.Unknown && (p.needs.Geo || p.needs.Crawlers || len(p.needs.Lists) > 0)
	r.usesPath = root.ofPath
	r.exact = compiler{}.boolean(root)
	if root.ofPath && !root.caseSafe(true) {
		r.folded = compiler{folded: true}.boolean(root)
	}
	return r, nil
}
