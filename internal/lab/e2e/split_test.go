package e2e

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
		w.Header().Set("X-Demo-Origin", "1")
	}))
	t.Cleanup(site.Close)
	bin, dir := build(t), t.TempDir()
	data, addr, nats := filepath.Join(dir, "data"), testkit.FreeAddr(t), testkit.FreeAddr(t)
	args := []string{
		"serve", "--origin", site.URL, "--host", "shop.example", "--listen", addr, "--control", "127.0.0.1:0", "--metrics",
		"127.0.0.1:0",
		"--data-dir", data, "--total-active-users", "1", "--new-users-per-minute", "1000", "--session-duration", "40s",
	}
	one := start(t, filepath.Join(bin, "vestibule"), args...)
	for _, file := range []string{
		filepath.Join(data, "global", "control.token"),
		filepath.Join(data, "split", "global.yaml"),
	} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others may read %s: %v, %v", file, info, err)
		}
	}

	inside, waits, late := newShopper(t, addr), newShopper(t, addr), newShopper(t, addr)
	until(t, "the first visitor is inside", inside.inside)
	inside.look() // the second request makes it a session
	in, first := waits.look()
	if in || first.IsZero() {
		t.Fatalf("the second visitor: inside %v, joined %v", in, first)
	}
	one.stop(t)

	config := func(name string) string { return filepath.Join(data, "split", name+".yaml") }
	nodes := []*command{
		start(t, filepath.Join(bin, "global"), "--config", config("global"), "--nats-listen", nats),
		start(t, filepath.Join(bin, "regional"), "--config", config("regional-main"), "--nats-url", "nats://"+nats),
		start(t, filepath.Join(bin, "edge"), "--config", config("edge-main-edge-1"), "--nats-url", "nats://"+nats),
	}
	begun := time.Now()
	until(t, "whoever was inside is inside", inside.inside)
	t.Logf("inside again %.1f s after the three processes began", time.Since(begun).Seconds())
	until(t, "the newcomer has a place", func() bool {
		inside.look() // its session must not end before
		_, joined := late.look()
		return !joined.IsZero()
	})
	if in, again := waits.look(); in || !again.Equal(first) {
		t.Errorf("whoever waited has another place: inside %v, joined %v, before %v", in, again, first)
	}
	// Its question is held until its turn, as a page's is: two visitors that only ask at times are let in as they ask.
	entered := make(chan struct{})
	ctx := testkit.Within(t)
	go func() {
		defer close(entered)
		for ctx.Err() == nil && !waits.inside() {
			waits.AskJSON(ctx, waits.url+"/", "1") //nolint:errcheck // a question without an answer is asked again
		}
	}()
	until(t, "whoever waited is inside", func() bool {
		select {
		case <-entered:
			return true
		default:
		}
		if late.inside() && !waits.inside() {
			t.Fatal("the newcomer came in before")
		}
		return false
	})
	for i := range nodes {
		nodes[len(nodes)-1-i].stop(t)
	}

	start(t, filepath.Join(bin, "vestibule"), args...)
	if !waits.inside() {
		t.Error("whoever was inside is not, after the way back")
	}
}

// shopper is a visitor of the shop that asks for JSON, like an app.
type shopper struct{ *guest }

func newShopper(t *testing.T, addr string) shopper {
	t.Helper()
	g := newGuest(t, "http://"+addr, &http.Transport{DisableKeepAlives: true})
	g.Host = "shop.example"
	return shopper{g}
}

// look requests the page: the visitor is inside, or joined then; neither without an answer.
func (s shopper) look() (inside bool, joined time.Time) {
	a, err := s.AskJSON(context.Background(), s.url+"/", "")
	if err != nil {
		return false, time.Time{}
	}
	return a.Inside, a.Shown.JoinedAt
}

func (s shopper) inside() bool {
	inside, _ := s.look()
	return inside
}
