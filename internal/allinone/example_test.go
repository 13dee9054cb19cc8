package allinone

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// TestExampleClient: the client of docs/examples, as it stands there, waits in
// the line of a full room without a cookie and enters at its turn.
func TestExampleClient(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "client")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "vestibule/docs/examples/client").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tree, _ := grow(t, 1, 60, 5*time.Second)
	newBrowser(t).enters(tree.Info.Edges[0].URL)
	out, err := exec.CommandContext(t.Context(), binary, tree.Info.Edges[0].URL).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !regexp.MustCompile(`(?s)(next|queued): \d+ ahead, about \d+ s\n.*<h1>You are in</h1>`).Match(out) {
		t.Errorf("the client says\n%s", out)
	}
	if s := tree.Origin.Stats(); s.Peak > 1 || s.Total != 2 {
		t.Errorf("the site counted %d sessions, %d at once; want 2 and 1", s.Total, s.Peak)
	}
}
