package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
	"vestibule/internal/node/natsbus/embedded"
)

// fleetStore is a NATS that holds what the commands look at.
type fleetStore struct {
	t    *testing.T
	url  string
	docs *natsbus.Documents
}

func newFleetStore(t *testing.T) *fleetStore {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	server, err := embedded.Start(embedded.Options{Name: "fleet", Dir: t.TempDir(), Listen: "127.0.0.1:0", Log: quiet})
	testkit.NoError(t, err)
	t.Cleanup(server.Stop)
	conn := testkit.Must(natsbus.Connect(natsbus.Options{Name: "global", InProcess: server, Log: quiet}))(t)
	t.Cleanup(conn.Close)
	return &fleetStore{t, server.URL(), natsbus.NewDocuments(conn, 1)}
}

func (s *fleetStore) put(doc string, v any) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 15*time.Second)
	defer cancel()
	data := testkit.Must(json.Marshal(v))(s.t)
	_, revision, err := s.docs.Get(ctx, doc)
	testkit.NoError(s.t, err)
	testkit.Must(s.docs.Put(ctx, doc, data, revision))(s.t)
}

// does runs a command, which must end so, and say so.
func (s *fleetStore) does(code int, said string, args ...string) {
	s.t.Helper()
	args = append(append([]string{"fleet"}, args...), "--nats-url", s.url, "--wait", "15s")
	if got, out := told(s.t.Context(), args...); got != code || !strings.Contains(out, said) {
		s.t.Errorf("vestibule %s: exit %d, want %d:\n%s\nwant in it: %s", strings.Join(args, " "), got, code, out, said)
	}
}

// The list of data centres is changed by commands, without any global.
func TestTheFleetIsChangedByCommands(t *testing.T) {
	s := newFleetStore(t)
	s.put(roomdoc.PageDocument("none"), 1) // a bucket without a list
	s.does(node.ExitError, "holds no list of data centres yet", "list")
	s.does(node.ExitError, "holds no list of data centres yet", "add", "lima")
	s.put(node.MembersDocument, node.NewMembers(time.Now(), []string{"nairobi", "dublin"}))
	s.does(node.ExitOK, "nairobi      active", "list")
	s.does(node.ExitOK, "lima         active", "add", "lima")
	s.does(node.ExitError, `data centre "lima": it is in the list already`, "add", "lima")
	s.does(node.ExitError, `must be 1 to 64 characters of a-z, 0-9, - and _, got "Lima"`, "add", "Lima")
	s.does(node.ExitError, `must not be "global"`, "add", "global")
	s.does(node.ExitError, "no such data centre in the list", "drain", "oslo")
	s.does(node.ExitError, "does not drain: vestibule fleet drain lima first", "remove", "lima")
	s.does(node.ExitOK, "lima         draining", "drain", "lima")
	s.does(node.ExitError, "is draining already", "drain", "lima")
	s.does(node.ExitError, "no global has reported its permits", "remove", "lima")
	s.put(node.MembersStatusDocument, node.MembersStatus{At: time.Now(), List: []node.CentreState{
		{Name: "lima", State: "draining", Reporting: true, Held: 7, RateHeld: 3, Sessions: 5},
		{Name: "oslo", State: "unlisted", Reporting: true, Held: 2},
	}})
	s.does(node.ExitError, "7 permits of T and 3 of R are out, 5 sessions", "remove", "lima")
	s.does(node.ExitOK, "lima         draining  7             3             5         0", "list")
	s.does(node.ExitOK, "oslo         unlisted  2", "list")
	s.put(node.MembersStatusDocument, node.MembersStatus{At: time.Now(), List: []node.CentreState{
		{Name: "lima", State: "draining", Reporting: true, Overcommit: 4},
	}})
	s.does(node.ExitError, "4 sessions may go on at edges that are cut off or count as lost, until these report", "remove",
		"lima")
	s.does(node.ExitOK, "lima         active", "add", "lima")
	s.does(node.ExitOK, "lima         removed", "remove", "lima", "--force")

	// A store that came back older is not written over.
	for _, st := range []node.MembersStatus{{At: time.Now(), Newest: 1 << 60}, {At: time.Now(), Version: 1 << 60}} {
		s.put(node.MembersStatusDocument, st)
		s.does(node.ExitError, "the store came back older", "add", "lima")
	}
}

func TestTheFleetCommandsUsage(t *testing.T) {
	for said, args := range map[string][]string{
		"vestibule fleet COMMAND":        {},
		"unknown command \"shrink\"":     {"shrink"},
		"DC: is needed":                  {"add"},
		"DC: is needed\nusage":           {"drain", "--wait", "1s"},
		"unknown flag: --colour":         {"list", "--colour", "blue"},
		"wait: must be above 0, got -1s": {"list", "--wait", "-1s"},
	} {
		if code, out := told(t.Context(), append([]string{"fleet"}, args...)...); code != node.ExitUsage ||
			!strings.Contains(out, said) {
			t.Errorf("%v: exit %d\n%s\nwant %s", args, code, out, said)
		}
	}
	if code, out := told(t.Context(), "fleet", "list", "--nats-url", "nats://127.0.0.1:1", "--wait", "100ms"); code !=
		node.ExitError || !strings.Contains(out, "does not answer within 100ms") ||
		!strings.Contains(out, "nothing listens there; start nats-server") {
		t.Errorf("exit %d, %s", code, out)
	}
}

// A refused connection is reported as such, and not that nobody answers.
func TestTheFleetCommandsTellThatTheyAreRefused(t *testing.T) {
	s := testkit.Must(server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		Username: "operator", Password: "secret",
	}))(t)
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(15 * time.Second) {
		t.Fatal("the server does not start")
	}
	if code, out := told(t.Context(), "fleet", "list", "--nats-url", s.ClientURL(), "--wait", "2s"); code !=
		node.ExitError || !strings.Contains(out, "refuses this user (see --nats-creds") {
		t.Errorf("exit %d, %s", code, out)
	}
}
