package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vestibule/internal/lab/figures"
	"vestibule/internal/lab/process"
	"vestibule/internal/lab/testkit"
)

func TestMissedGoals(t *testing.T) {
	m := metrics(strings.Fields("480.5 ns/op 16 B/op 1 allocs/op 900000 events/s"))
	if want := "480.5 ns/op, 16 B/op, 1 allocs/op, 900000 events/s"; m.String() != want {
		t.Errorf("got %q, want %q", m, want)
	}
	for goal, missed := range map[string]bool{
		"-": false, "<= 500 ns/op": false, "<= 480 ns/op, <= 3 allocs/op": true,
		"<= 500 ns/op, <= 0 allocs/op (aim 400 ns)": true,
		">= 1,000,000 events/s":                     true, ">= 900,000 events/s": false, "<= 5 KiB/stream": false,
	} {
		if m.misses(goal) != missed {
			t.Errorf("%q: missed %v, want %v", goal, !missed, missed)
		}
	}
}

// TestKeysOfBenchmarks: every key of a benchmark in docs/figures.json begins with a name that is known here.
func TestKeysOfBenchmarks(t *testing.T) {
	d := testkit.Must(figures.Read("../../../docs/figures.json"))(t)
	for key := range d.Keys() {
		name, ok := strings.CutPrefix(key, "bench ")
		for _, f := range known() {
			ok = ok && !strings.HasPrefix(name+"/", f.name+"/")
		}
		if ok {
			t.Errorf("no benchmark is called %q", name)
		}
	}
}

// BenchmarkEdgeBinary builds the edge as deployed.
func BenchmarkEdgeBinary(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		testkit.NoError(b, process.Build(b.Context(), dir, "-trimpath", "vestibule/cmd/edge"))
	}
	info := testkit.Must(os.Stat(filepath.Join(dir, "edge")))(b)
	b.ReportMetric(float64(info.Size())/1e6, "MB")
}
