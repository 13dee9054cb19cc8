package natsbus_test

import (
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/node/natsbus"
)

// A server that is reconfigured without this node's user, and later with it, gets the node back: the node retries
// for ever, and meanwhile reports why it is disconnected.
func TestAUserThatComesBackIsConnectedAgain(t *testing.T) {
	host, port, err := net.SplitHostPort(testkit.FreeAddr(t))
	testkit.NoError(t, err)
	n := testkit.Must(strconv.Atoi(port))(t)
	with := func(users ...string) *server.Options {
		o := &server.Options{Host: host, Port: n, NoSigs: true, NoLog: true}
		for _, u := range users {
			o.Users = append(o.Users, &server.User{Username: u, Password: "secret"})
		}
		return o
	}
	s := testkit.Must(server.NewServer(with("edge", "regional")))(t)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })

	var log testkit.Log
	conn := testkit.Must(natsbus.Connect(natsbus.Options{
		URL: "nats://edge:secret@" + net.JoinHostPort(host, port), Name: "edge",
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}))(t)
	t.Cleanup(conn.Close)
	ch, cancel := listen(t, conn, "x")
	defer cancel()
	eventually(t, "connected", conn.Connected)
	if why := conn.Refused(); why != "" {
		t.Errorf("refused while connected: %q", why)
	}

	testkit.NoError(t, s.ReloadOptions(with("regional")))
	eventually(t, "the node says that it is refused", func() bool {
		return !conn.Connected() && strings.Contains(strings.ToLower(conn.Refused()), "authorization")
	})
	// Twice would be enough for a client to give up.
	eventually(t, "it has been refused five times",
		func() bool { return strings.Count(log.String(), "msg=refused") >= 5 })
	if n := strings.Count(log.String(), "refuses this node"); n != 1 {
		t.Errorf("said %d times that it is refused", n)
	}

	testkit.NoError(t, s.ReloadOptions(with("edge", "regional")))
	eventually(t, "connected again", conn.Connected)
	if why := conn.Refused(); why != "" {
		t.Errorf("refused while connected again: %q", why)
	}
	arrives(t, conn, "x", ch)
}

// A node that starts before its user exists connects later.
func TestAUserThatComesLateIsConnected(t *testing.T) {
	host, port, err := net.SplitHostPort(testkit.FreeAddr(t))
	testkit.NoError(t, err)
	n := testkit.Must(strconv.Atoi(port))(t)
	o := func(user string) *server.Options {
		return &server.Options{
			Host: host, Port: n, NoSigs: true, NoLog: true,
			Users: []*server.User{{Username: user, Password: "secret"}},
		}
	}
	s := testkit.Must(server.NewServer(o("somebody")))(t)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	conn := connect(t, "nats://edge:secret@"+net.JoinHostPort(host, port), "edge")
	eventually(t, "the node says that it is refused", func() bool { return conn.Refused() != "" })
	testkit.NoError(t, s.ReloadOptions(o("edge")))
	eventually(t, "connected", func() bool { return conn.Connected() && conn.Refused() == "" })
}
