//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/judge"
)

// trial is a run with visitors, from their invitation to the verdict.
type trial struct {
	recovery
	in     *injector
	come   context.Context // ends when the visitors go home
	home   func()
	noted  func() ([]judge.Span, error)
	calms  []calm
	closed []closed
	away   sync.WaitGroup // edges that a closure has lost for a minute
	goals  figures.Judge  // of the figures
	errs   []error        // of figures that could not be judged

	planned time.Duration // until then nodes are only replaced, and no visitor may notice
	// from then on edges of the replaced build come back, which read no places of this one; 0 for never
	returns time.Duration
}

// begin invites the visitors.
func (d *deployment) begin(ctx context.Context) *trial {
	t := &trial{noted: d.observe(ctx), goals: figures.Judge{Out: d.j.out}}
	t.operator = operator{d}
	t.people, t.come, t.home = d.invite(ctx)
	t.in = &injector{t.operator, newLinks(d)}
	fmt.Fprintf(d.j.out,
		"seed %d, %v; T %d, R %d/min, session_duration %v; %d people; %d edges, %d regionals, %d globals, %d NATS servers\n",
		d.o.seed, d.o.length, d.o.total, d.o.rate, d.o.session, d.o.visitors,
		len(d.of("edge", "")), len(d.of("regional", "")), len(d.of("global", "")), len(d.of("nats", "")))
	return t
}

// end sends the visitors home and prints the verdict. trouble is the error that ended the run early.
func (t *trial) end(ctx context.Context, trouble error) error {
	t.home()
	died := t.died()
	stood, err := t.noted()
	trouble = errors.Join(trouble, died, err)
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), trouble)
	}
	v := t.verdict(stood)
	t.report(&v, stood)
	switch {
	case len(v.broken) > 0:
		err = errors.New("a promise broke")
	default:
		err = errors.Join(append(t.errs, t.goals.Err())...)
	}
	return errors.Join(trouble, err)
}

// judge judges a figure by its goal and prints it. of names the case, "" if there is one only.
func (t *trial) judge(goal, of string, value float64) {
	if _, err := t.goals.Figure(goal, of, value); err != nil {
		t.errs = append(t.errs, err)
	}
}

// storms has storms of faults, and a recovery after each.
func storms(ctx context.Context, t *trial) error {
	rng := rand.New(rand.NewPCG(t.o.seed, 1))
	sleep(ctx, 5*time.Second) // some admissions first
	gap, begun := firstGap, t.since()
	for ctx.Err() == nil && (len(t.calms) == 0 || t.since()-begun < t.o.length) {
		faults := plan(rng, min(stormLength, t.o.length), gap, t.where(), t.o.changes)
		t.j.record("", "storm: %d faults", len(faults))
		if err := t.in.storm(ctx, faults); err != nil {
			return err
		}
		if err := t.recover(ctx, true); err != nil {
			return err
		}
		gap = time.Second + time.Duration(rng.Int64N(int64(5*time.Second)))
	}
	return nil
}

// recover waits for the recovery, and for full use of the limits too.
func (t *trial) recover(ctx context.Context, full bool) error {
	c, err := t.calm(ctx)
	if err == nil && full {
		t.filled(ctx, t.since()-c.again, &c)
	}
	t.calms = append(t.calms, c)
	if c.measured {
		t.judge("chaos: use of T or R after a storm", t.o.scenario, c.use)
	}
	return err
}

// lose loses the machines of global: every global and its NATS server return with empty folders, the configuration and
// the rooms file. Meanwhile an edge starts with an empty folder. No new key may appear.
func lose(ctx context.Context, t *trial) error {
	sleep(ctx, 2*t.o.session) // the room is full, and visitors come and go
	before, err := t.of("edge", "")[0].keys()
	if err != nil {
		return err
	}
	begun, lost := t.since(), t.of("global", "")
	for _, n := range t.of("nats", "") {
		if !slices.Contains(t.dcs, strings.TrimPrefix(n.name, "nats-")) {
			lost = append(lost, n)
		}
	}
	if err := t.loseStores(ctx, lost, 2*time.Second); err != nil {
		return err
	}
	e, err := t.launchEdge(t.dcs[0])
	if err != nil {
		return err
	}
	t.j.record("", "%s begins with an empty folder", e.name)
	if err := errors.Join(t.admits(ctx, e), t.recover(ctx, false)); err != nil {
		return err
	}
	again := t.since() - begun
	t.judge("lost: until visitors enter everywhere", "", again.Seconds())
	sleep(ctx, t.o.session)
	for _, n := range slices.DeleteFunc(t.present(), func(n *node) bool { return !n.ours() }) {
		if keys, err := n.keys(); err != nil || !slices.Equal(keys, before) {
			return errors.Join(err, fmt.Errorf("%s has other ticket keys than before the loss", n.name))
		}
	}
	return nil
}

// errNobody reports that admissions did not resume.
var errNobody = errors.New("too few visitors were admitted")

// enough is the number of admissions required in every data centre for a good end of the run.
const enough = 5

// verdict judges the requests of all visitors.
func (t *trial) verdict(stood []judge.Span) verdict {
	c := oracle{total: t.o.total, rate: t.o.rate, stalls: stood, planned: t.planned, returns: t.returns}
	for _, e := range t.edgesEver() {
		c.outages = append(c.outages, slices.Concat(e.outages, t.in.links.narrowed[e.place]))
	}
	stays := make([]stay, len(t.people.stays))
	for i, s := range t.people.stays {
		stays[i] = *s
		for k := range s.requests {
			r := &s.requests[k]
			r.arrived = t.site.arrived(requestID(i, k))
		}
	}
	v := c.judge(stays, t.o.session)
	if n := t.people.unopened.Load(); n > 0 {
		v.breaks("%d tickets are sealed with keys that no edge has stored", n)
	}
	return v
}

// row prints a figure.
func (f *fleet) row(what, format string, args ...any) {
	fmt.Fprintf(f.j.out, "  %-44s "+format+"\n", append([]any{what}, args...)...)
}

// report prints the figures of the run.
func (t *trial) report(v *verdict, stood []judge.Span) {
	fmt.Fprintln(t.j.out)
	var parts []string
	total := 0
	for what, n := range t.j.done {
		parts = append(parts, fmt.Sprintf("%d %s", n, what))
		total += n
	}
	slices.Sort(parts)
	t.row("faults", "%d: %s", total, strings.Join(parts, ", "))
	t.row("visits, of them came in", "%d, %d", len(t.people.stays), v.admitted)
	t.row("pages of the site, waiting pages", "%d, %d", v.pages, v.waits)
	t.row("most sessions at an instant / T", "%d / %d", v.peak, t.o.total)
	t.row("most admissions in any 60 s / R", "%d / %d", v.rate, t.o.rate)
	t.row("put out early where an edge may not renew", "%d", len(v.unrenewed))
	t.row("places lost at edges of the replaced build that came back", "%d", v.unread)
	t.row("requests that failed at a dead or stopped edge", "%d", v.excused)
	for what, n := range v.errors {
		t.row("errors seen by people who wait", "%d: %s", n, what)
	}
	var longest time.Duration
	for _, s := range stood {
		longest = max(longest, s.To-s.From)
	}
	t.row("the machine stood still", "%d times, longest %.2f s", len(stood), longest.Seconds())
	for _, c := range t.calms {
		t.row("after a storm: whole, people come in again", "%.1f s, %.1f s (nodes said that they wait until %.1f s)%s",
			c.whole.Seconds(), c.again.Seconds(), c.waits.Seconds(), c.usage())
	}
	t.reportClosed(v)
	if len(v.broken) == 0 {
		t.row("promises", "kept")
	}
	for _, b := range v.broken {
		fmt.Fprintln(t.j.out, "  BROKEN:", b)
	}
}

// quantile returns the q-quantile of sorted values: the smallest with at least that fraction at or below it.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
