package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"vestibule/internal/global"
	"vestibule/internal/node/nodetest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"global": func() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) },
	})
}

func TestCommandLine(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", RequireExplicitExec: true, UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "", Setup: func(env *testscript.Env) error {
		example, err := os.ReadFile("global.example.yaml")
		if err != nil {
			return err
		}
		return os.WriteFile(env.Getenv("WORK")+"/example.yaml", example, 0o600)
	}})
}

func TestExampleFile(t *testing.T) {
	example, err := filepath.Abs("global.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // where the rooms file is that the example names
	if err := os.WriteFile("rooms.yaml", []byte("rooms: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	nodetest.Example(t, "global", example, global.DefaultConfig, "data_centers")
}
