//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// node is one process of the deployment, and its successors of the same name.
type node struct {
	name   string // "nairobi/edge-1"
	role   string // edge, regional, global, nats, toxiproxy, or cluster for the processes of Kubernetes
	place  string
	argv   []string
	log    string // log file of all its lives
	fleet  *deployment
	first  []string // additional arguments of the first life
	number int      // among edges
	data   string   // its folder, if not ours
	uid    string   // of a pod

	url     atomic.Value // string: address for visitors
	metrics atomic.Value // string
	up      atomic.Bool  // a load balancer would send visitors there
	gone    atomic.Bool  // removed for good

	mu      sync.Mutex
	life    *life
	busy    bool   // claimed by a fault
	outages []span // intervals of faults, as offsets from the deployment's zero
}

// life is one process.
type life struct {
	cmd  *exec.Cmd
	gone chan struct{}
	err  error // of its end, once gone is closed
}

// span is an interval; To is 0 while it lasts.
type span struct{ From, To time.Duration }

func (s span) touches(from, to time.Duration) bool {
	return s.From <= to && (s.To == 0 || s.To >= from)
}

// ours reports whether the node is one of our binaries, which report their addresses.
func (n *node) ours() bool { return n.role == "edge" || n.role == "regional" || n.role == "global" }

// start begins a life and returns once the process has reported its addresses.
func (n *node) start(extra ...string) error {
	file, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Fprintf(file, "--- started at %.3f s\n", n.fleet.since().Seconds())
	argv := n.fleet.net.in(n.place, append(n.argv, extra...))
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = file
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if !n.ours() {
		cmd.Stdout = file
	}
	l := &life{cmd: cmd, gone: make(chan struct{})}
	told := make(chan map[string]string, 1)
	wait := func() {
		l.err = cmd.Wait()
		close(l.gone)
	}
	if !n.ours() {
		if err := cmd.Start(); err != nil {
			return err
		}
		told <- nil
		go wait()
	} else {
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		go func() {
			for lines := bufio.NewScanner(stdout); lines.Scan(); {
				at := map[string]string{}
				if text, ok := strings.CutPrefix(lines.Text(), "LISTENING "); ok && json.Unmarshal([]byte(text), &at) == nil {
					told <- at
				}
			}
			wait()
		}()
	}
	n.mu.Lock()
	n.life = l
	n.mu.Unlock()
	select {
	case at := <-told:
		n.url.Store(at["url"])
		n.metrics.Store(at["metrics"])
		return nil
	case <-l.gone:
		return fmt.Errorf("%s ended at its start: %w (see %s)", n.name, l.err, n.log)
	case <-time.After(20 * time.Second):
		return fmt.Errorf("%s reported no address (see %s)", n.name, n.log)
	}
}

// signal sends a signal to the process.
func (n *node) signal(s syscall.Signal) error {
	n.mu.Lock()
	l := n.life
	n.mu.Unlock()
	if l == nil {
		return nil
	}
	err := syscall.Kill(l.cmd.Process.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// end sends a signal that ends the process and waits for its end.
func (n *node) end(s syscall.Signal) error {
	if err := n.signal(s); err != nil {
		return err
	}
	n.mu.Lock()
	l := n.life
	n.mu.Unlock()
	if l == nil {
		return nil
	}
	select {
	case <-l.gone:
		return nil
	case <-time.After(20 * time.Second):
		return fmt.Errorf("%s does not end (see %s)", n.name, n.log)
	}
}

// died returns the error of an unexpected end of the process.
func (n *node) died() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life == nil || n.busy {
		return nil
	}
	select {
	case <-n.life.gone:
		err := n.life.err
		if err == nil {
			err = errors.New("exit code 0")
		}
		return fmt.Errorf("%s ended by itself: %w (see %s)", n.name, err, n.log)
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
	n.outages = append(n.outages, span{From: n.fleet.since()})
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
	return filepath.Join(n.fleet.o.dir, strings.ReplaceAll(n.name, "/", "-"))
}
