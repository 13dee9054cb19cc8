// Package rules reads and evaluates expressions about requests, in the rules language of
// Cloudflare's ruleset engine: who matches a rule of a room walks past it.
//
// [Compile] turns an expression into closures and names everything that is wrong with it, with
// its position. [Rule.Match] evaluates it for one [Request], see [Scratch.Ask], and allocates nothing for the usual
// rules. A value that is missing compares false, also by ne.
//
// An expression is a way around a room, and sites read one path in several ways. So a rule
// matches only if it does so under every reading of the path, and where it tells letter
// cases of the path apart, also for a site that does not. Under none it never matches.
//
// The cost of an evaluation is bounded by [Budget], whatever rule and request say: what would
// cost more does not match.
package rules

import (
	"fmt"
	"net/netip"
	"strings"
	"unsafe"
)

// Bounds of an expression.
const (
	MaxExpression = 4096 // characters
	MaxDepth      = 32   // parentheses, negations and calls inside each other
	MaxSet        = 1000 // members of a set
	MaxMatches    = 8    // regular expressions in one expression
	MaxPattern    = 1024 // bytes of a regular expression
	MaxStars      = 16   // in a wildcard pattern
)

// Budget is what one rule may cost for one request, in steps of about a nanosecond, over
// all readings of its path, and AllBudget what all rules may together. A rule that is not done by
// then does not match.
const (
	Budget    = 10_000
	AllBudget = 8 * Budget
)

// Request is what rules ask about.
type Request struct {
	Method  string
	Scheme  string // http or https
	Host    string // in lower case, without a port
	Query   string // without the question mark, as it came
	Version string // HTTP/1.1

	// Paths are all ways in which a site may read the path, the path as it stood in the
	// request line first. There are none where it can mean anything.
	Paths []string

	Headers []Header // line by line, in their order
	Client  netip.Addr
	Time    int64 // Unix seconds

	Country     string // ISO 3166-1, as DE; "" where it is not known
	Continent   string // AF, AN, AS, EU, NA, OC or SA; "" where it is not known
	Subdivision string // ISO 3166-2 behind the country, as BY; "" where it is not known
	ASN         int64  // 0 where it is not known
	EU          bool   // the country is in the European Union
	Crawler     bool   // the address is one of a known crawler
}

// Header is one line of a header.
type Header struct{ Name, Value string }

// Fault is one thing that is wrong with an expression.
type Fault struct {
	At     int // character where it begins, from 1
	Reason string
}

func (f Fault) String() string { return fmt.Sprintf("character %d: %s", f.At, f.Reason) }

// Faults is everything that is wrong with an expression, in its order.
type Faults []Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "; ")
}

// Sources say where values come from that no request brings.
type Sources struct {
	Unknown  bool                 // nobody knows here: expressions are not held against the rest
	Geo      bool                 // there is a file of countries and networks
	Crawlers bool                 // there are address ranges of crawlers
	Lists    map[string]*Networks // named lists
}

// Needs are what a rule has to know beside the request.
type Needs struct {
	Geo      bool
	Crawlers bool
	Lists    []string // by name, each once
	Visitor  bool     // what a visitor brings beside method, host and path
}

// Rule is a compiled expression. It is immutable and safe for concurrent use.
type Rule struct {
	Needs Needs

	exact    test // for a site that tells letter cases of the path apart
	folded   test // for one that does not; nil where it matches whenever exact does
	usesPath bool
	unbound  bool // made without its sources
}

// test is a part of a rule that is true or false.
type test func(*Scratch) bool

// Scratch is the working memory of evaluations. Its zero value is ready; it is used by one
// goroutine at a time and serves any number of requests, see [Scratch.Ask].
type Scratch struct {
	req    *Request
	path   string // the reading, folded where folded is set
	folded bool
	elem   string // of the array that any or all goes through
	left   int    // of the budget of the rule
	all    int    // of that of all rules
	buf    []byte // of texts that the rule makes
	lines  [numKnown]int

	pairs    []pair // the cookies, where hasPairs is set
	hasPairs bool
}

// Headers whose first line is looked for once per request. Scratch.lines has its number,
// from 1; 0 before it was looked for, and one more than there are lines where there is none.
const (
	cookieLine = iota
	agentLine
	numKnown
)

// Ask makes req the request that rules are held against. It must not change meanwhile.
func (s *Scratch) Ask(req *Request) {
	s.req, s.all, s.lines = req, AllBudget, [numKnown]int{}
	clear(s.pairs)
	s.pairs, s.hasPairs = s.pairs[:0], false
}

// Forget lets go of the request.
func (s *Scratch) Forget() {
	s.req, s.path, s.elem = nil, "", ""
	clear(s.pairs)
	s.pairs = s.pairs[:0]
	if cap(s.buf) > Budget {
		s.buf = nil
	}
}

// spend takes the cost of a step from what is left.
func (s *Scratch) spend(steps int) bool {
	s.left -= steps
	return s.left >= 0
}

// text returns what was added to buf since it had n bytes. The bytes are not written
// again before the evaluation ends, and nobody keeps the text for longer.
func (s *Scratch) text(n int) string {
	b := s.buf[n:]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// Match reports whether the request that was asked about matches the rule under every reading of its
// path. A rule that was compiled without knowing its sources, and needs some, never does.
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

// Explain is Match, and tells why not: under which reading of the path the rule does not match.
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

// Compile reads an expression. The error is of type [Faults] and names everything that can
// be told at once.
func Compile(expression string, from Sources) (*Rule, error) {
	p := &parser{in: expression, from: from}
	root := p.parse()
	if len(p.faults) > 0 {
		return nil, p.told()
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
