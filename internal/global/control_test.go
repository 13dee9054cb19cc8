package global_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"vestibule/internal/core/wire"
	"vestibule/internal/global"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus/embedded"
	"vestibule/internal/node/natsconf"
)

// runNode runs a whole candidate, with its API, until the test ends.
func runNode(t testing.TB, s *embedded.Server, name string, change func(*global.Config)) *global.Node {
	t.Helper()
	n, _ := runNodeUntil(t, s, name, change)
	return n
}

// runNodeUntil is runNode, until stop if that is called.
func runNodeUntil(t testing.TB, s *embedded.Server, name string, change func(*global.Config)) (_ *global.Node,
	stop func(),
) {
	t.Helper()
	cfg := global.DefaultConfig()
	cfg.Name, cfg.DataDir, cfg.Rooms, cfg.DataCenters, cfg.Bootstrap = name, t.TempDir(), "", []string{"dublin"}, true
	cfg.Metrics.Listen, cfg.Control.Listen, cfg.NATS.Replicas = "127.0.0.1:0", "127.0.0.1:0", 1
	change(&cfg)
	if errs := cfg.Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	n := testkit.Must(global.NewNode(cfg, wire.DefaultParams(), connect(t, s, name), nil, quiet))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
	t.Cleanup(stop)
	return n, stop
}

// get asks the API of a candidate.
func get(t *testing.T, client *http.Client, url, token string) (code int, body []byte, err error) {
	t.Helper()
	r := testkit.Must(http.NewRequestWithContext(within(t), http.MethodGet, url, nil))(t)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

// Where the API has a certificate it speaks TLS alone, 1.2 and newer.
func TestTheAPIOverTLS(t *testing.T) {
	t.Parallel()
	authority := testkit.Must(natsconf.NewAuthority(rand.Reader, time.Now()))(t)
	cert, key, err := authority.Issue(rand.Reader, time.Now(), time.Hour, []string{"127.0.0.1"})
	testkit.NoError(t, err)
	dir := t.TempDir()
	for name, data := range map[string][]byte{"api.crt": cert, "api.key": key} {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	n := runNode(t, serve(t), "one", func(c *global.Config) {
		c.Control.Cert, c.Control.Key = filepath.Join(dir, "api.crt"), filepath.Join(dir, "api.key")
	})
	token := testkit.Must(n.Control.Token(within(t)))(t)
	url := n.Control.Info().URL + "/user/tokens/verify"
	if !strings.HasPrefix(url, "https://") {
		t.Fatal(url)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.CertPEM())
	client := func(c *tls.Config) *http.Client {
		transport := &http.Transport{TLSClientConfig: c}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	good := client(&tls.Config{RootCAs: roots})
	if code, body, err := get(t, good, url, token); err != nil || code != http.StatusOK {
		t.Errorf("%d %s %v", code, body, err)
	}
	if code, body, err := get(t, good, url, ""); err != nil || code != http.StatusUnauthorized ||
		!strings.Contains(string(body), `"code":1000`) {
		t.Errorf("without a token: %d %s %v", code, body, err)
	}
	if code, body, err := get(t, good, strings.Replace(url, "https:", "http:", 1), token); err != nil ||
		code == http.StatusOK {
		t.Errorf("without TLS: %d %s %v", code, body, err)
	}
	if _, _, err := get(t, client(&tls.Config{}), url, token); err == nil {
		t.Error("an authority that nobody trusts is trusted")
	}
	if _, _, err := get(t, client(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}),
		url, token); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	open := global.ControlConfig{Listen: "0.0.0.0:0"}
	if errs := open.Validate(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "control.listen") {
		t.Errorf("an address of the machine for all without a certificate: %v", errs)
	}
}

// Each candidate shows the whole fleet, also one that does not lead.
func TestEveryCandidateShowsTheFleet(t *testing.T) {
	t.Parallel()
	s := serve(t)
	nodes := []*global.Node{runNode(t, s, "one", func(*global.Config) {}), runNode(t, s, "two", func(*global.Config) {})}
	var token string
	eventually(t, "there is a token", func() bool {
		for _, n := range nodes {
			if data, err := os.ReadFile(n.Control.Info().TokenFile); err == nil {
				token = strings.TrimSpace(string(data))
			}
		}
		return token != ""
	})
	var shown struct {
		Result struct {
			Leader     string
			Candidates []struct {
				Name, Term string
				Leading    bool
				AsOf       time.Time `json:"as_of"`
			}
			DataCenters []struct {
				Name string
				Told bool
			} `json:"data_centers"`
		}
	}
	for i, n := range nodes {
		eventually(t, fmt.Sprint("the fleet is shown at candidate ", i), func() bool {
			_, body, err := get(t, http.DefaultClient, n.Control.Info().URL+"/vestibule/fleet", token)
			if err != nil || json.Unmarshal(body, &shown) != nil || len(shown.Result.Candidates) != 2 {
				return false
			}
			leads := 0
			for _, c := range shown.Result.Candidates {
				if c.Leading && c.Name == shown.Result.Leader && c.Term != "" {
					leads++
				}
			}
			d := shown.Result.DataCenters
			return leads == 1 && len(d) == 1 && d[0].Name == "dublin" && !d[0].Told
		})
	}
	http.DefaultClient.CloseIdleConnections()
}

// While NATS is gone, the API of a candidate shows the rooms that it knows, as of when it knew them, and soon.
func TestTheAPIReadsWithoutNATS(t *testing.T) {
	t.Parallel()
	s := serve(t)
	local := func(c *global.Config) { c.Control.Origin = "http://127.0.0.1:1" }
	leader := runNode(t, s, "one", local)
	eventually(t, "one leads", func() bool { return leader.Status().Leading })
	n := runNode(t, s, "two", local)
	token := testkit.Must(leader.Control.Token(within(t)))(t)
	call := func(method, path, body string) (code int, text string, took time.Duration) {
		r, err := http.NewRequestWithContext(within(t), method, n.Control.Info().URL+path, strings.NewReader(body))
		testkit.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		begun := time.Now()
		res := testkit.Must(http.DefaultClient.Do(r))(t)
		defer res.Body.Close()
		data := testkit.Must(io.ReadAll(res.Body))(t)
		return res.StatusCode, string(data), time.Since(begun)
	}
	rooms := "/zones/" + n.Control.Info().Zone + "/waiting_rooms"
	eventually(t, "a room is made", func() bool {
		code, _, _ := call("POST", rooms,
			`{"name":"shop","host":"shop.example","total_active_users":3,"new_users_per_minute":5}`)
		return code == http.StatusOK
	})
	eventually(t, "the candidate that follows has heard numbers", func() bool {
		code, _, _ := call("GET", "/vestibule/status", "")
		return code == http.StatusOK && !n.Status().Leading
	})
	s.Stop()
	for _, path := range []string{rooms, "/vestibule/status", "/vestibule/status?room=shop"} {
		code, text, took := call("GET", path, "")
		if code != http.StatusOK || !strings.Contains(text, `"shop"`) || !strings.Contains(text, "this is as of 20") {
			t.Errorf("%s: %d %s", path, code, text)
		}
		t.Logf("%s took %v without NATS", path, took.Round(time.Millisecond))
	}
	if code, text, _ := call("PATCH", rooms+"/nobody", `{"total_active_users":4}`); code != http.StatusServiceUnavailable {
		t.Errorf("a change: %d %s", code, text)
	}
	http.DefaultClient.CloseIdleConnections()
}
