package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vestibule/internal/lab/testkit"
)

// TestSitesAskForAProof runs the examples of deploy/examples behind an edge: requests through the edge reach the
// site, and requests to the site's own address do not, whatever their headers.
func TestSitesAskForAProof(t *testing.T) {
	t.Parallel()
	bin, dir := build(t), t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "site"),
		"../../../deploy/examples/go").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sites := map[string]string{"go": testkit.FreeAddr(t), "express": testkit.FreeAddr(t), "nginx": testkit.FreeAddr(t)}
	rooms, visitors := "rooms:\n", testkit.FreeAddr(t)
	proofs := make(chan string, 1)
	tells := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if p := r.Header.Get("Vestibule-Proof"); p != "" {
			select {
			case proofs <- p:
			default: // one is enough
			}
		}
	}))
	t.Cleanup(tells.Close)
	for name, addr := range map[string]string{
		"go": sites["go"], "express": sites["express"], "nginx": sites["nginx"],
		"tells": tells.Listener.Addr().String(),
	} {
		rooms += fmt.Sprintf("  - {name: %s, host: 127.0.0.1, path: /%s, total_active_users: 100, new_users_per_minute: "+
			"1000, origin: \"http://%s\"}\n", name, name, addr)
	}
	rooms += fmt.Sprintf("hosts: [{name: 127.0.0.1, origin: %q}]\n", tells.URL)
	nats, _ := fleet(t, bin, dir, rooms, "nairobi")
	areReady(t, startEdge(t, bin, dir, nats, "nairobi", "edge-1",
		fmt.Sprintf("listen: %s\ndrain_delay: 0s\nproof: {enabled: true}\n", visitors)))
	// A valid proof for another site.
	until(t, "a visitor comes in by the edge", func() bool {
		_, err := page(client, "http://"+visitors+"/tells")
		return err == nil && len(proofs) > 0
	})
	stolen := testkit.Receive(t, "the site is given a proof", proofs)
	keys := "http://" + visitors + "/.well-known/vestibule/jwks.json"

	t.Run("go", func(t *testing.T) {
		addr := sites["go"]
		serve(t, filepath.Join(dir, "site"), "--listen", addr, "--keys", keys, "--audience", "http://"+addr, "--room", "go")
		guarded(t, visitors, addr, "go", stolen)
	})
	t.Run("express", func(t *testing.T) {
		addr := sites["express"]
		serve(t, "node", "../../../deploy/examples/express/site.js", addr[strings.LastIndexByte(addr, ':')+1:], keys,
			"http://"+addr, "express")
		guarded(t, visitors, addr, "express", stolen)
	})
	t.Run("nginx", func(t *testing.T) {
		addr := sites["nginx"]
		conf := testkit.Must(os.ReadFile("../../../deploy/examples/nginx/site.conf"))(t)
		site := filepath.Join(dir, "www")
		testkit.NoError(t, os.MkdirAll(site, 0o700))
		file(t, site, "nginx", "the site")
		server := strings.NewReplacer("EDGE/", visitors+"/", "room=ROOM", "room=nginx", "=AUDIENCE", "=http://"+addr,
			"root SITE", "root "+site).Replace(string(conf))
		serve(t, "nginx", testkit.Nginx(t, t.TempDir(), fmt.Sprintf("server { listen %s; %s }", addr, server))...)
		guarded(t, visitors, addr, "nginx", stolen)
	})
}

// guarded tests a site through the edge and directly, also with a proof for another site.
func guarded(t *testing.T, edge, site, path, stolen string) {
	t.Helper()
	ask := func(addr string, proofs ...string) (int, string) {
		var header []string
		for _, p := range proofs {
			header = append(header, "Vestibule-Proof", p)
		}
		f, err := fetch(t.Context(), client, http.MethodGet, "http://"+addr+"/"+path, "", header...)
		if err != nil {
			return 0, err.Error()
		}
		return f.StatusCode, f.body
	}
	until(t, "the site answers", func() bool { code, _ := ask(site); return code != 0 })
	until(t, "a visitor comes in by the edge",
		func() bool { code, body := ask(edge); return code == http.StatusOK && body == "the site" })
	if code, body := ask(edge, "mine"); code != http.StatusOK || body != "the site" {
		t.Errorf("by the edge, with a proof of the visitor's own: %d %.60q", code, body)
	}
	for _, proofs := range [][]string{nil, {""}, {"mine"}, {stolen}, {stolen, stolen}} {
		if code, body := ask(site, proofs...); code != http.StatusForbidden || body == "the site" {
			t.Errorf("around the edge with %q: %d %.60q", proofs, code, body)
		}
	}
}
