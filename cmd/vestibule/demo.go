package main

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vestibule/internal/allinone"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
)

// checkLevel returns the fault of --log-level.
func checkLevel(level string) []error {
	var l slog.Level
	if l.UnmarshalText([]byte(level)) != nil {
		return []error{fmt.Errorf("log-level: must be debug, info, warn or error, got %q", level)}
	}
	return nil
}

func newDemoCmd() *cobra.Command {
	o := &allinone.Options{Params: wire.DefaultParams(), NATS: true, Notify: "mailto:demo@vestibule.example"}
	visitors, console, level := 0, false, (*string)(nil)
	cmd := &cobra.Command{
		Use: "demo", Short: "Run a whole waiting room in one process, with a site behind it",
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Busy = o.Origin == ""
			faults := o.Validate()
			if visitors < 0 {
				faults = append(faults, fmt.Errorf("visitors: must not be negative, got %d", visitors))
			}
			if err := refuse(append(faults, checkLevel(*level)...)); err != nil {
				return err
			}
			o.Log = node.NewLogger(cmd.ErrOrStderr(), node.LogConfig{Level: *level, Format: "text"})
			if !cmd.Flags().Changed("listen") {
				chooseListen(o, demoPort, cmd.OutOrStdout())
			}
			if console && !cmd.Flags().Changed("visitors") {
				visitors = 60
			}
			return demo(cmd, o, visitors, console)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Origin, "origin", "",
		"your own site, such as http://127.0.0.1:3000; empty for a demo site")
	f.StringSliceVar(&o.Hosts, "host", nil,
		"names of the site, beside localhost and the address of --listen")
	f.StringSliceVar(&o.DataCenters, "data-centers", []string{"nairobi", "dublin"}, "names of the data centres")
	f.IntVar(&o.Edges, "edges", 2, "edges in each data centre")
	f.StringVar(&o.Listen, "listen", "localhost:"+strconv.Itoa(demoPort),
		"host:port of the first edge; others take the next ports, without this flag free ones")
	f.StringVar(&o.Control, "control", "",
		"host:port of the API, on this machine; empty for a port after the edges")
	f.StringVar(&o.DataDir, "data-dir", "./var",
		"folder of all data")
	limitFlags(f, o, 3, 60, time.Minute)
	f.IntVar(&visitors, "visitors", 0, "simulated visitors")
	f.BoolVar(&console, "console", false, "open the console in a browser, with 60 simulated visitors")
	level = logLevel(cmd, "warn")
	return cmd
}

// demo runs a demo until its context ends.
func demo(cmd *cobra.Command, o *allinone.Options, visitors int, console bool) error {
	return grow(cmd.Context(), o, func(ctx context.Context, tree *allinone.Tree) error {
		ready, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if err := tree.WaitReady(ready); err != nil {
			return err
		}
		if err := tree.TakeToken(ready); err != nil {
			return err
		}
		var seed [32]byte
		crand.Read(seed[:]) // documented never to fail
		var crowd sync.WaitGroup
		defer crowd.Wait()
		ctx, leave := context.WithCancel(ctx)
		context.AfterFunc(ctx, leave)
		crowd.Go(func() { tree.Crowd(ctx, visitors, rand.New(rand.NewChaCha8(seed))) })
		if o.Busy {
			soon, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			tree.WaitBusy(soon)
		}
		err := announceDemo(cmd.OutOrStdout(), tree, o, visitors)
		if err != nil {
			leave()
			return err
		}
		if console {
			openBrowser(ctx, cmd.ErrOrStderr(), tree.Info.Control.Console)
		}
		return nil
	})
}

// openBrowser opens an address in the browser of this machine. Without one, the address was printed.
func openBrowser(ctx context.Context, stderr io.Writer, address string) {
	command := map[string][]string{"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}}[runtime.GOOS]
	if command == nil {
		command = []string{"xdg-open"}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := exec.CommandContext(ctx, command[0], append(command[1:], address)...).Run(); err != nil { //nolint:gosec // our own address
		fmt.Fprintf(stderr, "No browser could be opened (%v): open the address of the console above.\n", err)
	}
}

// demoPort is the port of the first edge of a demo.
const demoPort = 8080

// limitFlags are the limits of a room defined by flags.
func limitFlags(f *pflag.FlagSet, o *allinone.Options, total, perMinute int, session time.Duration) {
	f.IntVar(&o.TotalActiveUsers, "total-active-users", total, "sessions that may be valid at any moment")
	f.IntVar(&o.NewUsersPerMinute, "new-users-per-minute", perMinute, "admissions in any 60 seconds")
	f.DurationVar(&o.SessionDuration, "session-duration", session, "how long a session lasts after the last request")
}

// chooseListen moves the edges of a demo up by a hundred ports, or more, if theirs are taken, and prints that.
func chooseListen(o *allinone.Options, first int, stdout io.Writer) {
	for base := first; base < first+1000; base += 100 {
		taken := 0
		for i := range o.Edges * len(o.DataCenters) {
			port := strconv.Itoa(base + i)
			if taken == 0 && (!allinone.Free("127.0.0.1:"+port) || !allinone.Free("[::1]:"+port)) {
				taken = base + i
			}
		}
		if taken == 0 {
			o.Listen = "localhost:" + strconv.Itoa(base)
			return
		}
		fmt.Fprintf(stdout, "Port %d is taken by another program: trying from %d on (--listen chooses others).\n", taken,
			base+100)
	}
	o.Listen = "localhost:0"
}

// grow runs a tree until ctx ends or the tree fails. up is called when its listeners are open, with a context that
// ends with the tree.
func grow(ctx context.Context, o *allinone.Options, up func(context.Context, *allinone.Tree) error) error {
	tree, err := allinone.Start(*o)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	inside, end := context.WithCancel(ctx)
	defer end()
	failed := make(chan error, 1)
	all.Go(func() {
		if err := up(inside, tree); err != nil && inside.Err() == nil {
			failed <- err
			end()
		}
	})
	err = tree.Wait(inside)
	end()
	all.Wait()
	select {
	case why := <-failed:
		if err == nil {
			err = why
		}
	default:
	}
	// Wait has returned why a node failed, or the tree was stopped.
	if e := tree.Stop(); err == nil {
		err = e
	}
	return err
}

// announceDemo prints first steps, for people, and all addresses, for scripts.
func announceDemo(w io.Writer, t *allinone.Tree, o *allinone.Options, visitors int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "A waiting room for %d at a time, %d new per minute, sessions of %s.\n\n", o.TotalActiveUsers,
		o.NewUsersPerMinute, short(o.SessionDuration))
	if t.Info.Busy != "" {
		fmt.Fprintf(&b,
			"  See it    %s\n            a full room of simulated visitors: you wait with them, and are in after about a minute\n\n",
			t.Info.Busy)
	}
	var urls []string
	for _, e := range t.Info.Edges {
		urls = append(urls, e.URL)
	}
	if visitors > 0 {
		fmt.Fprintf(&b, "  Try it    %d simulated visitors come to these, too", visitors)
	} else {
		fmt.Fprintf(&b, "  Try it    open these in %s different browser profiles, or run with --visitors 20",
			spell(o.TotalActiveUsers+1))
	}
	for i, u := range urls[:min(len(urls), 8)] {
		if i%2 == 0 {
			b.WriteString("\n           ")
		}
		b.WriteString(" " + u + "/")
	}
	fmt.Fprintf(&b,
		"\n            when %d are in, the next one waits, and enters by itself %s after somebody has left\n\n",
		o.TotalActiveUsers, short(o.SessionDuration))
	if len(o.Hosts) > 0 {
		fmt.Fprintf(&b, "  Names     %s, where they lead to this machine (/etc/hosts)\n", strings.Join(o.Hosts, ", "))
	}
	fmt.Fprintf(&b, "  Site      %s\n  Rooms     %s (edit it while this runs)\n", t.Info.Origin, t.Info.Rooms)
	fmt.Fprintf(&b, "  Console   %s\n            the link works once, for 15 minutes\n", t.Info.Control.Console)
	fmt.Fprintf(&b, "  API       VESTIBULE_SERVER=%s VESTIBULE_TOKEN=%s %s rooms list\n\n", t.Info.Control.URL,
		t.Info.Control.Token, program())
	fmt.Fprintf(&b, "Ctrl-C stops everything. The next line is for scripts.\n")
	return ready(w, &b, &t.Info)
}

// ready prints the announcement, and the line READY for scripts.
func ready(w io.Writer, out *strings.Builder, info *allinone.Info) error {
	line, err := json.Marshal(info)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "READY %s\n", line)
	_, err = io.WriteString(w, out.String())
	return err
}

// short formats a duration of whole seconds without zero units at the end.
func short(d time.Duration) string {
	text := strings.TrimSuffix(d.String(), "m0s")
	if text != d.String() {
		text += "m"
	}
	return text
}

// spell returns a small number in words.
func spell(n int) string {
	words := []string{"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"}
	if n < len(words) {
		return words[n]
	}
	return strconv.Itoa(n)
}

// program returns the shell command that starts this program, from any folder.
func program() string {
	file, err := os.Executable()
	if err != nil {
		file = os.Args[0]
	}
	return shellWord(file)
}

// plainWord matches a word that a shell needs no quotes for.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9/._+:@%,=-]+$`)

// shellWord quotes text as one word of a shell.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
