package e2e

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"vestibule/internal/lab/process"
)

// TestSimulate: four minutes of three data centres are byte-identical in two processes.
func TestSimulate(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes some seconds; `make e2e` runs it")
	}
	t.Parallel()
	dir := build(t)
	type result struct {
		out []byte
		err error
	}
	results := make(chan result, 2)
	for range 2 {
		go func() {
			cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "vestibule"),
				"simulate", "--data-centers", "3", "--edges", "4", "--demand", "2000/min", "--minutes", "4", "--seed", "7")
			cmd.SysProcAttr = process.Group()
			out, err := cmd.Output() // its speed is on standard error
			results <- result{out, err}
		}()
	}
	a, b := <-results, <-results
	if a.err != nil || b.err != nil {
		t.Fatalf("%v, %v\n%s", a.err, b.err, a.out)
	}
	if !bytes.Equal(a.out, b.out) {
		t.Errorf("two runs of one seed differ:\n%s\n%s", a.out, b.out)
	}
	t.Logf("\n%s", a.out)
}
