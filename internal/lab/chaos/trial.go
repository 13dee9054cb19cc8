//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"vestibule/internal/lab/judge"
)

// trial is a run with visitors, from their invitation to the verdict.
type trial struct {
	recovery
	in    *injector
	out   io.Writer
	come  context.Context // ends when the visitors go home
	home  func()
	noted func() ([]judge.Span, error)
	calms []calm
}

// begin invites the visitors. The events of the run are printed to events.
func (d *deployment) begin(ctx context.Context, out, events io.Writer) *trial {
	j := &journal{out: events, d: d, base: d.since(), done: map[string]int{}}
	t := &trial{out: out, noted: d.observe(ctx)}
	t.operator = operator{d, j}
	t.people, t.come, t.home = d.invite(ctx)
	t.in = &injector{t.operator, newLinks(d)}
	return t
}

// end sends the visitors home and prints the verdict.
func (t *trial) end(ctx context.Context, trouble ...error) error {
	t.home()
	died := t.died()
	stood, err := t.noted()
	trouble = append(trouble, died, err)
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), errors.Join(trouble...))
	}
	return errors.Join(errors.Join(trouble...), report(t.out, t.deployment, t.people, t.j, t.in.links, stood, t.calms))
}

// faultRun is a whole run with faults.
func faultRun(ctx context.Context, d *deployment, out io.Writer) error {
	o := d.o
	fmt.Fprintf(out, "seed %d, %v; T %d, R %d/min, session_duration %v; %d people; %d edges, %d regionals, %d globals, %d NATS servers\n",
		o.seed, o.length, o.total, o.rate, o.session, o.visitors,
		len(d.of("edge", "")), len(d.of("regional", "")), len(d.of("global", "")), len(d.of("nats", "")))
	t := d.begin(ctx, out, out)
	rng := rand.New(rand.NewPCG(o.seed, 1))
	sleep(t.come, 5*time.Second) // some admissions first
	gap := firstGap
	var trouble error
	for trouble == nil && t.come.Err() == nil && (len(t.calms) == 0 || d.since()-t.j.base < o.length) {
		faults := plan(rng, min(stormLength, o.length), gap, d.where(), kinds{d.net.links(), o.toxiproxy != "", o.changes})
		t.j.record("", "storm: %d faults", len(faults))
		if trouble = t.in.storm(t.come, faults); trouble != nil {
			break
		}
		var c calm
		if c, trouble = t.calm(t.come); trouble == nil {
			t.filled(t.come, d.since()-c.again, &c)
		}
		t.calms = append(t.calms, c)
		gap = time.Second + time.Duration(rng.Int64N(int64(5*time.Second)))
	}
	return t.end(ctx, trouble)
}

// stalls records stalls of this process, and so of the machine.
func (d *deployment) stalls(ctx context.Context) []judge.Span {
	const step, limit = 10 * time.Millisecond, 150 * time.Millisecond
	var out []judge.Span
	tick := time.NewTicker(step)
	defer tick.Stop()
	for last := d.since(); ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		now := d.since()
		if now-last > limit {
			out = append(out, judge.Span{From: last, To: now})
		}
		last = now
	}
	return out
}

// errNobody reports that admissions did not resume.
var errNobody = errors.New("too few visitors were admitted")

// enough is the number of admissions required in every data centre for a good end of the run.
const enough = 5

// errBroken reports a broken promise.
var errBroken = errors.New("a promise broke")

// errBelow reports a figure below its goal.
var errBelow = errors.New("every promise is kept, but a figure is below its goal")

// report evaluates the run and prints the result.
func report(out io.Writer, d *deployment, people *crowdOfPeople, j *journal, links *links, stood []judge.Span, calms []calm) error {
	c := oracle{total: d.o.total, rate: d.o.rate, wall: d.zero, stalls: stood, planned: d.o.planned}
	for _, e := range d.edgesEver() {
		c.outages = append(c.outages, slices.Concat(e.outages, links.narrowed[e.place]))
	}
	tickets, err := d.keys.reader()
	if err != nil {
		return err
	}
	stays := make([]stay, len(people.stays))
	for i, s := range people.stays {
		stays[i] = *s
		for k := range s.requests {
			r := &s.requests[k]
			r.arrived = d.site.Arrived(requestID(i, k))
			if r.outcome == waiting {
				r.joined = tickets.joined(r.ticket)
			}
		}
	}
	v := c.judge(stays, d.o.session)
	row := func(what, format string, args ...any) {
		fmt.Fprintf(out, "  %-44s "+format+"\n", append([]any{what}, args...)...)
	}
	fmt.Fprintln(out)
	var parts []string
	total := 0
	for what, n := range j.done {
		parts = append(parts, fmt.Sprintf("%d %s", n, what))
		total += n
	}
	slices.Sort(parts)
	row("faults", "%d: %s", total, strings.Join(parts, ", "))
	row("visits, of them came in", "%d, %d", len(stays), v.admitted)
	row("pages of the site, waiting pages", "%d, %d", v.pages, v.waits)
	row("most sessions at an instant / T", "%d / %d", v.peak, c.total)
	row("most admissions in any 60 s / R", "%d / %d", v.rate, c.rate)
	row("put out early where an edge may not renew", "%d", v.unrenewed)
	row("requests that failed at a dead or stopped edge", "%d", v.excused)
	for what, n := range v.errors {
		row("errors seen by people who wait", "%d: %s", n, what)
	}
	var longest time.Duration
	for _, s := range stood {
		longest = max(longest, s.To-s.From)
	}
	row("the machine stood still", "%d times, longest %.2f s", len(stood), longest.Seconds())
	below := false
	for _, c := range calms {
		row("after a storm: whole, people come in again", "%.1f s, %.1f s (nodes said that they wait until %.1f s)%s", c.whole.Seconds(), c.again.Seconds(), c.waits.Seconds(), c.usage())
		below = below || c.below()
	}
	if len(v.broken) == 0 {
		row("promises", "kept")
		if below && d.o.strict {
			return fmt.Errorf("%w; again with SEED=%d LENGTH=%v", errBelow, d.o.seed, d.o.length)
		}
		return nil
	}
	for _, b := range v.broken {
		fmt.Fprintln(out, "  BROKEN:", b)
	}
	return fmt.Errorf("%w; again with SEED=%d LENGTH=%v", errBroken, d.o.seed, d.o.length)
}

// quantile returns the q-quantile of sorted values: the smallest with at least that fraction at or below it.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
