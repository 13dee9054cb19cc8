//go:build linux

package main

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/template"
	"time"

	"vestibule/internal/node/natsconf"
)

// A Kubernetes node on this machine. kubernetes.sh builds its programs.

// The machine has hubAddr in the network of the pods.
const (
	serviceNet = "10.89.0.0/16"
	domain     = "cluster.local"
	apiPort    = "6443"
	containerd = "/run/containerd/containerd.sock"
)

// kernelSettings are changed by kubelet.
var kernelSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys",
	"kernel/keys/root_maxbytes",
}

// cgroupRoot is the parent of the control groups of all pods.
const cgroupRoot = "vestibule-k8s"

// removeCgroups removes the control groups that a node leaves on the machine, once all processes have ended.
func removeCgroups(ctx context.Context) error {
	groups, err := cgroups()
	for _, g := range groups {
		if !exists(g) {
			continue
		}
		// Killed processes leave their group a moment later.
		for deadline := time.Now().Add(10 * time.Second); ; sleep(ctx, 100*time.Millisecond) {
			e := tool(ctx, "find "+g+" -depth -type d -delete")
			if e == nil || time.Now().After(deadline) {
				err = errors.Join(err, e)
				break
			}
		}
	}
	return err
}

// cgroups returns cgroupRoot in every hierarchy of control groups: one per controller, or one.
func cgroups() ([]string, error) {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup" && f[2] != "cgroup2" {
			continue
		}
		if g := filepath.Join(f[1], cgroupRoot); !slices.Contains(out, g) {
			out = append(out, g)
		}
	}
	return out, nil
}

// newBridge creates the network, the mounts and the control groups of a node, in a process with its own namespaces.
func newBridge(ctx context.Context, dir string) error {
	if err := ownMounts(); err != nil {
		return err
	}
	resolv, err := write(dir, "resolv.conf", "nameserver %s\nsearch svc.%s %[2]s\noptions ndots:5\n", hubAddr, domain)
	if err != nil {
		return err
	}
	// The stored data is useless after the run, and ten stores would wait for one disk.
	stores := filepath.Join(dir, "stores")
	if err := os.MkdirAll(stores, 0o755); err != nil {
		return err
	}
	// kubelet writes links to logs
	mounts := [][2]string{{"tmpfs", "/var/log"}, {"tmpfs", stores}, {resolv, "/etc/resolv.conf"}}
	for _, name := range kernelSettings { // kubelet changes a copy of these
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			return err
		}
		copied, err := write(dir, filepath.Base(name), "%s", value)
		if err != nil {
			return err
		}
		mounts = append(mounts, [2]string{copied, filepath.Join("/proc/sys", name)})
	}
	for _, m := range mounts {
		kind, flags := m[0], uintptr(0)
		if kind != "tmpfs" {
			kind, flags = "", syscall.MS_BIND
		}
		if err := syscall.Mount(m[0], m[1], kind, flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	for _, line := range []string{
		"ip link set lo up", "ip link add pods type bridge", "ip addr add " + hubAddr + "/16 dev pods", "ip link set pods up",
		"ip route add default via " + hubAddr, // unused; some programs look for the address of the default route
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
		if err := os.MkdirAll(g, 0o755); err != nil {
			return err
		}
		// A cpuset group is empty until configured.
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			if value, err := os.ReadFile(filepath.Join(filepath.Dir(g), name)); err == nil {
				if err := os.WriteFile(filepath.Join(g, name), value, 0); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// machine is a Kubernetes node that runs on this machine.
type machine struct{ *fleet }

// startNode starts the processes of a node, and returns once it accepts pods.
func (f *machine) startNode(ctx context.Context) error {
	if err := f.writeCredentials(); err != nil {
		return err
	}
	for _, name := range []string{"containerd.toml", "pods.conflist", "kubelet.yaml"} {
		if err := f.writeTemplate(f.o.dir, name, map[string]any{}); err != nil {
			return err
		}
	}
	for _, p := range f.nodeProcesses() {
		program := p.argv[0]
		if built := filepath.Join(f.o.kube, program); exists(built) {
			p.argv[0] = built
		}
		if err := f.add(&node{name: program, role: "cluster", argv: p.argv}); err != nil {
			return err
		}
		if p.ready == nil {
			continue
		}
		err := f.wait(ctx, 2*time.Minute, func() error { return errors.Join(f.died(), p.ready(ctx)) })
		if err != nil {
			return fmt.Errorf("%s (see %s): %w", program, f.o.dir, err)
		}
	}
	return nil
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// writeCredentials writes the certificate and the token of the API, and the kubeconfig of its only user.
func (f *machine) writeCredentials() error {
	ca, err := natsconf.NewAuthority(crand.Reader, time.Now())
	if err != nil {
		return err
	}
	cert, key, err := ca.Issue(crand.Reader, time.Now(), 24*time.Hour, []string{hubAddr, "127.0.0.1"})
	if err != nil {
		return err
	}
	token := crand.Text()
	for name, text := range map[string][]byte{
		"api-ca.crt": ca.CertPEM(), "api.crt": cert, "api.key": key, "tokens.csv": []byte(token + ",admin,admin,system:masters\n"),
	} {
		if err := os.WriteFile(f.path(name), text, 0o600); err != nil {
			return err
		}
	}
	return f.writeTemplate(f.o.dir, "kubeconfig", map[string]any{"Token": token, "Port": apiPort})
}

// kubernetes has the configurations of containerd, of the pod network, of kubelet and of the pods.
//
//go:embed kubernetes
var kubernetes embed.FS

var templates = template.Must(template.ParseFS(kubernetes, "kubernetes/*"))

// writeTemplate writes a file of kubernetes into a folder.
func (f *machine) writeTemplate(dir, name string, values map[string]any) error {
	maps.Copy(values, map[string]any{
		"Host": hubAddr, "Dir": f.o.dir, "Containerd": containerd, "Cgroups": cgroupRoot, "Domain": domain,
	})
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, name, values); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o600)
}

// nodeProcess is a process of a Kubernetes node.
type nodeProcess struct {
	argv  []string
	ready func(context.Context) error // nil if the next process can start at once
}

// nodeProcesses returns the processes of a Kubernetes node in the order of their start.
func (f *machine) nodeProcesses() []nodeProcess {
	config := "--kubeconfig=" + f.path("kubeconfig")
	return []nodeProcess{
		{[]string{"etcd", "--data-dir=" + f.path("stores", "etcd"), "--log-level=warn", "--logger=zap"}, nil},
		{[]string{"containerd", "--config", f.path("containerd.toml")}, func(ctx context.Context) error {
			return tool(ctx, "ctr --address "+containerd+" version")
		}},
		{[]string{
			"kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0", "--advertise-address=" + hubAddr,
			"--secure-port=" + apiPort, "--tls-cert-file=" + f.path("api.crt"), "--tls-private-key-file=" + f.path("api.key"),
			"--token-auth-file=" + f.path("tokens.csv"), "--authorization-mode=RBAC", "--service-cluster-ip-range=" + serviceNet,
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-signing-key-file=" + f.path("api.key"), "--service-account-key-file=" + f.path("api.crt"),
		}, func(ctx context.Context) error { return f.kubectl(ctx, "", "get", "--raw", "/readyz") }},
		{[]string{
			"kube-controller-manager", config, "--service-account-private-key-file=" + f.path("api.key"),
			"--root-ca-file=" + f.path("api-ca.crt"), "--use-service-account-credentials", "--leader-elect=false",
			"--bind-address=127.0.0.1",
		}, nil},
		{[]string{"kube-scheduler", config, "--leader-elect=false", "--bind-address=127.0.0.1"}, nil},
		{[]string{
			"kubelet", config, "--config=" + f.path("kubelet.yaml"), "--root-dir=" + f.path("kubelet"),
			"--hostname-override=node", "--node-ip=" + hubAddr,
		}, func(ctx context.Context) error {
			return f.kubectl(ctx, "", "wait", "--for=condition=Ready", "node/node", "--timeout=1s")
		}},
	}
}

// kubectl runs kubectl with an input.
func (f *machine) kubectl(ctx context.Context, input string, args ...string) error {
	_, err := output(ctx, input, f.kubectlArgv(args...)...)
	return err
}

func (f *machine) kubectlArgv(args ...string) []string {
	return append([]string{
		filepath.Join(f.o.kube, "kubectl"), "--kubeconfig", f.path("kubeconfig"), "--cache-dir",
		f.path("kubectl"),
	}, args...)
}

// watch calls each with every object of a kind in any namespace, now and at every change, until ctx ends.
func (f *machine) watch(ctx context.Context, kind string, each func(event string, object []byte) error) (err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	argv := f.kubectlArgv("get", kind, "--all-namespaces", "--watch", "--output-watch-events", "--output=json")
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	objects, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	for d := json.NewDecoder(objects); err == nil; {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		if err = d.Decode(&e); err == nil {
			err = each(e.Type, e.Object)
		}
	}
	if ctx.Err() != nil {
		err = nil
	}
	end()
	_ = cmd.Wait() // killed
	if err != nil {
		err = fmt.Errorf("kubectl get %s --watch: %w: %s", kind, err, stderr.Bytes())
	}
	return err
}
