//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The network of a run: a network namespace for each place, and this process in the namespace that routes between them.

// hub is the place of the site, of the visitors and of this process.
const hub = ""

// hubAddr is its address. Pods have addresses in its /16.
const hubAddr = "10.77.0.1"

// places are the places of processes. The last one has no edges: it lets two of three NATS servers and globals survive
// the loss of any place.
var places = []string{"nairobi", "dublin", "lima"}

// subnet returns the network of a place, 10.77.N.
func subnet(place string) string {
	return fmt.Sprintf("10.77.%d.", 1+slices.Index(places, place))
}

// addrOf returns the address of a place.
func addrOf(place string) string {
	if place == hub {
		return hubAddr
	}
	return subnet(place) + "1"
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

// newNetwork creates the namespaces of all places around this process, which has its own namespaces.
func newNetwork(ctx context.Context) error {
	if err := ownMounts(); err != nil {
		return err
	}
	lines := []string{"link set lo up", "addr add " + hubAddr + "/32 dev lo"}
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
			return err
		}
	}
	return nil
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
	_, err := output(ctx, "", strings.Fields(line)...)
	return err
}

// output runs a command with an input, and returns its standard output. An error has all that it printed.
func output(ctx context.Context, input string, argv ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(stdout.String() + stderr.String())
		return text, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, text)
	}
	return stdout.String(), nil
}

// within opens a socket in the namespace of a place, where it stays. The thread returns to our namespace: it must not
// end, since the kernel would end the processes that it has started.
func within[T any](place string, open func() (T, error)) (socket T, err error) {
	runtime.LockOSThread()
	ours, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return socket, err
	}
	defer ours.Close() // read-only
	theirs, err := os.Open("/run/netns/" + place)
	if err != nil {
		return socket, err
	}
	defer theirs.Close() // read-only
	if err := unix.Setns(int(theirs.Fd()), unix.CLONE_NEWNET); err != nil {
		return socket, err
	}
	socket, err = open()
	if e := unix.Setns(int(ours.Fd()), unix.CLONE_NEWNET); e != nil {
		panic(e) // the thread would mix up the places
	}
	runtime.UnlockOSThread()
	return socket, err
}

// argvIn returns the command that runs argv in a place.
func argvIn(place string, argv []string) []string {
	if place == hub {
		return argv
	}
	return append([]string{"ip", "netns", "exec", place}, argv...)
}

// cut drops packets from one place to another, and returns how to heal it.
func cut(from, to string) (heal func() error, err error) {
	rule := "from " + subnet(from) + "0/24 to " + subnet(to) + "0/24 blackhole"
	return func() error { return tool(context.Background(), "ip rule del "+rule) },
		tool(context.Background(), "ip rule add "+rule)
}

// narrow leaves a place 600 kbit/s, and returns how to heal it. A delay would need netem, which not every kernel has:
// see gateway.
func narrow(place string) (heal func() error, err error) {
	dev := "dev to-" + place + " root"
	return func() error { return tool(context.Background(), "tc qdisc del "+dev) },
		tool(context.Background(), "tc qdisc add "+dev+" tbf rate 600kbit burst 6kb latency 400ms")
}

// disk creates a folder as a small disk of the given MiB.
func disk(path string, size int) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return syscall.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("size=%dm", size))
}

// join joins host and port.
func join(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
