//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"vestibule/internal/core/wire"
)

// Operators' actions and failures of pods.

// rollouts changes the pods of a cluster.
type rollouts struct{ *cluster }

// apply applies every overlay, global first, and the one that initializes the fleet, as docs/KUBERNETES.md does, and
// waits until all pods are ready.
func (c *rollouts) apply(ctx context.Context) error {
	image, tag, _ := strings.Cut(c.o.image, ":")
	for _, place := range slices.Concat([]string{wire.Root}, c.dcs, []string{"init"}) {
		dir := c.path("nats", place) // with kubernetes.yaml
		overlay, err := filepath.Abs(filepath.Join("deploy/k8s/overlays", place))
		if err != nil {
			return err
		}
		if overlay, err = filepath.Rel(dir, overlay); err != nil {
			return err
		}
		// Its own images, small requests since this machine runs all nodes, and a high limit per address since all visitors
		// have that of this machine.
		values := map[string]any{
			"Place": place, "Resources": overlay + ", kubernetes.yaml", "Image": image, "Tag": tag, "Rooms": place == wire.Root,
		}
		switch place {
		case "init":
			values["Place"], values["Resources"] = wire.Root, overlay
			err = os.MkdirAll(dir, 0o700)
		case wire.Root:
			err = c.writeRooms(dir)
		}
		if err = errors.Join(err, c.writeTemplate(dir, "kustomization.yaml", values)); err != nil {
			return err
		}
		if err := c.kubectl(ctx, "", "apply", "--server-side", "--force-conflicts", "--kustomize", dir); err != nil {
			return err
		}
		c.j.record("", "applied  the overlay of %s", place)
	}
	if err := c.kubectl(ctx, "", "wait", "--namespace", "vestibule-"+wire.Root, "--for=condition=complete", "--timeout=3m",
		"job/init"); err != nil {
		return err
	}
	c.j.record("", "initialized")
	for _, s := range c.sets() {
		if err := c.whole(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// set identifies a StatefulSet.
type set struct{ place, name string }

func (s set) String() string    { return s.place + "/" + s.name }
func (s set) namespace() string { return "vestibule-" + s.place }
func (s set) pod(i int) string  { return s.name + "-" + strconv.Itoa(i) }

// sets returns all StatefulSets, in the runbook's order of restarts.
func (c *rollouts) sets() []set {
	var out []set
	for _, role := range []string{"edge", "regional", "nats"} {
		for _, dc := range c.dcs {
			out = append(out, set{dc, role})
		}
	}
	return append(out, set{wire.Root, "global"}, set{wire.Root, "nats"})
}

// on runs kubectl in the namespace of a StatefulSet.
func (c *rollouts) on(ctx context.Context, s set, args ...string) error {
	return c.kubectl(ctx, "", append(args, "--namespace="+s.namespace())...)
}

// whole waits until a StatefulSet has only ready pods of its newest revision.
func (c *rollouts) whole(ctx context.Context, s set) error {
	return c.on(ctx, s, "rollout", "status", "statefulset/"+s.name, "--timeout=5m")
}

// right waits until the whole fleet is healthy.
func (c *rollouts) right(ctx context.Context) error {
	if err := c.settled(ctx, 3*time.Minute); err != nil {
		return err
	}
	return c.wait(ctx, 2*time.Minute, c.reckoned)
}

// roll restarts the pods of a StatefulSet one by one.
func (c *rollouts) roll(ctx context.Context, s set) error {
	begun := c.since()
	if err := c.on(ctx, s, "rollout", "restart", "statefulset/"+s.name); err != nil {
		return err
	}
	if err := errors.Join(c.whole(ctx, s), c.right(ctx)); err != nil {
		return fmt.Errorf("roll of %v: %w", s, err)
	}
	c.j.record("rolled "+s.name, "rolled   %v in %.1f s", s, (c.since() - begun).Seconds())
	return nil
}

// scale changes the number of edges in all data centres.
func (c *rollouts) scale(ctx context.Context, replicas int) error {
	begun := c.since()
	for _, dc := range c.dcs {
		if err := c.on(ctx, set{dc, "edge"}, "scale", "statefulset/edge",
			fmt.Sprintf("--replicas=%d", replicas)); err != nil {
			return err
		}
	}
	for _, dc := range c.dcs {
		s := set{dc, "edge"}
		err := c.on(ctx, s, "wait", fmt.Sprintf("--for=jsonpath={.status.replicas}=%d", replicas), "statefulset/edge",
			"--timeout=5m")
		if err = errors.Join(err, c.whole(ctx, s)); err != nil {
			return err
		}
	}
	if err := c.right(ctx); err != nil {
		return err
	}
	c.j.record("scaled edges", "scaled   edges to %d in each data centre in %.1f s", replicas,
		(c.since() - begun).Seconds())
	return nil
}

// evict requests the eviction of every pod of a StatefulSet at once, like a drain of their machine, and repeats until
// all are gone. The disruption budget must allow only one at a time.
func (c *rollouts) evict(ctx context.Context, s set) error {
	pods := c.of(s.name, s.place)
	refusals, asked := 0, 0
	err := c.wait(ctx, 5*time.Minute, func() error {
		for ; asked < len(pods); asked++ {
			path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/eviction", s.namespace(), s.pod(asked))
			body := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`,
				s.pod(asked), s.namespace())
			if err := c.kubectl(ctx, body, "create", "--raw", path, "--filename=-"); err != nil {
				if strings.Contains(err.Error(), "disruption budget") {
					refusals++
				}
				return err
			}
		}
		return nil
	})
	if err == nil && refusals == 0 && len(pods) > 1 {
		err = fmt.Errorf("all pods of %v were evicted at once", s)
	}
	if err = errors.Join(err, c.whole(ctx, s), c.right(ctx)); err != nil {
		return err
	}
	c.j.record("evicted "+s.name, "evicted  %d pods of %v; the budget refused %d times meanwhile", len(pods), s, refusals)
	return nil
}

// restartAll deletes every pod of edge, regional and global at once, like an operator's restart of the whole fleet.
// NATS and all volumes stay.
func (c *rollouts) restartAll(ctx context.Context) error {
	begun := c.since()
	old := slices.DeleteFunc(c.present(), func(n *node) bool { return !n.ours() })
	for _, n := range old {
		n.unwell() // for ever: another pod takes its place
	}
	for _, place := range append([]string{wire.Root}, c.dcs...) {
		err := c.on(ctx, set{place: place}, "delete", "pod", "--wait=false",
			"--selector=app.kubernetes.io/name in (edge, regional, global)")
		if err != nil {
			return err
		}
	}
	err := c.wait(ctx, 3*time.Minute, func() error {
		for _, n := range old {
			if !n.gone.Load() {
				return fmt.Errorf("pod %s is still there", n.name)
			}
		}
		return nil
	})
	for _, s := range c.sets() {
		err = errors.Join(err, c.whole(ctx, s))
	}
	if err = errors.Join(err, c.right(ctx)); err != nil {
		return fmt.Errorf("restart of all: %w", err)
	}
	c.j.record("restarted all", "restart  %d pods at once, all ready and in step again after %.1f s", len(old),
		(c.since() - begun).Seconds())
	return nil
}

// kill kills the processes of a pod, like an OOM kill; kubelet restarts its container.
func (c *rollouts) kill(ctx context.Context, n *node) error {
	pids, err := processes(n.uid)
	if err != nil {
		return err
	}
	well := n.unwell()
	defer well()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	c.j.record("killed "+n.role, "kill     %s (%d processes)", n.name, len(pids))
	sleep(ctx, 3*time.Second) // it is ready until kubelet has checked
	return c.on(ctx, set{place: n.place}, "wait", "--for=condition=Ready", "pod/"+filepath.Base(n.name), "--timeout=3m")
}

// processes returns the processes of a pod except its pause.
func processes(uid string) (out []int, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	for _, file := range all {
		groups, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(groups), "pod"+uid) {
			continue // ended meanwhile, or of another pod
		}
		dir := filepath.Dir(file)
		argv, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(argv) == 0 || strings.HasPrefix(string(argv), "/vestibule\x00") &&
			strings.Count(string(argv), "\x00") == 1 {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return nil, err
		}
		out = append(out, pid)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no process of pod %s was found", uid)
	}
	return out, nil
}

// replaceVolume deletes a pod with its volume: it returns with an empty one.
func (c *rollouts) replaceVolume(ctx context.Context, s set, i int) error {
	pod := s.pod(i)
	before, err := c.volumeOf(ctx, s.place, pod)
	if err != nil {
		return err
	}
	if err := errors.Join(c.on(ctx, s, "delete", "pvc/data-"+pod, "--wait=false"),
		c.on(ctx, s, "delete", "pod", pod)); err != nil {
		return err
	}
	c.j.record("emptied "+s.name, "delete   %s/%s and its volume", s.place, pod)
	err = c.wait(ctx, time.Minute, func() error {
		after, err := c.volumeOf(ctx, s.place, pod)
		switch {
		case err != nil: // a pod created before its claim was deleted waits for ever
			return errors.Join(err, c.on(ctx, s, "delete", "pod", pod))
		case after == "" || after == before:
			return fmt.Errorf("%s has no new volume", pod)
		}
		return nil
	})
	return errors.Join(err, c.whole(ctx, s), c.right(ctx))
}

// usage samples the use of the limits.
type usage struct {
	at  []time.Duration
	use []float64
}

// watchUse samples until stop is called.
func (t *trial) watchUse(ctx context.Context) (u *usage, stop func()) {
	u = &usage{}
	ctx, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		for ; ctx.Err() == nil; sleep(ctx, sampleEvery) {
			if used, ok := t.currentUse(); ok {
				u.at, u.use = append(u.at, t.since()), append(u.use, used)
			}
		}
	})
	return u, func() { end(); all.Wait() }
}

// worst returns the minimum of the mean over a window within an interval, and the start of that window.
func (u *usage) worst(window, from, to time.Duration) (least float64, at time.Duration) {
	least = 1
	for i, begin := range u.at {
		if begin < from || begin+window > to {
			continue
		}
		sum, n := 0.0, 0
		for k := i; k < len(u.at) && u.at[k] < begin+window; k++ {
			sum += u.use[k]
			n++
		}
		if mean := sum / float64(n); mean < least {
			least, at = mean, begin
		}
	}
	return least, at
}

// operatePods restarts, scales and evicts pods, which no visitor may notice, then deletes and kills some.
func operatePods(ctx context.Context, t *trial) error {
	c := &rollouts{t.pods}
	use, sampled := t.watchUse(ctx)
	defer sampled()
	if err := t.wait(ctx, time.Minute, t.visited); err != nil {
		return err
	}
	t.j.record("", "people are let in in both data centres, and others wait")
	sleep(ctx, 2*t.o.session) // the room is full
	var rolled time.Duration
	begun, sets := t.since(), c.sets()
	steps := []func() error{func() error { return c.right(ctx) }}
	for _, s := range sets {
		steps = append(steps, func() error { return c.roll(ctx, s) })
	}
	steps = append(steps, func() error { rolled = t.since(); return nil })
	for _, n := range []int{6, 2, 6, 2} {
		steps = append(steps, func() error { return c.scale(ctx, n) })
	}
	for _, s := range sets {
		if s.place != t.dcs[1] {
			steps = append(steps, func() error { return c.evict(ctx, s) })
		}
	}
	steps = append(steps,
		func() error { t.planned = t.since(); return nil },
		func() error { return c.restartAll(ctx) },
		func() error { return c.killForAWhile(ctx) },
		func() error { return c.replaceVolume(ctx, set{t.dcs[0], "edge"}, 1) },
		func() error { return c.replaceVolume(ctx, set{t.dcs[1], "regional"}, 0) },
		func() error { return t.recover(ctx, true) },
	)
	for _, step := range steps {
		if err := errors.Join(step(), ctx.Err()); err != nil {
			return err
		}
	}
	sampled()
	least, at := use.worst(30*time.Second, begun, rolled)
	t.row("least use of T or R in 30 s, while all rolled", "%.3f, from %.0f s on", least, at.Seconds())
	t.judge("k8s: least use of T or R in 30 s while all pods roll", "", least)
	least, at = use.worst(30*time.Second, rolled, t.planned)
	t.row("the same, while edges were scaled and evicted", "%.3f, from %.0f s on", least, at.Seconds())
	return nil
}

// visited returns an error until visitors were admitted in every data centre, and others wait.
func (t *trial) visited() error {
	for _, dc := range t.dcs {
		if t.people.entered(dc, 0) == 0 {
			return fmt.Errorf("no admission yet in %s", dc)
		}
	}
	if t.people.waits.Load() == 0 {
		return errors.New("no visitor waits yet")
	}
	return nil
}

// killForAWhile kills the processes of random pods.
func (c *rollouts) killForAWhile(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(c.o.seed, 5))
	roles := []string{"edge", "edge", "edge", "regional", "regional", "global", "nats"}
	for begun := c.since(); c.since()-begun < c.o.length && ctx.Err() == nil; {
		sleep(ctx, time.Second+time.Duration(rng.Int64N(int64(5*time.Second))))
		nodes := c.of(roles[rng.IntN(len(roles))], "")
		if len(nodes) == 0 {
			continue
		}
		if err := c.kill(ctx, nodes[rng.IntN(len(nodes))]); err != nil {
			return err
		}
	}
	return nil
}
