package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// block is a fenced block of the document: its purpose and its text.
type block struct{ lang, use, text string }

var fence = regexp.MustCompile("(?ms)^```(\\w+) (\\S+)\n(.*?)^```$")

func blocks(t *testing.T) []block {
	t.Helper()
	doc := testkit.Must(os.ReadFile("../../../docs/QUICKSTART.md"))(t)
	text := string(doc)
	// The ports of the document are replaced by free ones.
	taken := map[string]string{}
	text = regexp.MustCompile(`127\.0\.0\.1:[1-9]\d*`).ReplaceAllStringFunc(text, func(addr string) string {
		if taken[addr] == "" {
			taken[addr] = testkit.FreeAddr(t)
		}
		return taken[addr]
	})
	var out []block
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		out = append(out, block{m[1], m[2], strings.TrimSpace(m[3])})
	}
	return out
}

// hand is a reader of the documents at a shell, in a folder of its own with the commands in bin.
type hand struct {
	t   *testing.T
	dir string
	ctx context.Context
	log testkit.Log // the output of processes
}

func newHand(t *testing.T) *hand {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Patience)
	h := &hand{t: t, dir: t.TempDir(), ctx: ctx}
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			t.Logf("the processes said:\n%s", &h.log)
		}
	})
	testkit.NoError(t, os.Symlink(build(t), filepath.Join(h.dir, "bin")))
	return h
}

func (h *hand) command(line string) *exec.Cmd {
	c := exec.CommandContext(h.ctx, "sh", "-c", "PATH=$PWD/bin:$PATH; export PATH; "+line)
	c.Dir = h.dir
	return c
}

func (h *hand) run(line string) {
	h.t.Helper()
	if out, err := h.command(line).CombinedOutput(); err != nil {
		h.t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// start starts a command, to which signals go.
func (h *hand) start(line string) *exec.Cmd {
	h.t.Helper()
	c := h.command("exec " + line)
	c.Stdout, c.Stderr = &h.log, &h.log
	testkit.NoError(h.t, c.Start())
	return c
}

// TestQuickstartByHand: the files and commands of docs/QUICKSTART.md, in order, lead to an admitted visitor.
func TestQuickstartByHand(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil || runtime.GOOS == "windows" {
		t.Skip("needs a shell and curl")
	}
	t.Parallel()
	h := newHand(t)
	files, ran, polled := 0, 0, 0
	var background []*exec.Cmd
	for _, b := range blocks(t) {
		name, isFile := strings.CutPrefix(b.use, "file=")
		switch {
		case isFile:
			files++
			testkit.NoError(t, os.WriteFile(filepath.Join(h.dir, name), []byte(b.text+"\n"), 0o600))
		case b.use == "run":
			for line := range strings.Lines(b.text) {
				ran++
				h.run(line)
			}
		case b.use == "background":
			background = append(background, h.start(b.text))
		case b.use == "poll":
			polled++
			took := testkit.Eventually(t, b.text+" says that the visitor is in", func() bool {
				out, err := h.command(b.text).Output()
				return err == nil && strings.Contains(string(out), "You are in")
			})
			t.Logf("in after %v", took.Round(time.Millisecond))
		default:
			t.Errorf("a block of an unknown use: %+v", b)
		}
	}
	if files != 4 || ran != 4 || len(background) != 4 || polled != 1 {
		t.Errorf("%d files, %d commands, %d processes, %d requests: the document has changed its form", files, ran,
			len(background), polled)
	}
	if n := strings.Count(h.log.String(), "LISTENING {"); n != 4 {
		t.Errorf("%d of 4 processes printed where they listen", n)
	}
	// Ctrl-C ends each of them, in any order, with success.
	for i, c := range background {
		testkit.NoError(t, c.Process.Signal(syscall.SIGINT))
		if err := c.Wait(); err != nil {
			t.Errorf("%s: %v", fmt.Sprint(background[i].Args), err)
		}
	}
}

// TestNATSServersByHand: the block of docs/INTEGRATIONS.md that makes credentials leads to servers that let in every
// user.
func TestNATSServersByHand(t *testing.T) {
	t.Parallel()
	doc := testkit.Must(os.ReadFile("../../../docs/INTEGRATIONS.md"))(t)
	_, rest, found := strings.Cut(string(doc), "\n```sh\nvestibule nats-config write ")
	text, _, closed := strings.Cut(rest, "\n```\n")
	if !found || !closed {
		t.Fatal("the block has changed its form")
	}
	h := newHand(t)
	leafs := testkit.FreeAddr(t) // of global's server
	clients := map[string]string{"global": testkit.FreeAddr(t), "nairobi": testkit.FreeAddr(t)}
	text = strings.NewReplacer("\\\n", " ", "nats.example.com:7422", leafs, "127.0.0.1:4222",
		clients["global"]).Replace("vestibule nats-config write " + text)
	for line := range strings.Lines(text) {
		place, server := strings.CutPrefix(line, "NATS_SERVER_NAME=nats-")
		if !server {
			h.run(line)
			continue
		}
		place, _, _ = strings.Cut(place, " ")
		file := filepath.Join(h.dir, "nats", place, "nats.conf") // its ports are those of machines of their own
		conf := testkit.Must(os.ReadFile(file))(t)
		conf = []byte(strings.NewReplacer("0.0.0.0:4222", clients[place], "0.0.0.0:7422", leafs, "127.0.0.1:8222",
			testkit.FreeAddr(t)).Replace(string(conf)))
		testkit.NoError(t, os.WriteFile(file, conf, 0o600))
		name, start, _ := strings.Cut(strings.TrimSpace(line), " ")
		c := h.start("env " + name + " " + start)
		defer func() {
			if err := c.Process.Signal(syscall.SIGTERM); err == nil {
				_ = c.Wait() // it ends with an error by a signal
			}
		}()
		testkit.Eventually(t, "the server of "+place+" answers", func() bool {
			n, err := (&net.Dialer{}).DialContext(h.ctx, "tcp", clients[place])
			return err == nil && n.Close() == nil
		})
	}
	h.run("vestibule nats-config provision --place nairobi --nats-url tls://" + clients["nairobi"] +
		" --nats-ca nats/ca.crt --nats-cert nats/nairobi/provision/provision.crt --nats-key " +
		"nats/nairobi/provision/provision.key")
	for place, addr := range clients {
		testkit.Eventually(t, "the servers of "+place+" let in every user", func() bool {
			return h.command("vestibule nats-config verify --out nats --place "+place+" --nats-url tls://"+addr).Run() == nil
		})
	}
}
