package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vestibule/internal/lab/process"
	"vestibule/internal/lab/testkit"
)

// logNobodyReads opens the log of a program that nobody reads. gone ends the reader, if that is how.
func logNobodyReads(t *testing.T, how string) (log *os.File, gone func()) {
	t.Helper()
	if how == "the disk is full" {
		log = testkit.Must(os.OpenFile("/dev/full", os.O_WRONLY, 0))(t)
		return log, func() {}
	}
	r, w, err := os.Pipe()
	testkit.NoError(t, err)
	gone = func() {
		if how == "the reader has ended" {
			testkit.NoError(t, r.Close())
		}
	}
	if how == "the reader has stopped" {
		t.Cleanup(func() { r.Close() })
		testkit.NoError(t, w.SetWriteDeadline(time.Now().Add(time.Second)))
		for err == nil { // until the pipe is full
			_, err = w.Write(make([]byte, 4096))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	return w, gone
}

// TestALogThatNobodyReads: no program ends or stalls because the reader of its log has ended or stopped, or its disk is
// full, while scrapers of its metrics never read; nor does any end otherwise than well when it is stopped.
func TestALogThatNobodyReads(t *testing.T) {
	t.Parallel()
	bin := build(t)
	vestibule := filepath.Join(bin, "vestibule")
	for _, how := range []string{"the reader has ended", "the reader has stopped", "the disk is full"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			run := func(args ...string) *command {
				t.Helper()
				log, gone := logNobodyReads(t, how)
				c := &command{log: &testkit.Log{}, name: strings.Join(args[:1], " ")}
				p, err := process.Start(process.Options{Name: c.name, Argv: append([]string{vestibule}, args...), Stderr: log})
				testkit.NoError(t, err)
				testkit.NoError(t, log.Close())
				c.Process = p
				t.Cleanup(func() {
					c.kill(t, syscall.SIGKILL)
					<-c.Done()
				})
				if args[0] != "nats-server" {
					c.listens(t)
					hang(t, strings.TrimPrefix(c.at["metrics"], "http://"), "/metrics")
				}
				gone()
				return c
			}
			// Where the reader has stopped, a megabyte waits for it first.
			lost := func(c *command) func() bool {
				return func() bool {
					return how == "the reader has stopped" || gauge(t, c, "vestibule_log_lost_lines_total") > 0
				}
			}
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Demo-Origin", "1")
			}))
			t.Cleanup(site.Close)
			dir := t.TempDir()
			data, addr, at := filepath.Join(dir, "data"), testkit.FreeAddr(t), testkit.FreeAddr(t)
			serve := []string{
				"serve", "--origin", site.URL, "--host", "shop.example", "--listen", addr, "--control", "127.0.0.1:0", "--metrics",
				"127.0.0.1:0", "--data-dir", data, "--log-level", "debug",
			}
			config := func(name string) string { return filepath.Join(data, "split", name+".yaml") }
			global := []string{"global", "--config", config("global"), "--nats-listen", at, "--log-level", "debug"}

			one := run(serve...)
			until(t, "a visitor of serve is inside", newShopper(t, addr).inside)
			until(t, "serve has lost lines", lost(one))
			one.stop(t)

			leader := run(global...)
			nodes := []*command{
				run("regional", "--config", config("regional-main"), "--nats-url", "nats://"+at, "--log-level", "debug"),
				run("edge", "--config", config("edge-main-edge-1"), "--nats-url", "nats://"+at, "--log-level", "debug"),
			}
			until(t, "a visitor of the edge is inside", newShopper(t, addr).inside)
			leader.stop(t) // and with it the nats-server: now all have something to say
			leader = run(global...)
			until(t, "a visitor that came after the restart is inside", newShopper(t, addr).inside)
			for _, c := range append(nodes, leader) {
				until(t, c.name+" has lost lines", lost(c))
			}
			for _, c := range []*command{nodes[1], nodes[0], leader} {
				c.stop(t)
			}

			host, port, err := net.SplitHostPort(testkit.FreeAddr(t))
			testkit.NoError(t, err)
			monitor, monitorPort, err := net.SplitHostPort(testkit.FreeAddr(t))
			testkit.NoError(t, err)
			server := run("nats-server", "-a", host, "-p", port, "-m", monitorPort, "-D", "-V")
			until(t, "the nats-server is up", func() bool { return greets(host + ":" + port) })
			hang(t, net.JoinHostPort(monitor, monitorPort), "/connz") // the http of nats.conf
			for range 20 {                                            // each connection is several lines
				until(t, "the nats-server answers", func() bool { return greets(host + ":" + port) })
			}
			server.stop(t)
		})
	}
}

// greets reports whether a nats-server greets a client, which then says nothing that it knows.
func greets(at string) bool {
	c, err := net.DialTimeout("tcp", at, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	fmt.Fprint(c, "HELLO\r\n") // it may have hung up
	return err == nil && strings.HasPrefix(line, "INFO ")
}

// hang has scrapers ask for metrics and never read them.
func hang(t *testing.T, at, path string) {
	t.Helper()
	for range 20 {
		c := testkit.Must(net.Dial("tcp", at))(t)
		t.Cleanup(func() { c.Close() })
		testkit.NoError(t, c.(*net.TCPConn).SetReadBuffer(4096))
		_, err := c.Write([]byte(strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: metrics\r\n\r\n", 50)))
		testkit.NoError(t, err)
	}
}
