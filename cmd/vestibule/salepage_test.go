package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestTheSalePage runs every command of docs/SALE.md, in its order, against a fleet with the room.
func TestTheSalePage(t *testing.T) {
	tree := startTree(t)
	page, err := os.ReadFile("../../docs/SALE.md")
	if err != nil {
		t.Fatal(err)
	}
	script := "vestibule rooms create name=shop host=shop.example total_active_users=100 new_users_per_minute=100\n"
	n := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		script += block[1]
		n += strings.Count(block[1], "vestibule ")
	}
	if n < 10 {
		t.Fatalf("%d commands", n)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sale.txtar"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{Dir: dir, Setup: func(e *testscript.Env) error {
		e.Setenv("VESTIBULE_SERVER", tree.Info.Control.URL)
		e.Setenv("VESTIBULE_TOKEN", tree.Info.Control.Token)
		return nil
	}})
}
