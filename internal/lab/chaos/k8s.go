//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"vestibule/internal/core/wire"
	"vestibule/internal/node/natsconf"
)

// This file runs the manifests of deploy/k8s as pods, with the actions of operators and failures of machines, under
// visitors.

// authorityClient returns a client that trusts an authority.
func authorityClient(ca *natsconf.Authority) (*http.Client, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca.CertPEM()) {
		return nil, errors.New("invalid certificate of the authority")
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}, nil
}

// cluster is the fleet as pods.
type cluster struct {
	*deployment
	kube *kube
	j    *journal

	podsMu sync.Mutex
	pods   map[string]*node    // by UID
	served map[string][]string // UIDs of the edges in service, by EndpointSlice
	names  map[string]map[string][]net.IP
}

// pullPolicy makes kubelet use the images on its machine.
const pullPolicy = "IfNotPresent"

// overlays writes the overlays of deploy/k8s with the patches for this machine.
func (c *cluster) overlays(bootstrap bool) error {
	if err := c.writeRooms(); err != nil {
		return err
	}
	image, tag, ok := strings.Cut(c.o.image, ":")
	if !ok {
		return fmt.Errorf("-image must be name:tag, got %q", c.o.image)
	}
	for _, place := range c.placesOfPods() {
		dir := filepath.Join(c.o.dir, "apply", place)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		base, err := overlay(dir, place)
		if err != nil {
			return err
		}
		// Small requests, since this machine runs all nodes.
		small := func(list string, more string) string {
			return fmt.Sprintf(`
      - {op: replace, path: /spec/template/spec/%s/imagePullPolicy, value: %s}
      - {op: replace, path: /spec/template/spec/%[1]s/resources/requests/cpu, value: 10m}
%[3]s`, list, pullPolicy, more)
		}
		env := func(name, value string) string {
			return fmt.Sprintf("      - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: %s, value: %q}}\n", name, value)
		}
		first := ""
		if bootstrap {
			first = env("VESTIBULE_BOOTSTRAP", "true")
		}
		patches := map[string]string{"nats": small("containers/0", "")}
		generators := ""
		if place == wire.Root {
			patches["global"] = small("containers/0", first) + small("initContainers/0", "")
			generators = "configMapGenerator:\n  - {name: rooms, behavior: replace, files: [rooms.yaml], options: {disableNameSuffixHash: true}}\n"
			rooms, err := os.ReadFile(filepath.Join(c.o.dir, "rooms.yaml"))
			if err != nil {
				return err
			}
			if _, err := write(dir, "rooms.yaml", "%s", rooms); err != nil {
				return err
			}
		} else {
			patches["regional"] = small("containers/0", first) + small("initContainers/0", "")
			// All visitors have this machine's address.
			patches["edge"] = small("containers/0", env("VESTIBULE_HELD_PER_PREFIX", "65536"))
		}
		var b strings.Builder
		fmt.Fprintf(&b, "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: vestibule-%s\nresources: [%s, kubernetes.yaml]\nimages: [{name: vestibule, newName: %q, newTag: %q}]\n%spatches:\n",
			place, base, image, tag, generators)
		for _, name := range slices.Sorted(maps.Keys(patches)) {
			fmt.Fprintf(&b, "  - target: {kind: StatefulSet, name: %s}\n    patch: |%s", name, strings.ReplaceAll(patches[name], "\n\n", "\n"))
		}
		objects, err := os.ReadFile(filepath.Join(c.o.dir, "nats", place, "kubernetes.yaml"))
		if err != nil {
			return err
		}
		if _, err := write(dir, "kubernetes.yaml", "%s", objects); err != nil {
			return err
		}
		if _, err := write(dir, "kustomization.yaml", "%s", b.String()); err != nil {
			return err
		}
	}
	return nil
}

// apply applies every overlay, global first.
func (c *cluster) apply(ctx context.Context, bootstrap bool) error {
	if err := c.overlays(bootstrap); err != nil {
		return err
	}
	for _, place := range c.placesOfPods() {
		cmd := exec.CommandContext(ctx, c.o.kustomize, "build", filepath.Join(c.o.dir, "apply", place))
		cmd.Stderr = os.Stderr
		objects, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("kustomize build of %s: %w", place, err)
		}
		n, err := c.kube.apply(ctx, objects)
		if err != nil {
			return fmt.Errorf("%s: %w", place, err)
		}
		c.j.record("", "applied  %d objects of %s", n, place)
	}
	return nil
}

// placesOfPods returns the places with a namespace.
func (c *cluster) placesOfPods() []string { return append([]string{wire.Root}, c.dcs...) }

// overlay returns the path from a folder to an overlay of the repository of the working directory.
func overlay(from, place string) (string, error) {
	to, err := filepath.Abs(filepath.Join("deploy/k8s/overlays", place))
	if err != nil {
		return "", err
	}
	return filepath.Rel(from, to)
}

func namespace(place string) string { return "vestibule-" + place }

// volumes is the number of volumes per size: more than a run uses.
const volumes = 24

// makeVolumes offers folders as volumes, because there is no provisioner.
func (c *cluster) makeVolumes(ctx context.Context) error {
	for i := range 2 * volumes {
		size := "1Gi"
		if i >= volumes {
			size = "10Gi"
		}
		path := c.volume(fmt.Sprintf("volume-%d", i))
		if err := errors.Join(os.MkdirAll(path, 0o700), os.Chown(path, 65532, 65532)); err != nil {
			return err
		}
		if _, err := c.kube.apply(ctx, fmt.Appendf(nil, `
apiVersion: v1
kind: PersistentVolume
metadata: {name: volume-%d}
spec: {capacity: {storage: %s}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, hostPath: {path: %q}}
`, i, size, path)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) volume(name string) string { return filepath.Join(c.o.dir, "stores", name) }

// pod is the used part of a pod.
type pod struct {
	Metadata struct {
		Name, Namespace, UID, DeletionTimestamp string
		Labels                                  map[string]string
	}
	Status struct {
		Phase, PodIP string
		Conditions   []struct{ Type, Status string }
	}
}

// roleLabel is the label with the program of a pod.
const roleLabel = "app.kubernetes.io/name"

// follow mirrors the existing pods in the nodes of the deployment, sends visitors to the EndpointSlices of Service edge
// like a balancer, and resolves headless Services.
func (c *cluster) follow(ctx context.Context) (wait func() error) {
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	errs := make([]error, 2)
	all.Go(func() {
		errs[0] = c.kube.watch(ctx, "/api/v1/pods?", func(kind string, data []byte) error {
			var p pod
			if err := json.Unmarshal(data, &p); err != nil {
				return err
			}
			return c.seePod(ctx, kind, &p)
		})
	})
	all.Go(func() {
		errs[1] = c.kube.watch(ctx, "/apis/discovery.k8s.io/v1/endpointslices?", func(kind string, data []byte) error {
			var s slice
			if err := json.Unmarshal(data, &s); err != nil {
				return err
			}
			c.seeSlice(kind, &s)
			return nil
		})
	})
	return func() error {
		stop()
		all.Wait()
		for i, err := range errs {
			if errors.Is(err, context.Canceled) {
				errs[i] = nil
			}
		}
		return errors.Join(errs...)
	}
}

func (c *cluster) seePod(ctx context.Context, kind string, p *pod) error {
	place := strings.TrimPrefix(p.Metadata.Namespace, "vestibule-")
	c.podsMu.Lock()
	n := c.pods[p.Metadata.UID]
	c.podsMu.Unlock()
	if n == nil {
		if p.Status.PodIP == "" || kind == "DELETED" {
			return nil
		}
		var claim struct{ Spec struct{ VolumeName string } }
		if err := c.kube.get(ctx, "/api/v1/namespaces/"+p.Metadata.Namespace+"/persistentvolumeclaims/data-"+p.Metadata.Name, &claim); err != nil {
			return err
		}
		n = &node{name: place + "/" + p.Metadata.Name, role: p.Metadata.Labels[roleLabel], place: place, fleet: c.deployment, data: c.volume(claim.Spec.VolumeName), uid: p.Metadata.UID}
		n.url.Store("http://" + p.Status.PodIP + ":8080")
		n.metrics.Store("http://" + p.Status.PodIP + ":9100")
		c.enlist(n)
		c.podsMu.Lock()
		c.pods[n.uid] = n
		c.podsMu.Unlock()
	}
	if kind == "DELETED" || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
		n.gone.Store(true)
	}
	c.send()
	return nil
}

// slice is the used part of an EndpointSlice.
type slice struct {
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Endpoints []struct {
		Addresses  []string
		Hostname   string
		Conditions struct{ Ready bool }
		TargetRef  struct{ UID string }
	}
}

func (c *cluster) seeSlice(kind string, s *slice) {
	service, key := s.Metadata.Labels["kubernetes.io/service-name"], s.Metadata.Namespace+"/"+s.Metadata.Name
	names := map[string][]net.IP{}
	var served []string
	for _, e := range s.Endpoints {
		if kind == "DELETED" || !e.Conditions.Ready || len(e.Addresses) == 0 {
			continue
		}
		served = append(served, e.TargetRef.UID)
		name := service + "." + s.Metadata.Namespace + ".svc." + domain + "."
		names[name] = append(names[name], net.ParseIP(e.Addresses[0]))
		if e.Hostname != "" {
			names[e.Hostname+"."+name] = []net.IP{net.ParseIP(e.Addresses[0])}
		}
	}
	c.podsMu.Lock()
	if _, headless := s.Metadata.Labels["service.kubernetes.io/headless"]; headless {
		c.names[key] = names
	} else if service == "edge" {
		c.served[key] = served
	}
	c.podsMu.Unlock()
	c.send()
}

// send sends visitors to the edges in service.
func (c *cluster) send() {
	c.podsMu.Lock()
	defer c.podsMu.Unlock()
	var up []string
	for _, uids := range c.served {
		up = append(up, uids...)
	}
	for uid, n := range c.pods {
		n.up.Store(n.role == "edge" && !n.gone.Load() && slices.Contains(up, uid))
	}
}

// resolve answers DNS queries for headless Services, like CoreDNS.
func (c *cluster) resolve(ctx context.Context) (stop func() error, err error) {
	socket, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", nodeAddr+":53")
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := socket.ReadFrom(buf)
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					err = nil
				}
				done <- err
				return
			}
			if answer, err := c.answer(buf[:n]); err == nil { // malformed queries are ignored
				if _, err := socket.WriteTo(answer, from); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	return func() error { return errors.Join(socket.Close(), <-done) }, nil
}

func (c *cluster) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil, errors.Join(err, errors.New("expected one question"))
	}
	q := m.Questions[0]
	var found []net.IP
	c.podsMu.Lock()
	for _, names := range c.names {
		found = append(found, names[strings.ToLower(q.Name.String())]...)
	}
	c.podsMu.Unlock()
	a := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired}, Questions: m.Questions}
	if len(found) == 0 {
		a.RCode = dnsmessage.RCodeNameError
	}
	if q.Type == dnsmessage.TypeA {
		for _, ip := range found {
			r := dnsmessage.AResource{A: [4]byte(ip.To4())}
			a.Answers = append(a.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}, Body: &r})
		}
	}
	return a.Pack()
}

// set identifies a StatefulSet.
type set struct{ place, name string }

func (s set) path() string {
	return "/apis/apps/v1/namespaces/" + namespace(s.place) + "/statefulsets/" + s.name
}

func (s set) pod(i int) string {
	return "/api/v1/namespaces/" + namespace(s.place) + "/pods/" + s.name + "-" + strconv.Itoa(i)
}

func (s set) String() string { return s.place + "/" + s.name }

// sets returns all StatefulSets, in the runbook's order of restarts.
func (c *cluster) sets() []set {
	var out []set
	for _, role := range []string{"edge", "regional", "nats"} {
		for _, dc := range c.dcs {
			out = append(out, set{dc, role})
		}
	}
	return append(out, set{wire.Root, "global"}, set{wire.Root, "nats"})
}

// whole waits until a StatefulSet has the given number of ready pods of its newest revision.
func (c *cluster) whole(ctx context.Context, s set, replicas int) error {
	return c.patiently(ctx, 5*time.Minute, func() error {
		var o struct {
			Metadata struct{ Generation int }
			Spec     struct{ Replicas int }
			Status   struct {
				ObservedGeneration, Replicas, ReadyReplicas, UpdatedReplicas int
				CurrentRevision, UpdateRevision                              string
			}
		}
		if err := c.kube.get(ctx, s.path(), &o); err != nil {
			return err
		}
		st := o.Status
		if st.ObservedGeneration < o.Metadata.Generation || st.Replicas != o.Spec.Replicas || st.ReadyReplicas != o.Spec.Replicas ||
			st.UpdateRevision != st.CurrentRevision || (replicas > 0 && st.Replicas != replicas) {
			return fmt.Errorf("%v: %+v", s, o)
		}
		return nil
	})
}

// patiently retries f twice a second, until it succeeds or limit has passed.
func (c *cluster) patiently(ctx context.Context, limit time.Duration, f func() error) error {
	err := c.wait(limit, func() error {
		err := f()
		if err == nil || ctx.Err() != nil {
			return nil
		}
		sleep(ctx, 500*time.Millisecond)
		return err
	})
	return errors.Join(err, ctx.Err())
}

// right waits until the whole fleet is healthy.
func (c *cluster) right(ctx context.Context) error {
	if err := c.settled(ctx, 3*time.Minute); err != nil {
		return err
	}
	return c.patiently(ctx, 2*time.Minute, c.reckoned)
}

// roll restarts the pods of a StatefulSet one by one, like `kubectl rollout restart`.
func (c *cluster) roll(ctx context.Context, s set) error {
	begun := c.since()
	if err := c.kube.merge(ctx, s.path(), `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, time.Now().Format(time.RFC3339Nano)); err != nil {
		return err
	}
	if err := errors.Join(c.whole(ctx, s, 0), c.right(ctx)); err != nil {
		return fmt.Errorf("roll of %v: %w", s, err)
	}
	c.j.record("rolled "+s.name, "rolled   %v in %.1f s", s, (c.since() - begun).Seconds())
	return nil
}

// scale changes the number of edges in all data centres.
func (c *cluster) scale(ctx context.Context, replicas int) error {
	begun := c.since()
	for _, dc := range c.dcs {
		if err := c.kube.merge(ctx, set{dc, "edge"}.path()+"/scale", `{"spec":{"replicas":%d}}`, replicas); err != nil {
			return err
		}
	}
	for _, dc := range c.dcs {
		if err := c.whole(ctx, set{dc, "edge"}, replicas); err != nil {
			return err
		}
	}
	if err := c.right(ctx); err != nil {
		return err
	}
	c.j.record("scaled edges", "scaled   edges to %d in each data centre in %.1f s", replicas, (c.since() - begun).Seconds())
	return nil
}

// evict requests the eviction of every pod of a StatefulSet at once, like a drain of their machine, and repeats until
// all are gone. The disruption budget must allow only one at a time.
func (c *cluster) evict(ctx context.Context, s set) error {
	var uids []string
	for _, n := range c.of(s.name, s.place) {
		uids = append(uids, n.uid)
	}
	refusals, asked := 0, make([]bool, len(uids))
	err := c.patiently(ctx, 5*time.Minute, func() error {
		left := 0
		for i := range uids {
			if asked[i] {
				continue
			}
			name := s.name + "-" + strconv.Itoa(i)
			err := c.kube.ask(ctx, http.MethodPost, s.pod(i)+"/eviction", "json", fmt.Appendf(nil, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`, name, namespace(s.place)), nil)
			var r *refused
			switch {
			case err == nil:
				asked[i] = true
			case errors.As(err, &r) && r.code == http.StatusTooManyRequests:
				refusals++
				left++
			default:
				return err
			}
		}
		if left > 0 {
			return fmt.Errorf("the budget of %v leaves %d pods", s, left)
		}
		return nil
	})
	if err == nil && refusals == 0 && len(uids) > 1 {
		err = fmt.Errorf("all pods of %v were evicted at once", s)
	}
	if err = errors.Join(err, c.whole(ctx, s, 0), c.right(ctx)); err != nil {
		return err
	}
	c.j.record("evicted "+s.name, "evicted  %d pods of %v; the budget refused %d times meanwhile", len(uids), s, refusals)
	return nil
}

// restartAll deletes every pod of edge, regional and global at once, like an operator's restart of the whole fleet.
// NATS and all volumes stay.
func (c *cluster) restartAll(ctx context.Context) error {
	begun := c.since()
	old := map[string]bool{}
	for _, s := range c.sets() {
		if s.name == "nats" {
			continue
		}
		for i, n := range c.of(s.name, s.place) {
			n.unwell() // for ever: another pod takes its place
			if err := c.kube.ask(ctx, http.MethodDelete, s.pod(i), "", nil, nil); err != nil {
				return err
			}
			old[n.uid] = true
		}
	}
	err := c.patiently(ctx, 3*time.Minute, func() error {
		for _, n := range c.present() {
			if old[n.uid] {
				return fmt.Errorf("pod %s is still there", n.name)
			}
		}
		return nil
	})
	for _, s := range c.sets() {
		err = errors.Join(err, c.whole(ctx, s, 0))
	}
	if err = errors.Join(err, c.right(ctx)); err != nil {
		return fmt.Errorf("restart of all: %w", err)
	}
	c.j.record("restarted all", "restart  %d pods at once, all ready and in step again after %.1f s", len(old), (c.since() - begun).Seconds())
	return nil
}

// kill kills the processes of a pod, like an OOM kill; kubelet restarts its container.
func (c *cluster) kill(ctx context.Context, n *node) error {
	pids, err := processes(n.uid)
	if err != nil {
		return err
	}
	well := n.unwell()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	c.j.record("killed "+n.role, "kill     %s (%d processes)", n.name, len(pids))
	ready := func() error {
		var p pod
		if err := c.kube.get(ctx, "/api/v1/namespaces/"+namespace(n.place)+"/pods/"+strings.TrimPrefix(n.name, n.place+"/"), &p); err != nil {
			return err
		}
		for _, cond := range p.Status.Conditions {
			if cond.Type == "Ready" && cond.Status == "True" {
				return nil
			}
		}
		return fmt.Errorf("%s is not ready", n.name)
	}
	// It is ready until kubelet has checked.
	sleep(ctx, 3*time.Second)
	err = c.patiently(ctx, 3*time.Minute, ready)
	well()
	return err
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
		if err != nil || len(argv) == 0 || strings.HasPrefix(string(argv), "/vestibule\x00") && strings.Count(string(argv), "\x00") == 1 {
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
func (c *cluster) replaceVolume(ctx context.Context, s set, i int) error {
	name := s.name + "-" + strconv.Itoa(i)
	claim := "/api/v1/namespaces/" + namespace(s.place) + "/persistentvolumeclaims/data-" + name
	if err := c.kube.ask(ctx, http.MethodDelete, claim, "", nil, nil); err != nil {
		return err
	}
	if err := c.kube.ask(ctx, http.MethodDelete, s.pod(i), "", nil, nil); err != nil {
		return err
	}
	c.j.record("emptied "+s.name, "delete   %s/%s and its volume", s.place, name)
	// A pod created before its claim was deleted waits for ever.
	sleep(ctx, 2*time.Second)
	var unbound struct{ Status struct{ Phase string } }
	err := c.patiently(ctx, time.Minute, func() error {
		if err := c.kube.get(ctx, claim, &unbound); err != nil {
			var p pod
			if gone := c.kube.get(ctx, s.pod(i), &p); gone == nil && p.Status.Phase == "Pending" {
				return errors.Join(err, c.kube.ask(ctx, http.MethodDelete, s.pod(i), "", nil, nil))
			}
			return err
		}
		if unbound.Status.Phase != "Bound" {
			return fmt.Errorf("%s: its new volume is %s", name, unbound.Status.Phase)
		}
		return nil
	})
	return errors.Join(err, c.whole(ctx, s, 0), c.right(ctx))
}

// usage samples the use of the limits.
type usage struct {
	mu  sync.Mutex
	at  []time.Duration
	use []float64
}

// watchUse samples until ctx ends.
func (c *cluster) watchUse(ctx context.Context, people *crowdOfPeople) (u *usage, wait func()) {
	u = &usage{}
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		for ; ctx.Err() == nil; sleep(ctx, sampleEvery) {
			if used, ok := c.currentUse(people); ok {
				u.mu.Lock()
				u.at, u.use = append(u.at, c.since()), append(u.use, used)
				u.mu.Unlock()
			}
		}
	})
	return u, func() { stop(); all.Wait() }
}

// worst returns the minimum of the mean over a window within an interval, and the start of that window.
func (u *usage) worst(window, from, to time.Duration) (least float64, at time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
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

// inPods runs both data centres and global as pods.
func inPods(ctx context.Context, o options, out io.Writer) (err error) {
	d := &deployment{
		o: o, net: bridged{}, zero: time.Now(), dcs: places[:2], names: map[string]int{},
		ask: &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	c := &cluster{deployment: d, j: &journal{out: out, d: d, done: map[string]int{}}, pods: map[string]*node{}, served: map[string][]string{}, names: map[string]map[string][]net.IP{}}
	if d.site, err = openSite(nodeAddr, d.since); err != nil {
		return err
	}
	if text, err := exec.CommandContext(ctx, filepath.Join(o.newBinaries(), "vestibule"), "nats-config", "write", "--out", filepath.Join(o.dir, "nats"),
		"--data-centers", strings.Join(d.dcs, ","), "--cert-dir", "/etc/vestibule/nats").CombinedOutput(); err != nil {
		return fmt.Errorf("nats-config write: %w\n%s", err, text)
	}
	if c.kube, err = d.startCluster(ctx, o.kube); err != nil {
		return err
	}
	c.j.record("", "the node takes pods")
	for _, image := range []string{filepath.Join(o.kube, "pause.tar"), o.imageTar} {
		if text, err := exec.CommandContext(ctx, "ctr", "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io", "images", "import", image).CombinedOutput(); err != nil {
			return fmt.Errorf("import of %s: %w\n%s", image, err, text)
		}
	}
	names, err := c.resolve(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, names()) }()
	followed := c.follow(ctx)
	defer func() { err = errors.Join(err, followed()) }()
	if err := errors.Join(c.makeVolumes(ctx), c.apply(ctx, true)); err != nil {
		return err
	}
	for _, s := range c.sets() {
		if err := c.whole(ctx, s, 0); err != nil {
			return err
		}
	}
	c.j.record("", "every pod is ready")
	if err := c.right(ctx); err != nil {
		return err
	}
	return c.operate(ctx, out)
}

// operate is the run once all pods exist.
func (c *cluster) operate(ctx context.Context, out io.Writer) error {
	d := c.deployment
	noted := d.observe(ctx)
	people, come, home := d.invite(ctx)
	use, sampled := c.watchUse(ctx, people)
	err := c.patiently(come, time.Minute, func() error {
		for _, dc := range d.dcs {
			if people.entered(dc, 0) == 0 {
				return fmt.Errorf("no admission yet in %s", dc)
			}
		}
		if people.waits.Load() == 0 {
			return errors.New("no visitor waits yet")
		}
		return nil
	})
	if err == nil {
		c.j.record("", "people are let in in both data centres, and others wait: %.1f s after the start of the run", d.since().Seconds())
	}
	sleep(come, 2*d.o.session) // the room is full
	var rolled, planned time.Duration
	var calms []calm
	begun := d.since()
	steps := []func() error{
		func() error { return c.apply(come, false) }, // bootstrap is removed: regionals and globals roll
	}
	for _, s := range c.sets() {
		steps = append(steps, func() error { return c.whole(come, s, 0) })
	}
	steps = append(steps, func() error { return c.right(come) })
	for _, s := range c.sets() {
		steps = append(steps, func() error { return c.roll(come, s) })
	}
	steps = append(steps, func() error { rolled = d.since(); return nil })
	for _, n := range []int{6, 2, 6, 2} {
		steps = append(steps, func() error { return c.scale(come, n) })
	}
	for _, s := range c.sets() {
		if s.place != d.dcs[1] {
			steps = append(steps, func() error { return c.evict(come, s) })
		}
	}
	steps = append(steps,
		func() error { planned = d.since(); return nil },
		func() error { return c.restartAll(come) },
		func() error { return c.killForAWhile(come) },
		func() error { return c.replaceVolume(come, set{d.dcs[0], "edge"}, 1) },
		func() error { return c.replaceVolume(come, set{d.dcs[1], "regional"}, 0) },
		func() error {
			calm, err := d.calm(come, people, c.j)
			if err == nil {
				d.filled(come, people, c.j, d.since()-calm.again, &calm)
			}
			calms = append(calms, calm)
			return err
		},
	)
	for _, step := range steps {
		if err != nil || come.Err() != nil {
			break
		}
		err = step()
	}
	home()
	sampled()
	stood, err2 := noted()
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), err)
	}
	d.o.planned = planned
	err = errors.Join(err, err2, d.died(), report(out, d, people, c.j, newLinks(d), stood, calms))
	least, at := use.worst(30*time.Second, begun, rolled)
	fmt.Fprintf(out, "  %-44s %.3f, from %.0f s on (goal 0.90)\n", "least use of T or R in 30 s, while all rolled", least, at.Seconds())
	least, at = use.worst(30*time.Second, rolled, planned)
	fmt.Fprintf(out, "  %-44s %.3f, from %.0f s on\n", "the same, while edges were scaled and evicted", least, at.Seconds())
	fmt.Fprintln(out, "  Not tried: NetworkPolicies (the API takes them, nobody enforces them); Services with an address (no kube-proxy: people are\n  sent to the endpoints of Service edge, as Ingress and Gateway controllers do); CoreDNS (the run answers for headless Services);\n  more than one machine; autoscaling by CPU (no metrics).")
	return err
}

// killForAWhile kills the processes of random pods.
func (c *cluster) killForAWhile(ctx context.Context) error {
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
