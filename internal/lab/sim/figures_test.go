package sim

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/figures"
)

var (
	measure = flag.Bool("figures", false, "run TestFigures (`make figures`)")
	only    = flag.String("only", "", "TestFigures: the figures whose names contain this")
	written = flag.String("json", "", "TestFigures: also write them to this file, for docs/FIGURES.md")
)

// TestFigures prints the figures of experiments with fixed seeds, each beside its goals. It fails if a promise is
// broken or a goal is missed.
func TestFigures(t *testing.T) {
	if !*measure {
		t.Skip("`make figures` runs it")
	}
	var all []figures.Measured
	for _, x := range experiments() {
		if !strings.Contains(x.name, *only) {
			continue
		}
		f := measured(x.measure)
		f.check(t)
		fmt.Printf("%s\n    %s\n", x.name, f.Seen)
		for _, r := range f.judged {
			fmt.Printf("    %s\n", r.Text)
		}
		if bound := f.Bound + x.bound; bound != "" {
			fmt.Printf("    %s\n", bound)
		}
		all = append(all, figures.Measured{Key: "simulate " + x.name, Seen: f.Seen, Missed: f.below()})
	}
	if len(all) == 0 {
		t.Fatalf("no figure's name contains %q", *only)
	}
	if *written != "" && !t.Failed() {
		if err := figures.Write(*written, all); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeysOfFigures: every key of the simulator in docs/figures.json is the name of a figure.
func TestKeysOfFigures(t *testing.T) {
	t.Parallel()
	d, err := figures.Read("../../../docs/figures.json")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, x := range experiments() {
		names["simulate "+x.name] = true
	}
	for key := range d.Keys() {
		if strings.HasPrefix(key, "simulate ") && !names[key] {
			t.Errorf("the simulator has no figure %q", key)
		}
	}
}

// Goals with several users.
const (
	useAlone      = "use of T, no coordinator"
	firstError    = "crowds: median error of the first forecast"
	nextInVain    = "crowds: told to be next in vain"
	misledSoon    = "crowds: told a wait off by over two times and 5 s"
	behindOrder   = "crowds: behind the strict order, p99"
	takeoverError = "takeovers: error of the first forecast"
	toldTwice     = "rushes: told above twice the wait"
	toldHalf      = "rushes: told below half of the wait"
)

// experiment measures one property of the whole system.
type experiment struct {
	name    string
	measure func(f *Finding)
	bound   string // the limiting resource, if not obvious
}

// Finding is the result of an experiment.
type Finding struct {
	Seen  string
	Bound string
	Fault string // the first broken promise

	goals  figures.Judge
	judged []figures.Judged
	errs   []error // of figures that could not be judged
}

// measured returns the finding of an experiment.
func measured(experiment func(f *Finding)) Finding {
	f := Finding{}
	experiment(&f)
	return f
}

// judge judges a figure by its goal. of names the case, "" if there is one only.
func (f *Finding) judge(goal, of string, value float64) {
	r, err := f.goals.Figure(goal, of, value)
	if err != nil {
		f.errs = append(f.errs, err)
		return
	}
	f.judged = append(f.judged, r)
}

// happened notes what should have been measured if it was not.
func (f *Finding) happened(ok bool, otherwise string) {
	if !ok {
		f.errs = append(f.errs, errors.New(otherwise))
	}
}

// check fails a test on a broken promise and on a missed goal.
func (f *Finding) check(t *testing.T) {
	t.Helper()
	if f.Fault != "" || f.missed() {
		t.Errorf("%s %s; %v; %s", f.Seen, f.Bound, errors.Join(append(f.errs, f.goals.Err())...), f.Fault)
	}
}

// missed reports whether a goal is missed, or a figure was not measured.
func (f *Finding) missed() bool { return len(f.errs) > 0 || f.goals.Err() != nil }

// below reports whether a figure is below its goal, although a decision may accept that.
func (f *Finding) below() bool {
	return slices.ContainsFunc(f.judged, func(r figures.Judged) bool { return r.Verdict != figures.Kept })
}

// add adds a part of the result, after sep if it is not the first.
func (f *Finding) add(sep, format string, args ...any) {
	if f.Seen != "" {
		f.Seen += sep
	}
	f.Seen += fmt.Sprintf(format, args...)
}

// note adds a line beside the limiting resource.
func (f *Finding) note(format string, args ...any) {
	if f.Bound != "" {
		f.Bound += "\n    "
	}
	f.Bound += fmt.Sprintf(format, args...)
}

// run runs a world to its end.
func (f *Finding) run(w *World) *Result { return f.take(w.Run()) }

// take keeps the broken promise of a run, if it is the first.
func (f *Finding) take(r *Result) *Result {
	if r.Fault != "" && f.Fault == "" {
		f.Fault = fmt.Sprintf("seed %d: %s", r.Config.Seed, r.Fault)
	}
	return r
}

// experiments returns all of them, in the order of display. Each has its own fixed seeds: equal code gives equal
// figures.
func experiments() []experiment {
	const edges, centre = "use of T, every edge crashes once in 10 min and is back after ",
		"use of T, one of three data centres cut off for 12 min, "
	return []experiment{
		{"use of T, no faults", func(f *Finding) { useOf(f, "use of T, no faults", false, nil) }, ""},
		{edges + "2 s, serve", func(f *Finding) { useOf(f, "use of T, edges that crash", false, crashEveryEdge(2*time.Second)) }, ""},
		{edges + "2 s, cap", func(f *Finding) { useOf(f, "use of T, edges that crash", true, crashEveryEdge(2*time.Second)) }, ""},
		{edges + "10 s, cap", func(f *Finding) { useOf(f, "use of T, edges that crash", true, crashEveryEdge(10*time.Second)) }, ""},
		{
			edges + "10 s, serve", func(f *Finding) {
				useOf(f, "", false, crashEveryEdge(10*time.Second))
			},
			"an edge that is silent for longer than its lease may be renewing: what was last seen there counts until one " +
				"session after it is back",
		},
		{centre + "serve", func(f *Finding) { useOf(f, "use of T, a data centre cut off", false, cutOneCentre) }, ""},
		{centre + "cap", func(f *Finding) { useOf(f, "use of T, a data centre cut off", true, cutOneCentre) }, ""},
		{
			"use of T, coordinator dead for 10 min, serve", func(f *Finding) { useOf(f, useAlone, false, loseGlobal) },
			"",
		},
		{
			"use of T, coordinator dead for 10 min, cap", func(f *Finding) {
				useOf(f, "", true, loseGlobal)
			},
			"under cap nobody is let in once the leases of the data centres have ended, after 60 s; that is what cap means, " +
				"and standbys are for",
		},
		{"use of T, coordinator dead for an hour, serve; people put out", hourWithoutGlobal, ""},
		{
			"spike 0 to 20x in 10 s into one idle data centre: peak sessions / T", func(f *Finding) { spikeIntoOne(f, true) }, "",
		},
		{
			"spike 0 to 20x in 10 s into one idle data centre: queued while slots were free", func(f *Finding) { spikeIntoOne(f, false) }, "",
		},
		{"order spread p50 / p99, from the strict order of arrival", orderStrict, ""},
		{
			"an edge crashes and restarts, everybody leaves: slots in use again after", restartedEdge,
			"a ticket is valid for a tenth of session_duration longer, 20 s at most; what the crashed edge may have stamped " +
				"is reserved for one lease more",
		},
		{
			"serve, a data centre is cut off and its visitors move to others: peak sessions / T / overcommit told", moveOut, "",
		},
		{
			"serve, an edge is cut off and its visitors go elsewhere and back: sessions above T, as many as told at most", awayAndBack,
			"the edge's visitors went elsewhere and back while it could not be heard; what it goes on renewing nobody counts",
		},
		{
			"drain of a data centre in a full room of 20,000 sessions: people put out / permits lost / counted twice for at most",
			drainFull, "",
		},
		{"one hour without NATS, serve: errors or waiting pages seen by people inside", hourAlone, ""},
		{
			"10,000 cookie-less hits/s for 2 min beside 1,000 people: change of throughput / of the estimate", flood, "",
		},
		{
			"1,000 replays/s of 100 old tickets over four edges for 5 min beside 450 people who wait: change of throughput / " +
				"of people told of for each who waits / of the estimate for each", replayed, "",
		},
		{"50 clients with one waiting ticket in 10 networks, any of 4 edges, sessions of 60 s: inside with it 15 s / 30 s / 60 s / 120 s after its turn by ticket_binding", func(f *Finding) {
			boundCopies(f, false)
		}, ""},
		{
			"the same, the ticket of a session", func(f *Finding) { boundCopies(f, true) },
			"",
		},
		{
			"a browser for an hour: 20 tabs, 50 requests at once, every tenth answer lost, others late, any edge with every " +
				"request; sessions of 10 s / 60 s / 5 min: put out; counted twice for at most", manyTabs,
			"a version that is shown after a newer one was renewed elsewhere, because an answer was lost or late, is charged " +
				"beside it until that one expires",
		},
		{"50 requests of one page at once over 4 edges: sessions counted", parallelAsOne, ""},
		{
			"forecast at joining over simulated sales: median of its error / share of waits inside the range", func(f *Finding) { forecasts(f, 40) }, "",
		},
		{"crowds, what people are told: error of the first estimate against its goal, coverage off 0.8 by, told to be next in vain, rises without the word", func(f *Finding) {
			crowds(f, 8)
		}, ""},
		{
			"crowds, all leaders replaced: error of the first forecast from then on, told to be next in vain", func(f *Finding) { wordsAfterTakeovers(f, 8) }, "",
		},
		{"crowds, order: seconds later than in the strict order of the line, p99", func(f *Finding) {
			orderOfCrowds(f, 8)
		}, "sessions end at whole seconds: one turn that is missed is worth a second"},
		{"rushes of 250 and 1,000 with waits over a minute: median error of the first estimate; people told above twice their wait / below half of it, over a minute before they enter", func(f *Finding) {
			rushesTold(f, 20)
		}, ""},
		{
			"250 and 1,000 visitors that come within a second: median error of the first estimate; people told, ten seconds to a " +
				"minute before they enter, a wait off by over two times and 5 s", func(f *Finding) { flashesTold(f, 20) },
			"how many visitors stay is not known while the first sessions end",
		},
		{
			"crowds into rooms drawn at random, 30 of each kind: share of waits inside the range", func(f *Finding) { anyCrowds(f, 30) }, "",
		},
		{
			"an event with 200,000 people in the pre-queue over 5 data centres, whose coordinator is replaced 3 s before the " +
				"start: first admission after the start; before it; peak sessions / T, admissions in 60 s / R", eventStart, "",
		},
		{
			"an event with 200,000 people in the pre-queue over 5 data centres that begins with a draw, whose coordinator is " +
				"replaced 3 s before entries close: first admission after the start; let in before they were called by the place " +
				"that was drawn; peak sessions / T, admissions in 60 s / R", drawStart, "",
		},
		{
			"a room whose method is random, a line of a minute: share called within so many rounds off the law of the rounds " +
				"by; throughput beside fifo; the median told off that of the waits by; waits inside the range", randomRounds, "",
		},
		{
			"let in the next N (1 to 500) of a room that is paused, nothing fails: releases that let in fewer; all within", func(f *Finding) { releasesInPeace(f, 1000) }, "",
		},
		{
			"half of those in line subscribe and close the page, half of these never come back: use of T; waits of the others " +
				"beside a fleet that these never came to", awayUntilCalled, "",
		},
		{"50 visitors/s who take a slot and leave: throughput left to the others", abandoners, ""},
	}
}

// busy is a room of 2,000 with sessions of a minute, in three data centres of four edges each, with twice the visitors
// that it can serve.
func busy(seed uint64) Config {
	c := Defaults()
	c.Seed, c.Length, c.Probation = seed, 18*time.Minute, room.DefaultProbation
	c.Total, c.Rate, c.Session = 2000, 100_000, time.Minute
	c.People.Think = 10 * time.Second
	c.Demand.PerMinute = 2000
	return c
}

// fill is the time to fill a busy room before any measurement.
const fill = 5 * time.Minute

// filled is the world of a busy room that is measured from when it is full; happen is called then.
func filled(c Config, happen func(w *World)) *World {
	w := New(c)
	w.in(fill, w.meters.begin)
	if happen != nil {
		w.in(fill, func() { happen(w) })
	}
	return w
}
