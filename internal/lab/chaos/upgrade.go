//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// errNoRelease reports that the history lacks the release, as in a shallow clone.
var errNoRelease = errors.New("the history lacks the release")

// release builds the binaries of the first existing one of these git revisions, once, and returns their folder in the
// cache.
func release(ctx context.Context, revisions, cache string) (string, error) {
	commit := ""
	for r := range strings.FieldsSeq(revisions) {
		out, err := exec.CommandContext(ctx, "git", "rev-parse", "--verify", "--quiet", r+"^{commit}").Output()
		if err == nil {
			commit = strings.TrimSpace(string(out))
			break
		}
	}
	if commit == "" {
		return "", fmt.Errorf("%w: %s", errNoRelease, revisions)
	}
	cache, err := filepath.Abs(cache)
	if err != nil {
		return "", err
	}
	done := filepath.Join(cache, "release-"+commit[:12])
	if _, err := os.Stat(done); err == nil {
		return done, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(cache, "release-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) // a temporary directory
	source, bin := filepath.Join(dir, "source"), filepath.Join(dir, "bin")
	if err := errors.Join(os.Mkdir(source, 0o755), os.Mkdir(bin, 0o755)); err != nil {
		return "", err
	}
	for _, argv := range [][]string{
		{"git", "archive", "--output", filepath.Join(dir, "source.tar"), commit},
		{"tar", "-x", "-f", filepath.Join(dir, "source.tar"), "-C", source},
		{"go", "build", "-C", source, "-o", bin, "./cmd/edge", "./cmd/global", "./cmd/regional"},
	} {
		if text, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, text)
		}
	}
	return done, os.Rename(bin, done)
}

// oldBinaries and newBinaries are the folders of the two builds, and firstBinaries that of the initial one.
func (o *options) oldBinaries() string { return filepath.Join(o.dir, "old") }
func (o *options) newBinaries() string { return filepath.Join(o.dir, "bin") }

// bring puts the last release's binaries into oldBinaries; "" for none.
func (o *options) bring(old string) error {
	if old == "" {
		return nil
	}
	if err := os.Remove(o.oldBinaries()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(old, o.oldBinaries())
}

func (o *options) firstBinaries() string {
	if o.upgrade != "" {
		return o.oldBinaries()
	}
	return o.newBinaries()
}

// pass replaces every node of a fleet by another build.
type pass struct {
	what  string
	back  bool     // to the last release
	roles []string // in this order; none for all nodes in random order
	kill  bool     // every second global and regional is killed; edges are shut down, so that visitors see no error
}

// passes are the passes of `make upgrade`: there and back in the runbook's order, and there in random order; the last
// one only on request.
var passes = []pass{
	{what: "to the new build as the book says: edges, regionals, globals", roles: []string{"edge", "regional", "global"}},
	{what: "back as the book says: globals, regionals, edges", back: true, roles: []string{"global", "regional", "edge"}},
	{what: "to the new build in any order, every second global and regional is killed", kill: true},
	{what: "back with globals last: regionals, edges, globals", back: true, roles: []string{"regional", "edge", "global"}},
}

// upgrades replaces a fleet of the last release node by node by the new build, and back, under waiting and active
// visitors.
func upgrades(ctx context.Context, d *deployment, out io.Writer) error {
	o := d.o
	j := &journal{out: out, d: d, base: d.since(), done: map[string]int{}}
	noted := d.observe(ctx)
	people, come, home := d.invite(ctx)
	rng := rand.New(rand.NewPCG(o.seed, 3))
	sleep(come, o.session) // the room is full, and visitors wait
	var trouble []error
	var calms []calm
	for _, p := range passes[:o.passes] {
		begun := d.since()
		c, err := d.pass(come, rng, p, people, j)
		if calms = append(calms, c); err != nil {
			trouble = append(trouble, fmt.Errorf("%s: %w", p.what, err))
			break
		}
		for _, dc := range d.dcs {
			j.record("", "longest time in which nobody came in, %s: %.1f s", dc, people.drought(dc, begun, d.since()).Seconds())
		}
	}
	home()
	died := d.died()
	stood, err := noted()
	trouble = append(trouble, died, err)
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), errors.Join(trouble...))
	}
	return errors.Join(errors.Join(trouble...), report(out, d, people, j, newLinks(d), stood, calms))
}

// pass does one pass. In the middle it rotates keys and changes rooms, and a fleet of both builds runs until it seals
// with the new key.
func (d *deployment) pass(ctx context.Context, rng *rand.Rand, p pass, people *crowdOfPeople, j *journal) (calm, error) {
	j.record("", "%s", p.what)
	var nodes []*node
	for _, role := range p.roles {
		nodes = append(nodes, d.of(role, "")...)
	}
	if len(p.roles) == 0 {
		nodes = slices.DeleteFunc(d.present(), func(n *node) bool { return !n.ours() })
		rng.Shuffle(len(nodes), func(i, k int) { nodes[i], nodes[k] = nodes[k], nodes[i] })
	}
	for i, n := range nodes {
		if i == len(nodes)/2 {
			if err := d.rotate(ctx, j); err != nil {
				return calm{}, err
			}
			if err := d.edit(j); err != nil {
				return calm{}, err
			}
			sleep(ctx, known+time.Second) // the new key seals
		}
		s := syscall.SIGTERM
		if p.kill && n.role != "edge" && i%2 == 0 {
			s = syscall.SIGKILL
		}
		if err := d.exchange(ctx, n, p.back, s, j); err != nil {
			return calm{}, err
		}
		if ctx.Err() != nil {
			return calm{}, ctx.Err()
		}
	}
	return d.calm(ctx, people, j)
}

// exchange ends a node and starts the other build in its place, with the same configuration and the same folder.
func (d *deployment) exchange(ctx context.Context, n *node, back bool, s syscall.Signal, j *journal) error {
	bin, to := d.o.newBinaries(), "new"
	if back {
		bin, to = d.o.oldBinaries(), "old"
	}
	n.claim() // no other fault touches nodes
	defer n.free()
	n.up.Store(false)
	well := n.unwell()
	if err := n.end(s); err != nil {
		return err
	}
	n.argv[0] = filepath.Join(bin, n.role)
	// A connection may have taken the free port meanwhile.
	if err := d.wait(20*time.Second, func() error { return n.start() }); err != nil {
		return err
	}
	if n.role == "edge" {
		if err := d.admits(ctx, n); err != nil {
			return err
		}
	}
	well()
	j.record("replaced "+n.role, "%-4s     %s (%v)", to, n.name, s)
	if err := d.settled(ctx, wholeWithin); err != nil {
		return err
	}
	return d.wait(wholeWithin, func() error {
		if ctx.Err() != nil {
			return nil
		}
		return d.reckoned()
	})
}

// reckoned returns an error unless every data centre has permits and knows the sessions of all its edges: the runbook
// waits for that before the next node is replaced.
func (d *deployment) reckoned() error {
	for _, dc := range d.dcs {
		n, err := d.leader("regional", dc)
		if err != nil {
			return err
		}
		var s struct {
			Region struct {
				Leased bool
				Edges  []struct{ Name, State string }
			}
		}
		if err := d.get(text(&n.metrics)+"/status", &s); err != nil {
			return err
		}
		alive := 0
		for _, e := range s.Region.Edges {
			switch e.State {
			case "alive":
				alive++
			case "awaiting", "joining":
				return fmt.Errorf("%s: %s is %s", n.name, e.Name, e.State)
			}
		}
		if edges := len(d.of("edge", dc)); !s.Region.Leased || alive != edges {
			return fmt.Errorf("%s: under a lease of global %v, %d of %d edges are alive", n.name, s.Region.Leased, alive, edges)
		}
	}
	return nil
}
