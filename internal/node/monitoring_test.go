package node

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vestibule/internal/core/stop"
	"vestibule/internal/lab/testkit"
)

// Nodes of one process share one address: each has its metrics, state and alarms there, and the process is ready while
// the node with visitors is.
func TestNodesShareAListenerForMonitoring(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	m := testkit.Must(NewMonitoring("127.0.0.1:0", quiet))(t)
	if _, err := NewMonitoring(strings.TrimPrefix(m.URL(), "http://"), quiet); err == nil {
		t.Error("two listeners at one address")
	}
	running := func(run func(context.Context) error) (end func()) {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	defer running(m.Run)()
	defer http.DefaultClient.CloseIdleConnections()
	get := func(path string) (int, string) { t.Helper(); return fetch(t, http.DefaultClient, m.URL()+path) }
	readiness := func() (int, Readiness) {
		t.Helper()
		var r Readiness
		code, body := get("/readyz")
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			t.Fatal(err, body)
		}
		return code, r
	}
	if code, r := readiness(); code != 503 || !slices.Equal(r.Reasons, []string{"no edge runs"}) {
		t.Errorf("without nodes: %d, %+v", code, r)
	}

	start := func(name string, visitors bool, r Readiness) (end func()) {
		t.Helper()
		d := testkit.Must(NewDebug(&Base{}, name, m, quiet))(t)
		if own := d.Own.All(); d.URL() != m.URL() || len(own) != 1 || own[0] != m.listener.Addr() {
			t.Errorf("%s listens at %v (%s), want %s", name, own, d.URL(), m.URL())
		}
		d.Visitors = visitors
		own := prometheus.NewGauge(prometheus.GaugeOpts{Name: "of_the_node", Help: "h"})
		d.Registry.MustRegister(own)
		own.Set(float64(len(name)))
		end = running(func(ctx context.Context) error {
			return d.Run(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			}, func() Readiness { return r }, func() any { return map[string]int{"edges": len(name)} })
		})
		testkit.Eventually(t, name+" is there", func() bool {
			_, body := get("/status")
			return strings.Contains(body, `"`+strings.ReplaceAll(name, " ", "-")+`": {`)
		})
		return end
	}
	end := start("global", false, Readiness{Reasons: []string{"no rooms"}, Alarms: []string{"late"}, Isolated: true})
	defer start("edge nairobi a", true, Readiness{
		Ready: true, Alarms: []string{"a site is down"}, Stops: []stop.View{{Reason: "full"}},
	})()
	code, r := readiness()
	if want := []string{"edge-nairobi-a: a site is down", "global: late", "global: no rooms"}; code != 200 || !r.Ready ||
		r.Isolated || len(r.Reasons) > 0 || !slices.Equal(r.Alarms, want) || len(r.Stops) != 1 {
		t.Errorf("with an edge: %d, %+v, want the alarms %q", code, r, want)
	}
	_, text := get("/metrics")
	for _, line := range []string{
		`of_the_node{node="edge-nairobi-a"} 14`, `of_the_node{node="global"} 6`, "go_goroutines ", "process_open_fds ",
	} {
		if n := strings.Count(text, "\n"+line); n != 1 {
			t.Errorf("%d times in the metrics, want 1: %s", n, line)
		}
	}
	if code, body := get("/status"); code != 200 || !strings.Contains(body, `"edges": 14`) ||
		!strings.Contains(body, `"edges": 6`) {
		t.Errorf("status: %d %s", code, body)
	}
	for _, path := range []string{"/", "/healthz"} {
		if code, body := get(path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}

	// A node that ended is gone, and another may have its name.
	end()
	if _, text := get("/metrics"); strings.Contains(text, "global") {
		t.Error("a node that ended has metrics")
	}
	defer start("global", false, Readiness{Ready: true})()
	if code, r := readiness(); code != 200 || len(r.Alarms) != 1 {
		t.Errorf("after a new start: %d, %+v", code, r)
	}
	defer start("edge nairobi b", true, Readiness{Reasons: []string{"draining"}, Isolated: true})()
	if code, r := readiness(); code != 503 || !r.Isolated ||
		!slices.Equal(r.Reasons, []string{"edge-nairobi-b: draining"}) {
		t.Errorf("with an edge that drains: %d, %+v", code, r)
	}
}
