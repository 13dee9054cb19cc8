package compose

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const patience = 2 * time.Minute

// TestComposeFile: the library of compose files accepts compose.yaml, and its commands, as processes at free ports, serve
// a visitor and pass the health check.
func TestComposeFile(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{"compose.yaml"}, cli.WithWorkingDirectory("."))
	must(t, err)
	project, err := options.LoadProject(t.Context())
	must(t, err)
	room, site := service(t, project, "vestibule"), service(t, project, "site")

	program := filepath.Join(t.TempDir(), "vestibule")
	build := exec.Command("go", "build", "-o", program, "./cmd/vestibule")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	at := strings.NewReplacer("127.0.0.1:3000", free(t), ":8080", free(t), "127.0.0.1:9100", free(t))
	file := filepath.Join(t.TempDir(), "serve.yaml")
	text, err := os.ReadFile("serve.yaml")
	must(t, err)
	must(t, os.WriteFile(file, []byte(at.Replace(string(text))), 0o600))
	if !mounts(room, "/etc/vestibule/serve.yaml", "serve.yaml") || !mounts(room, "/data", "data") {
		t.Errorf("the volumes of vestibule: %+v", room.Volumes)
	}

	start(t, program, at, nil, site.Command...)
	for i, word := range room.Command {
		if word == "/etc/vestibule/serve.yaml" {
			room.Command[i] = file
		}
	}
	start(t, program, at, []string{
		"VESTIBULE_METRICS=" + at.Replace("127.0.0.1:9100"), "VESTIBULE_CONTROL=" + free(t),
		"VESTIBULE_DATA_DIR=" + t.TempDir(),
	}, room.Command...)

	check := room.HealthCheck.Test // CMD, /vestibule, health, URL
	if len(check) != 4 || check[0] != "CMD" || check[1] != "/vestibule" {
		t.Fatalf("the health check: %q", check)
	}
	until(t, "the health check passes", func(ctx context.Context) bool {
		return exec.CommandContext(ctx, program, check[2], at.Replace(check[3])).Run() == nil
	})
	until(t, "a visitor sees the site", func(ctx context.Context) bool {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.Replace(":8080")+"/", http.NoBody)
		must(t, err)
		r.Host = "shop.example"
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return err == nil && res.StatusCode == http.StatusOK && res.Header.Get("Set-Cookie") != ""
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func service(t *testing.T, p *types.Project, name string) types.ServiceConfig {
	t.Helper()
	s, err := p.GetService(name)
	must(t, err)
	return s
}

func mounts(s types.ServiceConfig, target, source string) bool {
	for _, v := range s.Volumes {
		if v.Target == target && strings.HasSuffix(v.Source, source) {
			return true
		}
	}
	return false
}

// free returns an address that nobody listens at.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	return l.Addr().String()
}

// start runs the program until the test ends.
func start(t *testing.T, program string, at *strings.Replacer, env []string, args ...string) {
	t.Helper()
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = at.Replace(a)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must(t, err)
	cmd := exec.Command(program, words...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), log, log
	must(t, cmd.Start())
	t.Cleanup(func() {
		must(t, cmd.Process.Signal(syscall.SIGTERM))
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q ended: %v", words, err)
		}
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("%q said: %s%v", words, text, err)
		}
	})
}

// until waits for a condition.
func until(t *testing.T, what string, ok func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !ok(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}
