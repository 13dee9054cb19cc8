//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	shared "vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// This file has the actions of operators and orchestrators, and failures of disks.

// operator acts on a deployment, and records its actions.
type operator struct{ *deployment }

// edgesEver returns all edges ever started, by number.
func (f *fleet) edgesEver() []*node {
	var out []*node
	for _, n := range f.ever() {
		if n.role == "edge" {
			out = append(out, n)
		}
	}
	return out
}

// replace ends an edge for good and starts another one with a new name, as an orchestrator does.
func (op *operator) replace(ctx context.Context, n *node) error {
	n.up.Store(false)
	n.unwell() // for ever
	n.gone.Store(true)
	if err := n.end(syscall.SIGTERM); err != nil {
		return err
	}
	next, err := op.launchEdge(n.place)
	if err != nil {
		return err
	}
	op.j.record("replaced edge", "replace  %s by %s", n.name, next.name)
	if err := op.admits(ctx, next); err != nil {
		return err
	}
	op.forget(ctx, n)
	return nil
}

// forget tells the regional that processes of an edge have ended, whose end it may have missed: all of the name if none
// are given. Without an answer, an operator retries after the storm.
func (op *operator) forget(ctx context.Context, n *node, instances ...uint64) {
	args := []string{"fleet", "forget", strings.TrimPrefix(n.name, n.place+"/"), "--dc", n.place}
	which := [][]string{args}
	if len(instances) > 0 {
		which = nil
		for _, instance := range instances {
			which = append(which, append(slices.Clone(args), "--instance", strconv.FormatUint(instance, 10)))
		}
	}
	for _, w := range which {
		if out, err := op.command(ctx, w...); err != nil {
			op.j.record("", "(%s is not forgotten yet: %s)", n.name, strings.TrimSpace(out))
			op.mu.Lock()
			op.unforgotten = append(op.unforgotten, w)
			op.mu.Unlock()
		}
	}
}

// lookAround does an operator's work after a storm: it repeats unanswered forgets, and forgets missing edges that a
// data centre waits for although all existing ones are connected. It returns the latest wait reported by nodes.
func (op *operator) lookAround(ctx context.Context) (until time.Duration, err error) {
	op.mu.Lock()
	again := op.unforgotten
	op.unforgotten = nil
	op.mu.Unlock()
	for _, args := range again {
		err := op.wait(ctx, wholeWithin, func() error {
			out, err := op.command(ctx, args...)
			if strings.Contains(out, "no silent process") {
				return nil
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	for _, dc := range op.connected() {
		// Live edges return within seconds; any still awaited is gone.
		missed := func(w wait) bool { return w.Edge != "" && !w.Ended }
		err := op.wait(ctx, settling, func() error {
			s, err := op.lead(ctx, dc)
			if err == nil && slices.ContainsFunc(s.Waits, missed) {
				return errMissed
			}
			return err
		})
		if !errors.Is(err, errMissed) {
			if err != nil {
				return 0, err
			}
			continue
		}
		out := ""
		err = op.wait(ctx, settling, func() (err error) { // a new regional refuses for the length of a lease
			out, err = op.command(ctx, "fleet", "forget", "--all", "--dc", dc)
			return err
		})
		if err != nil {
			return 0, err
		}
		op.j.record("forgot", "forget   whoever is not heard in %s: %s", dc, strings.TrimSpace(out))
	}
	for _, dc := range op.connected() {
		s, err := op.lead(ctx, dc)
		if err != nil {
			return 0, err
		}
		for _, w := range s.Waits {
			serves := slices.Contains(op.serving(), dc)
			if !w.Closed || !serves && w.Until.IsZero() {
				continue
			}
			if w.Until.IsZero() && w.Why != "books" { // reported by another one, which has them
				return 0, fmt.Errorf("%s waits for %q without an end", dc, w.Edge)
			}
			until = max(until, op.since()+w.Until.Sub(s.Region.Time))
		}
	}
	return until, nil
}

// errMissed reports that a data centre waits for an edge.
var errMissed = errors.New("an edge does not report")

// settling is how long nodes need to reconnect after a storm.
const settling = 8 * time.Second

// lead returns the status of the regional that leads a data centre.
func (op *operator) lead(ctx context.Context, dc string) (s status, err error) {
	err = op.wait(ctx, wholeWithin, func() error {
		_, s, err = op.leader("regional", dc)
		return err
	})
	return s, err
}

// instances returns the instances recorded in the folder of an edge.
func (n *node) instances() ([]uint64, error) {
	data, err := os.ReadFile(filepath.Join(n.dataDir(), "instances.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var lives fleettime.Lives
	if err == nil {
		err = json.Unmarshal(data, &lives)
	}
	return lives.Instances, err
}

// twin starts a second process with the configuration and a copy of the folder of an edge, like a copied machine, and
// ends it after a while. Meanwhile the first one may be stopped.
func (op *operator) twin(ctx context.Context, n *node, f fault) error {
	op.mu.Lock()
	op.names["twin"]++
	t := &node{name: fmt.Sprintf("%s-twin-%d", n.name, op.names["twin"]), role: "edge", place: n.place}
	t.fleet = op.fleet
	op.mu.Unlock()
	config, err := os.ReadFile(n.argv[len(n.argv)-1])
	if err != nil {
		return err
	}
	if err := os.CopyFS(t.dataDir(), os.DirFS(n.dataDir())); err != nil {
		return err
	}
	file, err := write(op.o.dir, filepath.Base(t.dataDir())+".yaml", "%s",
		strings.Replace(string(config), n.dataDir(), t.dataDir(), 1))
	if err != nil {
		return err
	}
	t.argv = append(slices.Clone(n.argv[:len(n.argv)-1]), file)
	still := f.pick%2 == 0
	if still {
		n.up.Store(false)
		well := n.unwell()
		if err := n.signal(syscall.SIGSTOP); err != nil {
			return err
		}
		defer func() {
			well()
			n.up.Store(true)
		}()
	}
	op.j.record("copied edge", "copy     %s with its folder for %.1f s; it stands still meanwhile: %v", n.name,
		f.lasts.Seconds(), still)
	if err := op.add(t); err != nil {
		return err
	}
	if err := op.admits(ctx, t); err != nil {
		return err
	}
	sleep(ctx, f.lasts)
	if still {
		if err := n.signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	sleep(ctx, f.lasts/2) // both run
	t.up.Store(false)
	t.unwell() // for ever
	t.gone.Store(true)
	return t.end(syscall.SIGTERM)
}

// command runs the vestibule command.
func (d *deployment) command(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return output(ctx, "", slices.Concat([]string{d.path("bin", "vestibule")}, args, d.operatorFlags(args))...)
}

// admits waits until a started edge is ready, and sends visitors there, unless its data centre admits nobody or the
// edge is removed meanwhile.
func (d *deployment) admits(ctx context.Context, n *node) error {
	err := d.wait(ctx, closedMost, func() error {
		if n.gone.Load() || !slices.Contains(d.serving(), n.place) {
			return nil // removed meanwhile, or its data centre admits nobody
		}
		ready, _, err := d.ready(n)
		if err == nil && !ready {
			err = fmt.Errorf("%s does not become ready", n.name)
		}
		return err
	})
	if err == nil && !n.gone.Load() && slices.Contains(d.serving(), n.place) {
		n.up.Store(true)
	}
	return err
}

// loseStores kills nodes and NATS servers at once, and restarts them with empty folders.
func (op *operator) loseStores(ctx context.Context, nodes []*node, lasts time.Duration) error {
	claimed := nodes[:0:0]
	defer func() {
		for _, n := range claimed {
			n.free()
		}
	}()
	for _, n := range nodes {
		if !n.claim() {
			op.j.record("", "(%s is in trouble already)", n.name)
			return nil
		}
		claimed = append(claimed, n)
	}
	op.j.record("lost the store", "lose     all that %d processes stored; they are back after %.1f s", len(nodes),
		lasts.Seconds())
	for _, n := range nodes {
		if err := n.end(syscall.SIGKILL); err != nil {
			return err
		}
	}
	sleep(ctx, lasts)
	for _, n := range nodes {
		if err := empty(n.dataDir()); err != nil {
			return err
		}
		if err := os.CopyFS(n.dataDir(), os.DirFS(backupOf(n))); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if n.role != "nats" {
			continue
		}
		if err := op.revive(ctx, n); err != nil {
			return err
		}
	}
	if err := op.provision(ctx); err != nil {
		return err
	}
	for _, n := range nodes {
		if n.role == "nats" {
			continue
		}
		if err := op.revive(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// empty removes the contents of a folder.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// fillDisk fills the disk of a NATS server for a while.
func (op *operator) fillDisk(ctx context.Context, n *node, lasts time.Duration) error {
	op.j.record("filled a disk", "fill     the disk of %s for %.1f s", n.name, lasts.Seconds())
	filler := filepath.Join(n.dataDir(), "filler")
	f, err := os.Create(filler)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, endless{})
	if err = errors.Join(err, f.Close()); !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("the disk of %s is not full: %w", n.name, err)
	}
	sleep(ctx, lasts)
	return os.Remove(filler)
}

// endless reads zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// keys returns the ticket keys that a node has stored.
func (n *node) keys() ([]ticket.Key, error) {
	data, err := os.ReadFile(filepath.Join(n.dataDir(), shared.KeysDocument+".json"))
	if err != nil {
		return nil, err
	}
	ring, err := ticket.DecodeKeyring(data)
	return ring.Keys, err
}

// known is how long a key is distributed before it seals: one rotation, which is short in these runs. An edge that is
// disconnected for longer sees tickets under an unknown key.
const known = 12 * time.Second

// rotate adds a key to the stored ring.
func (op *operator) rotate(ctx context.Context) error {
	conn, err := op.connect(wire.Root, natsbus.RoleGlobal, "global-1") // only global's user has the permission
	if err != nil {
		return err
	}
	defer conn.Close()
	docs := natsbus.NewDocuments(conn, 0)
	err = op.wait(ctx, 10*time.Second, func() error {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		data, revision, err := docs.Get(try, shared.KeysDocument)
		if err == nil && data == nil {
			err = wire.ErrDown // the store has lost them
		}
		if err != nil {
			return err
		}
		ring, err := ticket.DecodeKeyring(data)
		if err != nil {
			return err
		}
		now := fleettime.TimeOf(time.Now())
		ring, err = ring.Rotate(now, ticket.MinRotation, rand.Reader)
		if errors.Is(err, ticket.ErrTooSoon) {
			return nil // the newest key does not seal yet
		}
		if err != nil {
			return err
		}
		next := &ring.Keys[len(ring.Keys)-1]
		next.SealFrom = now.Add(known) // sooner than nodes rotate
		if data, err = ticket.EncodeKeyring(ring); err != nil {
			return err
		}
		if _, err := docs.Put(try, shared.KeysDocument, data, revision); err != nil {
			return err
		}
		op.j.record("rotated keys", "rotate   the keys: key %d, sealed with from %v on", next.ID, known)
		return nil
	})
	if errors.Is(err, wire.ErrDown) || errors.Is(err, context.DeadlineExceeded) {
		op.j.record("", "(the store cannot be reached)")
		return nil
	}
	return err
}
