package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/sim"
)

func simulate(args []string, stdout, stderr io.Writer) error {
	cfg := sim.Defaults()
	f := flagSet("simulate", stderr)
	f.IntVar(&cfg.Centres, "data-centers", cfg.Centres, "number of data centres")
	f.IntVar(&cfg.Edges, "edges", cfg.Edges, "edges in each data centre")
	demand := f.String("demand", "2000/min", "visitors who come, per minute")
	minutes := f.Float64("minutes", 30, "length of the run")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "equal seeds give equal runs")
	f.IntVar(&cfg.Total, "total-active-users", cfg.Total, "T")
	f.IntVar(&cfg.Rate, "new-users-per-minute", cfg.Rate, "R")
	f.DurationVar(&cfg.Session, "session-duration", cfg.Session, "how long a session lasts after the last request")
	f.Float64Var(&cfg.People.Pages, "pages", cfg.People.Pages, "pages that somebody inside looks at, mean")
	f.DurationVar(&cfg.People.Think, "think", cfg.People.Think, "time between two pages, mean")
	f.DurationVar(&cfg.People.Patience, "patience", cfg.People.Patience, "time after which somebody who waits gives up, mean; 0 for never")
	f.DurationVar(&cfg.Network.WAN, "wan", cfg.Network.WAN, "one-way delay between data centres and global, mean")
	f.DurationVar(&cfg.Network.LAN, "lan", cfg.Network.LAN, "one-way delay inside a data centre, mean")
	f.Float64Var(&cfg.Network.Loss, "loss", cfg.Network.Loss, "share of messages lost, 0 to 1")
	seeds := f.Int("seeds", 1, "so many seeds, beginning with --seed, one line each")
	vary := f.Bool("vary", false, "draw fleet, limits, demand, people and network from the seed; other flags than --seed, --seeds, --faults and --trace are ignored")
	broken := f.Bool("faults", false, "with --vary: let things go wrong, drawn from the seed too")
	trace := f.Bool("trace", false, "tell every fault on standard error")
	f.BoolVar(&cfg.Network.Encode, "encode", false, "let messages travel as bytes, through the wire codec")
	faults, err := parse(f, args, stderr)
	if err != nil {
		return err
	}
	per, err := perMinute(*demand)
	if err != nil {
		faults = append(faults, fmt.Errorf("demand: %w", err))
	}
	cfg.Demand.PerMinute = per
	cfg.Length = time.Duration(*minutes * float64(time.Minute))
	faults = append(faults, cfg.Validate()...)
	if *seeds < 1 {
		faults = append(faults, fmt.Errorf("seeds: must be at least 1, got %d", *seeds))
	}
	if err := refuse(f, faults, stderr); err != nil {
		return err
	}
	for i := range *seeds {
		c := cfg
		c.Seed += uint64(i)
		if *vary {
			if c = sim.Vary(c.Seed); *broken {
				c = sim.VaryFaults(c.Seed)
			}
		}
		w := sim.New(c)
		if *trace {
			w.Trace(func(format string, args ...any) { fmt.Fprintf(stderr, format, args...) })
		}
		r := w.Run()
		out := r.Table()
		if *seeds > 1 {
			out = r.Line() + "\n"
		}
		if _, err := io.WriteString(stdout, out); err != nil {
			return err
		}
		if r.Fault != "" {
			return fmt.Errorf("seed %d broke a promise: %s", c.Seed, r.Fault)
		}
	}
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
