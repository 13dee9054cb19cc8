//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fleet is the processes or pods of a run.
type fleet struct {
	o    options
	zero time.Time
	ask  *http.Client
	j    *journal

	mu    sync.Mutex
	nodes []*node // in the order of their start, including removed ones
}

// deployment is a fleet with its NATS and its site.
type deployment struct {
	bus
	site *site
	pods *cluster // nil for processes

	names map[string]int // edges ever started, by place; guarded by mu
	edits int            // of the rooms file; guarded by mu

	changing sync.Mutex // held while a data centre is added or removed
	listed   bool       // the third data centre is listed; guarded by mu

	unforgotten [][]string // commands without an answer; guarded by mu
}

// newDeployment returns a deployment without nodes, with its site.
func newDeployment(o options, out io.Writer) (*deployment, error) {
	f := &fleet{
		o: o, zero: time.Now(),
		ask: &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	f.j = &journal{out: out, since: f.since, done: map[string]int{}}
	d := &deployment{bus: bus{fleet: f, dcs: places[:2]}, names: map[string]int{}}
	var err error
	d.site, err = openSite(hubAddr, d.since)
	return d, err
}

// since returns the time since the start of the deployment.
func (f *fleet) since() time.Duration { return time.Since(f.zero) }

// path returns the path of a file of the run.
func (f *fleet) path(name ...string) string {
	return filepath.Join(append([]string{f.o.dir}, name...)...)
}

const (
	shop = "shop"         // the room with visitors
	host = "shop.example" // of it
)

// deploy starts all processes in a network of their own, and waits until all edges can admit.
func deploy(ctx context.Context, o options, out io.Writer) (*deployment, error) {
	if err := newNetwork(ctx); err != nil {
		return nil, err
	}
	d, err := newDeployment(o, out)
	if err != nil {
		return nil, err
	}
	if err := d.startNATS(ctx); err != nil {
		return d, err
	}
	if err := d.startTree(ctx); err != nil {
		return d, err
	}
	if err := d.settled(ctx, 60*time.Second); err != nil {
		return d, err
	}
	// Bootstrap is true only at the very first start: those nodes restart without it before any visitor comes.
	for _, n := range d.present() {
		if len(n.first) > 0 {
			if err := errors.Join(n.end(syscall.SIGTERM), n.start()); err != nil {
				return d, err
			}
		}
	}
	if err := d.settled(ctx, 60*time.Second); err != nil || !o.changes {
		return d, err
	}
	// Data centres are added and removed by the membership list, which the leader creates.
	return d, d.wait(ctx, 60*time.Second, func() error { _, err := d.command(ctx, "fleet", "list"); return err })
}

// second returns the name of a room that is edited during the run. It has no visitors.
func (d *deployment) second() string { return fmt.Sprintf("second-%d", d.edits) }

// writeRooms writes the rooms file into a folder, atomically, as operators should.
func (d *deployment) writeRooms(dir string) error {
	policy := "serve"
	if d.o.scenario == "removal" {
		policy = "cap"
	}
	file, err := write(dir, "rooms.new", `
rooms:
  - name: shop
    host: %s
    total_active_users: %d
    new_users_per_minute: %d
    session_duration: %v
    partition_policy: %[7]s
    lost_after: 1m
    origin: %[5]s
  - name: %[6]s
    host: second.example
    total_active_users: 100
    new_users_per_minute: 100
    session_duration: %[4]v
    origin: %[5]s
`, host, d.o.total, d.o.rate, d.o.session, d.site.url(), d.second(), policy)
	if err != nil {
		return err
	}
	return os.Rename(file, filepath.Join(dir, "rooms.yaml"))
}

// startTree starts a global per place, and two regionals and two edges per data centre, in this order.
func (d *deployment) startTree(ctx context.Context) error {
	if err := d.writeRooms(d.o.dir); err != nil {
		return err
	}
	bootstrap := func(i int) []string {
		if i == 0 {
			return []string{"--bootstrap"}
		}
		return nil
	}
	for i, place := range places {
		name := fmt.Sprintf("global-%d", i+1)
		config := fmt.Sprintf("data_centers: [%s]\nrooms: %s\nkey_rotation: 0s\n", strings.Join(d.dcs, ", "),
			d.path("rooms.yaml"))
		if _, err := d.launch("global", place, name, config, bootstrap(i)...); err != nil {
			return err
		}
		if i == 0 { // the node with bootstrap has to lead
			if err := d.wait(ctx, 20*time.Second, func() error { _, _, err := d.leader("global", ""); return err }); err != nil {
				return err
			}
		}
	}
	for _, dc := range d.dcs {
		for i := range 2 {
			if err := d.launchRegional(ctx, dc, i, bootstrap(i)...); err != nil {
				return err
			}
		}
	}
	for range 2 {
		for _, dc := range d.dcs {
			if _, err := d.launchEdge(dc); err != nil {
				return err
			}
		}
	}
	return nil
}

// launch starts a new node.
func (d *deployment) launch(role, place, name, config string, first ...string) (*node, error) {
	file, err := write(d.o.dir, place+"-"+name+".yaml",
		"name: %s\ndata_dir: %s\nmetrics: {listen: %q}\nlog: {level: info}\n%s%s",
		name, d.path(place+"-"+name), join(addrOf(place), 0), config, d.natsFor(place, role, name))
	if err != nil {
		return nil, err
	}
	n := &node{
		name: place + "/" + name, role: role, place: place, first: first,
		argv: []string{filepath.Join(cmp.Or(d.o.old, d.path("bin")), role), "--config", file},
	}
	return n, d.add(n)
}

// launchRegional starts a regional. The first one of a data centre has to lead before others start.
func (d *deployment) launchRegional(ctx context.Context, dc string, i int, first ...string) error {
	name := fmt.Sprintf("regional-%d", i+1)
	_, err := d.launch("regional", dc, name, "data_center: "+dc+"\n", first...)
	if err != nil || i > 0 {
		return err
	}
	// There is no leader while a NATS disk is full, which a storm may cause.
	return d.wait(ctx, time.Minute, func() error { _, _, err := d.leader("regional", dc); return err })
}

// launchEdge starts an edge with a new name.
func (d *deployment) launchEdge(dc string) (*node, error) {
	d.mu.Lock()
	d.names[dc]++
	name := fmt.Sprintf("edge-%d", d.names[dc])
	d.mu.Unlock()
	return d.launch("edge", dc, name, fmt.Sprintf(
		"data_center: %s\nlisten: %q\ndrain_delay: 1s\nheld: {per_prefix: 65536}\n", dc, join(addrOf(dc), 0)))
}

// add starts a new node.
func (f *fleet) add(n *node) error {
	n.fleet = f
	n.log = f.path(strings.ReplaceAll(n.name, "/", "-") + ".log")
	f.enlist(n)
	return n.start(n.first...)
}

// enlist numbers a node within its role.
func (f *fleet) enlist(n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.nodes {
		if o.role == n.role {
			n.number++
		}
	}
	f.nodes = append(f.nodes, n)
}

// ever returns all nodes ever started.
func (f *fleet) ever() []*node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.nodes)
}

// present returns the nodes that were not removed.
func (f *fleet) present() []*node {
	return slices.DeleteFunc(f.ever(), func(n *node) bool { return n.gone.Load() })
}

// of returns the nodes of a role that were not removed, in a place ("" for all).
func (f *fleet) of(role, place string) []*node {
	return slices.DeleteFunc(f.present(),
		func(n *node) bool { return n.role != role || (place != "" && n.place != place) })
}

// wait tries until it succeeds, limit has passed or ctx ends, ever less often.
func (f *fleet) wait(ctx context.Context, limit time.Duration, try func() error) error {
	for begun := time.Now(); ; {
		err := try()
		passed := time.Since(begun)
		if err == nil || passed > limit || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		sleep(ctx, min(max(20*time.Millisecond, passed/20), 500*time.Millisecond))
	}
}

// settled waits until the deployment is complete: every edge can admit, one global leads and one regional per data
// centre, and every node has the newest rooms.
func (d *deployment) settled(ctx context.Context, limit time.Duration) error {
	return d.wait(ctx, limit, func() error {
		if _, _, err := d.leader("global", ""); err != nil {
			return err
		}
		serving := d.serving()
		for _, dc := range serving {
			if _, _, err := d.leader("regional", dc); err != nil {
				return err
			}
		}
		for _, e := range d.of("edge", "") {
			if !slices.Contains(serving, e.place) {
				continue
			}
			ready, isolated, err := d.ready(e)
			if err != nil {
				return err
			}
			if !ready || isolated {
				return fmt.Errorf("%s: ready %v, isolated %v", e.name, ready, isolated)
			}
			e.up.Store(true)
		}
		return d.informed()
	})
}

// informed returns an error unless every node has the newest rooms.
func (d *deployment) informed() error {
	d.mu.Lock()
	newest := d.second()
	d.mu.Unlock()
	for _, n := range d.present() {
		if !n.ours() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(n.dataDir(), "rooms.json"))
		if err != nil {
			return err
		}
		if !strings.Contains(string(data), fmt.Sprintf("%q", newest)) {
			return fmt.Errorf("%s does not know the newest rooms", n.name)
		}
	}
	return nil
}

// stop ends all processes, the newest first.
func (d *deployment) stop() error {
	var errs []error
	if d.pods != nil {
		errs = append(errs, d.pods.stop())
	}
	var all sync.WaitGroup
	for _, n := range slices.Backward(d.ever()) {
		_ = n.signal(syscall.SIGCONT) // it may have ended
		all.Go(func() {
			if err := n.end(syscall.SIGKILL); err != nil {
				fmt.Fprintln(os.Stderr, "chaos:", err)
			}
		})
	}
	all.Wait()
	for _, g := range d.gates {
		errs = append(errs, g.stop())
	}
	return errors.Join(append(errs, d.site.close())...)
}
