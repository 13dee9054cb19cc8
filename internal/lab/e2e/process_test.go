package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vestibule/internal/lab/process"
	"vestibule/internal/lab/testkit"
)

var built struct {
	sync.Mutex
	dir string // folder of the built commands, "" before
}

func TestMain(m *testing.M) {
	if how := strings.Split(os.Getenv(attackVariable), ","); len(how) == 3 {
		attacks[how[0]].run(context.Background(), how[1], how[2] == "true")
		return
	}
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
	testkit.NoError(t, err)
	built.dir = dir
	start := time.Now()
	testkit.NoError(t, process.Build(t.Context(), dir, "vestibule/cmd/...", process.NATSServer))
	t.Logf("built in %.1f s", time.Since(start).Seconds())
	return dir
}

// command is a running command of ours.
type command struct {
	*process.Process
	name string
	at   map[string]string // its addresses; that of the API as "control"
	log  *testkit.Log      // standard error
}

// start starts a command and returns once it has printed its addresses. It ends with the test, also if the test's
// process is killed.
func start(t *testing.T, bin string, args ...string) *command {
	t.Helper()
	c := launch(t, process.Options{}, bin, args...)
	c.listens(t)
	return c
}

// launch starts a command, with the variables and files of o.
func launch(t *testing.T, o process.Options, bin string, args ...string) *command {
	t.Helper()
	c := &command{log: &testkit.Log{}}
	o.Argv, o.Stderr = append([]string{bin}, args...), c.log
	o.Name = strings.Join(append([]string{filepath.Base(bin)}, args...), " ")
	c.name = o.Name
	c.Process = testkit.Must(process.Start(o))(t)
	t.Cleanup(func() {
		c.kill(t, syscall.SIGKILL)
		<-c.Done()
		if t.Failed() {
			t.Logf("%s:\n%s", c.name, tail(c.log.String(), 30))
		}
	})
	return c
}

// listens waits until the command has printed its addresses.
func (c *command) listens(t *testing.T) {
	t.Helper()
	var printed map[string]any
	testkit.NoError(t, c.Addresses(testkit.Patience, &printed))
	c.at = map[string]string{}
	for what, where := range printed {
		if api, ok := where.(map[string]any); ok {
			where = api["url"]
		}
		c.at[what] = fmt.Sprint(where)
	}
}

// kill sends a signal to the command and its children.
func (c *command) kill(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := c.Signal(s); err != nil {
		t.Error(err)
	}
}

// stop stops the command like an operator, and expects success.
func (c *command) stop(t *testing.T) {
	t.Helper()
	c.kill(t, syscall.SIGTERM)
	c.ends(t)
}

// ends expects that a stopped command ends with success.
func (c *command) ends(t *testing.T) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(testkit.Patience):
		t.Fatalf("%s does not stop", c.name)
	}
	if err := c.Err(); err != nil {
		t.Errorf("%s ended with %v", c.name, err)
	}
}

// again restarts a command that has ended.
func (c *command) again(t *testing.T) *command {
	t.Helper()
	return start(t, c.Argv()[0], c.Argv()[1:]...)
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
	text := fmt.Sprintf("nats: {url: %q, ca: %q, cert: %q, key: %q", b.url[place], filepath.Join(b.dir, "ca.crt"),
		cert+".crt", cert+".key")
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
	runCommand(t, nil, vestibule, "nats-config", "write", "--out", b.dir, "--data-centers", strings.Join(dcs, ","),
		"--globals", "global-1", "--regionals", "regional-1",
		"--edges", "edge-1..3", "--servers", "1", "--server-names", host, "--hub", strings.Join(hubs, ","), "--store-dir",
		filepath.Join(dir, "store-{place}"))
	for _, place := range append([]string{"global"}, dcs...) {
		written := filepath.Join(b.dir, place, "nats.conf")
		text := testkit.Must(os.ReadFile(written))(t)
		var urls, monitors []string
		for i := range globals {
			if i > 0 && place != "global" {
				break
			}
			at, monitor := testkit.FreeAddr(t), testkit.FreeAddr(t)
			urls, monitors = append(urls, "tls://"+at), append(monitors, monitor)
			// One machine has one port 4222, and one disk.
			own := strings.NewReplacer("0.0.0.0:4222", at, "127.0.0.1:8222", monitor, "0.0.0.0:7422", hubs[i],
				"sync_interval: always", "sync_interval: 2m", "store-"+place,
				fmt.Sprintf("store-%s-%d", place, i)).Replace(string(text))
			if place == "global" && globals > 1 {
				own += fmt.Sprintf("cluster { name: e2e, listen: %q, routes: [\"nats://%s\"], no_advertise: true }\n", routes[i],
					strings.Join(routes, `", "nats://`))
			}
			config := file(t, filepath.Dir(written), fmt.Sprintf("nats-%d.conf", i), "%s", own)
			launch(t, process.Options{Env: []string{fmt.Sprintf("NATS_SERVER_NAME=nats-%s-%d", place, i)}},
				filepath.Join(bin, "nats-server"), "-c", config)
		}
		b.url[place] = strings.Join(urls, ",")
		provision := filepath.Join(b.dir, place, "provision", "provision")
		for _, monitor := range monitors {
			until(t, "a nats-server of "+place+" is well",
				func() bool { return get("http://"+monitor+"/healthz", new(struct{})) == nil })
		}
		runCommand(t, nil, vestibule, "nats-config", "provision", "--place", place, "--nats-url", b.url[place], "--nats-ca",
			filepath.Join(b.dir, "ca.crt"),
			"--nats-cert", provision+".crt", "--nats-key", provision+".key")
	}
	return b
}

// runCommand runs a command to its end, with additional variables.
func runCommand(t *testing.T, env []string, bin string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(testkit.Within(t), bin, args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(bin), strings.Join(args, " "), err, out)
	}
}

// fleet starts everything but the edges: a global with its nats-server, and a regional in each data centre. It
// returns the NATS.
func fleet(t *testing.T, bin, dir, rooms string, dcs ...string) (*bus, []*command) {
	t.Helper()
	b := &bus{url: map[string]string{}}
	global := startGlobal(t, bin, dir, rooms, fmt.Sprintf("nats: {embedded: true, listen: %q}\n", testkit.FreeAddr(t)),
		dcs)
	b.url["global"] = global.at["nats"]
	return b, append([]*command{global}, startRegionals(t, bin, dir, b, dcs)...)
}

// fleetOver is a fleet on running NATS servers, with or without a rooms file, and with additional lines for global.
func fleetOver(t *testing.T, b *bus, bin, dir, rooms, more string, dcs ...string) []*command {
	t.Helper()
	global := startGlobal(t, bin, dir, rooms, b.of("global", "global", "global-1")+more, dcs)
	return append([]*command{global}, startRegionals(t, bin, dir, b, dcs)...)
}

// startGlobal starts global, optionally with a rooms file.
func startGlobal(t *testing.T, bin, dir, rooms, nats string, dcs []string) *command {
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

func startRegionals(t *testing.T, bin, dir string, b *bus, dcs []string) (nodes []*command) {
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

// startEdge starts an edge, with additional lines of configuration.
func startEdge(t *testing.T, bin, dir string, b *bus, dc, name, more string) *command {
	t.Helper()
	return start(t, filepath.Join(bin, "edge"), "--config", edgeFile(t, dir, b, dc, name, more))
}

// quickEdge is an edge with a short log that stops at once.
const quickEdge = `
listen: 127.0.0.1:0
drain_delay: 0s
log: {level: warn}
`

// startEdges starts quick edges in each data centre, with additional lines, at addresses that they keep.
func startEdges(t *testing.T, bin, dir string, b *bus, each int, more string, dcs ...string) ([]*command, site) {
	t.Helper()
	var edges []*command
	var at site
	for _, dc := range dcs {
		var urls []string
		for i := range each {
			own := strings.Replace(quickEdge, "127.0.0.1:0", testkit.FreeAddr(t), 1) + more
			e := startEdge(t, bin, dir, b, dc, fmt.Sprintf("edge-%d", i+1), own)
			edges, urls = append(edges, e), append(urls, e.at["url"])
		}
		at = append(at, urls)
	}
	return edges, at
}

// areReady waits until edges can admit.
func areReady(t *testing.T, edges ...*command) {
	t.Helper()
	for _, e := range edges {
		until(t, e.name+" is ready", func() bool { return ready(e.at["metrics"]) })
	}
}

// startSite starts the site of `vestibule origin`, with flags.
func startSite(t *testing.T, bin string, flags ...string) *command {
	t.Helper()
	return start(t, filepath.Join(bin, "vestibule"), append([]string{"origin", "--listen", "127.0.0.1:0"}, flags...)...)
}

// journaled starts one that keeps a journal of visits in a folder, for read.
func journaled(t *testing.T, bin, dir string, session time.Duration) (origin *command, journal string) {
	t.Helper()
	journal = filepath.Join(dir, "journal")
	origin = startSite(t, bin, "--session-duration", session.String(), "--visitor-header", visitorHeader, "--journal",
		journal)
	return origin, journal
}

// sale is a rooms file of one room. Its settings may go on with others.
func sale(total, rate int, session, origin string, more ...string) string {
	const room = "name: sale, host: 127.0.0.1, total_active_users: %d, new_users_per_minute: %d, session_duration: %s, " +
		"origin: %q"
	return fmt.Sprintf("rooms: [{"+room+"%s}]\n",
		total, rate, session, origin, strings.Join(more, ""))
}

// bigSale is a room that nobody waits for.
func bigSale(origin string) string { return sale(10_000, 100_000, "5m", origin) }

func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Fields of /proc/PID/status.
const (
	ownMemory  = "RssAnon" // that is not shared
	peakMemory = "VmHWM"   // the most that the process has had
)

// memoryOf returns the memory of a process by a field of its status, in bytes.
func memoryOf(t *testing.T, p *command, field string) int64 {
	t.Helper()
	data := testkit.Must(os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID())))(t)
	_, rest, _ := strings.Cut(string(data), "\n"+field+":")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatalf("no %s in %s: %v", field, data, err)
	}
	return kib << 10
}
