package embedded_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

func start(t *testing.T, o embedded.Options) *embedded.Server {
	t.Helper()
	o.Name, o.Log = t.Name()+o.Domain, quiet
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s := testkit.Must(embedded.Start(o))(t)
	t.Cleanup(s.Stop)
	return s
}

var eventually = testkit.Eventually

// A server that cannot run reports the reason at once.
func TestAServerThatCannotRunSaysWhy(t *testing.T) {
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	for name, c := range map[string]struct {
		o    embedded.Options
		want string
	}{
		"port taken": {embedded.Options{Listen: l.Addr().String()}, "address already in use"},
		"no port":    {embedded.Options{Listen: "127.0.0.1"}, "listen: "},
		"bad port":   {embedded.Options{Listen: "127.0.0.1:99999"}, "must be 0 to 65535"},
		"bad leafs":  {embedded.Options{Leafs: "x"}, "leafs: "},
		"bad hub":    {embedded.Options{Hubs: []string{"nats-leaf://[::1"}}, "hubs: "},
		"bad folder": {embedded.Options{Dir: "/dev/null/x"}, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Name, c.o.Log = "x", quiet
			if c.o.Dir == "" {
				c.o.Dir = t.TempDir()
			}
			s, err := embedded.Start(c.o)
			if err == nil {
				s.Stop()
				t.Fatal("it runs")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A node joins its own server, and reports its address for others.
func TestJoin(t *testing.T) {
	for _, c := range []struct {
		listen string
		url    bool
	}{{"", false}, {"127.0.0.1:0", true}} {
		var closer node.Closer
		conn, server, err := embedded.Join("n", "n", t.TempDir(), &node.ServerConfig{
			Embedded: true, Listen: c.listen,
			Replicas: 1,
		}, &closer, quiet)
		testkit.NoError(t, err)
		url := server.URL()
		eventually(t, "connected", conn.Connected)
		if (url != "") != c.url {
			t.Errorf("listen %q: reached at %q", c.listen, url)
		}
		if url != "" {
			other := testkit.Must(natsbus.Connect(natsbus.Options{URL: url, Name: "other", Log: quiet}))(t)
			eventually(t, "another process connects", other.Connected)
			other.Close()
		}
		closer.Close(quiet)
	}
}

// A server that listened on loopback alone, without a password, gets one before it listens for other machines.
func TestAServerThatLeavesLoopbackGetsAPassword(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		listen   string
		password bool
	}{{"127.0.0.1:0", false}, {"0.0.0.0:0", true}, {"127.0.0.1:0", true}} {
		var closer node.Closer
		cfg := node.DefaultServer()
		cfg.Embedded, cfg.Listen, cfg.Replicas = true, c.listen, 1
		conn, server, err := embedded.Join("n", "n", dir, &cfg, &closer, quiet)
		testkit.NoError(t, err)
		eventually(t, "connected", conn.Connected)
		_, err = os.Stat(filepath.Join(dir, "nats.password"))
		if got := err == nil; got != c.password {
			t.Errorf("%s: a password: %v, want %v", c.listen, got, c.password)
		}
		u := testkit.Must(url.Parse(server.URL()))(t)
		other, err := nats.Connect("nats://127.0.0.1:" + u.Port())
		if got := err == nil; got == c.password {
			t.Errorf("%s: a stranger is in: %v", c.listen, got)
		}
		if other != nil {
			other.Close()
		}
		closer.Close(quiet)
	}
}

// TestAServerAsksForItsPassword: clients and leaf nodes without it are rejected.
func TestAServerAsksForItsPassword(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	leafs := testkit.FreeAddr(t)
	cfg := node.DefaultServer()
	cfg.Embedded, cfg.Listen, cfg.Leafs, cfg.Domain = true, "127.0.0.1:0", leafs, "hub"
	for credentials, asks := range map[string]bool{node.AutoCredentials: true, node.NoCredentials: false} {
		t.Run(credentials, func(t *testing.T) {
			dir := t.TempDir()
			testkit.NoError(t, os.WriteFile(filepath.Join(dir, "nats.password"), []byte(secret+"\n"), 0o600))
			var closer node.Closer
			defer closer.Close(quiet)
			cfg := cfg
			cfg.Credentials = credentials
			conn, server, err := embedded.Join("n", "n", dir, &cfg, &closer, quiet)
			testkit.NoError(t, err)
			eventually(t, "its own node is connected", conn.Connected)
			addr := strings.TrimPrefix(server.URL(), "nats://")
			for who, want := range map[string]bool{
				"": !asks, "vestibule:wrong@": !asks, "somebody:" + secret + "@": !asks,
				"vestibule:" + secret + "@": true,
			} {
				nc, err := nats.Connect("nats://"+who+addr, nats.Timeout(testkit.Patience))
				if err == nil {
					nc.Close()
				} else if !errors.Is(err, nats.ErrAuthorization) {
					t.Errorf("%q: %v", who, err)
				}
				if (err == nil) != want {
					t.Errorf("%q is taken: %v", who, err == nil)
				}
			}
			eventually(t, "who asked has gone", func() bool { return server.Others() == 0 })
			start(t, embedded.Options{Domain: "leaf", Hubs: []string{"nats-leaf://vestibule:" + secret + "@" + leafs}})
			eventually(t, "the leaf node that knows the password has joined", func() bool { return server.Others() == 1 })
			var said testkit.Log
			other := testkit.Must(embedded.Start(embedded.Options{
				Name: "stranger", Dir: t.TempDir(), Domain: "stranger", Hubs: []string{"nats-leaf://" + leafs},
				Log: slog.New(slog.NewTextHandler(&said, nil)),
			}))(t)
			defer other.Stop()
			eventually(t, "a leaf node that does not is answered",
				func() bool { return said.Has("Authorization Violation") || server.Others() == 2 })
			if got := server.Others() == 2; got == asks {
				t.Errorf("a leaf node without the password has joined: %v", got)
			}
		})
	}
}

// A node keeps its server running while other stopping processes are connected, and no longer.
func TestOutlive(t *testing.T) {
	for _, c := range []struct {
		name    string
		cause   error
		leaving bool
		waits   bool
	}{
		{"others end too", node.ErrTerminated, true, true},
		{"others stay", node.ErrTerminated, false, false},
		{"interrupted", nil, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var closer node.Closer
			defer closer.Close(quiet)
			conn, server, err := embedded.Join("n", "n", t.TempDir(), &node.ServerConfig{
				Embedded: true, Listen: "127.0.0.1:0",
				Replicas: 1,
			}, &closer, quiet)
			testkit.NoError(t, err)
			other := testkit.Must(natsbus.Connect(natsbus.Options{URL: server.URL(), Name: "other", Log: quiet}))(t)
			defer other.Close()
			eventually(t, "both are connected", func() bool { return conn.Connected() && other.Connected() })
			ctx, end := context.WithCancelCause(context.Background())
			asked := make(chan struct{}, 1000)
			out, stop := node.Outlive(ctx, time.Minute, func() (here, leaving int) {
				select {
				case asked <- struct{}{}:
				default:
				}
				if here = server.Others(); c.leaving {
					leaving = here
				}
				return here, leaving
			}, quiet)
			defer stop()
			end(c.cause)
			if c.waits {
				<-asked
				if out.Err() != nil {
					t.Error("it ends before the other one")
				}
				other.Close()
			}
			<-out.Done()
			if err := context.Cause(out); !c.waits && c.cause == nil && !errors.Is(err, context.Canceled) || c.cause != nil &&
				!errors.Is(err, c.cause) {
				t.Errorf("the cause is %v, want %v", err, c.cause)
			}
		})
	}
}

// A data centre with its own server, joined to global's as a leaf: messages and, by their domain, documents pass
// between the two.
func TestLeafNodes(t *testing.T) {
	leafs := testkit.FreeAddr(t)
	hub := start(t, embedded.Options{Domain: "hub", Leafs: leafs})
	leaf := start(t, embedded.Options{Domain: "dublin", Hubs: []string{"nats-leaf://" + leafs}})
	connect := func(s *embedded.Server, domain string) *natsbus.Conn {
		c, err := natsbus.Connect(natsbus.Options{InProcess: s, Name: "n-" + domain, Domain: domain, Log: quiet})
		testkit.NoError(t, err)
		t.Cleanup(c.Close)
		eventually(t, "connected", c.Connected)
		return c
	}
	global, regional := connect(hub, "hub"), connect(leaf, "dublin")
	heard := make(chan struct{}, 1000)
	cancel := testkit.Must(regional.Subscribe("x", func(string, []byte) { heard <- struct{}{} }))(t)
	defer cancel()
	eventually(t, "a message crosses", func() bool {
		testkit.NoError(t, global.Publish("x", nil))
		return len(heard) > 0
	})
	ctx, stop := context.WithTimeout(t.Context(), 15*time.Second)
	defer stop()
	testkit.Must(natsbus.NewDocuments(global, 1).Put(ctx, "rooms", []byte("r"), 0))(t)
	data, _, err := natsbus.NewDocuments(regional.WithDomain("hub"), 0).Get(ctx, "rooms")
	if err != nil || string(data) != "r" {
		t.Errorf("in global's domain: %q, %v", data, err)
	}
	if _, _, err := natsbus.NewDocuments(regional, 0).Get(ctx, "rooms"); err == nil {
		t.Error("the leaf has the hub's documents in its own domain")
	}
}

// After a full disk has room again, the store takes writes without a restart of the process.
func TestTheStoreRecoversFromAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := mountSmall(dir); err != nil {
		t.Skipf("needs a small file system: %v", err)
	}
	t.Cleanup(func() { unmount(t, dir) })
	s := start(t, embedded.Options{Dir: filepath.Join(dir, "store")})
	conn := testkit.Must(natsbus.Connect(s.Client("node", "node", quiet)))(t)
	t.Cleanup(conn.Close)
	docs, revision := natsbus.NewDocuments(conn, 1), uint64(0)
	put := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, at, err := docs.Get(ctx, "rooms")
		if err == nil {
			revision, err = docs.Put(ctx, "rooms", make([]byte, 10_000), at)
		}
		return err
	}
	eventually(t, "the store takes a document", func() bool { return put() == nil })
	first := revision
	filler := testkit.Must(os.Create(filepath.Join(dir, "filler")))(t)
	for err := error(nil); err == nil; {
		_, err = filler.Write(make([]byte, 4096))
	}
	testkit.NoError(t, filler.Close())
	eventually(t, "the store refuses a document", func() bool { return put() != nil })
	testkit.NoError(t, os.Remove(filler.Name()))
	began := time.Now()
	eventually(t, "the store takes a document again", func() bool { return put() == nil })
	t.Logf("writes after %v (goal 10 s), revisions %d and %d", time.Since(began).Round(time.Millisecond), first, revision)
	if revision <= first {
		t.Errorf("revision %d after %d: the store lost a document", revision, first)
	}
}
