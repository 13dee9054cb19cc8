package e2e

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// TestSplit: `vestibule serve` is stopped, and global, a regional and an edge continue as separate processes with
// the files that it has written. Sessions continue, and waiting visitors keep their place before newcomers. Then
// the single process continues.
func TestSplit(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "the site") //nolint:errcheck // the client checks the answer
	}))
	t.Cleanup(site.Close)
	bin, dir := build(t), t.TempDir()
	data, addr, nats := filepath.Join(dir, "data"), testkit.FreeAddr(t), testkit.FreeAddr(t)
	args := []string{
		"serve", "--origin", site.URL, "--host", "shop.example", "--listen", addr, "--control", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
		"--data-dir", data, "--total-active-users", "1", "--new-users-per-minute", "1000", "--session-duration", "20s",
	}
	one := start(t, filepath.Join(bin, "vestibule"), args...)
	for _, file := range []string{filepath.Join(data, "global", "control.token"), filepath.Join(data, "split", "global.yaml")} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others may read %s: %v, %v", file, info, err)
		}
	}

	inside, waits, late := shopper(t, addr), shopper(t, addr), shopper(t, addr)
	until(t, "the first visitor is inside", func() bool { return inside.look().inside })
	inside.look() // the second request makes it a session
	first := waits.look()
	if first.inside || first.joined == "" {
		t.Fatalf("the second visitor: %+v", first)
	}
	one.stop(t)

	config := func(name string) string { return filepath.Join(data, "split", name+".yaml") }
	nodes := []*command{
		start(t, filepath.Join(bin, "global"), "--config", config("global"), "--nats-listen", nats),
		start(t, filepath.Join(bin, "regional"), "--config", config("regional-main"), "--nats-url", "nats://"+nats),
		start(t, filepath.Join(bin, "edge"), "--config", config("edge-main-edge-1"), "--nats-url", "nats://"+nats),
	}
	begun := time.Now()
	until(t, "whoever was inside is inside", func() bool { return inside.look().inside })
	t.Logf("inside again %.1f s after the three processes began", time.Since(begun).Seconds())
	until(t, "the newcomer has a place", func() bool { return late.look().joined != "" })
	if again := waits.look(); again.inside || again.joined != first.joined {
		t.Errorf("whoever waited has another place: %+v, before %+v", again, first)
	}
	until(t, "whoever waited is inside", func() bool {
		if late.look().inside && !waits.look().inside {
			t.Fatal("the newcomer came in before")
		}
		return waits.look().inside
	})
	for i := range nodes {
		nodes[len(nodes)-1-i].stop(t)
	}

	start(t, filepath.Join(bin, "vestibule"), args...)
	if !waits.look().inside {
		t.Error("whoever was inside is not, after the way back")
	}
}

// person is a browser at an edge that requests a host.
type person struct {
	http.Client
	t    *testing.T
	addr string
}

func shopper(t *testing.T, addr string) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	return &person{http.Client{Jar: jar, Transport: tr, Timeout: testkit.Patience}, t, addr}
}

// sight is the visible state of a person's page.
type sight struct {
	inside bool
	joined string // when the visitor joined, "" if not shown
}

var joinedAt = regexp.MustCompile(`<time id="joined" datetime="([^"]+)"`)

// look opens the page; it is empty without an answer.
func (p *person) look() (s sight) {
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.addr+"/", http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Host = "shop.example"
	res, err := p.Do(r)
	if err != nil {
		return s
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return s
	}
	s.inside = string(body) == "the site"
	if m := joinedAt.FindSubmatch(body); m != nil {
		s.joined = string(m[1])
	}
	return s
}
