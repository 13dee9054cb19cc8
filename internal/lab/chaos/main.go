//go:build linux

// Command chaos runs a whole deployment of the built binaries and injects faults by seed, under visitors: it kills,
// stops and restarts processes, and cuts and heals links between data centres, one way or both. It prints the faults
// and the observations of visitors and site, and exits with 1 on a broken promise: a limit exceeded, a session or place
// lost, or admissions that do not resume within the reported waits. The use of the limits depends on the machine too:
// it is printed with its goal, and fails a run with -strict only.
//
// `make chaos`, `make takeover` and `make k8s` run it.
//
// Everything runs in its own process, network and mount namespace, with a network namespace per data centre: nothing
// outlives the command or is visible outside. If the kernel allows no namespaces, the processes run on the loopback
// interface and are only killed and stopped; the command says so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"vestibule/internal/lab/process"
)

// options are the command line.
type options struct {
	seed        uint64
	length      time.Duration
	visitors    int
	total       int
	rate        int
	session     time.Duration
	takeover    int
	costs       bool
	lost        bool
	dir         string
	keep        bool
	inside      bool // this is the process inside the namespaces
	plain       bool // run without namespaces
	changes     bool // faults include changes of the fleet itself
	credentials bool // every node is a NATS user with its own permissions
	strict      bool // figures below their goals fail the run

	upgrade string // git revisions of the last release
	cache   string // folder of its binaries
	passes  int    // number of upgrade passes

	planned time.Duration // until then nodes are only replaced

	image     string // of pods, with its tag; empty for processes
	imageTar  string
	kustomize string
	kube      string // folder of the Kubernetes programs

	toxiproxy string
}

// Exit codes; noNetwork is between the two processes of one run.
const (
	exitBroken    = 1
	exitUsage     = 2
	exitNoNetwork = 77
)

func main() {
	var o options
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.Uint64Var(&o.seed, "seed", 1, "from which faults and people are drawn")
	f.DurationVar(&o.length, "length", 4*time.Minute, "how long faults happen; afterwards all has to come right again")
	f.IntVar(&o.visitors, "visitors", 1000, "people at a time")
	f.IntVar(&o.total, "total-active-users", 200, "T of the room")
	f.IntVar(&o.rate, "new-users-per-minute", 600, "R of the room")
	f.DurationVar(&o.session, "session-duration", 15*time.Second, "session_duration of the room")
	f.IntVar(&o.takeover, "takeover", 0, "instead: kill the leading global and the leading regional this often each, and measure")
	f.BoolVar(&o.costs, "costs", false, "instead: break one thing after the other, and tell for how long nobody comes in")
	f.StringVar(&o.upgrade, "upgrade", "", "instead: replace a fleet of the first of these git revisions that there is node by node by this build, and back")
	f.StringVar(&o.cache, "cache", ".tools", "with -upgrade: the folder in which that release's binaries are kept")
	f.IntVar(&o.passes, "passes", 3, "with -upgrade: there by the book, back by the book, there in any order with kills, back with globals last; 1 to 4 of these")
	f.BoolVar(&o.lost, "lost", false, "instead: lose the machine of global with NATS and all that is stored, and tell for how long nobody comes in")
	f.StringVar(&o.dir, "dir", "", "folder for binaries, data and logs; empty for one that is deleted after a good run")
	f.BoolVar(&o.plain, "no-namespaces", false, "run on the loopback interface: no link is cut or narrowed")
	f.BoolVar(&o.changes, "changes", false, "let the fleet itself change too: data centres come and go, edges are replaced and copied, keys are rotated, disks are full, the store is lost")
	f.BoolVar(&o.credentials, "credentials", true, "in a storm every node is a user of NATS with a certificate, and every data centre has a NATS server of its own, as `vestibule nats-config` writes them; else three servers without users are for all")
	f.BoolVar(&o.strict, "strict", false, "fail where a figure that depends on the machine too is below its goal: use of T or of R after a storm, time after a loss")
	f.StringVar(&o.image, "pods", "", "instead: run this image, name and tag, as pods of a Kubernetes node of this machine")
	f.StringVar(&o.imageTar, "image", "bin/vestibule-image.tar", "with -pods: the file with that image")
	f.StringVar(&o.kustomize, "kustomize", ".tools/kustomize", "with -pods: the program that builds overlays")
	f.StringVar(&o.kube, "kube", "", "for the command's own use")
	f.StringVar(&o.toxiproxy, "toxiproxy", "", "the toxiproxy server that makes messages late; empty for none")
	f.BoolVar(&o.inside, "inside", false, "for the command's own use")
	if err := f.Parse(os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		os.Exit(exitUsage)
	}
	if f.NArg() > 0 || o.length < 5*time.Second || o.visitors < 1 || o.total < 1 || o.rate < 1 || o.session < 5*time.Second || o.passes < 1 || o.passes > len(passes) {
		fmt.Fprintln(os.Stderr, "chaos: -length must be at least 5s, -session-duration 5s, the other numbers above zero, -passes at most 4")
		os.Exit(exitUsage)
	}
	o.credentials = o.credentials && o.takeover == 0 && o.upgrade == "" && !o.lost && !o.costs && o.image == ""
	if o.upgrade != "" {
		o.planned = math.MaxInt64
	}
	os.Exit(run(o, os.Stdout))
}

func run(o options, out io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if o.inside {
		return inside(ctx, o, out)
	}
	old := ""
	if o.upgrade != "" {
		var err error
		old, err = release(ctx, o.upgrade, o.cache)
		if errors.Is(err, errNoRelease) {
			fmt.Fprintf(out, "NOTHING WAS TRIED: %v. A clone with the whole history has it.\n", err)
			return 0
		}
		if err != nil {
			return say(out, err)
		}
	}
	o.keep = o.dir != ""
	if o.dir == "" {
		dir, err := os.MkdirTemp("", "vestibule-chaos-")
		if err != nil {
			return say(out, err)
		}
		o.dir = dir
	}
	if o.image != "" {
		return podsOutside(ctx, o, out)
	}
	if err := process.Build(ctx, o.newBinaries(), "vestibule/cmd/...", process.NATSServer); err != nil {
		return say(out, err)
	}
	if err := o.bring(old); err != nil {
		return say(out, err)
	}
	code := exitNoNetwork
	if !o.plain {
		code = outside(o, out)
	}
	if code == exitNoNetwork {
		fmt.Fprintln(out, "WITHOUT NAMESPACES: all processes share the loopback interface; they are killed and stopped, no link is cut or narrowed."+o.lateness())
		code = play(ctx, o, loopback{}, out)
	}
	return o.tidy(code, out)
}

// tidy removes the folder after a good run.
func (o *options) tidy(code int, out io.Writer) int {
	if code == 0 && !o.keep {
		if err := os.RemoveAll(o.dir); err != nil {
			return say(out, err)
		}
	} else if code != 0 {
		fmt.Fprintf(out, "seed %d; logs, configuration and data are in %s\n", o.seed, o.dir)
	}
	return code
}

// podsOutside prepares a run with pods, and restores the machine afterwards.
func podsOutside(ctx context.Context, o options, out io.Writer) int {
	if os.Geteuid() != 0 {
		return say(out, errors.New("-pods: only root can run containers"))
	}
	var err error
	if o.kube, err = kubeBinaries(ctx, "", out); err != nil {
		return say(out, err)
	}
	programs, err := filepath.Abs("bin/image")
	if err == nil {
		err = errors.Join(os.MkdirAll(o.dir, 0o700), os.Symlink(programs, o.newBinaries()))
	}
	if err != nil {
		return say(out, err)
	}
	before, err := rememberMachine()
	if err != nil {
		return say(out, err)
	}
	code := outside(o, out)
	if err := before.restore(); err != nil {
		return say(out, err)
	}
	return o.tidy(code, out)
}

// lateness describes whether messages are delayed.
func (o *options) lateness() string {
	if o.toxiproxy == "" {
		return " NO TOXIPROXY was given: nothing is made late."
	}
	return " Toxiproxy makes messages late."
}

// say prints why the run has no verdict.
func say(out io.Writer, err error) int {
	fmt.Fprintln(out, "chaos:", err)
	return exitBroken
}

// outside reruns this command inside its own namespaces and returns its exit code, exitNoNetwork if that is impossible.
func outside(o options, out io.Writer) int {
	self, err := os.Executable()
	if err != nil {
		return say(out, err)
	}
	cmd := exec.Command(self, append(os.Args[1:], "-inside", "-dir", o.dir, "-kube", o.kube)...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = ownNamespaces()
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(out, "no namespaces here: %v\n", err)
		return exitNoNetwork
	}
	// A signal to stop is passed on: inside, it is the first process, and when it ends the kernel ends all others.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
				fmt.Fprintln(out, "chaos:", err)
			}
		case err := <-done:
			if err == nil {
				return 0
			}
			if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
				return exit.ExitCode()
			}
			return say(out, err)
		}
	}
}

// inside is the process inside the namespaces.
func inside(ctx context.Context, o options, out io.Writer) int {
	if o.image != "" {
		if err := newBridge(ctx, o.dir); err != nil {
			return say(out, err)
		}
		if err := inPods(ctx, o, out); err != nil {
			return say(out, err)
		}
		return 0
	}
	net, err := newRouter(ctx)
	if err != nil {
		fmt.Fprintf(out, "no network of namespaces here: %v\n", err)
		return exitNoNetwork
	}
	fmt.Fprintln(out, "Every data centre has a network namespace; links are cut by routing rules, or narrowed to 600 kbit/s."+o.lateness())
	return play(ctx, o, net, out)
}

// play deploys and executes the requested run.
func play(ctx context.Context, o options, net network, out io.Writer) int {
	s, run := shape{globals: 3, regionals: 2, edges: 2}, faultRun
	switch {
	case o.takeover > 0:
		s.regionals, run = 3, takeovers
	case o.upgrade != "":
		run = upgrades
	case o.lost:
		s, run = shape{globals: 1, regionals: 1, edges: 2, embedded: true}, lost
	case o.costs:
		run = costs
	}
	if err := during(ctx, o, net, s, func(d *deployment) error { return run(ctx, d, out) }); err != nil {
		return say(out, err)
	}
	return 0
}

// during deploys, and stops all processes when run is over.
func during(ctx context.Context, o options, net network, s shape, run func(*deployment) error) (err error) {
	d, err := deploy(ctx, o, net, s)
	if d != nil {
		defer func() { err = errors.Join(err, d.stop()) }()
	}
	if err != nil {
		return err
	}
	return run(d)
}
