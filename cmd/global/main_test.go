package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"vestibule/internal/core/room"
	"vestibule/internal/global"
	"vestibule/internal/global/program"
	"vestibule/internal/lab/nodetest"
	"vestibule/internal/lab/testkit"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"global": func() { os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr)) },
	})
}

func TestCommandLine(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "", Setup: func(env *testscript.Env) error {
			example, err := os.ReadFile("global.example.yaml")
			if err != nil {
				return err
			}
			return os.WriteFile(env.Getenv("WORK")+"/example.yaml", example, 0o600)
		},
	})
}

func TestExampleFile(t *testing.T) {
	example := testkit.Must(filepath.Abs("global.example.yaml"))(t)
	rooms := testkit.Must(os.ReadFile("rooms.example.yaml"))(t)
	t.Chdir(t.TempDir()) // where the rooms file is that the example names
	testkit.NoError(t, os.WriteFile("rooms.yaml", rooms, 0o600))
	nodetest.Example(t, "global", example, global.DefaultConfig, "data_centers")
}

// The example of a rooms file shows every setting.
func TestExampleRoomsAreWhole(t *testing.T) {
	rooms := testkit.Must(os.ReadFile("rooms.example.yaml"))(t)
	for i := range room.Schema {
		if key := room.Schema[i].Key; !regexp.MustCompile(`(?m)^ +(- |# )?` + key + `:`).Match(rooms) {
			t.Errorf("rooms.example.yaml does not show %s", key)
		}
	}
}
