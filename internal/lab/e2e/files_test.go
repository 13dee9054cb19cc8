package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// The edge may open fewFiles files, and more pages request an event stream.
const (
	fewFiles = 512
	pages    = 1200
)

// TestFewFilesMayBeOpen: more pages request an event stream than the edge may open files. It limits the streams,
// reports that in its log and metrics, and stays healthy for health checks all the time.
func TestFewFilesMayBeOpen(t *testing.T) {
	if most, err := node.MaxFiles(); err != nil || most < 2*pages {
		t.Skipf("this process may have %d files open (%v), and opens %d connections", most, err, pages)
	}
	t.Parallel()
	bin, dir := build(t), t.TempDir()
	nats, _ := fleet(t, bin, dir, sale(1, 60, "1h", startSite(t, bin).at["url"], ", probation: 1h"), "nairobi")
	edge := start(t, "/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, fewFiles), filepath.Join(bin, "edge"), "--config", edgeFile(t, dir, nats, "nairobi", "edge-1", `
listen: 127.0.0.1:0
held: {per_prefix: 65536}
events: {per_prefix: 65536}
`))
	areReady(t, edge)
	if log := edge.log.String(); !strings.Contains(log, "few files may be open") ||
		!strings.Contains(log, fmt.Sprint("limit=", fewFiles)) {
		t.Errorf("the edge says nothing about its limit:\n%s", log)
	}

	// Health checks, each with a new connection.
	watch, ended := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	asked, worst, unwell := 0, time.Duration(0), []string(nil)
	watching.Go(func() {
		for watch.Err() == nil {
			begun := time.Now()
			code := statusOf(edge.at["metrics"] + "/readyz")
			if asked++; code != http.StatusOK {
				unwell = append(unwell, fmt.Sprintf("status %d after %v", code, time.Since(begun)))
			}
			worst = max(worst, time.Since(begun))
			pause(watch, 50*time.Millisecond)
		}
	})
	defer watching.Wait()
	defer ended()

	tickets := queueUp(t, edge.at["url"])
	conns, got := make([]net.Conn, len(tickets)), map[string]int{}
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	for i, cookie := range tickets {
		var result string
		conns[i], result = listen(strings.TrimPrefix(edge.at["url"], "http://"), cookie)
		got[result]++
	}
	limit, open, streams := gauge(t, edge, "vestibule_edge_connections_limit"),
		gauge(t, edge, "vestibule_edge_connections"), gauge(t, edge, "vestibule_edge_event_streams")
	refused := gauge(t, edge, "vestibule_edge_connections_refused_total")
	t.Logf("%d files; %d pages ask for a stream: %v; %d streams, %d of %d connections open, %d refused", fewFiles, pages,
		got, streams, open, limit, refused)
	if limit == 0 || limit >= fewFiles || open > limit || streams == 0 || streams > limit*3/4 {
		t.Errorf("%d streams and %d connections are open, the limit is %d of %d files", streams, open, limit, fewFiles)
	}
	if got["200"] != streams {
		t.Errorf("%d pages have a stream, the edge counts %d", got["200"], streams)
	}
	if code := statusOf(edge.at["url"] + "/"); code != http.StatusOK {
		t.Errorf("a newcomer gets status %d", code)
	}
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
	until(t, "the streams of pages that went are over",
		func() bool { return gauge(t, edge, "vestibule_edge_event_streams") == 0 })
	if code := statusOf(edge.at["url"] + "/"); code != http.StatusOK {
		t.Errorf("a newcomer gets status %d once all streams are over", code)
	}
	ended()
	watching.Wait()
	t.Logf("/readyz was asked %d times, the slowest answer took %.0f ms", asked, float64(worst)/float64(time.Millisecond))
	if len(unwell) > 0 || asked == 0 {
		t.Errorf("of %d questions after its health these were not answered well: %v", asked, unwell)
	}
}

var until = testkit.Eventually

// statusOf sends a request over a new connection and returns the status, 0 for none.
func statusOf(url string) int {
	f, err := page(&http.Client{Timeout: testkit.Patience, Transport: &http.Transport{DisableKeepAlives: true}}, url)
	if err != nil {
		return 0
	}
	return f.StatusCode
}

// queueUp fills the room and returns the tickets of n waiting visitors.
func queueUp(t *testing.T, url string) []string {
	t.Helper()
	if code := statusOf(url + "/"); code != http.StatusOK {
		t.Fatalf("the first visitor gets status %d", code)
	}
	out := make([]string, pages)
	faults := make([]error, len(out))
	var all sync.WaitGroup
	const at = 20 // at a time
	for first := range at {
		all.Go(func() {
			client := http.Client{Timeout: testkit.Patience, Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for i := first; i < len(out); i += at {
				f, err := page(&client, url+"/")
				if err != nil {
					faults[i] = err
					return
				}
				for _, c := range f.Cookies() {
					out[i] = c.Name + "=" + c.Value
				}
				if f.Header.Get("Retry-After") == "" || out[i] == "" {
					faults[i] = fmt.Errorf("visitor %d does not wait: status %d", i, f.StatusCode)
				}
			}
		})
	}
	all.Wait()
	for _, err := range faults {
		testkit.NoError(t, err)
	}
	return out
}

// listen requests an event stream over a new connection, which stays open, and returns the status or the error.
func listen(addr, cookie string) (net.Conn, string) {
	c, err := net.DialTimeout("tcp", addr, testkit.Patience)
	if err != nil {
		return nil, "not connected"
	}
	if err := c.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		return c, err.Error()
	}
	_, err = fmt.Fprintf(c,
		"GET /.well-known/vestibule/events?room=sale HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: %s\r\n\r\n", cookie)
	if err != nil {
		return c, "closed"
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) < 2 {
		return c, "no answer"
	}
	return c, words[1]
}

// gauge returns the sum of a metric over its labels, 0 if missing.
func gauge(t *testing.T, p *command, name string) int {
	t.Helper()
	f := testkit.Must(page(client, p.at["metrics"]+"/metrics"))(t)
	sum := 0.0
	for line := range strings.Lines(f.body) {
		if text, ok := strings.CutPrefix(line, name); ok && (text[0] == ' ' || text[0] == '{') {
			words := strings.Fields(text)
			sum += testkit.Must(strconv.ParseFloat(words[len(words)-1], 64))(t)
		}
	}
	return int(sum)
}
