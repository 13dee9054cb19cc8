package main

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"vestibule/internal/allinone"
	"vestibule/internal/node"
	"vestibule/internal/wire"
)

// flagSet returns a set of flags that tells its own errors.
func flagSet(name string, stderr io.Writer) *pflag.FlagSet {
	f := pflag.NewFlagSet("vestibule "+name, pflag.ContinueOnError)
	f.SortFlags = false
	f.SetOutput(stderr)
	return f
}

// parse parses flags that take no arguments beside them, and returns what is
// wrong with their values. What cannot be understood at all it tells itself.
func parse(f *pflag.FlagSet, args []string, stderr io.Writer) (faults []error, err error) {
	err = f.ParseAll(args, func(flag *pflag.Flag, value string) error {
		if f.Set(flag.Name, value) != nil {
			faults = append(faults, fmt.Errorf("%s: must be a value of type %s, got %q", flag.Name, flag.Value.Type(), value))
		}
		return nil
	})
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return nil, errHelp
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v (see --help)\n", f.Name(), err)
		return nil, node.ErrUsage
	}
	return faults, nil
}

// refuse tells all faults of the flags at once; nil where there are none.
func refuse(f *pflag.FlagSet, faults []error, stderr io.Writer) error {
	if len(faults) == 0 {
		return nil
	}
	fmt.Fprintf(stderr, "%s: the flags are not valid:\n%v\n", f.Name(), errors.Join(faults...))
	return node.ErrUsage
}

// checkLevel reports what is wrong with --log-level.
func checkLevel(level string) []error {
	var l slog.Level
	if l.UnmarshalText([]byte(level)) != nil {
		return []error{fmt.Errorf("log-level: must be debug, info, warn or error, got %q", level)}
	}
	return nil
}

func demo(args []string, stdout, stderr io.Writer) error {
	o := allinone.Options{Params: wire.DefaultParams()}
	f := flagSet("demo", stderr)
	f.StringSliceVar(&o.DataCenters, "data-centers", []string{"nairobi", "dublin"}, "names of the data centres")
	f.IntVar(&o.Edges, "edges", 2, "edges in each data centre")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8080", "host:port of the first edge; the others take the ports that follow")
	f.StringVar(&o.Control, "control", "127.0.0.1:0", "host:port of the API, an address of this machine; port 0 chooses a free one")
	f.StringVar(&o.DataDir, "data-dir", "./var", "folder for the nats-server's data, the rooms file and the nodes' last good copies")
	f.IntVar(&o.TotalActiveUsers, "total-active-users", 3, "sessions that may be valid at any moment")
	f.IntVar(&o.NewUsersPerMinute, "new-users-per-minute", 60, "admissions in any 60 seconds")
	f.DurationVar(&o.SessionDuration, "session-duration", time.Minute, "how long a session lasts after the last request")
	visitors := f.Int("visitors", 0, "simulated visitors who come, wait, browse and leave")
	level := f.String("log-level", "warn", "debug, info, warn or error")
	faults, err := parse(f, args, stderr)
	if err != nil {
		return err
	}
	if len(faults) == 0 { // else defaults would be judged
		faults = o.Validate()
	}
	if *visitors < 0 {
		faults = append(faults, fmt.Errorf("visitors: must not be negative, got %d", *visitors))
	}
	if err := refuse(f, append(faults, checkLevel(*level)...), stderr); err != nil {
		return err
	}
	o.Log = node.NewLogger(stderr, node.LogConfig{Level: *level, Format: "text"})

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tree, err := allinone.Start(o)
	if err != nil {
		return err
	}
	defer tree.Stop() //nolint:errcheck // Wait has told, or the demo was ended
	ready, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := tree.WaitReady(ready); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := announce(stdout, tree, &o); err != nil {
		return err
	}
	var crowd sync.WaitGroup
	if *visitors > 0 {
		var seed [32]byte
		if _, err := crand.Read(seed[:]); err != nil {
			return err
		}
		v := allinone.Visitors{
			N: *visitors, Think: 5 * time.Second, Pause: 20 * time.Second,
			Rand: rand.New(rand.NewChaCha8(seed)), Log: o.Log,
		}
		for _, e := range tree.Info.Edges {
			v.URLs = append(v.URLs, e.URL)
		}
		crowd.Go(func() { v.Run(ctx) })
	}
	err = tree.Wait(ctx)
	stop()
	crowd.Wait()
	return err
}

// announce prints where everything is, for people and for scripts.
func announce(w io.Writer, t *allinone.Tree, o *allinone.Options) error {
	var b strings.Builder
	fmt.Fprintf(&b, "A waiting room for %d at a time, %d new per minute, sessions of %v.\n\n", o.TotalActiveUsers, o.NewUsersPerMinute, o.SessionDuration)
	for _, e := range t.Info.Edges {
		fmt.Fprintf(&b, "  edge      %-22s %-28s metrics %s/metrics\n", e.DC+" "+e.Name, e.URL, e.Metrics)
	}
	for _, r := range t.Info.Regionals {
		fmt.Fprintf(&b, "  regional  %-22s %-28s metrics %s/metrics\n", r.DC, "", r.Metrics)
	}
	fmt.Fprintf(&b, "  global    %-22s %-28s metrics %s/metrics\n", t.Info.Global.Name, "", t.Info.Global.Metrics)
	fmt.Fprintf(&b, "  site      %-22s %s\n", "behind the edges", t.Info.Origin)
	fmt.Fprintf(&b, "  nats      %-22s %s\n", "", t.Info.NATS)
	fmt.Fprintf(&b, "  rooms     %s (edit it while this runs)\n\n", t.Info.Rooms)
	fmt.Fprintf(&b, "  api       %s, zone %s\n            token %s\n\n", t.Info.Control.URL, t.Info.Control.Zone, t.Info.Control.Token)
	fmt.Fprintf(&b, "Try: open %s in %d browser profiles. The last one waits, sees its place, and enters by itself %v after one of the others has left.\n",
		t.Info.Edges[0].URL, o.TotalActiveUsers+1, o.SessionDuration)
	fmt.Fprintf(&b, "Ctrl-C stops everything.\n\n")
	line, err := json.Marshal(t.Info)
	if err != nil {
		return err
	}
	fmt.Fprintf(&b, "READY %s\n", line)
	_, err = io.WriteString(w, b.String())
	return err
}
