// Command siege attacks an edge from one address beside visitors from another, and measures what the visitors notice. It
// runs the built programs: one global, one regional and one edge.
//
//	go run ./internal/lab/siege [-front nethttp] [-only TEXT] [-for 6s] [-crowd 5000]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"vestibule/internal/lab/figures"
)

// options are the flags.
type options struct {
	front  string
	only   string
	length time.Duration
	crowd  int
	limit  string // GOMEMLIMIT

	attack, at string // of the child process that attacks
	secure     bool
}

func main() {
	var o options
	flag.StringVar(&o.front, "front", "fast", "front of the edge: fast or nethttp")
	flag.StringVar(&o.only, "only", "", "attacks whose name contains the text")
	flag.DurationVar(&o.length, "for", 6*time.Second, "how long each attack is watched")
	flag.IntVar(&o.crowd, "crowd", 5000, "honest visitors behind one address, 0 for none")
	flag.StringVar(&o.limit, "memory", "680MiB", "GOMEMLIMIT of the edge")
	flag.StringVar(&o.attack, "attack", "", "of the child process: the attack that it runs")
	flag.StringVar(&o.at, "at", "", "of the child process: the address of the edge")
	flag.BoolVar(&o.secure, "secure", false, "of the child process: with TLS")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if o.attack != "" {
		attacks[o.attack].run(ctx, o.at, o.secure)
		return
	}
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "siege:", err)
		os.Exit(1)
	}
}

// Goals of the figures.
const (
	mostFailed = 0.005
	mostSlower = 50 * time.Millisecond
)

func run(ctx context.Context, o *options) (err error) {
	fmt.Printf("%s; front: %s; load %s\n", figures.Machine(), o.front, load())
	f, err := startFleet(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	if err := f.start(o); err != nil {
		return err
	}
	people, err := gather(ctx, f, 100)
	if err != nil {
		return err
	}
	missed := 0
	base := people.ask(ctx, o.length)
	fmt.Printf("%-36s %s\n", "no attack", base)
	for _, name := range names() {
		if !strings.Contains(name, o.only) {
			continue
		}
		for _, secure := range []bool{false, true} {
			a := attacks[name]
			if !secure && a.secureOnly {
				continue
			}
			most := mostFailed
			if a.strict {
				most = 0
			}
			ok := false
			for try := 0; try < 2 && !ok; try++ { // on a busy machine the first may be slow
				got, err := people.askBeside(ctx, f, name, secure, o.length)
				if err != nil {
					return err
				}
				ok = got.session == 0 && float64(got.failed) <= most*float64(got.n) && got.p99 <= base.p99+mostSlower &&
					got.quick <= base.quick+mostSlower
				word := "ok"
				if !ok {
					word = "MISSED"
				}
				fmt.Printf("%-36s %s; %s\n", name+map[bool]string{true: ", TLS"}[secure], got, word)
			}
			if !ok {
				missed++
			}
		}
	}
	if o.crowd > 0 {
		refused, n := crowd(ctx, f, o.crowd)
		fmt.Printf("%d honest visitors behind one address, half of them waiting: %d of %d requests refused\n", o.crowd,
			refused, n)
		if refused > 0 {
			missed++
		}
	}
	peak, err := f.peakMemory()
	if err != nil {
		return err
	}
	fmt.Printf("edge memory at its peak: %.2f × GOMEMLIMIT (%s)\n", float64(peak)/float64(f.memory), o.limit)
	if peak > f.memory*3/2 {
		missed++
	}
	left, err := f.settles(ctx, 30*time.Second)
	if err != nil {
		return err
	}
	fmt.Printf("afterwards: %s; load %s\n", left, load())
	if missed > 0 {
		return fmt.Errorf("%d figures miss their goals", missed)
	}
	return nil
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

func names() (out []string) {
	for name := range attacks {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// room hosts and paths: open to all of the visitors, and closed.
const (
	host  = "bar.test"
	sale  = "/sale"
	queue = "/full"

	// siteHeader is on the pages of the site alone.
	siteHeader = "X-Site"
)

// serveSite is the site.
func serveSite(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Upgrade") != "":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		var b [1 << 10]byte
		for {
			if _, err := conn.Read(b[:]); err != nil {
				return
			}
		}
	case r.URL.Path == "/slow":
		select {
		case <-time.After(time.Second):
		case <-r.Context().Done():
		}
	case r.URL.Path == "/large":
		var b [64 << 10]byte
		for range 256 {
			if _, err := w.Write(b[:]); err != nil {
				return
			}
		}
	default:
		w.Header().Set(siteHeader, "1")
		fmt.Fprintln(w, "the site")
	}
}
