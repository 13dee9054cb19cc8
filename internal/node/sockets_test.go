package node

import (
	"io"
	"net"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vestibule/internal/lab/testkit"
)

// Variables for another process are ignored; those for this one must be a number.
func TestPassedSockets(t *testing.T) {
	us := strconv.Itoa(os.Getpid())
	for name, tc := range map[string]struct{ pid, fds, fault string }{
		"none passed":              {"", "", ""},
		"for the process before":   {"1", "3", ""},
		"for us, none":             {us, "0", ""},
		"for us, no number":        {us, "all", `LISTEN_FDS: must be 0 to 64, got "all"`},
		"for us, too many":         {us, "65", `LISTEN_FDS: must be 0 to 64, got "65"`},
		"for us, without a number": {us, "", `LISTEN_FDS: must be 0 to 64, got ""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LISTEN_PID", tc.pid)
			t.Setenv("LISTEN_FDS", tc.fds)
			s, err := PassedSockets()
			if tc.fault != "" {
				if err == nil || err.Error() != tc.fault {
					t.Errorf("%v, want %s", err, tc.fault)
				}
				return
			}
			if err != nil || len(s.Left()) != 0 {
				t.Errorf("%v, %v", s.Left(), err)
			}
			if _, there := os.LookupEnv("LISTEN_PID"); there != (tc.pid != us) {
				t.Errorf("LISTEN_PID is there for processes that this one starts: %v", there)
			}
		})
	}
}

// A socket is taken by its bound address, once.
func TestSocketsAreTakenByAddress(t *testing.T) {
	open := func(addr string) *net.TCPListener {
		l := testkit.Must(net.Listen("tcp", addr))(t)
		t.Cleanup(func() { _ = l.Close() }) // maybe closed
		return l.(*net.TCPListener)
	}
	one, everywhere := open("127.0.0.1:0"), open(":0")
	port := strconv.Itoa(everywhere.Addr().(*net.TCPAddr).Port)
	s := &Sockets{listeners: []*net.TCPListener{one, everywhere}}
	for _, addr := range []string{"127.0.0.2:" + port, "127.0.0.1:" + port, "nowhere", one.Addr().String() + "0"} {
		if l := s.Take(addr); l != nil {
			t.Errorf("%s is served by %v", addr, l.Addr())
		}
	}
	if s.Take("0.0.0.0:"+port) != everywhere || s.Take(":"+port) != nil {
		t.Error("every address is another one in IPv4, or a socket is taken twice")
	}
	if left := s.Left(); !reflect.DeepEqual(left, []string{one.Addr().String()}) {
		t.Errorf("left: %v", left)
	}
	if err := s.Close(); err != nil || one.Close() == nil {
		t.Errorf("what nobody took is open: %v", err)
	}
	if (*Sockets)(nil).Take(":1") != nil || (*Sockets)(nil).Left() != nil || (*Sockets)(nil).Close() != nil {
		t.Error("no sockets are not none")
	}
}

// Load reads the file written by File; defaults are omitted.
func TestFileIsLoaded(t *testing.T) {
	was, cfg := defaults(), defaults()
	cfg.Name, cfg.On, cfg.List, cfg.Wait, cfg.Deeper.Name, cfg.DataDir = "a: b", false, []string{"x, y", "z"},
		90*time.Second, "below", "/data"
	text := testkit.Must(File(&cfg, &was))(t)
	for _, key := range []string{"n:", "log:", "metrics:"} {
		if strings.HasPrefix(string(text), key) || strings.Contains(string(text), "\n"+key) {
			t.Errorf("%s has its default and is written:\n%s", key, text)
		}
	}
	got := defaults()
	testkit.Must(Load("sample", &got, []string{"--config", write(t, string(text))}, io.Discard))(t)
	if diff := cmp.Diff(cfg, got); diff != "" {
		t.Errorf("(-written +loaded):\n%s\n%s", diff, text)
	}
}
