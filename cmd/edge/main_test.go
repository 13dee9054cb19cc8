package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"vestibule/internal/edge"
	"vestibule/internal/edge/program"
	"vestibule/internal/lab/nodetest"
	"vestibule/internal/lab/testkit"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"edge": func() { os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr)) },
	})
}

func TestCommandLine(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "", Setup: func(env *testscript.Env) error {
			example, err := os.ReadFile("edge.example.yaml")
			if err != nil {
				return err
			}
			return os.WriteFile(env.Getenv("WORK")+"/example.yaml", example, 0o600)
		},
	})
}

// SIGTERM drains: the edge says so and goes on; a second one ends it at once. Ctrl-C does not
// wait.
func TestSignals(t *testing.T) {
	begin := func() (cmd *exec.Cmd, at map[string]string) {
		cmd = exec.Command("edge", "--name", "edge-1", "--data-center", "nairobi", "--data-dir", t.TempDir(), "--listen",
			"127.0.0.1:0",
			"--metrics-listen", "127.0.0.1:0", "--nats-url", "nats://127.0.0.1:1", "--drain-delay", "1h")
		stdout := testkit.Must(cmd.StdoutPipe())(t)
		testkit.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "LISTENING "); ok {
				testkit.NoError(t, json.Unmarshal([]byte(text), &at))
				return cmd, at
			}
		}
		t.Fatal("the edge did not start")
		return nil, nil
	}
	reasons := func(at map[string]string) string {
		r, err := http.Get(at["metrics"] + "/readyz")
		if err != nil {
			return ""
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != http.StatusServiceUnavailable {
			return ""
		}
		return string(body)
	}
	signal := func(cmd *exec.Cmd, s os.Signal) {
		testkit.NoError(t, cmd.Process.Signal(s))
	}
	cmd, at := begin()
	testkit.Eventually(t, "it is not ready, because it has no rooms",
		func() bool { return strings.Contains(reasons(at), "no room set yet") })
	signal(cmd, syscall.SIGTERM)
	testkit.Eventually(t, "it drains", func() bool { return strings.Contains(reasons(at), `"draining"`) })
	// It says that it drains, and then begins to leave signals to the system: one may be lost between.
	var err error
	end := ended(cmd)
	testkit.Eventually(t, "a second signal ends it", func() bool {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case err = <-end:
			return true
		default:
			return false
		}
	})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Errorf("after the second signal: %v", err)
	}
	cmd, _ = begin()
	signal(cmd, os.Interrupt)
	if err := testkit.Receive(t, "it ends", ended(cmd)); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}

// ended waits for the end of a process.
func ended(cmd *exec.Cmd) <-chan error {
	end := make(chan error, 1)
	go func() { end <- cmd.Wait() }()
	return end
}

func TestExampleFile(t *testing.T) {
	nodetest.Example(t, "edge", "edge.example.yaml", edge.DefaultConfig, "name", "data_center")
}
