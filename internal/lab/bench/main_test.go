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
	for values, missed := range map[string]bool{
		"480 ns/op 0 allocs/op": false, "480 ns/op 1 allocs/op": true, "480 ns/op 16 B/op": false,
	} {
		var j figures.Judge
		below, err := metrics(strings.Fields(values)).judge(&j, "DecideAdmitted")
		if err != nil || below != missed || (j.Err() != nil) != missed {
			t.Errorf("%s: below %v, missed %v, want %v; %v", values, below, j.Err(), missed, err)
		}
	}
}

// TestGoalsOfBenchmarks: every goal of a benchmark is of one that is known here.
func TestGoalsOfBenchmarks(t *testing.T) {
	names := map[string]bool{}
	for _, f := range known() {
		names[f.name] = true
	}
	for _, g := range testkit.Must(figures.Read("../../../docs/figures.json"))(t).Goals {
		if name, ok := strings.CutPrefix(g.Name, "bench "); ok && !names[name[:strings.LastIndex(name, ", ")]] {
			t.Errorf("no benchmark is called %q", name)
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
