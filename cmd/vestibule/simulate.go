package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vestibule/internal/global/report"
	"vestibule/internal/lab/sim"
)

// experiment is the parsed flags of simulate.
type experiment struct {
	cfg                     sim.Config // from the flags
	variant                 sim.Variant
	seeds, jobs             int
	drawn                   bool // from the seed, not from the flags
	trace, vary, bad, small bool
	demand, only, without   string
	minutes                 float64
	stdout, stderr          io.Writer
	recovered               []time.Duration
	events, ran, broke      atomic.Int64
	excused                 atomic.Int64 // violations in worlds that had lost fleet time
}

func (x *experiment) flags(f *pflag.FlagSet) {
	cfg := &x.cfg
	f.IntVar(&cfg.Centres, "data-centers", cfg.Centres, "number of data centres")
	f.IntVar(&cfg.Edges, "edges", cfg.Edges, "edges in each data centre")
	f.StringVar(&x.demand, "demand", "2000/min", "arriving visitors per minute")
	f.Float64Var(&x.minutes, "minutes", 30, "length of the run")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "equal seeds give equal runs")
	f.IntVar(&cfg.Total, "total-active-users", cfg.Total, "T")
	f.IntVar(&cfg.Rate, "new-users-per-minute", cfg.Rate, "R")
	f.DurationVar(&cfg.Session, "session-duration", cfg.Session, "how long a session lasts after the last request")
	f.Float64Var(&cfg.People.Pages, "pages", cfg.People.Pages, "pages that somebody inside looks at, mean")
	f.DurationVar(&cfg.People.Think, "think", cfg.People.Think, "time between two pages, mean")
	f.DurationVar(&cfg.People.Patience, "patience", cfg.People.Patience,
		"time after which a waiting visitor gives up, mean; 0 for never")
	f.DurationVar(&cfg.Network.WAN, "wan", cfg.Network.WAN, "one-way delay between data centres and global, mean")
	f.DurationVar(&cfg.Network.LAN, "lan", cfg.Network.LAN, "one-way delay inside a data centre, mean")
	f.Float64Var(&cfg.Network.Loss, "loss", cfg.Network.Loss, "share of messages lost, 0 to 1")
	f.IntVar(&x.seeds, "seeds", 1,
		"so many seeds, beginning with --seed, one line each (with --small only those that break a promise)")
	f.IntVar(&x.jobs, "jobs", runtime.GOMAXPROCS(0), "experiments that run at the same time")
	f.Lookup("jobs").DefValue = "one per processor"
	f.BoolVar(&x.vary, "vary", false,
		"draw fleet, limits, demand, people and network from the seed; of the flags above only --data-centers, --edges, --demand and --minutes then count, where they are given")
	f.BoolVar(&x.bad, "faults", false, "with --vary: let things go wrong, drawn from the seed too")
	f.BoolVar(&x.small, "small", false, "as --vary --faults, but small worlds full of faults, judged after every event")
	f.StringVar(&x.only, "only", "", "of the faults that are drawn, let those with these numbers happen (3,7,12 or none)")
	f.StringVar(&x.without, "without", "", "leave out: "+strings.Join(sim.Enemies(), ","))
	f.BoolVar(&x.trace, "trace", false, "print every fault to standard error")
	f.BoolVar(&cfg.Network.Encode, "encode", false, "let messages travel as bytes, through the wire codec")
}

// check returns the faults of the flags, and derives the variant from them.
func (x *experiment) check(f *pflag.FlagSet) []error {
	var faults []error
	per, err := perMinute(x.demand)
	if err != nil {
		faults = append(faults, fmt.Errorf("demand: %w", err))
	}
	x.cfg.Demand.PerMinute = per
	x.cfg.Length = time.Duration(x.minutes * float64(time.Minute))
	faults = append(faults, x.cfg.Validate()...)
	if x.seeds < 1 {
		faults = append(faults, fmt.Errorf("seeds: must be at least 1, got %d", x.seeds))
	}
	if x.jobs < 1 {
		faults = append(faults, fmt.Errorf("jobs: must be at least 1, got %d", x.jobs))
	}
	v := &x.variant
	switch {
	case x.small:
		v.Profile = sim.Profiles[2]
	case x.vary && x.bad:
		v.Profile = sim.Profiles[1]
	case x.vary:
		v.Profile = sim.Profiles[0]
	}
	x.drawn = v.Profile.Draw != nil
	if f.Changed("only") {
		if v.Only, err = sim.ParseNumbers(x.only); err != nil {
			faults = append(faults, fmt.Errorf("only: %w", err))
		}
	}
	if x.without != "" {
		v.Without = strings.Split(x.without, ",")
		if err := sim.CheckEnemies(v.Without); err != nil {
			faults = append(faults, fmt.Errorf("without: %w", err))
		}
	}
	if f.Changed("minutes") {
		v.Minutes = x.minutes
	}
	if f.Changed("data-centers") {
		v.Centres = x.cfg.Centres
	}
	if f.Changed("edges") {
		v.Edges = x.cfg.Edges
	}
	if f.Changed("demand") {
		v.PerMinute = per
	}
	return faults
}

func newSimulateCmd() *cobra.Command {
	x := &experiment{cfg: sim.Defaults()}
	cmd := &cobra.Command{
		Use: "simulate", Short: "Run a fleet and its visitors on virtual time and check the promises",
		PersistentPreRun: endOnSignal,
		RunE: func(cmd *cobra.Command, _ []string) error {
			x.stdout, x.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := refuse(x.check(cmd.Flags())); err != nil {
				return err
			}
			return x.simulate()
		},
	}
	x.flags(cmd.Flags())
	offer(cmd, "without", sim.Enemies()...)
	cmd.AddCommand(newShrinkCmd())
	return cmd
}

// simulate runs all seeds and prints a summary.
func (x *experiment) simulate() error {
	debug.SetGCPercent(400) // worlds are small and short-lived
	start, before := time.Now(), cpuTime()
	err := x.run()
	took, used := time.Since(start), cpuTime()-before
	if x.seeds > 1 {
		lost := ""
		if n := x.excused.Load(); n > 0 {
			lost = fmt.Sprintf(" (and %d without fleet time and with a wrong clock of the leader: not promised)", n)
		}
		fmt.Fprintf(x.stdout, "%d seeds, %d broke a promise%s%s\n", x.ran.Load(), x.broke.Load(), lost, x.recoveries())
	}
	fmt.Fprintf(x.stderr, "%s events in %v (%v of one core, %s events/s)\n",
		report.Count(int(x.events.Load())), took.Round(time.Millisecond), used.Round(time.Millisecond),
		report.Count(int(float64(x.events.Load())/max(used, time.Millisecond).Seconds())))
	return err
}

// cpuTime returns the processor time of the process, which does not depend on the load of the machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// recoveries describes how fast the fleets of all seeds recovered.
func (x *experiment) recoveries() string {
	n := len(x.recovered)
	if n == 0 {
		return ""
	}
	slices.Sort(x.recovered)
	at := func(q float64) time.Duration { return x.recovered[int(q*float64(n-1))].Round(10 * time.Millisecond) }
	return fmt.Sprintf("; after the last fault every edge had a lease within %v (p50), %v (p99), %v (all)", at(0.5),
		at(0.99), at(1))
}

// config returns the experiment of one seed, and the command that runs it.
func (x *experiment) config(seed uint64) (sim.Config, string) {
	if !x.drawn {
		c := x.cfg
		c.Seed = seed
		return c, fmt.Sprintf("the same flags with --seeds 1 --seed %d", seed)
	}
	v := x.variant
	v.Seed = seed
	return v.Config(), v.Command()
}

// play runs the experiment of one seed.
func (x *experiment) play(seed uint64) (*sim.Result, string) {
	c, replay := x.config(seed)
	w := sim.New(c)
	if x.trace {
		w.Trace(func(format string, args ...any) { fmt.Fprintf(x.stderr, format, args...) })
	}
	r := w.Run()
	x.events.Add(int64(r.Events))
	x.ran.Add(1)
	if r.Fault != "" {
		x.broke.Add(1)
	}
	if r.Excused != "" {
		x.excused.Add(1)
	}
	return r, replay
}

// enough is the number of violations reported before the remaining seeds are skipped.
const enough = 10

// run runs all seeds, several at a time, and reports them in order.
func (x *experiment) run() error {
	type outcome struct {
		r      *sim.Result
		replay string
	}
	ready := make([]chan outcome, min(x.jobs, x.seeds))
	var stop atomic.Bool
	var workers sync.WaitGroup
	for k := range ready {
		ready[k] = make(chan outcome, 64)
		workers.Go(func() {
			defer close(ready[k])
			for i := k; i < x.seeds && !stop.Load(); i += len(ready) {
				r, replay := x.play(x.cfg.Seed + uint64(i))
				ready[k] <- outcome{r, replay}
			}
		})
	}
	defer workers.Wait()
	var failed []error
	for i := range x.seeds {
		o, ok := <-ready[i%len(ready)]
		if !ok {
			break
		}
		if len(failed) == enough {
			continue // let the workers end
		}
		if o.r.Config.Calm > 0 && o.r.Fault == "" {
			x.recovered = append(x.recovered, o.r.Recovery)
		}
		if err := x.tell(o.r); err != nil {
			failed = append(failed, err)
			stop.Store(true)
		}
		if o.r.Fault != "" {
			failed = append(failed, fmt.Errorf("seed %d broke a promise: %s\nreplay: %s", o.r.Config.Seed, o.r.Fault, o.replay))
			stop.Store(len(failed) == enough)
		}
	}
	return errors.Join(failed...)
}

// tell prints the result of one seed.
func (x *experiment) tell(r *sim.Result) error {
	out := r.Table()
	switch {
	case x.seeds > 1 && x.small && r.Fault == "" && r.Excused == "":
		return nil
	case x.seeds > 1:
		out = r.Line() + "\n"
	}
	_, err := io.WriteString(x.stdout, out)
	return err
}

func newShrinkCmd() *cobra.Command {
	x, tries := &experiment{cfg: sim.Defaults()}, 0
	cmd := &cobra.Command{
		Use: "shrink SEED", Short: "Look for a shorter run that breaks a promise",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			x.stdout, x.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			x.small, x.seeds, x.jobs, x.demand, x.minutes = !x.vary, 1, 1, "1", 1
			faults := x.check(cmd.Flags())
			if x.variant.Seed, err = strconv.ParseUint(args[0], 10, 64); err != nil {
				faults = append(faults, fmt.Errorf("SEED: must be a number, got %q", args[0]))
			}
			if tries < 1 {
				faults = append(faults, fmt.Errorf("tries: must be at least 1, got %d", tries))
			}
			if err := refuse(faults); err != nil {
				return err
			}
			return x.shrink(tries)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&x.vary, "vary", false, "the seed is one of --vary, not of --small")
	f.BoolVar(&x.bad, "faults", false, "with --vary: the seed is one of --vary --faults")
	f.StringVar(&x.without, "without", "", "leave out from the beginning: "+strings.Join(sim.Enemies(), ","))
	f.IntVar(&tries, "tries", 1000, "experiments that are run at most")
	return cmd
}

// shrink searches for a shorter run with a violation, and prints it.
func (x *experiment) shrink(tries int) error {
	debug.SetGCPercent(400)
	found, ok := sim.Shrink(x.variant, tries, func(v *sim.Variant, r *sim.Result) {
		fmt.Fprintf(x.stderr, "%d faults, %d data centres x %d edges, %v: %s\n", len(v.Only), r.Config.Centres,
			r.Config.Edges, r.Config.Length, r.Fault)
	})
	if !ok {
		return fmt.Errorf("seed %d breaks no promise", x.variant.Seed)
	}
	c := found.Config()
	fmt.Fprintf(x.stdout, "%s\n\n%s\n\n", found.Command(), c.Describe())
	w := sim.New(c)
	w.Trace(func(format string, args ...any) { fmt.Fprintf(x.stdout, format, args...) })
	w.Run()
	return nil
}

// perMinute reads a rate such as 2000/min or 50/s; a bare number is per minute.
func perMinute(s string) (float64, error) {
	text, unit, _ := strings.Cut(s, "/")
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || n < 0 || n > 1e9 {
		return 0, fmt.Errorf("must be a number per s, min or h, got %q", s)
	}
	switch strings.TrimSpace(unit) {
	case "", "min", "minute":
		return n, nil
	case "s", "sec", "second":
		return n * 60, nil
	case "h", "hour":
		return n / 60, nil
	}
	return 0, fmt.Errorf("unit must be s, min or h, got %q", unit)
}
