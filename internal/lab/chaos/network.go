//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// network is the network of the processes: places with an address each, and links between them that can be cut.
type network interface {
	// addr returns the address of a place, hub for this process.
	addr(place string) string
	// port returns a free port there; n distinguishes several.
	port(place string, n int) (int, error)
	// in returns the command that runs argv in a place.
	in(place string, argv []string) []string
	// cut drops packets from one place to another, and returns how to heal it.
	cut(from, to string) (heal func() error, err error)
	// narrow limits the bandwidth of a place, and returns how to heal it.
	narrow(place string) (heal func() error, err error)
	// disk creates a folder as a small disk of the given MiB, if links reports true.
	disk(path string, size int) error
	// links reports whether links can be cut and narrowed, and disks filled.
	links() bool
}

// hub is the place of the site, of the visitors and of this process.
const hub = ""

// loopback is the network without namespaces.
type loopback struct{}

var errLoopback = errors.New("there are no links on the loopback interface")

func (loopback) addr(string) string                       { return "127.0.0.1" }
func (loopback) in(_ string, argv []string) []string      { return argv }
func (loopback) cut(_, _ string) (func() error, error)    { return nil, errLoopback }
func (loopback) narrow(string) (func() error, error)      { return nil, errLoopback }
func (loopback) disk(path string, _ int) error            { return os.MkdirAll(path, 0o700) }
func (loopback) links() bool                              { return false }
func (loopback) port(_ string, _ int) (port int, _ error) { return freePort() }

// freePort returns a port that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// router is a network of namespaces: one per place, and this process, in the namespace that routes between them, is the
// hub.
type router struct{}

// places are the places of processes. The last one has no edges: it lets two of three NATS servers and globals survive
// the loss of any place.
var places = []string{"nairobi", "dublin", "lima"}

// subnet returns the network of a place, 10.77.N.
func subnet(place string) string {
	return fmt.Sprintf("10.77.%d.", 1+slices.Index(places, place))
}

// ownNamespaces makes a started process the first one of its own namespaces, as root in them.
func ownNamespaces() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // Ctrl-C comes from the parent, once
	}
	if os.Geteuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// newRouter creates the namespaces of all places around this process, which has its own namespaces.
func newRouter(ctx context.Context) (*router, error) {
	if err := ownMounts(); err != nil {
		return nil, err
	}
	lines := []string{"link set lo up", "addr add 10.77.0.1/32 dev lo"}
	for _, place := range places {
		net := subnet(place)
		lines = append(
			lines,
			"netns add "+place,
			"link add to-"+place+" type veth peer name eth0 netns "+place,
			"addr add "+net+"254/24 dev to-"+place,
			"link set to-"+place+" up",
			"-n "+place+" link set lo up",
			"-n "+place+" addr add "+net+"1/24 dev eth0",
			"-n "+place+" link set eth0 up",
			"-n "+place+" route add default via "+net+"254",
		)
	}
	for _, line := range lines {
		if err := tool(ctx, "ip "+line); err != nil {
			return nil, err
		}
	}
	return &router{}, nil
}

// ownMounts gives this process private mounts and its own /proc, and enables packet forwarding.
func ownMounts() error {
	if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// ip keeps named namespaces in this folder. A private one is invisible to others and vanishes with this process.
	if err := syscall.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1\n"), 0); err != nil {
		return fmt.Errorf("forwarding: %w", err)
	}
	return nil
}

// tool runs a command line without quotes.
func tool(ctx context.Context, line string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	words := strings.Fields(line)
	text, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(string(text)))
	}
	return nil
}

func (r *router) addr(place string) string {
	if place == hub {
		return "10.77.0.1"
	}
	return subnet(place) + "1"
}

// port returns a fixed number: the namespace has no other processes.
func (r *router) port(_ string, n int) (int, error) { return 4222 + n, nil }

func (r *router) in(place string, argv []string) []string {
	if place == hub {
		return argv
	}
	return append([]string{"ip", "netns", "exec", place}, argv...)
}

func (r *router) cut(from, to string) (func() error, error) {
	rule := "from " + subnet(from) + "0/24 to " + subnet(to) + "0/24 blackhole"
	return func() error { return tool(context.Background(), "ip rule del "+rule) }, tool(context.Background(), "ip rule add "+rule)
}

// narrow leaves 600 kbit/s. A delay would need netem, which not every kernel has: see gateway.
func (r *router) narrow(place string) (func() error, error) {
	dev := "dev to-" + place + " root"
	return func() error { return tool(context.Background(), "tc qdisc del "+dev) },
		tool(context.Background(), "tc qdisc add "+dev+" tbf rate 600kbit burst 6kb latency 400ms")
}

func (r *router) disk(path string, size int) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return syscall.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("size=%dm", size))
}

func (r *router) links() bool { return true }

// join joins host and port.
func join(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
