//go:build linux

package main

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"vestibule/internal/node/natsconf"
)

// This file builds and runs a Kubernetes node on this machine, and has a client of its API.

// kubeVersion is the version of Kubernetes, stagingVersion that of the modules published with it.
const (
	kubeVersion    = "v1.35.4"
	stagingVersion = "v0.35.4"
)

// kubePrograms are built from source.
var kubePrograms = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"}

// pauseImage holds the namespaces of a pod. Its program only waits.
const (
	pauseImage  = "vestibule.test/pause:1"
	pauseSource = `package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
}
`
)

// kubeBinaries builds the programs and the pause image into cache, once, and returns their folder. The first time takes
// twelve minutes of one core.
func kubeBinaries(ctx context.Context, cache string, out io.Writer) (string, error) {
	if cache == "" {
		var err error
		if cache, err = os.UserCacheDir(); err != nil {
			return "", err
		}
		cache = filepath.Join(cache, "vestibule-k8s")
	}
	dir := filepath.Join(cache, strings.TrimPrefix(kubeVersion, "v"))
	bin, source := filepath.Join(dir, "bin"), filepath.Join(dir, "src")
	if err := errors.Join(os.MkdirAll(bin, 0o755), os.MkdirAll(source, 0o755)); err != nil {
		return "", err
	}
	if err := kubeModule(ctx, source); err != nil {
		return "", err
	}
	for _, p := range kubePrograms {
		if err := onceBuilt(filepath.Join(bin, p), func(to string) error {
			fmt.Fprintf(out, "building %s %s into %s\n", p, kubeVersion, bin)
			return goIn(ctx, source, "build", "-trimpath", "-ldflags", "-s -w", "-o", to, "k8s.io/kubernetes/cmd/"+p)
		}); err != nil {
			return "", err
		}
	}
	return bin, onceBuilt(filepath.Join(bin, "pause.tar"), func(to string) error {
		files := filepath.Join(dir, "pause")
		if err := os.MkdirAll(files, 0o755); err != nil {
			return err
		}
		main, err := write(dir, "pause.go", "%s", pauseSource)
		if err != nil {
			return err
		}
		// The name of the image's entry point.
		if err := goIn(ctx, dir, "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(files, "vestibule"), main); err != nil {
			return err
		}
		return goIn(ctx, "", "run", "vestibule/internal/lab/image", "-files", files, "-name", pauseImage, "-out", to)
	})
}

// onceBuilt builds a missing file, atomically.
func onceBuilt(file string, build func(to string) error) error {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := build(file + ".new"); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// goIn runs the go command in a folder.
func goIn(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return nil
}

// staged matches a line of Kubernetes' go.mod that replaces a module by its own source.
var staged = regexp.MustCompile(`(?m)^\s*(k8s\.io/\S+) => \./staging/`)

// kubeModule writes a module that requires Kubernetes, with its staging modules as published.
func kubeModule(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "go.sum")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", "k8s.io/kubernetes@"+kubeVersion).Output()
	if err != nil {
		return fmt.Errorf("go mod download k8s.io/kubernetes@%s: %w", kubeVersion, err)
	}
	var m struct{ GoMod string }
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	theirs, err := os.ReadFile(m.GoMod)
	if err != nil {
		return err
	}
	var b, imports strings.Builder
	fmt.Fprintf(&b, "module vestibule/k8s\n\n%s\n\nrequire k8s.io/kubernetes %s\n\nreplace (\n", regexp.MustCompile(`(?m)^go .*$`).Find(theirs), kubeVersion)
	for _, s := range staged.FindAllSubmatch(theirs, -1) {
		fmt.Fprintf(&b, "\t%s => %[1]s %s\n", s[1], stagingVersion)
	}
	b.WriteString(")\n")
	for _, p := range kubePrograms {
		fmt.Fprintf(&imports, "import _ %q\n", "k8s.io/kubernetes/cmd/"+p)
	}
	if _, err := write(dir, "go.mod", "%s", b.String()); err != nil {
		return err
	}
	if _, err := write(dir, "tools.go", "//go:build tools\n\npackage tools\n\n%s", imports.String()); err != nil {
		return err
	}
	return goIn(ctx, dir, "mod", "tidy", "-e")
}

// machine is the state that a Kubernetes node leaves on a machine, beside its namespaces: kernel settings and control
// groups.
type machine struct{ settings map[string]string }

// kernelSettings are the settings changed by kubelet.
var kernelSettings = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

// cgroupRoot is the parent of the control groups of all pods.
const cgroupRoot = "vestibule-k8s"

func rememberMachine() (m machine, err error) {
	m.settings = map[string]string{}
	for _, name := range kernelSettings {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			return m, err
		}
		m.settings[name] = string(value)
	}
	return m, nil
}

// restore restores everything, once all processes have ended.
func (m machine) restore() error {
	var errs []error
	for name, value := range m.settings {
		errs = append(errs, os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0))
	}
	groups, err := cgroups()
	errs = append(errs, err)
	for _, g := range groups {
		errs = append(errs, removeTree(filepath.Join(g, cgroupRoot)))
	}
	return errors.Join(errs...)
}

// removeTree removes folders without regular files, innermost first.
func removeTree(dir string) error {
	var all []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, d := range slices.Backward(all) {
		// Killed processes leave their group a moment later.
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			err := syscall.Rmdir(d)
			if err == nil || !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
				errs = append(errs, err)
				break
			}
		}
	}
	return errors.Join(errs...)
}

// cgroups returns the roots of control groups: one per controller, or one.
func cgroups() ([]string, error) {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && (f[2] == "cgroup" || f[2] == "cgroup2") && !slices.Contains(out, f[1]) {
			out = append(out, f[1])
		}
	}
	return out, nil
}

// nodeAddr is the machine's address in the pod network.
const (
	nodeAddr    = "10.88.0.1"
	podNetwork  = "10.88.0.0/16"
	serviceNet  = "10.89.0.0/16"
	domain      = "cluster.local"
	apiPort     = "6443"
	pluginsPath = "/usr/lib/cni"
)

// bridged is the network of a cluster: pods and this process share one bridge.
type bridged struct{ loopback }

func (bridged) addr(string) string { return nodeAddr }

// newBridge creates the network, the mounts and the control groups of a node, in a process with its own namespaces.
func newBridge(ctx context.Context, dir string) error {
	if err := ownMounts(); err != nil {
		return err
	}
	resolv, err := write(dir, "resolv.conf", "nameserver %s\nsearch svc.%s %[2]s\noptions ndots:5\n", nodeAddr, domain)
	if err != nil {
		return err
	}
	// The stored data is useless after the run, and ten stores would wait for one disk.
	stores := filepath.Join(dir, "stores")
	if err := os.MkdirAll(stores, 0o755); err != nil {
		return err
	}
	for _, m := range []struct {
		from, to, kind string
		flags          uintptr
	}{
		{resolv, "/etc/resolv.conf", "", syscall.MS_BIND},
		{"tmpfs", "/var/log", "tmpfs", 0}, // kubelet writes links there
		{"tmpfs", stores, "tmpfs", 0},
	} {
		if err := syscall.Mount(m.from, m.to, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.to, err)
		}
	}
	for _, line := range []string{
		"ip link set lo up", "ip link add pods type bridge", "ip addr add " + nodeAddr + "/16 dev pods", "ip link set pods up",
		"ip route add default via " + nodeAddr, // unused; some programs look for the address of the default route
	} {
		if err := tool(ctx, line); err != nil {
			return err
		}
	}
	groups, err := cgroups()
	if err != nil {
		return err
	}
	for _, g := range groups {
		if err := os.MkdirAll(filepath.Join(g, cgroupRoot), 0o755); err != nil {
			return err
		}
		// A cpuset group is empty until configured.
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			if value, err := os.ReadFile(filepath.Join(g, f)); err == nil {
				if err := os.WriteFile(filepath.Join(g, cgroupRoot, f), value, 0); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// kube is a client of the API.
type kube struct {
	url    string
	token  string
	client *http.Client
}

// refused is an answer of the API other than 2xx.
type refused struct {
	code int
	text string
}

func (r *refused) Error() string { return fmt.Sprintf("status %d: %s", r.code, r.text) }

// ask sends a request, and decodes the answer into to, if not nil.
func (k *kube) ask(ctx context.Context, method, path, kind string, body []byte, to any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	resp, err := k.open(ctx, method, path, kind, body)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if to == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(to)
}

func (k *kube) open(ctx context.Context, method, path, kind string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, k.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+k.token)
	r.Header.Set("Accept", "application/json")
	if kind != "" {
		r.Header.Set("Content-Type", "application/"+kind)
	}
	resp, err := k.client.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	var s struct{ Message string }
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&s)
	if err != nil {
		s.Message = err.Error()
	}
	return nil, errors.Join(&refused{resp.StatusCode, method + " " + path + ": " + s.Message}, resp.Body.Close())
}

// get reads an object, merge changes it.
func (k *kube) get(ctx context.Context, path string, to any) error {
	return k.ask(ctx, http.MethodGet, path, "", nil, to)
}

func (k *kube) merge(ctx context.Context, path, format string, args ...any) error {
	return k.ask(ctx, http.MethodPatch, path, "merge-patch+json", fmt.Appendf(nil, format, args...), nil)
}

// watch calls each with the existing objects and every change, until ctx ends or the API ends it. It starts with the
// cache of the API server: a watch from the newest version hangs, because Debian's etcd does not report its progress.
func (k *kube) watch(ctx context.Context, path string, each func(kind string, object []byte) error) error {
	resp, err := k.open(ctx, http.MethodGet, path+"&watch=1&resourceVersion=0&timeoutSeconds=86400", "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // read-only
	for d := json.NewDecoder(resp.Body); ; {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		if err := d.Decode(&e); err != nil {
			return errors.Join(ctx.Err(), err)
		}
		if e.Type == "ERROR" {
			return fmt.Errorf("watch of %s: %s", path, e.Object)
		}
		if err := each(e.Type, e.Object); err != nil {
			return err
		}
	}
}

// clusterWide are the kinds without a namespace.
var clusterWide = []string{"Namespace", "PersistentVolume"}

// apply does a server-side apply of every object of a file, namespaces first. It returns their number.
func (k *kube) apply(ctx context.Context, objects []byte) (int, error) {
	type object struct {
		kind, path string
		body       []byte
	}
	var all []object
	for d := yaml.NewDecoder(bytes.NewReader(objects)); ; {
		var o map[string]any
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return 0, err
		}
		body, err := json.Marshal(o)
		if err != nil {
			return 0, err
		}
		var h struct {
			APIVersion, Kind string
			Metadata         struct{ Name, Namespace string }
		}
		if err := json.Unmarshal(body, &h); err != nil {
			return 0, err
		}
		path := "/apis/" + h.APIVersion
		if !strings.Contains(h.APIVersion, "/") {
			path = "/api/" + h.APIVersion
		}
		if !slices.Contains(clusterWide, h.Kind) {
			path += "/namespaces/" + h.Metadata.Namespace
		}
		plural := strings.ToLower(h.Kind) + "s"
		if stem, y := strings.CutSuffix(plural, "ys"); y {
			plural = stem + "ies"
		}
		all = append(all, object{h.Kind, path + "/" + plural + "/" + h.Metadata.Name + "?fieldManager=chaos&force=true", body})
	}
	slices.SortStableFunc(all, func(a, b object) int {
		return strings.Compare(fmt.Sprint(a.kind != "Namespace"), fmt.Sprint(b.kind != "Namespace"))
	})
	for _, o := range all {
		if err := k.ask(ctx, http.MethodPatch, o.path, "apply-patch+yaml", o.body, nil); err != nil {
			return 0, err
		}
	}
	return len(all), nil
}

// kubeUsers are the users of the API, with their groups.
var kubeUsers = []struct{ name, user, group string }{
	{"admin", "admin", "system:masters"},
	{"kubelet", "system:node:node", "system:nodes"},
	{"kube-controller-manager", "system:kube-controller-manager", ""},
	{"kube-scheduler", "system:kube-scheduler", ""},
}

// path returns the path of a file of the run.
func (f *fleet) path(name ...string) string {
	return filepath.Join(append([]string{f.o.dir}, name...)...)
}

// startCluster starts the processes of a node and returns a client, once it accepts pods.
func (f *fleet) startCluster(ctx context.Context, bin string) (*kube, error) {
	k, err := f.writeCredentials()
	if err != nil {
		return nil, err
	}
	if err := f.writeNodeConfig(); err != nil {
		return nil, err
	}
	for _, p := range f.clusterProcesses(ctx, k) {
		argv := p.argv
		if slices.Contains(kubePrograms, p.name) {
			argv = append([]string{filepath.Join(bin, p.name)}, argv...)
		}
		if err := f.add(&node{name: p.name, role: "cluster", argv: argv}); err != nil {
			return nil, err
		}
		if p.ready == nil {
			continue
		}
		var over error
		err := f.wait(2*time.Minute, func() error {
			err := p.ready()
			if over = errors.Join(f.died(), ctx.Err()); err == nil || over != nil {
				return nil
			}
			sleep(ctx, 200*time.Millisecond)
			return err
		})
		if err = errors.Join(err, over); err != nil {
			return nil, fmt.Errorf("%s (see %s): %w", p.name, f.o.dir, err)
		}
	}
	return k, nil
}

// writeCredentials writes the certificate and the tokens of the API, and the kubeconfig of every user. It returns a
// client with the token of the admin.
func (f *fleet) writeCredentials() (*kube, error) {
	ca, err := natsconf.NewAuthority(crand.Reader, time.Now())
	if err != nil {
		return nil, err
	}
	cert, key, err := ca.Issue(crand.Reader, time.Now(), 24*time.Hour, []string{nodeAddr, "127.0.0.1"})
	if err != nil {
		return nil, err
	}
	var tokens strings.Builder
	k := &kube{url: "https://" + nodeAddr + ":" + apiPort}
	if k.client, err = authorityClient(ca); err != nil {
		return nil, err
	}
	for _, u := range kubeUsers {
		token := crand.Text()
		fmt.Fprintf(&tokens, "%s,%s,%s,%q\n", token, u.user, u.name, u.group)
		if u.name == "admin" {
			k.token = token
		}
		if _, err := write(f.o.dir, u.name+".kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: here, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: me, user: {token: %q}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
current-context: here
`, k.url, f.path("api-ca.crt"), token); err != nil {
			return nil, err
		}
	}
	return k, f.writeAll(map[string]string{
		"api-ca.crt": string(ca.CertPEM()), "api.crt": string(cert), "api.key": string(key), "tokens.csv": tokens.String(),
	})
}

// writeNodeConfig writes the configuration of containerd, of the pod network and of kubelet.
func (f *fleet) writeNodeConfig() error {
	return f.writeAll(map[string]string{
		"containerd.toml": fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`, f.path("containerd"), "/run/containerd", "/run/containerd/containerd.sock", pauseImage, pluginsPath, f.o.dir),
		"pods.conflist": fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "pods", "isGateway": true,
  "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q, "gateway": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`, f.path("addresses"), podNetwork, nodeAddr),
		"kubelet.yaml": fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
address: 127.0.0.1
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /%s
failCgroupV1: false
enforceNodeAllocatable: []
makeIPTablesUtilChains: false
failSwapOn: false
clusterDNS: [%s]
clusterDomain: %s
resolvConf: ""
podLogsDir: %s
volumePluginDir: %s
evictionHard: {memory.available: 100Mi}
imageGCHighThresholdPercent: 100
`, cgroupRoot, nodeAddr, domain, f.path("pod-logs"), f.path("plugins")),
	})
}

// writeAll writes files of the run, by name.
func (f *fleet) writeAll(texts map[string]string) error {
	for name, text := range texts {
		if _, err := write(f.o.dir, name, "%s", text); err != nil {
			return err
		}
	}
	return nil
}

// clusterProcess is a process of a Kubernetes node.
type clusterProcess struct {
	name  string
	argv  []string
	ready func() error // nil if the next process can start at once
}

// clusterProcesses returns the processes of a Kubernetes node in the order of their start.
func (f *fleet) clusterProcesses(ctx context.Context, k *kube) []clusterProcess {
	config := func(name string) string { return "--kubeconfig=" + f.path(name+".kubeconfig") }
	api := func() error { return k.get(ctx, "/readyz", nil) }
	return []clusterProcess{
		{"etcd", []string{"etcd", "--data-dir=" + f.path("stores", "etcd"), "--log-level=warn", "--logger=zap"}, nil},
		{"containerd", []string{"containerd", "--config", f.path("containerd.toml")}, func() error { return tool(ctx, "ctr --address /run/containerd/containerd.sock version") }},
		{"kube-apiserver", []string{
			"--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0", "--advertise-address=" + nodeAddr, "--secure-port=" + apiPort,
			"--tls-cert-file=" + f.path("api.crt"), "--tls-private-key-file=" + f.path("api.key"), "--token-auth-file=" + f.path("tokens.csv"),
			"--authorization-mode=Node,RBAC", "--service-cluster-ip-range=" + serviceNet, "--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-signing-key-file=" + f.path("api.key"), "--service-account-key-file=" + f.path("api.crt"),
		}, api},
		{"kube-controller-manager", []string{
			config("kube-controller-manager"), "--service-account-private-key-file=" + f.path("api.key"), "--root-ca-file=" + f.path("api-ca.crt"),
			"--use-service-account-credentials", "--leader-elect=false", "--bind-address=127.0.0.1",
		}, nil},
		{"kube-scheduler", []string{config("kube-scheduler"), "--leader-elect=false", "--bind-address=127.0.0.1"}, nil},
		{"kubelet", []string{config("kubelet"), "--config=" + f.path("kubelet.yaml"), "--root-dir=" + f.path("kubelet"), "--hostname-override=node", "--node-ip=" + nodeAddr}, func() error { return k.nodeReady(ctx) }},
	}
}

// nodeReady returns an error unless the node accepts pods.
func (k *kube) nodeReady(ctx context.Context) error {
	var n struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := k.get(ctx, "/api/v1/nodes/node", &n); err != nil {
		return err
	}
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return nil
		}
	}
	return fmt.Errorf("the node is not ready: %+v", n.Status.Conditions)
}
