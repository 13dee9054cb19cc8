//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"vestibule/internal/core/fleettime"
)

// outcome is what a person got for a request.
type outcome uint8

const (
	failed  outcome = iota // no answer, or an error
	waiting                // the waiting page
	page                   // a page of the site
)

// request is one request as its person and the site saw it. All times are
// offsets from one zero, on one clock.
type request struct {
	edge     int
	sent     time.Duration
	received time.Duration // of the answer, or of its absence
	arrived  time.Duration // at the site, 0 for never
	outcome  outcome
	detail   string // of what failed
	maxAge   int    // seconds for which the cookie in the answer is good, 0 for none
	gaveUp   bool   // the person did not want to wait for an answer

	ticket string         // in the answer, as it was sealed
	joined fleettime.Time // of that ticket, of somebody who waits; 0 for none
}

// stay is everything that was asked with one ticket, from the first request of
// the person until the ticket was worth nothing any more.
type stay struct{ requests []request }

// checker is what the judge must know beside what people saw.
type checker struct {
	total, rate int
	wall        time.Time     // at offset zero
	outages     [][]span      // of each edge: killed, standing still, or behind a narrow link
	stalls      []span        // in which the machine stood still
	planned     time.Duration // until then nothing is broken but that nodes are replaced: nobody is to notice
}

// transit is how much later than the decision the site may see a request that
// was held, where neither its edge nor the machine stood still.
const transit = 500 * time.Millisecond

// clockError is what the clocks of two nodes may differ by, and unleased by how
// much earlier an edge ends a session that it judges without a lease, doubled for
// an edge that was cut off for long.
const (
	clockError = 250 * time.Millisecond
	unleased   = time.Second
)

// verdict is what the judge found.
type verdict struct {
	broken []string // promises, each with who and when; at most a few

	peak, rate   int // most sessions at any instant, most admissions in any 60 s: certain ones
	admitted     int // stays that came in
	pages, waits int
	errors       map[string]int // answers other than these, of edges that were well, to people who wait
	excused      int            // requests that failed at an edge that was not well
	unrenewed    int            // put out before a whole duration after the last page, since their edge might not renew
}

// maxBroken bounds what is told in full.
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

// judge holds what people and the site saw against the promises. It counts only
// what is certain whatever happened on the way: a session from the moment at
// which the site saw its first request until the second that its cookie names,
// and an admission as within a window only if request and arrival both are. So
// what it calls broken is broken.
func (c *checker) judge(stays []stay, session time.Duration) verdict {
	v := verdict{errors: map[string]int{}}
	var sure []span    // in which a session was valid
	var entries []span // in which an admission was decided
	for i := range stays {
		var valid []span          // in which the session was, by single requests
		known := time.Duration(0) // end of the session, as far as the person knew
		last := time.Duration(0)  // the newest page was sent for
		var ended time.Duration   // when the person was put out
		var place fleettime.Time  // of the person in the line
		reqs := slices.Clone(stays[i].requests)
		slices.SortStableFunc(reqs, func(a, b request) int { return cmp.Compare(a.received, b.received) })
		for k := range reqs {
			r := &reqs[k]
			earliest := c.decided(r)
			if r.arrived != 0 && len(valid) == 0 { // the answer may be lost, and with it what its cookie says
				entries = append(entries, span{earliest, r.arrived})
				valid = append(valid, span{r.arrived, earliest + session})
			}
			switch r.outcome {
			case page:
				v.pages++
				if r.maxAge > 0 {
					known = max(known, c.expiry(earliest, r.maxAge))
				}
				valid = append(valid, span{r.arrived, known})
				last = max(last, r.sent)
			case waiting:
				v.waits++
				if known == 0 && r.joined != 0 {
					if place != 0 && r.joined != place {
						v.breaks("stay %d: lost its place at %.3f s at edge %d: joined %v, now %v", i, r.received.Seconds(), r.edge, place, r.joined)
					}
					place = r.joined
				}
				switch {
				case known == 0 || r.sent < last:
				case r.received < known-unleased:
					v.breaks("stay %d: the waiting page at %.3f s from edge %d, though its session lasts until %.3f s at least", i, r.received.Seconds(), r.edge, known.Seconds())
				case r.received < last+session-unleased:
					v.unrenewed++
					if r.received < c.planned {
						v.breaks("stay %d: put out at %.3f s by edge %d, %.3f s after its last page", i, r.received.Seconds(), r.edge, (r.received - last).Seconds())
					}
				}
				if known > 0 && ended == 0 {
					ended = r.received
				}
			case failed:
				well := !c.unwell(r.edge, r.sent-transit, r.received) && !c.stood(r.sent, r.received)
				switch {
				case r.gaveUp:
				case !well:
					v.excused++
				case known > r.received:
					v.breaks("stay %d: %s at %.3f s from edge %d, which was well, inside a session", i, r.detail, r.received.Seconds(), r.edge)
				default:
					v.errors[r.detail]++
					if r.received < c.planned {
						v.breaks("stay %d: %s at %.3f s from edge %d, which was well", i, r.detail, r.received.Seconds(), r.edge)
					}
				}
			}
		}
		if len(valid) == 0 {
			continue
		}
		v.admitted++
		for _, s := range union(valid) {
			if ended != 0 {
				s.To = min(s.To, ended)
			}
			if s.To > s.From {
				sure = append(sure, s)
			}
		}
	}
	var at time.Duration
	if v.peak, at = most(sure); v.peak > c.total {
		v.breaks("%d sessions were valid at %.3f s, total_active_users is %d", v.peak, at.Seconds(), c.total)
	}
	if v.rate, at = crowd(entries, time.Minute); v.rate > c.rate {
		v.breaks("%d visitors were admitted in the minute from %.3f s, new_users_per_minute is %d", v.rate, at.Seconds(), c.rate)
	}
	return v
}

// decided returns the earliest moment at which an edge can have decided about a
// request that reached the site.
func (c *checker) decided(r *request) time.Duration {
	if r.arrived == 0 || c.unwell(r.edge, r.sent, r.arrived) || c.stood(r.sent, r.arrived) {
		return r.sent
	}
	return max(r.sent, r.arrived-transit)
}

// expiry returns the moment until which a session is valid for certain, whose
// cookie was made at the earliest at a moment and is good for so many seconds:
// it ends on a whole second of fleet time.
func (c *checker) expiry(decided time.Duration, maxAge int) time.Duration {
	second := c.wall.Add(decided - clockError).Truncate(time.Second)
	return second.Add(time.Duration(maxAge)*time.Second).Sub(c.wall) - clockError
}

// unwell reports whether an edge was killed, standing still or behind a narrow link in a
// stretch of time.
func (c *checker) unwell(edge int, from, to time.Duration) bool {
	return slices.ContainsFunc(c.outages[edge], func(s span) bool { return s.touches(from, to) })
}

// stood reports whether the machine stood still in a stretch of time.
func (c *checker) stood(from, to time.Duration) bool {
	return slices.ContainsFunc(c.stalls, func(s span) bool { return s.touches(from, to) })
}

// union returns spans that cover the same and do not touch each other.
func union(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.From, b.From) })
	var out []span
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && s.From <= out[last].To {
			out[last].To = max(out[last].To, s.To)
			continue
		}
		out = append(out, s)
	}
	return out
}

// most returns how many of the spans overlap at most, and when first.
func most(spans []span) (n int, at time.Duration) {
	type change struct {
		at    time.Duration
		delta int
	}
	var changes []change
	for _, s := range spans {
		changes = append(changes, change{s.From, 1}, change{s.To, -1})
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.delta, b.delta))
	})
	now := 0
	for _, c := range changes {
		if now += c.delta; now > n {
			n, at = now, c.at
		}
	}
	return n, at
}

// crowd returns how many of the spans lie whole within one window at most, and
// when it begins.
func crowd(spans []span, window time.Duration) (n int, at time.Duration) {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.From, b.From) })
	for i, first := range spans {
		in := 0
		for _, s := range spans[i:] {
			if s.From-first.From >= window {
				break
			}
			if s.To-first.From < window {
				in++
			}
		}
		if in > n {
			n, at = in, first.From
		}
	}
	return n, at
}
