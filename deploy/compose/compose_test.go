package compose

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"vestibule/internal/lab/process"
	"vestibule/internal/lab/testkit"
)

// TestComposeFile: the library of compose files accepts compose.yaml, and its commands, as processes at free ports, serve
// a visitor and pass the health check.
func TestComposeFile(t *testing.T) {
	options := testkit.Must(cli.NewProjectOptions([]string{"compose.yaml"}, cli.WithWorkingDirectory(".")))(t)
	project := testkit.Must(options.LoadProject(t.Context()))(t)
	room, site := testkit.Must(project.GetService("vestibule"))(t), testkit.Must(project.GetService("site"))(t)

	program := filepath.Join(t.TempDir(), "vestibule")
	build := exec.Command("go", "build", "-o", program, "./cmd/vestibule")
	build.Dir = "../.." // the module with the program
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	at := strings.NewReplacer("127.0.0.1:3000", testkit.FreeAddr(t), ":8080", testkit.FreeAddr(t), "127.0.0.1:9100",
		testkit.FreeAddr(t))
	file := filepath.Join(t.TempDir(), "serve.yaml")
	text := testkit.Must(os.ReadFile("serve.yaml"))(t)
	testkit.NoError(t, os.WriteFile(file, []byte(at.Replace(string(text))), 0o600))
	if !mounts(&room, "/etc/vestibule/serve.yaml", "serve.yaml") || !mounts(&room, "/data", "data") {
		t.Errorf("the volumes of vestibule: %+v", room.Volumes)
	}

	start(t, program, at, nil, site.Command...)
	for i, word := range room.Command {
		if word == "/etc/vestibule/serve.yaml" {
			room.Command[i] = file
		}
	}
	start(t, program, at, []string{
		"VESTIBULE_METRICS=" + at.Replace("127.0.0.1:9100"), "VESTIBULE_CONTROL=" + testkit.FreeAddr(t),
		"VESTIBULE_DATA_DIR=" + t.TempDir(),
	}, room.Command...)

	check := room.HealthCheck.Test // CMD, /vestibule, health, URL
	if len(check) != 4 || check[0] != "CMD" || check[1] != "/vestibule" {
		t.Fatalf("the health check: %q", check)
	}
	testkit.Eventually(t, "the health check passes", func() bool {
		return exec.CommandContext(t.Context(), program, check[2], at.Replace(check[3])).Run() == nil
	})
	testkit.Eventually(t, "a visitor sees the site", func() bool {
		r := testkit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.Replace(":8080")+"/",
			http.NoBody))(t)
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

func mounts(s *types.ServiceConfig, target, source string) bool {
	return slices.ContainsFunc(s.Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Target == target && strings.HasSuffix(v.Source, source)
	})
}

// start runs the program until the test ends.
func start(t *testing.T, program string, at *strings.Replacer, env []string, args ...string) {
	t.Helper()
	argv := []string{program}
	for _, a := range args {
		argv = append(argv, at.Replace(a))
	}
	log := &testkit.Log{}
	p := testkit.Must(process.Start(process.Options{Name: strings.Join(argv, " "), Argv: argv, Env: env, Stderr: log}))(t)
	t.Cleanup(func() {
		testkit.NoError(t, p.End(syscall.SIGTERM, testkit.Patience))
		if err := p.Err(); err != nil {
			t.Errorf("%q ended: %v", argv, err)
		}
		if t.Failed() {
			t.Logf("%q said: %s", argv, log)
		}
	})
}
