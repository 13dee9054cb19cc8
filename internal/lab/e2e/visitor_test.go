package e2e

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"vestibule/internal/allinone"
	"vestibule/internal/lab/process"
)

// site is the addresses of the edges, by data centre.
type site [][]string

// curlVisitor is a person with a browser: curl and a cookie jar.
type curlVisitor struct {
	n     int
	dir   string
	site  site
	rng   *rand.Rand
	tally *tally

	waited time.Duration // from the first request to the first page inside
	inside atomic.Bool
}

// tally is the sum over all visitors.
type tally struct {
	curls, waitingPages, pages, parallel, replays, replaysIn atomic.Int64
}

// answer is curl's result.
type answer struct {
	inside bool
	retry  time.Duration
}

// visitorHeader identifies the visitor to the site; the waiting room does not use it.
const visitorHeader = "X-Visitor"

func (v *curlVisitor) jar() string { return filepath.Join(v.dir, fmt.Sprintf("jar-%d", v.n)) }

// headers are the arguments of curl by which the site knows the visitor, and when it sends the request.
func (v *curlVisitor) headers() []string {
	return []string{
		"-H", fmt.Sprintf("%s: %d", visitorHeader, v.n), "-H",
		fmt.Sprintf("%s: %d", allinone.SentHeader, time.Now().UnixNano()),
	}
}

// curl sends one request with the cookies of the jar, like a browser.
func (v *curlVisitor) curl(ctx context.Context, jar, url string) (answer, error) {
	v.tally.curls.Add(1)
	cmd := exec.CommandContext(ctx, "curl", append(v.headers(), "-sS", "--max-time", "60", "-b", jar, "-c", jar, "-o",
		os.DevNull, "-D", "-", url+"/")...)
	cmd.SysProcAttr = process.Group()
	out, err := cmd.Output()
	if err != nil {
		return answer{}, fmt.Errorf("curl %s: %w", url, err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(out))), nil)
	if err != nil {
		return answer{}, fmt.Errorf("curl %s: %w", url, err)
	}
	if resp.Header.Get("X-Demo-Origin") != "" {
		v.tally.pages.Add(1)
		return answer{inside: true}, nil
	}
	retry, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != http.StatusOK || err != nil {
		return answer{}, fmt.Errorf("%s answered %s, Retry-After %q", url, resp.Status, resp.Header.Get("Retry-After"))
	}
	v.tally.waitingPages.Add(1)
	return answer{retry: time.Duration(retry) * time.Second}, nil
}

// burst requests one page and its resources over all edges of a data centre in parallel, with the cookies of one
// jar.
func (v *curlVisitor) burst(ctx context.Context, dc []string) error {
	args := append(v.headers(), "-sS", "--parallel", "--parallel-immediate", "--max-time", "60", "-b", v.jar(), "-c",
		v.jar())
	for i := range 6 {
		args = append(args, "-o", os.DevNull, fmt.Sprintf("%s/asset/%d", dc[i%len(dc)], i))
	}
	v.tally.curls.Add(1)
	v.tally.parallel.Add(6)
	cmd := exec.CommandContext(ctx, "curl", args...)
	cmd.SysProcAttr = process.Group()
	return cmd.Run()
}

// visit is a complete visit: wait as the page asks, look at some pages, leave.
func (v *curlVisitor) visit(ctx context.Context, session time.Duration) error {
	parallel, replays := v.n%10 == 3, v.n%10 == 7
	home := v.rng.IntN(len(v.site))
	begun := time.Now()
	var safe time.Time // until then the session cannot have expired: counted from before the last request inside
	old := v.jar() + "-old"
	for pages := 2 + v.rng.IntN(3); pages > 0; {
		edges := v.site[home]
		asked := time.Now()
		a, err := v.curl(ctx, v.jar(), edges[v.rng.IntN(len(edges))])
		switch {
		case ctx.Err() != nil:
			return nil // the run is over
		case err != nil:
			return err
		case a.inside:
			if !v.inside.Load() {
				v.waited = time.Since(begun)
				v.inside.Store(true)
			}
			pages--
			safe = asked.Add(session)
			if parallel {
				if err := v.burst(ctx, edges); err != nil && ctx.Err() == nil {
					return err
				}
			}
			pause(ctx, 500*time.Millisecond+time.Duration(v.rng.Int64N(int64(time.Second))))
		case v.inside.Load() && time.Now().Before(safe):
			return fmt.Errorf("visitor %d was thrown out while looking around", v.n)
		default:
			if replays {
				if err := copyFile(v.jar(), old); err != nil {
					return err
				}
			}
			if v.rng.IntN(4) == 0 { // waiting visitors may move between data centres
				home = v.rng.IntN(len(v.site))
			}
			pause(ctx, a.retry+time.Duration(v.rng.Int64N(int64(500*time.Millisecond))))
		}
	}
	if !replays {
		return nil
	}
	// The session is over. Old cookie jars, at an edge of another data centre: they may wait, or enter as a new
	// visitor, counted as such.
	pause(ctx, session+3*time.Second)
	away := v.site[(home+1)%len(v.site)]
	for _, jar := range []string{v.jar(), old} {
		if _, err := os.Stat(jar); err != nil {
			continue
		}
		a, err := v.curl(ctx, jar, away[v.rng.IntN(len(away))])
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		v.tally.replays.Add(1)
		if a.inside {
			v.tally.replaysIn.Add(1)
		}
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

// pause is the time of a visitor on a page.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
