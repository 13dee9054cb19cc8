package gate

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/match"
	"vestibule/internal/core/rules"
	"vestibule/internal/node"
)

// HeaderLines are the lines of a request's header.
type HeaderLines interface {
	// AppendTo appends every line to out.
	AppendTo(out []rules.Header) []rules.Header
}

// Sources are the edge's data for rules.
type Sources struct {
	// Places fills in country, continent, subdivision and network of an address, as far as known. It is safe for concurrent
	// use; nil for none.
	Places   func(a netip.Addr, r *rules.Request)
	Crawlers *rules.Networks            // nil for none
	Lists    map[string]*rules.Networks // by name
}

// bypass is one active rule of a room.
type bypass struct {
	*compiledRule
	matched *atomic.Uint64
}

// compiledRule is a compiled expression, or the reason why it never matches here.
type compiledRule struct {
	rule *rules.Rule
	err  error
}

// rulebook evaluates rules with the edge's sources.
type rulebook struct {
	sources Sources
	clock   *node.Clock
	metrics *metrics
	log     *slog.Logger
}

// compileAll compiles the rules of all rooms of a snapshot, except for expressions of the old one. A rule that cannot
// be evaluated here never matches.
func (b *rulebook) compileAll(s, old *snapshot) {
	s.compiled = map[string]*compiledRule{}
	for _, rm := range s.rooms {
		ids := make([]string, 0, len(rm.Rules))
		for i := range rm.Rules {
			ids = append(ids, rm.Rules[i].ID)
		}
		matched := b.metrics.rules(rm.Name, ids)
		for i := range rm.Rules {
			r := &rm.Rules[i]
			if r.Disabled {
				continue
			}
			c := s.compiled[r.Expression]
			if c == nil {
				c = b.compile(rm, r, old)
				s.compiled[r.Expression] = c
			}
			if c.rule != nil {
				rm.bypasses = append(rm.bypasses, bypass{c, matched[i]})
				rm.needsPlaces = rm.needsPlaces || c.rule.Needs.Geo
			} else {
				s.deadRules++
			}
		}
	}
}

func (b *rulebook) compile(rm *roomState, r *room.Rule, old *snapshot) *compiledRule {
	if c := old.compiled[r.Expression]; c != nil {
		return c
	}
	c := &compiledRule{}
	from := rules.Sources{Geo: b.sources.Places != nil, Crawlers: b.sources.Crawlers != nil, Lists: b.sources.Lists}
	if c.rule, c.err = rules.Compile(r.Expression, from); c.err != nil {
		b.log.Error("rule cannot be evaluated at this edge and matches nothing",
			slog.String("room", rm.Name), slog.String("rule", r.ID), slog.Any("error", c.err))
	}
	return c
}

// passBy returns the rooms that no rule bypasses. A visitor that bypasses a room is neither counted nor queued.
//
// Invariant: a room is bypassed only if one of its rules matches under every reading of the path that found the
// rooms.
func (b *rulebook) passBy(r *Request, o *Outcome, rooms *snapshot, in []*room.Room, path, query string) []*room.Room {
	input := &o.rules
	for i := 0; i < len(in); i++ {
		rm := rooms.rooms[in[i].Index]
		if len(rm.bypasses) == 0 {
			continue
		}
		if !input.asked {
			input.set(r, o.host, path, query)
			_, wall := b.clock.Read()
			input.about.Time = wall.Unix()
			input.about.Crawler = b.sources.Crawlers.Has(r.Client)
		}
		if rm.needsPlaces && !input.placed {
			input.placed = true
			b.sources.Places(r.Client, &input.about)
		}
		n := slices.IndexFunc(rm.bypasses, func(by bypass) bool { return by.rule.Match(&input.scratch) })
		if n < 0 {
			continue
		}
		by := &rm.bypasses[n]
		by.matched.Add(1)
		rm.traffic.bypassed.Add(1)
		// The rule depends on the visitor: a shared cache must not serve the response to others.
		o.Private = o.Private || rm.Caching == room.CachingPrivate && by.rule.Needs.Visitor
		in = slices.Delete(in, i, i+1)
		i--
	}
	return in
}

// ruleInput is a request as the input of rules.
type ruleInput struct {
	about   rules.Request
	scratch rules.Scratch
	asked   bool // rules were evaluated
	placed  bool // about has the country
}

// set takes the request for a host, in canonical form.
func (in *ruleInput) set(r *Request, host, path, query string) {
	in.asked = true
	in.about = rules.Request{
		Method: r.Method, Scheme: "http", Host: host, Query: query, Version: r.Version, Paths: in.about.Paths[:0],
		Headers: in.about.Headers[:0], Client: r.Client,
	}
	if r.Secure {
		in.about.Scheme = "https"
	}
	if r.Lines != nil {
		in.about.Headers = r.Lines.AppendTo(in.about.Headers)
	}
	whole := match.Readings(path, func(reading string) bool {
		in.about.Paths = append(in.about.Paths, reading)
		return true
	})
	if !whole {
		in.about.Paths = in.about.Paths[:0]
	}
	in.scratch.Ask(&in.about)
}

// forget releases the request.
func (in *ruleInput) forget() {
	if !in.asked {
		return
	}
	in.scratch.Forget()
	clear(in.about.Paths)
	clear(in.about.Headers)
	in.about = rules.Request{Paths: in.about.Paths[:0], Headers: in.about.Headers[:0]}
	in.asked, in.placed = false, false
}

// maxRuleSeries is the maximum number of rules with their own series.
const maxRuleSeries = 1000

// ruleCount is a metric of one rule.
type ruleCount struct {
	room, rule string
	n          uint64
}

// rules returns the counters of a room's rules, the same while the rules exist.
func (m *metrics) rules(name string, ids []string) []*atomic.Uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.rooms[name]
	for id := range c.rules {
		if !slices.Contains(ids, id) {
			delete(c.rules, id)
			m.ruleSeries--
		}
	}
	out := make([]*atomic.Uint64, len(ids))
	for i, id := range ids {
		if out[i] = c.rules[id]; out[i] != nil {
			continue
		}
		if m.ruleSeries >= maxRuleSeries {
			out[i] = &m.otherRules
			continue
		}
		if c.rules == nil {
			c.rules = map[string]*atomic.Uint64{}
		}
		m.ruleSeries++
		out[i] = &atomic.Uint64{}
		c.rules[id] = out[i]
	}
	return out
}

// ruleCounts returns the bypassed requests of each rule with any.
func (m *metrics) ruleCounts() []ruleCount {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []ruleCount
	for name, c := range m.rooms {
		for id, n := range c.rules {
			if n := n.Load(); n > 0 {
				out = append(out, ruleCount{name, id, n})
			}
		}
	}
	if n := m.otherRules.Load(); n > 0 {
		out = append(out, ruleCount{node.OtherRooms, node.OtherRooms, n})
	}
	slices.SortFunc(out, func(a, b ruleCount) int { return strings.Compare(a.room+a.rule, b.room+b.rule) })
	return out
}
