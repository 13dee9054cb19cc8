package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/global/control"
	"vestibule/internal/lab/testkit"
)

// listen opens a stream. The returned function waits for its next message.
func (f *fixture) listen(url string) (next func() map[string]string, leave func()) {
	f.Helper()
	r := testkit.Must(http.NewRequestWithContext(testkit.Within(f), http.MethodGet, url, nil))(f)
	res := testkit.Must(http.DefaultTransport.RoundTrip(r))(f)
	leave = sync.OnceFunc(func() { _ = res.Body.Close() }) // the server sees it
	f.Cleanup(leave)
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		f.Fatalf("%s: %d %s", url, res.StatusCode, res.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(res.Body)
	return func() (values map[string]string) {
		f.Helper()
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			testkit.NoError(f, json.Unmarshal([]byte(data), &values))
			return values
		}
		f.Fatalf("the stream ended: %v", lines.Err())
		return nil
	}, leave
}

// A stream sends the values that the page shows, and later those that differ.
func TestAStreamSendsWhatThePageShows(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	f.count("sale", control.Numbers{Active: 1900, Waiting: 12400, Longest: 61 * 60})
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	next, _ := f.listen(server.URL + "/console/rooms/" + id + "/stream")
	got := next()
	page := f.see("/console/rooms/" + id)
	for name, want := range map[string]string{
		"waiting": "12,400", "inside": "1,900", "wait": "61", "wait.unit": "min",
		"state": "Queueing", "state.key": "busy", "inside.bar": "95", "trouble": "",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
		if name != "trouble" && name != "state.key" && name != "inside.bar" &&
			!regexp.MustCompile(`data-field="`+name+`"[^>]*>`+want+"<").MatchString(page.body) {
			t.Errorf("the page has no field %s with %q", name, want)
		}
	}
	f.count("sale", control.Numbers{Active: 1900, Waiting: 12399, Longest: 61 * 60})
	for got = next(); got["waiting"] == ""; got = next() {
	}
	if _, again := got["inside"]; again || got["waiting"] != "12,399" {
		t.Errorf("after a change: %v", got)
	}
	f.play(func() { f.docs.Lock(); f.docs.Down = http.ErrServerClosed; f.docs.Unlock() })
	for got = next(); got["trouble"] == ""; got = next() {
	}
	if !strings.HasPrefix(got["trouble"], "These numbers are old: the store does not answer") {
		t.Errorf("while the store is down: %v", got)
	}
	contains(t, f.see("/console/"), "These numbers are old: the store does not answer", "12,399")
	contains(t, f.see("/console/rooms/"+id), "These numbers are old: the store does not answer", "12,399")
	f.get("/console/rooms/"+id+
		"/actions/limits?rate=9&total=2000&minutes=5").is(t, http.StatusServiceUnavailable) // a consequence of old numbers
}

// screens opens streams of a room, and returns functions that wait for the next numbers of each.
func (f *fixture) screens(id string, n int) (open []func() map[string]string) {
	f.Helper()
	server := httptest.NewServer(f)
	f.Cleanup(server.Close)
	for range n {
		next, _ := f.listen(server.URL + "/console/rooms/" + id + "/stream")
		next()
		open = append(open, next)
	}
	return open
}

// Fifty screens of one room cost one reading per second.
func TestStreamsShareReadings(t *testing.T) {
	f := start(t)
	id := f.api.make("sale", 2000, 200, nil)
	open := f.screens(id, 50)
	const operation = "waiting-room-get-waiting-room-status"
	var before, after int
	f.play(func() { before = f.calls[operation] })
	begin := time.Now()
	for range 3 {
		for _, next := range open {
			next()
		}
	}
	seconds := int(time.Since(begin)/time.Second) + 2
	f.play(func() { after = f.calls[operation] })
	if n := after - before; n == 0 || n > seconds {
		t.Errorf("%d readings in less than %d s", n, seconds)
	}
}

// BenchmarkFiftyScreens measures the processor time of a second of fifty screens of a room whose numbers change, with
// that of their clients. The goal is 3 % of a core. Edges are not asked.
func BenchmarkFiftyScreens(b *testing.B) {
	f := start(b)
	id := f.api.make("sale", 2000, 200, nil)
	open := f.screens(id, 50)
	used, begun, n := cpu(), time.Now(), 0
	for b.Loop() {
		n++
		f.count("sale", control.Numbers{Active: 1900 + n%100, Waiting: 12400 + n, Longest: float64(60 + n)})
		for _, next := range open {
			next()
		}
	}
	b.ReportMetric(100*float64(cpu()-used)/float64(time.Since(begun)), "%-of-a-core")
}

// A stream outlives the deadlines of the server for requests, and ends when the console stops.
func TestAStreamOutlivesRequestsAndEndsAtTheStop(t *testing.T) {
	f := start(t)
	f.api.make("sale", 2000, 200, nil)
	server := httptest.NewUnstartedServer(f)
	server.Config.ReadTimeout, server.Config.WriteTimeout = 500*time.Millisecond, 500*time.Millisecond
	server.Start()
	t.Cleanup(server.Close)
	next, _ := f.listen(server.URL + "/console/stream")
	for range 3 {
		next()
	}
	f.Stop()
	f.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if err := server.Config.Shutdown(ctx); err != nil {
		t.Errorf("the server waits for a stream: %v", err)
	}
}
