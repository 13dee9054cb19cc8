package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"vestibule/internal/allinone"
	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomfile"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/lab/testkit/fakes"
	"vestibule/internal/node"
)

// startTree starts a fleet whose rooms are made by the API. Commands of this test use it.
func startTree(t testing.TB) *allinone.Tree {
	t.Helper()
	tree, err := allinone.Start(allinone.Options{
		DataCenters: []string{"nairobi"}, Edges: 1, Listen: "127.0.0.1:0", DataDir: t.TempDir(), StoreRooms: true, NATS: true,
		Origin: "http://127.0.0.1:1", Params: wire.DefaultParams(), Log: slog.New(slog.DiscardHandler),
	})
	testkit.NoError(t, err)
	t.Cleanup(func() {
		if err := tree.Stop(); err != nil {
			t.Error(err)
		}
	})
	ctx := testkit.Within(t)
	testkit.NoError(t, tree.TakeToken(ctx))
	t.Setenv("VESTIBULE_SERVER", tree.Info.Control.URL)
	t.Setenv("VESTIBULE_TOKEN", tree.Info.Control.Token)
	if code, out := told(ctx, "rooms", "create", "name=first", "host=first.example", "total_active_users=1",
		"new_users_per_minute=1"); code != node.ExitOK { // edges are ready once there is a room
		t.Fatal(out)
	}
	testkit.NoError(t, tree.WaitReady(ctx))
	testkit.Eventually(t, "the list of data centres is made", func() bool {
		code, _ := told(ctx, "fleet", "list")
		return code == node.ExitOK
	})
	return tree
}

// TestScriptsOfTheAPI runs scripts in turn against one fleet. Their rooms have different names.
func TestScriptsOfTheAPI(t *testing.T) {
	tree := startTree(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/api",
		Setup: func(e *testscript.Env) error {
			e.Setenv("VESTIBULE_SERVER", tree.Info.Control.URL)
			e.Setenv("VESTIBULE_TOKEN", tree.Info.Control.Token)
			e.Setenv("BARE", strings.TrimSuffix(tree.Info.Control.URL, control.Prefix))
			e.Setenv("NATS", tree.Info.NATS)
			e.Setenv("DATA", filepath.Dir(filepath.Dir(tree.Info.Control.TokenFile)))
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "config"))
			return nil
		},
	})
}

// BenchmarkStatusOfAllRooms measures vestibule status in a fleet of 1,000 rooms. The goal is 0.5 s.
func BenchmarkStatusOfAllRooms(b *testing.B) {
	const rooms = 1000
	startTree(b)
	data := testkit.Must(roomfile.Format(room.Document{Rooms: fakes.Rooms(rooms).Rooms}))(b)
	file := filepath.Join(b.TempDir(), "rooms.yaml")
	testkit.NoError(b, os.WriteFile(file, data, 0o600))
	code, out := told(b.Context(), "rooms", "apply", "-f", file)
	for b.Loop() {
		if code == node.ExitOK {
			code, out = told(b.Context(), "status")
		}
	}
	if n := strings.Count(out, "\nshop-"); code != node.ExitOK || n != rooms {
		b.Fatalf("status shows %d rooms", n)
	}
	b.Logf("status of %d rooms: %v, goal 500ms", rooms, (b.Elapsed() / time.Duration(b.N)).Round(time.Millisecond))
}
