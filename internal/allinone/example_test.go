package allinone

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// TestExampleScript: the shell script of docs/examples waits in the same way, and delivers its body once.
func TestExampleScript(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"sh", "curl"} {
		testkit.Program(t, tool)
	}
	var orders testkit.Log
	origin := newShop(t, &orders)
	tree, _ := grow(t, 1, 60, 5*time.Second, func(o *Options) { o.Origin = origin })
	newBrowser(t).enters(tree.Info.Edges[0].URL)
	cmd := exec.CommandContext(t.Context(), "sh", "../../docs/examples/native/wait.sh",
		tree.Info.Edges[0].URL+"/api/orders", "-X", "POST", "-d", `{"tickets":3}`)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	if string(out) != `{"message":"Ordered."}` ||
		!regexp.MustCompile(`(?m)^[\d?]+ ahead, (about \d+ s|wait unknown)$`).MatchString(said.String()) {
		t.Errorf("the script says\n%s%s", &said, out)
	}
	if got := orders.String(); got != `{"tickets":3}`+"\n" {
		t.Errorf("the site received %q, want one order", got)
	}
}

// newShop returns the address of a site with pages outside of /api, from the examples of the docs, and an API. Each
// order's body is written to orders as a line.
func newShop(t *testing.T, orders io.Writer) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/orders", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprintf(orders, "%s\n", body)
		io.WriteString(w, `{"message":"Ordered."}`) //nolint:errcheck // the client tells
	})
	mux.HandleFunc("GET /api/", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"left":7}`) //nolint:errcheck // the client tells
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; img-src data:")
		http.FileServer(http.Dir("../../docs/examples")).ServeHTTP(w, r)
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Demo-Origin", "1")
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestExampleClient: the client of docs/examples, unchanged, waits in the queue of a full room without a cookie and
// enters at its turn.
func TestExampleClient(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "client")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary,
		"vestibule/docs/examples/native").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tree, _ := grow(t, 1, 60, 5*time.Second)
	newBrowser(t).enters(tree.Info.Edges[0].URL)
	out, err := exec.CommandContext(t.Context(), binary, tree.Info.Edges[0].URL).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !regexp.MustCompile(`(?s)(next|queued)(, \d+ ahead)?(, about \d+ s)?\n.*<h1>You are in</h1>`).Match(out) {
		t.Errorf("the client says\n%s", out)
	}
	if s := tree.Origin.Stats(); s.Peak > 1 || s.Total != 2 {
		t.Errorf("the site counted %d sessions, %d at once; want 2 and 1", s.Total, s.Peak)
	}
}
