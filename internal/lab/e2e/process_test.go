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

	"vestibule/internal/lab/testkit"
)

var built struct {
	sync.Mutex
	dir string // folder of the built commands, "" before
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

// build builds the commands, once for all tests, and returns their folder.
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
	out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", dir, "../../../cmd/...", "github.com/nats-io/nats-server/v2").CombinedOutput()
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
	at   map[string]string // the addresses of its LISTENING line; that of the API as "control"
	gone chan struct{}

	mu  sync.Mutex
	log bytes.Buffer // standard error
	err error        // its exit error
}

// Write stores the log.
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

// start starts a command and returns once it has printed its addresses. It ends with the test, also if the test's
// process is killed.
func start(t *testing.T, bin string, args ...string) *process {
	t.Helper()
	p, listening := launch(t, nil, bin, args...)
	select {
	case p.at = <-listening:
	case <-p.gone:
		t.Fatalf("%s ended: %v", p.name, p.err)
	case <-time.After(testkit.Patience):
		t.Fatalf("%s told no address", p.name)
	}
	return p
}

// launch starts a command with additional variables, and returns a channel for its addresses.
func launch(t *testing.T, env []string, bin string, args ...string) (*process, <-chan map[string]string) {
	t.Helper()
	return launchWith(t, env, nil, bin, args...)
}

// launchWith is launch with open files for the command, numbered from 3.
func launchWith(t *testing.T, env []string, files []*os.File, bin string, args ...string) (*process, <-chan map[string]string) {
	t.Helper()
	p := &process{name: strings.Join(append([]string{filepath.Base(bin)}, args...), " "), gone: make(chan struct{})}
	p.cmd = exec.Command(bin, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.ExtraFiles = files
	p.cmd.Stderr = p
	p.cmd.SysProcAttr = alone()
	p.cmd.WaitDelay = testkit.Patience / 4 // for leftover child processes
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
			if !ok {
				text, ok = strings.CutPrefix(lines.Text(), "READY ") // vestibule serve
			}
			if at, err := addresses(text); ok && err == nil {
				select {
				case listening <- at:
				default: // already known
				}
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
	return p, listening
}

// addresses parses the addresses printed by a process.
func addresses(text string) (map[string]string, error) {
	var told map[string]any
	if err := json.Unmarshal([]byte(text), &told); err != nil {
		return nil, err
	}
	at := map[string]string{}
	for what, where := range told {
		if api, ok := where.(map[string]any); ok {
			where = api["url"]
		}
		at[what] = fmt.Sprint(where)
	}
	return at, nil
}

// kill sends a signal to the process and its children.
func (p *process) kill(s syscall.Signal) {
	if err := syscall.Kill(-p.cmd.Process.Pid, s); err != nil && err != syscall.ESRCH {
		_, _ = p.Write([]byte("kill: " + err.Error() + "\n"))
	}
}

// stop stops the process like an operator, and expects success.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.kill(syscall.SIGTERM)
	p.ends(t)
}

// ends expects that a stopped process ends with success.
func (p *process) ends(t *testing.T) {
	t.Helper()
	select {
	case <-p.gone:
	case <-time.After(testkit.Patience):
		t.Fatalf("%s does not stop", p.name)
	}
	if p.err != nil {
		t.Errorf("%s ended with %v", p.name, p.err)
	}
}

// again restarts the command of a process that has ended.
func (p *process) again(t *testing.T) *process {
	t.Helper()
	return start(t, p.cmd.Path, p.cmd.Args[1:]...)
}

// bus is the NATS of a fleet: servers of each place and, with NATS users, their files.
type bus struct {
	url map[string]string // by data centre, and "global"
	dir string            // written by `vestibule nats-config`; "" for one server without users
}

// of returns the NATS section of a node's configuration.
func (b *bus) of(place, role, name string) string {
	if b.dir == "" {
		return fmt.Sprintf("nats: {url: %q}\n", b.url["global"])
	}
	cert := filepath.Join(b.dir, place, role+"s", name)
	text := fmt.Sprintf("nats: {url: %q, ca: %q, cert: %q, key: %q", b.url[place], filepath.Join(b.dir, "ca.crt"), cert+".crt", cert+".key")
	switch role {
	case "edge":
		text += ", domain: documents"
	case "regional":
		return text + "}\nupstream: {domain: documents}\n"
	}
	return text + "}\n"
}

// withUsers runs nats-servers of global and one of each data centre with the configuration of `vestibule
// nats-config`, and creates their buckets.
func withUsers(t *testing.T, bin, dir string, globals int, dcs ...string) *bus {
	t.Helper()
	const host = "localhost,127.0.0.1"
	b := &bus{url: map[string]string{}, dir: filepath.Join(dir, "nats")}
	vestibule := filepath.Join(bin, "vestibule")
	hubs, routes := make([]string, globals), make([]string, globals)
	for i := range globals {
		hubs[i], routes[i] = testkit.FreeAddr(t), testkit.FreeAddr(t)
	}
	command(t, nil, vestibule, "nats-config", "write", "--out", b.dir, "--data-centers", strings.Join(dcs, ","), "--globals", "global-1", "--regionals", "regional-1",
		"--edges", "edge-1..3", "--servers", "1", "--server-names", host, "--hub", strings.Join(hubs, ","), "--store-dir", filepath.Join(dir, "store-{place}"))
	for _, place := range append([]string{"global"}, dcs...) {
		written := filepath.Join(b.dir, place, "nats.conf")
		text, err := os.ReadFile(written)
		if err != nil {
			t.Fatal(err)
		}
		var urls, monitors []string
		for i := range globals {
			if i > 0 && place != "global" {
				break
			}
			at, monitor := testkit.FreeAddr(t), testkit.FreeAddr(t)
			urls, monitors = append(urls, "tls://"+at), append(monitors, monitor)
			// One machine has one port 4222, and one disk.
			own := strings.NewReplacer("0.0.0.0:4222", at, "0.0.0.0:8222", monitor, "0.0.0.0:7422", hubs[i],
				"sync_interval: always", "sync_interval: 2m", "store-"+place, fmt.Sprintf("store-%s-%d", place, i)).Replace(string(text))
			if place == "global" && globals > 1 {
				own += fmt.Sprintf("cluster { name: e2e, listen: %q, routes: [\"nats://%s\"], no_advertise: true }\n", routes[i], strings.Join(routes, `", "nats://`))
			}
			config := file(t, filepath.Dir(written), fmt.Sprintf("nats-%d.conf", i), "%s", own)
			launch(t, []string{fmt.Sprintf("NATS_SERVER_NAME=nats-%s-%d", place, i)}, filepath.Join(bin, "nats-server"), "-c", config)
		}
		b.url[place] = strings.Join(urls, ",")
		provision := filepath.Join(b.dir, place, "provision", "provision")
		for _, monitor := range monitors {
			until(t, "a nats-server of "+place+" is well", func() bool { return get("http://"+monitor+"/healthz", new(struct{})) == nil })
		}
		command(t, nil, vestibule, "nats-config", "provision", "--place", place, "--nats-url", b.url[place], "--nats-ca", filepath.Join(b.dir, "ca.crt"),
			"--nats-cert", provision+".crt", "--nats-key", provision+".key")
	}
	return b
}

// command runs a command to its end, with additional variables.
func command(t *testing.T, env []string, bin string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(testkit.Within(t), bin, args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(bin), strings.Join(args, " "), err, out)
	}
}

// fleet starts everything but the edges: a global with its nats-server, and a regional in each data centre. It
// returns the NATS.
func fleet(t *testing.T, bin, dir, rooms string, dcs ...string) (*bus, []*process) {
	t.Helper()
	b := &bus{url: map[string]string{}}
	global := startGlobal(t, bin, dir, rooms, fmt.Sprintf("nats: {embedded: true, listen: %q}\n", testkit.FreeAddr(t)), dcs)
	b.url["global"] = global.at["nats"]
	return b, append([]*process{global}, startRegionals(t, bin, dir, b, dcs)...)
}

// fleetOver is a fleet on running NATS servers, with or without a rooms file, and with additional lines for global.
func fleetOver(t *testing.T, b *bus, bin, dir, rooms, more string, dcs ...string) []*process {
	t.Helper()
	global := startGlobal(t, bin, dir, rooms, b.of("global", "global", "global-1")+more, dcs)
	return append([]*process{global}, startRegionals(t, bin, dir, b, dcs)...)
}

// startGlobal starts global, optionally with a rooms file.
func startGlobal(t *testing.T, bin, dir, rooms, nats string, dcs []string) *process {
	t.Helper()
	if rooms != "" {
		rooms = file(t, dir, "rooms.yaml", "%s", rooms)
	}
	return start(t, filepath.Join(bin, "global"), "--config", file(t, dir, "global.yaml", `
name: global-1
data_dir: %s
data_centers: [%s]
rooms: %q
bootstrap: true
log: {level: warn}
%s`, filepath.Join(dir, "global"), strings.Join(dcs, ", "), rooms, nats))
}

func startRegionals(t *testing.T, bin, dir string, b *bus, dcs []string) (nodes []*process) {
	t.Helper()
	for _, dc := range dcs {
		nodes = append(nodes, start(t, filepath.Join(bin, "regional"), "--config", file(t, dir, dc+".yaml", `
name: regional-1
data_dir: %s
data_center: %s
bootstrap: true
log: {level: warn}
%s`, filepath.Join(dir, dc), dc, b.of(dc, "regional", "regional-1"))))
	}
	return nodes
}

// edgeFile writes the configuration of an edge, with additional lines.
func edgeFile(t *testing.T, dir string, b *bus, dc, name, more string) string {
	t.Helper()
	return file(t, dir, dc+"-"+name+".yaml", `
data_dir: %s
data_center: %s
name: %s
%s%s
`, filepath.Join(dir, dc+"-"+name), dc, name, b.of(dc, "edge", name), more)
}

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
