package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"vestibule/internal/node"
)

// The check of a container follows the exit code; a person reads the reasons.
func TestHealth(t *testing.T) {
	code := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`["no room set yet"]`))
	}))
	defer srv.Close()
	ask := func(url string) (int, string) {
		var out, errs bytes.Buffer
		exit := run(context.Background(), []string{"health", url}, &out, &errs)
		return exit, out.String() + errs.String()
	}
	if exit, text := ask(srv.URL + "/readyz"); exit != node.ExitOK || text != "ready\n" {
		t.Errorf("a ready node: %d, %q", exit, text)
	}
	code = http.StatusServiceUnavailable
	if exit, text := ask(srv.URL + "/readyz"); exit != node.ExitError || !strings.Contains(text, "503") ||
		!strings.Contains(text, "no room set yet") {
		t.Errorf("a node that is not ready: %d, %q", exit, text)
	}
	srv.Close()
	if exit, text := ask(srv.URL); exit != node.ExitError || !strings.Contains(text, "does not answer") {
		t.Errorf("no node: %d, %q", exit, text)
	}
	if exit, text := ask("127.0.0.1:9100"); exit != node.ExitUsage || !strings.Contains(text, "URL: must be") {
		t.Errorf("no URL: %d, %q", exit, text)
	}
}
