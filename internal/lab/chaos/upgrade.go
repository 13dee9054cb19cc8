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
	t, rng := d.begin(ctx, out, out), rand.New(rand.NewPCG(d.o.seed, 3))
	sleep(t.come, d.o.session) // the room is full, and visitors wait
	var trouble error
	for _, p := range passes[:d.o.passes] {
		begun := d.since()
		c, err := t.pass(t.come, rng, p)
		if t.calms = append(t.calms, c); err != nil {
			trouble = fmt.Errorf("%s: %w", p.what, err)
			break
		}
		for _, dc := range d.dcs {
			t.j.record("", "longest time in which nobody came in, %s: %.1f s", dc, t.people.drought(dc, begun, d.since()).Seconds())
		}
	}
	return t.end(ctx, trouble)
}

// pass does one pass. In the middle it rotates keys and changes rooms, and a fleet of both builds runs until it seals
// with the new key.
func (r *recovery) pass(ctx context.Context, rng *rand.Rand, p pass) (calm, error) {
	r.j.record("", "%s", p.what)
	var nodes []*node
	for _, role := range p.roles {
		nodes = append(nodes, r.of(role, "")...)
	}
	if len(p.roles) == 0 {
		nodes = slices.DeleteFunc(r.present(), func(n *node) bool { return !n.ours() })
		rng.Shuffle(len(nodes), func(i, k int) { nodes[i], nodes[k] = nodes[k], nodes[i] })
	}
	for i, n := range nodes {
		if i == len(nodes)/2 {
			if err := r.rotate(ctx); err != nil {
				return calm{}, err
			}
			if err := r.edit(); err != nil {
				return calm{}, err
			}
			sleep(ctx, known+time.Second) // the new key seals
		}
		s := syscall.SIGTERM
		if p.kill && n.role != "edge" && i%2 == 0 {
			s = syscall.SIGKILL
		}
		if err := r.exchange(ctx, n, p.back, s); err != nil {
			return calm{}, err
		}
		if ctx.Err() != nil {
			return calm{}, ctx.Err()
		}
	}
	return r.calm(ctx)
}

// exchange ends a node and starts the other build in its place, with the same configuration and the same folder.
func (op *operator) exchange(ctx context.Context, n *node, back bool, s syscall.Signal) error {
	bin, to := op.o.newBinaries(), "new"
	if back {
		bin, to = op.o.oldBinaries(), "old"
	}
	n.claim() // no other fault touches nodes
	defer n.free()
	err := op.startAgain(ctx, n, s, 0, func() error {
		n.argv[0] = filepath.Join(bin, n.role)
		return nil
	})
	if err != nil {
		return err
	}
	op.j.record("replaced "+n.role, "%-4s     %s (%v)", to, n.name, s)
	if err := op.settled(ctx, wholeWithin); err != nil {
		return err
	}
	return op.wait(wholeWithin, func() error {
		if ctx.Err() != nil {
			return nil
		}
		return op.reckoned()
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
