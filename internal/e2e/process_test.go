package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vestibule/internal/testkit"
)

var built struct {
	sync.Mutex
	dir string // folder in which the commands are built, "" before
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		if err := os.RemoveAll(built.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// build builds the commands, once for all tests, and returns the folder in
// which they are.
func build(t *testing.T) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	if built.dir != "" {
		return built.dir
	}
	dir, err := os.MkdirTemp("", "vestibule-e2e-") //nolint:usetesting // it outlives the test: all share it
	if err != nil {
		t.Fatal(err)
	}
	built.dir = dir
	start := time.Now()
	out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", dir, "../../cmd/...").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	t.Logf("built in %.1f s", time.Since(start).Seconds())
	return dir
}

// process is a running command of ours.
type process struct {
	name string
	cmd  *exec.Cmd
	at   map[string]string // the addresses of its LISTENING line
	gone chan struct{}

	mu  sync.Mutex
	log bytes.Buffer // standard error
	err error        // how it ended
}

// Write keeps the log.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) logs() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// start starts a command and returns once it has told its addresses. It ends
// with the test, also where the test's process is killed.
func start(t *testing.T, bin string, args ...string) *process {
	t.Helper()
	p := &process{name: strings.Join(append([]string{filepath.Base(bin)}, args...), " "), gone: make(chan struct{})}
	p.cmd = exec.Command(bin, args...)
	p.cmd.Stderr = p
	p.cmd.SysProcAttr = alone()
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	listening := make(chan map[string]string, 1)
	go func() {
		defer close(p.gone)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			text, ok := strings.CutPrefix(lines.Text(), "LISTENING ")
			at := map[string]string{}
			if ok && json.Unmarshal([]byte(text), &at) == nil {
				listening <- at
			}
		}
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill(syscall.SIGKILL)
		<-p.gone
		if t.Failed() {
			t.Logf("%s:\n%s", p.name, tail(p.logs(), 30))
		}
	})
	select {
	case p.at = <-listening:
	case <-p.gone:
		t.Fatalf("%s ended: %v", p.name, p.err)
	case <-time.After(20 * time.Second):
		t.Fatalf("%s told no address", p.name)
	}
	return p
}

// kill sends a signal to the process and to what it started.
func (p *process) kill(s syscall.Signal) {
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil && err != syscall.ESRCH {
		_, _ = p.Write([]byte("kill: " + err.Error() + "\n"))
	}
}

// stop ends the process as an operator does, and expects that it ends well.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.kill(syscall.SIGTERM)
	p.ends(t)
}

// ends expects that the process ends well, as it was told to.
func (p *process) ends(t *testing.T) {
	t.Helper()
	select {
	case <-p.gone:
	case <-time.After(15 * time.Second):
		t.Fatalf("%s does not stop", p.name)
	}
	if p.err != nil {
		t.Errorf("%s ended with %v", p.name, p.err)
	}
}

// again starts the command of a process that has ended once more.
func (p *process) again(t *testing.T) *process {
	t.Helper()
	return start(t, p.cmd.Path, p.cmd.Args[1:]...)
}

// fleet starts what there is beside edges: a global with its nats-server, and a regional in
// each data centre. It returns where NATS is.
func fleet(t *testing.T, bin, dir, rooms string, dcs ...string) (nats string, nodes []*process) {
	t.Helper()
	global := start(t, filepath.Join(bin, "global"), "--config", file(t, dir, "global.yaml", `
data_dir: %s
data_centers: [%s]
rooms: %s
bootstrap: true
nats: {embedded: true, listen: %q}
log: {level: warn}
`, filepath.Join(dir, "global"), strings.Join(dcs, ", "), file(t, dir, "rooms.yaml", "%s", rooms), testkit.FreeAddr(t)))
	nodes = append(nodes, global)
	for _, dc := range dcs {
		nodes = append(nodes, start(t, filepath.Join(bin, "regional"), "--config", file(t, dir, dc+".yaml", `
data_dir: %s
data_center: %s
bootstrap: true
nats: {url: %q}
log: {level: warn}
`, filepath.Join(dir, dc), dc, global.at["nats"])))
	}
	return global.at["nats"], nodes
}

// edgeFile writes the configuration of an edge, with more lines than every edge has.
func edgeFile(t *testing.T, dir, nats, dc, name, more string) string {
	t.Helper()
	return file(t, dir, dc+"-"+name+".yaml", `
data_dir: %s
data_center: %s
name: %s
nats: {url: %q}
%s
`, filepath.Join(dir, dc+"-"+name), dc, name, nats, more)
}

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
