//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"vestibule/internal/lab/judge"
	"vestibule/internal/lab/process"
)

// node is one process of the deployment, and its successors of the same name.
type node struct {
	name   string // "nairobi/edge-1"
	role   string // edge, regional, global, nats, or cluster for the processes of Kubernetes
	place  string
	argv   []string
	log    string // log file of all its lives
	fleet  *fleet
	first  []string // additional arguments of the first life
	number int      // among edges
	data   string   // its folder, if not ours
	uid    string   // of a pod

	url     atomic.Value // string: address for visitors
	metrics atomic.Value // string
	up      atomic.Bool  // a load balancer would send visitors there
	gone    atomic.Bool  // removed for good

	mu      sync.Mutex
	process *process.Process
	busy    bool         // claimed by a fault
	outages []judge.Span // intervals of faults, as offsets from the deployment's zero
}

// ours reports whether the node is one of our binaries, which report their addresses.
func (n *node) ours() bool { return n.role == "edge" || n.role == "regional" || n.role == "global" }

// start starts the process, and returns once it has reported its addresses.
func (n *node) start(extra ...string) error {
	file, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close() // written by the process
	fmt.Fprintf(file, "--- started at %.3f s\n", n.fleet.since().Seconds())
	o := process.Options{
		Name: n.name + " (see " + n.log + ")", Argv: argvIn(n.place, append(n.argv, extra...)),
		Stderr: file,
	}
	if !n.ours() {
		o.Stdout = file
	}
	p, err := process.Start(o)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.process = p
	n.mu.Unlock()
	if !n.ours() {
		return nil
	}
	at := map[string]string{}
	if err := p.Addresses(endWithin, &at); err != nil {
		return err
	}
	n.url.Store(at["url"])
	n.metrics.Store(at["metrics"])
	return nil
}

// endWithin is how long a process may take to start or to end.
const endWithin = 20 * time.Second

// running returns the newest process, nil for none.
func (n *node) running() *process.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

// signal sends a signal to the process.
func (n *node) signal(s syscall.Signal) error {
	if p := n.running(); p != nil {
		return p.Signal(s)
	}
	return nil
}

// end sends a signal that ends the process and waits for its end.
func (n *node) end(s syscall.Signal) error {
	if p := n.running(); p != nil {
		return p.End(s, endWithin)
	}
	return nil
}

// died returns the error of an unexpected end of the process.
func (n *node) died() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.process == nil || n.busy {
		return nil
	}
	select {
	case <-n.process.Done():
		return fmt.Errorf("%s ended by itself: %s (see %s)", n.name, n.process.State(), n.log)
	default:
		return nil
	}
}

// claim reserves the node for a fault.
func (n *node) claim() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy {
		return false
	}
	n.busy = true
	return true
}

func (n *node) free() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy = false
}

// unwell records the start of an outage; well records its end.
func (n *node) unwell() (well func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := len(n.outages)
	n.outages = append(n.outages, judge.Span{From: n.fleet.since()})
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.outages[i].To = n.fleet.since()
	}
}

// text returns a stored address.
func text(v *atomic.Value) string {
	s, _ := v.Load().(string)
	return s
}

// write writes a file of the deployment.
func write(dir, name, format string, args ...any) (string, error) {
	name = filepath.Join(dir, name)
	return name, os.WriteFile(name, fmt.Appendf(nil, format, args...), 0o600)
}

// dataDir returns the node's folder.
func (n *node) dataDir() string {
	if n.data != "" {
		return n.data
	}
	return n.fleet.path(strings.ReplaceAll(n.name, "/", "-"))
}
