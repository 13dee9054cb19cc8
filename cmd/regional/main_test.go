package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"vestibule/internal/lab/nodetest"
	"vestibule/internal/regional"
	"vestibule/internal/regional/program"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"regional": func() { os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr)) },
	})
}

func TestCommandLine(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "", Setup: func(env *testscript.Env) error {
			example, err := os.ReadFile("regional.example.yaml")
			if err != nil {
				return err
			}
			return os.WriteFile(env.Getenv("WORK")+"/example.yaml", example, 0o600)
		},
	})
}

func TestExampleFile(t *testing.T) {
	nodetest.Example(t, "regional", "regional.example.yaml", regional.DefaultConfig, "data_center")
}
