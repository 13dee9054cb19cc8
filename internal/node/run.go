package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	// The image has no trusted certificates: this is the fallback for machines without any.
	_ "golang.org/x/crypto/x509roots/fallback"
)

// Exit codes of the commands.
const (
	ExitOK    = 0
	ExitError = 1 // it ran, and failed
	ExitUsage = 2 // it did not run: invalid command line or configuration
)

// ErrTerminated is the cause of a context that ended by SIGTERM, as sent by supervisors. SIGINT comes from a person
// at the terminal.
var ErrTerminated = errors.New("terminated")

// Main is the main function of all tiers: it loads the configuration, handles --check-config, and runs until a
// signal. It returns the exit code.
func Main[C Config](
	command string, cfg C, base *Base, args []string, stdout, stderr io.Writer,
	run func(ctx context.Context, stdout io.Writer, log *slog.Logger) error,
) int {
	if slices.Contains(args, "--version") {
		fmt.Fprintf(stdout, "%s %s\n", command, BuildVersion())
		return ExitOK
	}
	lines := NewSink(stderr)
	defer lines.Close()
	check, err := Load(command, cfg, args, lines)
	if faults, invalid := errors.AsType[ConfigError](err); err == nil || invalid {
		if faults = append(faults, strayVariables(cfg, os.Environ())...); len(faults) > 0 {
			err = faults
		}
	}
	switch {
	case errors.Is(err, ErrHelp):
		return ExitOK
	case errors.Is(err, ErrUsage):
		return ExitUsage
	case err != nil:
		fmt.Fprintf(lines, "%s: the configuration is not valid:\n%v\n", command, err) // no other place to report it
		return ExitUsage
	case check:
		lines.Close() // both outputs may be one
		if d, ok := any(cfg).(Doubter); ok {
			for _, doubt := range d.Doubts() {
				fmt.Fprintf(stdout, "%s: doubtful: %s\n", command, doubt)
			}
		}
		fmt.Fprintf(stdout, "%s: the configuration is valid\n", command) // the exit code reports it too
		return ExitOK
	}
	said := NewSink(stdout)
	defer said.Close()
	log := NewLogger(lines, base.Log)
	ctx, stop := untilSignal()
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends a process that does not stop
	if err := run(ctx, said, log); err != nil {
		log.Error("stopped", slog.String("command", command), slog.Any("error", err))
		return ExitError
	}
	return ExitOK
}

// untilSignal returns a context that ends with the first SIGINT or, with the cause [ErrTerminated], SIGTERM. After
// stop signals have their default effect.
func untilSignal() (ctx context.Context, stop func()) {
	terminated, stopTerms := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	base, end := context.WithCancelCause(context.Background())
	context.AfterFunc(terminated, func() { end(ErrTerminated) })
	ctx, stopInterrupts := signal.NotifyContext(base, os.Interrupt)
	return ctx, func() {
		stopInterrupts()
		stopTerms()
		end(nil)
	}
}

// notice is how long to wait until other processes that stop together with this one have announced it.
const notice = time.Second

// Outlive returns a context that ends after ctx. If the cause is [ErrTerminated], the process waits for dependent
// processes that stop too: their final reports avoid reservations. others returns how many there are, and how many
// of them are stopping. If none is stopping, Outlive waits for a second, otherwise until they have ended, at most
// for most. The caller must call stop.
func Outlive(
	ctx context.Context, most time.Duration, others func() (here, leaving int), log *slog.Logger,
) (out context.Context, stop func()) {
	out, end := context.WithCancelCause(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), ErrTerminated) {
				waitForPeers(out, most, others, log)
			}
			end(context.Cause(ctx))
		case <-out.Done():
		}
	}()
	return out, func() {
		end(nil)
		<-done
	}
}

// waitForPeers returns once the stopping processes have ended, or ctx has.
func waitForPeers(ctx context.Context, most time.Duration, others func() (here, leaving int), log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	began, logged := time.Now(), false
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		here, leaving := others()
		if here == 0 || (leaving == 0 && time.Since(began) >= notice) {
			return
		}
		if leaving > 0 && !logged {
			logged = true
			log.Info("waiting for other processes that are stopping",
				slog.Int("others", leaving), slog.Duration("at_most", most))
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// BuildVersion returns the version of this program, its commit and its Go release from the build information;
// "unknown" for a missing part.
func BuildVersion() string {
	b := readBuild()
	return fmt.Sprintf("%s (commit %s, %s)", b.version, b.commit, b.goVersion)
}

// ShortBuild is [BuildVersion] for reports and tables, which hold 64 bytes of it: it has the first 12 digits of the
// commit, and none beside a version that ends with them.
func ShortBuild() string { return readBuild().short() }

func (b build) short() string {
	commit := b.commit[:min(len(b.commit), 12)]
	if strings.Contains(b.version, commit) {
		return fmt.Sprintf("%s (%s)", b.version, b.goVersion)
	}
	return fmt.Sprintf("%s (commit %s, %s)", b.version, commit, b.goVersion)
}

type build struct{ version, commit, goVersion string }

// Of images, set by the linker: their builds know no repository.
var imageVersion, imageCommit string

// readBuild reads it once: each report has it.
var readBuild = sync.OnceValue(func() build {
	b := build{"unknown", "unknown", runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.commit = s.Value
		}
	}
	b.version, b.commit = cmp.Or(imageVersion, b.version), cmp.Or(imageCommit, b.commit)
	return b
})

// RegisterBuild registers the metrics about the program itself on reg.
func RegisterBuild(reg prometheus.Registerer) {
	b := readBuild()
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "vestibule_build_info", Help: "Always 1; the labels identify the program.",
	}, []string{"version", "commit", "go"})
	reg.MustRegister(info, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "vestibule_log_lost_lines_total",
		Help: "Lines of log and output that were dropped, because their reader had ended or stopped, or the disk was full.",
	}, func() float64 { return float64(lostLines.Load()) }))
	info.WithLabelValues(b.version, b.commit, b.goVersion).Set(1)
}

// Announce prints the addresses of a node: a line for people and, for scripts, a line LISTENING with the same
// addresses as JSON.
func Announce(w io.Writer, people string, addresses any) error {
	line, err := json.Marshal(addresses)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\nLISTENING %s\n", people, line)
	return err
}

// Every calls do at once and then at every interval, until ctx ends.
func Every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// IgnoreEnd returns err unless it is the end of ctx.
func IgnoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
