package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/allinone"
	"vestibule/internal/global/control"
	"vestibule/internal/lab/process"
	"vestibule/internal/lab/testkit"
)

var operated = flag.Duration("operated", 10*time.Second,
	"time between the steps of TestAnOperatorWithTheOfficialClient; people come for three of them and 10 s more")

// TestAnOperatorWithTheOfficialClient runs a fleet without a rooms file, over three nats-servers of global and one
// of each data centre. An operator, a program with only the official client of the hosted API, creates two rooms,
// raises the limit of one, suspends and deletes the other, under traffic. The site judges by its journal.
func TestAnOperatorWithTheOfficialClient(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes a minute; `make e2e` runs it")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is not installed: run make packages as root")
	}
	t.Parallel()
	const (
		session       = time.Minute // the minimum of the hosted API
		concert, sale = 150, 30     // visitors of each room, distinguished by their numbers
	)
	bin, dir := build(t), t.TempDir()
	origin, journal := journaled(t, bin, dir, session)
	nats := withUsers(t, bin, dir, 3, "nairobi", "dublin")
	nodes := fleetOver(t, nats, bin, dir, "", fmt.Sprintf("control: {listen: '127.0.0.1:0', origin: %q}\n",
		origin.at["url"]), "nairobi", "dublin")
	edges, at := startEdges(t, bin, dir, nats, 2, "", "nairobi", "dublin")

	ctx, cancel := context.WithTimeout(t.Context(), 3**operated+3*testkit.Patience)
	defer cancel()
	api := nodes[0].at["control"]
	steps, token := operate(t, ctx, api, filepath.Join(dir, "global", "control.token"))
	steps("made")
	nodes = slices.Concat([]*command{origin}, nodes, edges)
	for _, e := range edges {
		until(t, e.name+" is ready and has both rooms", func() bool {
			return ready(e.at["metrics"]) && gated(t, e.at["url"]+"/concert/") && gated(t, e.at["url"]+"/merch/")
		})
	}

	people, ended := context.WithCancel(ctx)
	defer ended()
	var all sync.WaitGroup
	var counts tally
	visitors, faults, jars := make([]*curlVisitor, concert+sale), make([]error, concert+sale), t.TempDir()
	for i := range visitors {
		v := &curlVisitor{n: i, dir: jars, rng: rand.New(rand.NewPCG(seed, uint64(i))), tally: &counts}
		for _, dc := range at {
			edges := []string{dc[0] + "/concert", dc[1] + "/concert"}
			if i >= concert { // edges learn of a suspended room at different times
				edges = []string{dc[i%2] + "/merch"}
			}
			v.site = append(v.site, edges)
		}
		visitors[i] = v
		all.Go(func() {
			pause(people, time.Duration(v.rng.Int64N(int64(5*time.Second))))
			if people.Err() == nil {
				faults[i] = v.visit(people, session)
			}
		})
	}
	raised, suspended := steps("raised"), steps("suspended")
	// Meanwhile a person at a shell pauses a room, shows the waiting visitors, and resumes it.
	asWho := []string{"VESTIBULE_TOKEN=" + token}
	const word = "The artist is stuck in traffic."
	runCommand(t, asWho, filepath.Join(bin, "vestibule"), "pause", "concert", word, "--server", api)
	for _, e := range edges {
		until(t, e.name+" tells that the room is paused",
			func() bool { return strings.Contains(shown(t, e.at["url"]+"/concert/"), word) })
	}
	runCommand(t, asWho, filepath.Join(bin, "vestibule"), "resume", "concert", "--server", api)
	for _, e := range edges {
		until(t, e.name+" tells so no more", func() bool {
			page := shown(t, e.at["url"]+"/concert/")
			return page != "" && !strings.Contains(page, word)
		})
	}
	deleted := steps("deleted")
	steps("")
	inside := func(of []*curlVisitor) (n int) {
		for _, v := range of {
			if v.inside.Load() {
				n++
			}
		}
		return n
	}
	until(t, "everybody of the room that was suspended and deleted is inside",
		func() bool { return inside(visitors[concert:]) == sale })
	newcomer := &curlVisitor{n: concert + sale, dir: jars, tally: &counts}
	until(t, "a room that was deleted asks nobody to wait", func() bool {
		a, err := newcomer.curl(ctx, newcomer.jar(), at[0][0]+"/merch")
		return err == nil && a.inside
	})
	until(t, "the limit that was raised is used", func() bool { return inside(visitors[:concert]) >= 27 })
	ended()
	all.Wait()
	for _, p := range slices.Backward(nodes) {
		p.stop(t)
	}
	for _, err := range faults {
		if err != nil {
			t.Error(err)
		}
	}

	visits := read(t, journal)
	of := func(room string, before time.Time) judgement {
		var out []allinone.Visit
		for _, v := range visits {
			n := 0
			if _, err := fmt.Sscan(v.Guest, &n); err != nil {
				t.Fatalf("the journal has a guest %q: %v", v.Guest, err)
			}
			if n < concert+sale && (n < concert) == (room == "concert") && v.At.Before(before) {
				out = append(out, v)
			}
		}
		return judgeVisits(out, session, 200)
	}
	for _, c := range []struct {
		room   string
		before time.Time
		total  int
		judged string
	}{
		{"concert", raised.From, 20, "before its limit was raised"},
		{"concert", time.Now(), 30, "in the whole run"},
		{"merch", suspended.From, 5, "before it was suspended"},
	} {
		j := of(c.room, c.before)
		t.Logf("%s, %s: %d of %d sessions at once, %d of 200 admissions in a minute", c.room, c.judged, j.peak,
			c.total, j.rate)
		if j.peak > c.total || j.rate > 200 {
			t.Errorf("%s, %s: a limit was exceeded", c.room, c.judged)
		}
		if j.peak < c.total*9/10 {
			t.Errorf("%s, %s: the limit was not used: this shows nothing", c.room, c.judged)
		}
	}
	if counts.waitingPages.Load() == 0 {
		t.Error("nobody had to wait: the run shows nothing")
	}
	t.Logf("%d waiting pages, %d pages of the site; changes were answered in %v, %v and %v", counts.waitingPages.Load(),
		counts.pages.Load(),
		raised.Until.Sub(raised.From), suspended.Until.Sub(suspended.From), deleted.Until.Sub(deleted.From))
}

// shown returns the response to a visitor without a cookie, "" for none.
func shown(t *testing.T, url string) string {
	t.Helper()
	f, err := fetch(t.Context(), client, http.MethodGet, url, "", "Accept", "text/html", visitorHeader, "1000000")
	if err != nil {
		return ""
	}
	return f.body
}

// gated reports whether a waiting room is active at an address. It requests an image, which never admits a new
// visitor.
func gated(t *testing.T, url string) bool {
	t.Helper()
	f, err := fetch(t.Context(), client, http.MethodGet, url, "", "Sec-Fetch-Dest", "image", visitorHeader, "1000000")
	return err == nil && f.Header.Get("X-Demo-Origin") == ""
}

// change is a step of the operator: see internal/global/control/contract/operator.
type change struct {
	Did         string
	From, Until time.Time
}

// operate starts the operator once there is a token, which it also returns. next waits for the next step, which
// must have this name, or with "" for the operator's success.
func operate(t *testing.T, ctx context.Context, url, tokenFile string) (next func(did string) change, token string) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "operator")
	builder := exec.CommandContext(ctx, "go", "build", "-o", bin, "./operator")
	builder.Dir = "../../global/control/contract"
	if out, err := builder.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	until(t, "the first token is there", func() bool {
		text, err := os.ReadFile(tokenFile)
		token = strings.TrimSpace(string(text))
		return err == nil && token != ""
	})
	cmd := exec.CommandContext(ctx, bin, "-url", url, "-zone", control.Zone, "-step", operated.String())
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), "VESTIBULE_TOKEN="+token), process.Group()
	var faults strings.Builder
	cmd.Stderr = &faults
	output := testkit.Must(cmd.StdoutPipe())(t)
	testkit.NoError(t, cmd.Start())
	lines := bufio.NewScanner(output)
	return func(did string) (c change) {
		t.Helper()
		if lines.Scan() {
			testkit.NoError(t, json.Unmarshal(lines.Bytes(), &c))
		}
		if c.Did != did {
			t.Fatalf("the operator did %q, want %q\n%s", c.Did, did, faults.String())
		}
		if did == "" {
			if err := cmd.Wait(); err != nil {
				t.Fatalf("the operator: %v\n%s", err, faults.String())
			}
		}
		return c
	}, token
}
