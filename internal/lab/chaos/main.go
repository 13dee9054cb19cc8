//go:build linux

// Command chaos runs a fleet of the built binaries under visitors, injects faults, and judges by the requests of the
// visitors and the arrivals at the site. It exits with 1 on a broken promise: a limit exceeded, a session or place lost,
// or admissions that do not resume within the reported waits, and on a missed goal of docs/figures.json. Real time and the
// use of the limits depend on the machine too: they are not judged if other processes had much of it.
//
// Everything runs in its own process, network and mount namespace, with a network namespace per data centre: nothing
// outlives the command or is visible outside.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"vestibule/internal/lab/process"
)

// options are the command line.
type options struct {
	scenario string
	seed     uint64
	length   time.Duration
	visitors int
	total    int
	rate     int
	session  time.Duration
	changes  bool
	kills    int
	old      string
	only     string
	passes   int
	image    string
	kube     string
	dir      string
	inside   bool // this is the process inside the namespaces
}

// scenario is a kind of run.
type scenario struct {
	what  string
	start func(context.Context, options, io.Writer) (*deployment, error)
	run   func(context.Context, *trial) error
	flags []string // its defaults
}

var scenarios = map[string]scenario{
	"storms": {"random faults for -length, by -seed; between storms everything has to recover", deploy, storms, nil},
	"takeover": {
		"the leading global and a leading regional are killed -kills times each", deploy, takeovers,
		[]string{"-visitors=100"},
	},
	"lost": {
		"the globals and their NATS servers lose all that they stored", deploy, lose,
		[]string{"-visitors=600", "-new-users-per-minute=6000", "-session-duration=40s"},
	},
	"closures": {
		"losses after which data centres admit nobody for a while, those whose names match -only", deploy, closeAll,
		[]string{
			"-visitors=800", "-total-active-users=400", "-new-users-per-minute=600", "-session-duration=40s",
		},
	},
	"upgrade": {
		"nodes of the build in -old are replaced by this one, and back", deploy, upgrades,
		[]string{"-visitors=600"},
	},
	"removal": {
		"a data centre is cut off under partition_policy cap, and removed by force", deploy, removal,
		[]string{"-visitors=600", "-new-users-per-minute=6000"},
	},
	"pods": {
		"the manifests of deploy/k8s run on a Kubernetes node of this machine", startPods, operatePods,
		[]string{"-visitors=500"},
	},
}

// exitUsage is the exit code of a wrong command line.
const exitUsage = 2

func main() {
	o, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.inside {
		err = inside(ctx, o, os.Stdout)
	} else {
		err = run(ctx, &o, os.Stdout)
	}
	if err != nil {
		fmt.Println("chaos:", err)
		os.Exit(1) //nolint:gocritic // nothing is deferred that matters now
	}
}

// parse reads a scenario and its flags.
func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.Uint64Var(&o.seed, "seed", 1, "of faults and visitors")
	f.DurationVar(&o.length, "length", 4*time.Minute, "storms, pods: how long faults happen")
	f.IntVar(&o.visitors, "visitors", 1000, "visitors at a time")
	f.IntVar(&o.total, "total-active-users", 200, "T of the room")
	f.IntVar(&o.rate, "new-users-per-minute", 600, "R of the room")
	f.DurationVar(&o.session, "session-duration", 15*time.Second, "session_duration of the room")
	f.BoolVar(&o.changes, "changes", false,
		"storms: change the fleet itself too: data centres come and go, edges are replaced and copied, "+
			"keys are rotated, disks are full, the store is lost")
	f.IntVar(&o.kills, "kills", 25, "takeover: kills of each leader")
	f.StringVar(&o.old, "old", "", "upgrade: folder of the replaced binaries")
	f.StringVar(&o.only, "only", "", "closures: a regular expression")
	f.IntVar(&o.passes, "passes", 3,
		"upgrade: by the book, back by the book, in any order with kills, back with globals last; 1 to 4 of these")
	f.StringVar(&o.image, "image", "", "pods: name and tag of the image in bin/vestibule-image.tar")
	f.StringVar(&o.kube, "kube", "", "pods: folder of the programs of Kubernetes")
	f.StringVar(&o.dir, "dir", "", "folder for binaries, data and logs; empty for one that is deleted after a good run")
	f.BoolVar(&o.inside, "inside", false, "for the command's own use")
	names := slices.Sorted(maps.Keys(scenarios))
	f.Usage = func() {
		fmt.Fprintln(f.Output(), "usage: chaos scenario [flags]")
		for _, name := range names {
			s := scenarios[name]
			fmt.Fprintf(f.Output(), "  %-9s %s %s\n", name, s.what, strings.Join(s.flags, " "))
		}
		f.PrintDefaults()
	}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		o.scenario, args = args[0], args[1:]
	}
	s, ok := scenarios[o.scenario]
	if err := f.Parse(slices.Concat(s.flags, args)); err != nil {
		return o, err
	}
	switch {
	case !ok || f.NArg() > 0:
		return o, fmt.Errorf("one scenario must come first: %s", strings.Join(names, ", "))
	case o.length < 5*time.Second || o.session < 5*time.Second:
		return o, errors.New("-length and -session-duration must be at least 5s")
	case o.visitors < 1 || o.total < 1 || o.rate < 1 || o.kills < 1 || o.passes < 1 || o.passes > len(passes):
		return o, fmt.Errorf("numbers must be above zero, -passes at most %d", len(passes))
	}
	return o, nil
}

// run builds the binaries, repeats the command inside its own namespaces, and removes the folder after a good run.
func run(ctx context.Context, o *options, out io.Writer) (err error) {
	keep := o.dir != ""
	if !keep {
		if o.dir, err = os.MkdirTemp("", "vestibule-chaos-"); err != nil {
			return err
		}
	}
	if err := process.Build(ctx, filepath.Join(o.dir, "bin"), "vestibule/cmd/...", process.NATSServer); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, append(os.Args[1:], "-inside", "-dir", o.dir)...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, os.Stderr, ownNamespaces()
	// A signal to stop is passed on: inside, it is the first process, and when it ends the kernel ends all others.
	if err = cmd.Start(); err != nil {
		return fmt.Errorf("no namespaces here: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) }) // it may have ended
	defer stop()
	err = cmd.Wait()
	if o.scenario == "pods" {
		err = errors.Join(err, removeCgroups(context.WithoutCancel(ctx)))
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w; seed %d; logs, configuration and data are in %s", err, o.seed, o.dir)
	case keep:
		return nil
	}
	return os.RemoveAll(o.dir)
}

// inside is the process inside the namespaces.
func inside(ctx context.Context, o options, out io.Writer) (err error) {
	s := scenarios[o.scenario]
	d, err := s.start(ctx, o, out)
	if d != nil {
		defer func() { err = errors.Join(err, d.stop()) }()
	}
	if err != nil {
		return err
	}
	t := d.begin(ctx)
	return t.end(ctx, s.run(t.come, t))
}
