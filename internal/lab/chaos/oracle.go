//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"vestibule/internal/lab/judge"
)

// outcome is the result of a request.
type outcome uint8

const (
	failed  outcome = iota // no answer, or an error
	waiting                // the waiting page
	page                   // a page of the site
)

// request is one request as seen by its visitor and by the site. All times are offsets from one zero, on one clock.
type request struct {
	edge     int
	sent     time.Duration
	received time.Duration // time of the answer, or of the failure
	arrived  time.Duration // at the site, 0 for never
	outcome  outcome
	detail   string        // of a failure
	until    time.Duration // end of the session by the ticket in the answer, 0 for none
	gaveUp   bool          // the visitor stopped waiting for the answer

	joined time.Time // as a waiting page shows it; zero for none
}

// stay holds all requests with one ticket, until it is certainly worthless.
type stay struct{ requests []request }

// oracle is the oracle's knowledge beside the requests.
type oracle struct {
	total, rate int
	outages     [][]judge.Span // of each edge: killed, stopped, or behind a slow link
	stalls      []judge.Span   // stalls of the machine
	planned     time.Duration  // until then nodes are only replaced, and no visitor may notice
	// from then on edges of the replaced build come back, which read no places of this one; 0 for never
	returns time.Duration
}

// transit is the maximum delay between a decision and the arrival of a held request at the site, if neither its edge
// nor the machine stalls.
const transit = 500 * time.Millisecond

// clockError is the maximum clock difference of two nodes. unleased is how much earlier an edge without a lease ends a
// session, doubled for an edge that was disconnected for long.
const (
	clockError = 250 * time.Millisecond
	unleased   = time.Second
)

// verdict is the oracle's result.
type verdict struct {
	broken []string // broken promises, with visitor and time; at most maxBroken

	peak, rate   int // maximum of concurrent sessions, and of admissions in any 60 s: certain ones
	admitted     int // stays with an admission
	pages, waits int
	errors       map[string]int       // other answers of healthy edges to waiting visitors
	unread       int                  // places lost after edges of the replaced build came back
	excused      int                  // failed requests at unhealthy edges
	unrenewed    []time.Duration      // when sessions ended early because their edge might not renew
	sessions     map[int][]judge.Span // certain ones, by the edge that admitted
}

// maxBroken bounds the faults described in full.
const maxBroken = 20

func (v *verdict) breaks(format string, args ...any) {
	switch len(v.broken) {
	case maxBroken:
		v.broken = append(v.broken, "and more")
	case maxBroken + 1:
	default:
		v.broken = append(v.broken, fmt.Sprintf(format, args...))
	}
}

// judge checks the requests against the promises. It counts only certain facts: a session from the arrival of its first
// request at the site until the second in its ticket, and an admission in a window only if both request and arrival
// are. So a reported fault is real.
func (c *oracle) judge(stays []stay, session time.Duration) verdict {
	v := verdict{errors: map[string]int{}, sessions: map[int][]judge.Span{}}
	var sure []judge.Span    // of a valid session
	var entries []judge.Span // of the decision of an admission
	for i := range stays {
		check := stayCheck{oracle: c, verdict: &v, stay: i, session: session}
		reqs := slices.Clone(stays[i].requests)
		slices.SortStableFunc(reqs, func(a, b request) int { return cmp.Compare(a.received, b.received) })
		for k := range reqs {
			check.see(&reqs[k])
		}
		if len(check.valid) == 0 {
			continue
		}
		v.admitted++
		entries = append(entries, check.entry...)
		sure = append(sure, check.sure()...)
		v.sessions[check.edge] = append(v.sessions[check.edge], check.sure()...)
	}
	var at time.Duration
	if v.peak, at = judge.Most(sure); v.peak > c.total {
		v.breaks("%d sessions were valid at %.3f s, total_active_users is %d", v.peak, at.Seconds(), c.total)
	}
	if v.rate, at = judge.MostWithin(entries, time.Minute); v.rate > c.rate {
		v.breaks("%d visitors were admitted in the minute from %.3f s, new_users_per_minute is %d", v.rate,
			at.Seconds(), c.rate)
	}
	return v
}

// stayCheck checks the requests of one stay in the order of their answers.
type stayCheck struct {
	oracle  *oracle
	verdict *verdict
	stay    int           // its index
	session time.Duration // length of a session

	entry []judge.Span  // of the decision of the admission, at most one
	valid []judge.Span  // of the session, by single requests; empty before the admission
	known time.Duration // end of the session, as known to the visitor
	last  time.Duration // time of the newest page's request
	ended time.Duration // end of the session by refusal
	place time.Time     // place of the visitor in the queue
	edge  int           // that admitted it
}

// see takes the next request.
func (c *stayCheck) see(r *request) {
	earliest := c.oracle.decided(r)
	if r.arrived != 0 && len(c.valid) == 0 { // the answer may be lost, with its cookie
		c.edge = r.edge
		c.entry = append(c.entry, judge.Span{From: earliest, To: r.arrived})
		c.valid = append(c.valid, judge.Span{From: r.arrived, To: earliest + c.session})
	}
	switch r.outcome {
	case page:
		c.verdict.pages++
		if r.until > 0 {
			c.known = max(c.known, r.until-clockError)
		}
		c.valid = append(c.valid, judge.Span{From: r.arrived, To: c.known})
		c.last = max(c.last, r.sent)
	case waiting:
		c.seeWaiting(r)
	case failed:
		c.seeFailed(r)
	}
}

// seeWaiting takes a waiting page: the visitor keeps its place before the session, and sees no waiting page inside it.
func (c *stayCheck) seeWaiting(r *request) {
	c.verdict.waits++
	if c.known == 0 && !r.joined.IsZero() {
		switch {
		case c.place.IsZero() || r.joined.Equal(c.place):
		case c.oracle.returns > 0 && r.received >= c.oracle.returns:
			c.verdict.unread++
		default:
			c.verdict.breaks("stay %d: lost its place at %.3f s at edge %d: joined %v, now %v",
				c.stay, r.received.Seconds(), r.edge, c.place, r.joined)
		}
		c.place = r.joined
	}
	switch {
	case c.known == 0 || r.sent < c.last:
	case r.received < c.known-unleased:
		c.verdict.breaks("stay %d: the waiting page at %.3f s from edge %d, though its session lasts until %.3f s at least",
			c.stay, r.received.Seconds(), r.edge, c.known.Seconds())
	case r.received < c.last+c.session-unleased:
		c.verdict.unrenewed = append(c.verdict.unrenewed, r.received)
		if r.received < c.oracle.planned {
			c.verdict.breaks("stay %d: put out at %.3f s by edge %d, %.3f s after its last page",
				c.stay, r.received.Seconds(), r.edge, (r.received - c.last).Seconds())
		}
	}
	if c.known > 0 && c.ended == 0 {
		c.ended = r.received
	}
}

// seeFailed takes a failed request: a healthy edge answers inside a session, and at any time while nodes are only
// replaced.
func (c *stayCheck) seeFailed(r *request) {
	well := !c.oracle.unwell(r.edge, r.sent-transit, r.received) && !c.oracle.stood(r.sent, r.received)
	switch {
	case r.gaveUp:
	case !well:
		c.verdict.excused++
	case c.known > r.received:
		c.verdict.breaks("stay %d: %s at %.3f s from edge %d, which was well, inside a session",
			c.stay, r.detail, r.received.Seconds(), r.edge)
	default:
		c.verdict.errors[r.detail]++
		if r.received < c.oracle.planned {
			c.verdict.breaks("stay %d: %s at %.3f s from edge %d, which was well", c.stay, r.detail,
				r.received.Seconds(), r.edge)
		}
	}
}

// sure returns when the session was certainly valid.
func (c *stayCheck) sure() (out []judge.Span) {
	for _, s := range judge.Union(c.valid) {
		if c.ended != 0 {
			s.To = min(s.To, c.ended)
		}
		if s.To > s.From {
			out = append(out, s)
		}
	}
	return out
}

// decided returns the earliest time of an edge's decision about a request that reached the site.
func (c *oracle) decided(r *request) time.Duration {
	if r.arrived == 0 || c.unwell(r.edge, r.sent, r.arrived) || c.stood(r.sent, r.arrived) {
		return r.sent
	}
	return max(r.sent, r.arrived-transit)
}

// unwell reports whether an edge was killed, stopped or behind a slow link in an interval.
func (c *oracle) unwell(edge int, from, to time.Duration) bool {
	return judge.TouchesAny(c.outages[edge], from, to)
}

// stood reports whether the machine stalled in an interval.
func (c *oracle) stood(from, to time.Duration) bool {
	return judge.TouchesAny(c.stalls, from, to)
}
