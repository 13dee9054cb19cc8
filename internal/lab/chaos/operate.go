//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	shared "vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// This file is what operators and orchestrators do to a fleet, and what disks do.

// edgesEver returns all edges that there were, by number.
func (d *deployment) edgesEver() []*node {
	var out []*node
	for _, n := range d.ever() {
		if n.role == "edge" {
			out = append(out, n)
		}
	}
	return out
}

// replace ends an edge for good and starts another one under a name that nobody had
// before, as an orchestrator does.
func (d *deployment) replace(ctx context.Context, n *node, j *journal) error {
	n.up.Store(false)
	n.unwell() // for ever
	n.gone.Store(true)
	if err := n.end(syscall.SIGTERM); err != nil {
		return err
	}
	next, err := d.launchEdge(n.place)
	if err != nil {
		return err
	}
	j.tell("replaced edge", "replace  %s by %s", n.name, next.name)
	if err := d.admits(ctx, next); err != nil {
		return err
	}
	d.forget(ctx, n, j)
	return nil
}

// forget tells the regional that processes of an edge have ended of which it may not
// have heard the end: all of the name where none are named. Where nobody answers, an
// operator tries again when nothing is broken any more.
func (d *deployment) forget(ctx context.Context, n *node, j *journal, incarnations ...uint64) {
	args := []string{"fleet", "forget", strings.TrimPrefix(n.name, n.place+"/"), "--dc", n.place}
	which := [][]string{args}
	if len(incarnations) > 0 {
		which = nil
		for _, inc := range incarnations {
			which = append(which, append(slices.Clone(args), "--incarnation", strconv.FormatUint(inc, 10)))
		}
	}
	for _, w := range which {
		if out, err := d.command(ctx, w...); err != nil {
			j.tell("", "(%s is not forgotten yet: %s)", n.name, strings.TrimSpace(out))
			d.mu.Lock()
			d.unforgotten = append(d.unforgotten, w)
			d.mu.Unlock()
		}
	}
}

// lookAround does what an operator does after a storm: what could not be forgotten is
// forgotten now, and where a data centre waits for edges that are not heard although all
// that there are are, it is told so. It returns until when nodes say that they wait.
func (d *deployment) lookAround(ctx context.Context, j *journal) (until time.Duration, err error) {
	d.mu.Lock()
	again := d.unforgotten
	d.unforgotten = nil
	d.mu.Unlock()
	for _, args := range again {
		err := d.wait(wholeWithin, func() error {
			out, err := d.command(ctx, args...)
			if text := strings.TrimSpace(out); err != nil && !strings.Contains(text, "no silent process") && ctx.Err() == nil {
				return fmt.Errorf("vestibule %s: %s", strings.Join(args, " "), text)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	for _, dc := range d.heard() {
		// Who comes back does so within seconds; whoever is awaited then is gone.
		missed := func(w wait) bool { return w.Edge != "" && !w.Ended }
		err := d.wait(settling, func() error {
			waits, _, err := d.waits(dc)
			if err == nil && ctx.Err() == nil && slices.ContainsFunc(waits, missed) {
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
		out, err := d.command(ctx, "fleet", "forget", "--all", "--dc", dc)
		if err != nil && ctx.Err() == nil {
			return 0, fmt.Errorf("fleet forget --all --dc %s: %s", dc, strings.TrimSpace(out))
		}
		j.tell("forgot", "forget   whoever is not heard in %s: %s", dc, strings.TrimSpace(out))
	}
	for _, dc := range d.heard() {
		waits, now, err := d.waits(dc)
		if err != nil {
			return 0, err
		}
		for _, w := range waits {
			serves := slices.Contains(d.serving(), dc)
			if !w.Closed || !serves && w.Until.IsZero() {
				continue
			}
			if w.Until.IsZero() && w.Why != "books" { // that one another says, who has them
				return 0, fmt.Errorf("%s waits for %q and does not say until when", dc, w.Edge)
			}
			until = max(until, d.since()+w.Until.Sub(now))
		}
	}
	return until, nil
}

// errMissed says that a data centre waits for an edge.
var errMissed = errors.New("an edge is not heard")

// settling is for how long after a storm nodes find each other again.
const settling = 8 * time.Second

// wait is one thing that a data centre waits for, as its regional's status tells it.
type wait struct {
	Why    string
	Edge   string
	Until  time.Time // zero where nobody can tell
	Closed bool
	Ended  bool
}

// waits returns what a data centre waits for, as its regional says, and fleet time.
func (d *deployment) waits(dc string) (waits []wait, now time.Time, err error) {
	err = d.wait(wholeWithin, func() error {
		n, err := d.leader("regional", dc)
		if err != nil {
			return err
		}
		var s struct {
			Waits  []wait
			Region struct{ Time time.Time }
		}
		if err = d.get(text(&n.metrics)+"/status", &s); err == nil {
			waits, now = s.Waits, s.Region.Time
		}
		return err
	})
	return waits, now, err
}

// incarnations returns what the folder of an edge tells of its processes.
func (n *node) incarnations() ([]uint64, error) {
	data, err := os.ReadFile(filepath.Join(n.dataDir(), "incarnations.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var lives fleettime.Lives
	if err == nil {
		err = json.Unmarshal(data, &lives)
	}
	return lives.Incs, err
}

// twin starts a second process with the configuration and a copy of the folder of an
// edge, as somebody does who copies a machine, and ends it after a while. Meanwhile
// the first one may stand still.
func (d *deployment) twin(ctx context.Context, n *node, f fault, j *journal) error {
	d.mu.Lock()
	d.names["twin"]++
	t := &node{name: fmt.Sprintf("%s-twin-%d", n.name, d.names["twin"]), role: "edge", place: n.place}
	t.fleet = d
	d.mu.Unlock()
	config, err := os.ReadFile(n.argv[len(n.argv)-1])
	if err != nil {
		return err
	}
	if err := os.CopyFS(t.dataDir(), os.DirFS(n.dataDir())); err != nil {
		return err
	}
	file, err := write(d.o.dir, filepath.Base(t.dataDir())+".yaml", "%s", strings.Replace(string(config), n.dataDir(), t.dataDir(), 1))
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
	j.tell("copied edge", "copy     %s with its folder for %.1f s; it stands still meanwhile: %v", n.name, f.lasts.Seconds(), still)
	if err := d.add(t); err != nil {
		return err
	}
	if err := d.admits(ctx, t); err != nil {
		return err
	}
	sleep(ctx, f.lasts)
	if still {
		if err := n.signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	sleep(ctx, f.lasts/2) // both live
	t.up.Store(false)
	t.unwell() // for ever
	t.gone.Store(true)
	return t.end(syscall.SIGTERM)
}

// third is the data centre that comes and goes.
var third = places[2]

// serving returns the data centres in which people are let in.
func (d *deployment) serving() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listed {
		return places
	}
	return places[:2]
}

// heard returns the data centres that global hears: while one of them waits for an edge, global lends
// only what comes back, also where that one drains or is not in the list.
func (d *deployment) heard() []string {
	if len(d.of("regional", third)) > 0 {
		return places
	}
	return d.serving()
}

// where returns the data centres that faults are for.
func (d *deployment) where() []string {
	if d.o.changes {
		return places
	}
	return d.dcs
}

func (d *deployment) list(listed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listed = listed
}

// command runs the command for people.
func (d *deployment) command(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(d.o.dir, "bin", "vestibule"), slices.Concat(args, d.operatorOf(args))...).CombinedOutput()
	return string(out), err
}

// changes adds a data centre to the list, or drains it, and returns what the command said and
// whether that was done. Where the store gives no answer, the change may
// have been made all the same: the list says so as soon as it can be read.
func (d *deployment) changes(ctx context.Context, verb, dc string) (said string, done bool) {
	said, err := d.command(ctx, "fleet", verb, dc)
	if err == nil {
		return said, true
	}
	active := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(dc) + `\s+` + string(shared.Active))
	err = d.wait(time.Minute, func() error {
		list, err := d.command(ctx, "fleet", "list")
		done = active.MatchString(list) == (verb == "add")
		return err
	})
	return strings.TrimSpace(said), done && err == nil
}

// member lets the third data centre come, or go.
func (d *deployment) member(ctx context.Context, j *journal) error {
	if !d.changing.TryLock() {
		j.tell("", "(%s is on its way already)", third)
		return nil
	}
	defer d.changing.Unlock()
	if !slices.Contains(d.serving(), third) {
		return d.come(ctx, j)
	}
	return d.goAway(ctx, j)
}

func (d *deployment) come(ctx context.Context, j *journal) error {
	if len(d.of("regional", third)) == 0 {
		if err := d.launchRegional(third, 0, "--bootstrap"); err != nil {
			return err
		}
		for range 2 {
			if _, err := d.launchEdge(third); err != nil {
				return err
			}
		}
	}
	if out, done := d.changes(ctx, "add", third); !done {
		j.tell("", "(%s is not added: %s)", third, out)
		return nil
	}
	j.tell("added data centre", "add      %s", third)
	d.list(true)
	for _, e := range d.of("edge", third) {
		if err := d.admits(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// drainWithin is how long a data centre may take to leave the list, where its
// sessions end and nothing is broken for long.
const drainWithin = 2 * time.Minute

func (d *deployment) goAway(ctx context.Context, j *journal) error {
	if out, done := d.changes(ctx, "drain", third); !done {
		j.tell("", "(%s does not drain: %s)", third, out)
		return nil
	}
	j.tell("drained data centre", "drain    %s", third)
	begun := d.since()
	d.list(false)
	for _, e := range d.of("edge", third) {
		e.up.Store(false)
	}
	err := d.wait(drainWithin, func() error {
		if ctx.Err() != nil {
			return nil
		}
		out, err := d.command(ctx, "fleet", "list")
		if err != nil {
			return fmt.Errorf("fleet list: %w: %s", err, out)
		}
		if strings.Contains(out, third) {
			return errors.New("it is listed still")
		}
		return nil
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		// While nobody knows what another data centre holds, as after a loss of the store, none
		// leaves; edges that are gone are forgotten after the storm.
		j.tell("", "(%s drains for more than %v: %v)", third, drainWithin, err)
	default:
		j.tell("", "%s has left the list, after %.1f s", third, (d.since() - begun).Seconds())
	}
	return nil
}

// admits waits until an edge that was started is ready, and sends people there; where
// its data centre lets nobody in, or the edge ends for good meanwhile, it does neither.
func (d *deployment) admits(ctx context.Context, n *node) error {
	err := d.wait(45*time.Second, func() error {
		if ctx.Err() != nil || n.gone.Load() || !slices.Contains(d.serving(), n.place) {
			return nil // it was replaced meanwhile, or nobody is let in there
		}
		ready, _, err := d.ready(n)
		if err == nil && !ready {
			err = fmt.Errorf("%s does not get ready", n.name)
		}
		return err
	})
	if err == nil && ctx.Err() == nil && !n.gone.Load() && slices.Contains(d.serving(), n.place) {
		n.up.Store(true)
	}
	return err
}

// loseStore kills all NATS servers and starts them again with empty disks, while
// every node of ours lives on.
func (d *deployment) loseStore(ctx context.Context, lasts time.Duration, j *journal) error {
	servers := d.of("nats", "")
	for i, n := range servers {
		if !n.claim() {
			for _, o := range servers[:i] {
				o.free()
			}
			j.tell("", "(a NATS server is in trouble already)")
			return nil
		}
	}
	defer func() {
		for _, n := range servers {
			n.free()
		}
	}()
	j.tell("lost the store", "lose     all that NATS stored; its servers are back after %.1f s", lasts.Seconds())
	for _, n := range servers {
		if err := n.end(syscall.SIGKILL); err != nil {
			return err
		}
	}
	sleep(ctx, lasts)
	for _, n := range servers {
		if err := empty(n.dataDir()); err != nil {
			return err
		}
		if err := d.wait(20*time.Second, func() error { return n.start() }); err != nil {
			return err
		}
	}
	return d.provision(ctx)
}

// empty removes what a folder holds.
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

// fillDisk leaves no room on the disk of a NATS server. When there is room again
// the server is started anew, as the book says.
func (d *deployment) fillDisk(ctx context.Context, n *node, lasts time.Duration, j *journal) error {
	j.tell("filled a disk", "fill     the disk of %s for %.1f s", n.name, lasts.Seconds())
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
	if err := os.Remove(filler); err != nil {
		return err
	}
	if err := n.end(syscall.SIGTERM); err != nil {
		return err
	}
	return d.wait(20*time.Second, func() error { return n.start() })
}

// endless reads zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// keys are all ticket keys that the fleet ever had: what lets the judge read the
// tickets of people.
type keys struct {
	mu   sync.Mutex
	ring ticket.Keyring
}

// learn adds the keys of a ring.
func (k *keys) learn(ring ticket.Keyring) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range ring.Keys {
		if !slices.ContainsFunc(k.ring.Keys, func(o ticket.Key) bool { return o.ID == key.ID && o.Secret == key.Secret }) {
			k.ring.Keys = append(k.ring.Keys, key)
		}
	}
}

// count returns how many keys there ever were.
func (k *keys) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.ring.Keys)
}

// learnFrom adds the keys that a node keeps.
func (k *keys) learnFrom(n *node) error {
	data, err := os.ReadFile(filepath.Join(n.dataDir(), shared.KeysDocument+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // it has none yet, or its folder was wiped
	}
	if err != nil {
		return err
	}
	ring, err := ticket.DecodeKeyring(data)
	if err == nil {
		k.learn(ring)
	}
	return err
}

// reader reads waiting tickets. Keys of two rings may have the same number.
type reader []*ticket.Codec

func (k *keys) reader() (out reader, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.ring.Keys {
		codec, err := ticket.NewCodec(ticket.Keyring{Keys: []ticket.Key{key}}, room.IDOf("shop"), ticket.CookieName("shop", false))
		if err != nil {
			return nil, err
		}
		out = append(out, codec)
	}
	return out, nil
}

// joined returns the time at which the visitor of a waiting ticket joined; 0 for what
// is none.
func (r reader) joined(value string) fleettime.Time {
	var t ticket.Ticket
	for _, codec := range r {
		if codec.Open(&t, value, &ticket.Scratch{}) == nil && !t.IsAdmitted() {
			return t.Joined
		}
	}
	return 0
}

// known is for how long a key is known before anybody seals with it: a rotation of
// a fleet that rotates as fast as these runs allow. An edge that is cut off for
// longer meets tickets under a key that it does not know.
const known = 12 * time.Second

// rotate puts one more key into the store.
func (d *deployment) rotate(ctx context.Context, j *journal) error {
	as := natsbus.Options{URL: d.urls, Name: "chaos-keys", Log: slog.New(slog.DiscardHandler)}
	if d.o.credentials { // there is no user who may but global
		as.CA, as.Inbox = d.authority(), natsbus.NodeInbox(natsbus.RoleGlobal, wire.Root, "global-1")
		as.Cert, as.Key = d.certificate(wire.Root, "globals", "global-1")
	}
	conn, err := natsbus.Connect(as)
	if err != nil {
		return err
	}
	defer conn.Close()
	docs := natsbus.NewDocuments(conn, 0)
	err = d.wait(10*time.Second, func() error {
		if ctx.Err() != nil {
			return nil
		}
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
		newest := ring.Keys[len(ring.Keys)-1]
		if newest.SealFrom > now {
			return nil // nobody seals with the newest yet
		}
		next := ticket.Key{ID: newest.ID + 1, SealFrom: now.Add(known)}
		if _, err := rand.Read(next.Secret[:]); err != nil {
			return err
		}
		ring.Version++
		ring.Keys = append(ring.Keys, next)
		ring.Keys = ring.Keys[max(0, len(ring.Keys)-ticket.MaxKeys):]
		if data, err = ticket.EncodeKeyring(ring); err != nil {
			return err
		}
		d.keys.learn(ring)
		if _, err := docs.Put(try, shared.KeysDocument, data, revision); err != nil {
			return err
		}
		j.tell("rotated keys", "rotate   the keys: key %d, sealed with from %v on", next.ID, known)
		return nil
	})
	if errors.Is(err, wire.ErrDown) || errors.Is(err, context.DeadlineExceeded) {
		j.tell("", "(the store cannot be reached)")
		return nil
	}
	return err
}
