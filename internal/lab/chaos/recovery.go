//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// Limits of the recovery after the last fault. If an edge died together with its regional, its possible use is waited
// out, sixty seconds for R, and nodes report until when; otherwise admissions resume soon.
const (
	wholeWithin = 30 * time.Second  // every edge can admit and every role has a leader
	againWithin = 30 * time.Second  // admissions in every data centre
	afterWait   = 15 * time.Second  // the same, after the reported waits
	longestWait = 150 * time.Second // longest wait that a node may report
)

// usedAfter is the time from resumed admissions, without permits reserved for dead processes (reservedFor at most),
// until the use of the limits is measured, for usedFor. From fullUse on, of T or R, the limits count as exhausted.
const (
	usedAfter   = 20 * time.Second
	reservedFor = 90 * time.Second // after the last fault: R's window and a lease, and some seconds
	usedFor     = 10 * time.Second
	fullUse     = 0.95

	sampleEvery = 500 * time.Millisecond
)

// recovery watches a deployment and its visitors after faults.
type recovery struct {
	operator
	people *crowdOfPeople
}

// calm is the recovery after a storm, timed from the end of its last fault.
type calm struct {
	whole, again time.Duration
	waits        time.Duration // latest wait reported by nodes
	use          float64       // of T or of R, the larger
	measured     bool          // use was measured
}

// usage describes the use, "" if not measured.
func (c *calm) usage() string {
	if !c.measured {
		return ""
	}
	return fmt.Sprintf("; use %.3f", c.use)
}

// calm waits for the recovery.
func (r *recovery) calm(ctx context.Context) (c calm, err error) {
	healed := r.since()
	r.j.record("", "nothing is broken any more")
	if err := r.settled(ctx, wholeWithin); err != nil {
		return c, fmt.Errorf("%v after the last fault: %w", wholeWithin, err)
	}
	c.whole = r.since() - healed
	r.j.record("", "every edge is ready, one global and one regional per data centre lead: %.1f s later",
		c.whole.Seconds())
	if err := r.comeAgain(ctx, healed, &c); err != nil {
		return c, err
	}
	c.again = r.since() - healed
	r.j.record("", "people come in again in every data centre: %.1f s later", c.again.Seconds())
	return c, nil
}

// operatorEvery is the interval at which an operator checks for waits of nodes, because a new leader may report others.
const operatorEvery = 5 * time.Second

// comeAgain waits for admissions in every data centre. Time with exhausted limits does not count: one data centre may
// have all permits, and the others' turn comes as sessions end.
func (r *recovery) comeAgain(ctx context.Context, healed time.Duration, c *calm) error {
	full, at := time.Duration(0), r.since()
	for looked := time.Duration(0); ctx.Err() == nil; sleep(ctx, 100*time.Millisecond) {
		if passed := r.since() - at; passed > sampleEvery {
			at += passed
			if used, ok := r.currentUse(); ok && used >= fullUse {
				full += passed
			}
		}
		empty := ""
		for _, dc := range r.serving() {
			if r.people.entered(dc, healed) < enough {
				empty = dc
			}
		}
		if empty == "" {
			return nil
		}
		if looked == 0 || r.since()-looked > operatorEvery {
			until, err := r.lookAround(ctx)
			if err != nil {
				return err
			}
			if waits := until - healed; waits > c.waits+time.Second {
				c.waits = waits
				r.j.record("", "nodes say that they wait until %.1f s after the last fault", waits.Seconds())
			}
			looked = r.since()
		}
		if c.waits > longestWait {
			return fmt.Errorf("nodes report waits until %v after the last fault, the limit is %v", c.waits, longestWait)
		}
		within := min(max(againWithin, c.waits+afterWait)+full, longestWait)
		if r.o.old != "" { // nothing was lost: if R is exhausted elsewhere, a data centre's turn comes later
			within = longestWait
		}
		if r.since()-healed > within {
			return fmt.Errorf("%v after the last fault: %w in %s", within, errNobody, empty)
		}
	}
	return ctx.Err()
}

// filled waits until the limits should be fully used again, and measures the use. While permits are reserved for dead
// processes, some are missing.
func (r *recovery) filled(ctx context.Context, healed time.Duration, c *calm) {
	for ; ctx.Err() == nil && r.since()-healed < reservedFor; sleep(ctx, sampleEvery) {
		if s, ok := r.books(); ok && s.Reserved == 0 && s.RateReserved == 0 {
			break
		}
	}
	if r.since()-healed > c.again+operatorEvery {
		r.j.record("", "nothing is reserved for whoever died: %.1f s after the last fault", (r.since() - healed).Seconds())
	}
	sleep(ctx, usedAfter)
	use := r.use(ctx)
	if ctx.Err() != nil {
		return
	}
	c.use, c.measured = use, true
	r.j.record("", "%.3f of T or of R is used", use)
}

// books returns the sum of the regionals' counts. It reports false if one does not answer.
func (r *recovery) books() (sum counted, ok bool) {
	for _, dc := range places {
		if len(r.of("regional", dc)) == 0 {
			continue
		}
		_, s, err := r.leader("regional", dc)
		if err != nil {
			return sum, false
		}
		l := s.Rooms["shop"]
		sum.Active, sum.Reserved, sum.RateReserved = sum.Active+l.Active, sum.Reserved+l.Reserved,
			sum.RateReserved+l.RateReserved
	}
	return sum, true
}

// currentUse returns the use of the more used limit: of T by sessions that the regionals count, without reserved ones,
// or of R by admissions of the last minute. It reports false if a regional does not answer.
func (r *recovery) currentUse() (used float64, ok bool) {
	admitted := 0
	for _, dc := range places {
		admitted += r.people.entered(dc, r.since()-time.Minute)
	}
	s, ok := r.books()
	return max(float64(s.Active-s.Reserved)/float64(r.o.total), float64(admitted)/float64(r.o.rate)), ok
}

// use returns the mean use over a while.
func (r *recovery) use(ctx context.Context) float64 {
	sum, n := 0.0, 0
	for begun := r.since(); r.since()-begun < usedFor && ctx.Err() == nil; sleep(ctx, sampleEvery) {
		if used, ok := r.currentUse(); ok {
			sum += used
			n++
		}
	}
	return sum / float64(max(1, n))
}
