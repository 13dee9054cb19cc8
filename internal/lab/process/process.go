// Package process builds the programs of this project and runs them, and others, as child processes: for chaos, crowd,
// bench and the end-to-end tests.
package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// NATSServer is the package of the nats-server of this build, for [Build].
const NATSServer = "vestibule/internal/node/natsbus/embedded/nats-server"

// Build builds the commands of packages into a folder.
func Build(ctx context.Context, dir string, packages ...string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	args := append([]string{"build", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}, packages...)
	if text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return nil
}

// Options describe a process.
type Options struct {
	Name   string // for errors
	Argv   []string
	Env    []string   // in addition to ours
	Files  []*os.File // passed open, numbered from 3
	Stderr io.Writer
	Stdout *os.File // receives the standard output; nil to read the addresses of one of our programs from it
}

// Process is a child process. It ends with this process.
type Process struct {
	name      string
	cmd       *exec.Cmd
	addresses chan []byte
	done      chan struct{}
	err       error // of its end, once done is closed
}

// Start starts a process in its own process group.
func Start(o Options) (*Process, error) {
	p := &Process{
		name: o.Name, cmd: exec.Command(o.Argv[0], o.Argv[1:]...), addresses: make(chan []byte, 1),
		done: make(chan struct{}),
	}
	p.cmd.Env = append(os.Environ(), o.Env...)
	p.cmd.ExtraFiles = o.Files
	p.cmd.Stderr = o.Stderr
	p.cmd.SysProcAttr = Group()
	p.cmd.WaitDelay = 30 * time.Second // for children that it leaves behind
	var stdout io.Reader = strings.NewReader("")
	if o.Stdout != nil {
		p.cmd.Stdout = o.Stdout
	} else {
		var err error
		if stdout, err = p.cmd.StdoutPipe(); err != nil {
			return nil, err
		}
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			text, ok := strings.CutPrefix(lines.Text(), "LISTENING ")
			if !ok {
				text, ok = strings.CutPrefix(lines.Text(), "READY ") // vestibule demo and vestibule serve
			}
			if !ok {
				continue
			}
			select {
			case p.addresses <- []byte(text):
			default: // already known
			}
		}
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// Addresses waits until the process has printed its addresses, and decodes them into to.
func (p *Process) Addresses(limit time.Duration, to any) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case text := <-p.addresses:
		return json.Unmarshal(text, to)
	case <-p.done:
		return fmt.Errorf("%s ended at its start: %s", p.name, p.State())
	case <-timer.C:
		return fmt.Errorf("%s printed no address within %v", p.name, limit)
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns the error of a process that has ended, nil for exit code 0 and for a process that runs.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// State describes the end of a process that has ended, such as "exit status 1".
func (p *Process) State() string { return p.cmd.ProcessState.String() }

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Argv returns the command.
func (p *Process) Argv() []string { return p.cmd.Args }

// Signal sends a signal to the process and its children. It does nothing if all have ended.
func (p *Process) Signal(s syscall.Signal) error {
	if err := syscall.Kill(-p.PID(), s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s: signal %v: %w", p.name, s, err)
	}
	return nil
}

// End sends a signal that ends the process, and waits for its end.
func (p *Process) End(s syscall.Signal, limit time.Duration) error {
	if err := p.Signal(s); err != nil {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%s does not end within %v of signal %v", p.name, limit, s)
	}
}
