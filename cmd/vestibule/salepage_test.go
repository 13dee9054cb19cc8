package main

import (
	"io"
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

// TestCommandsOfTheDocuments: every command of the documents, in a block or within a sentence, exists with its flags. Those
// of docs/SALE.md and docs/QUICKSTART.md are run, by TestTheSalePage and in e2e; most others need machines, Kubernetes or
// a fault.
func TestCommandsOfTheDocuments(t *testing.T) {
	root, word := newRootCmd(io.Discard, io.Discard), regexp.MustCompile(`^[a-z][a-z-]*$`)
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, file := range append(files, "../../README.md", "../../deploy/examples/notices/relay.py") {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile("(?m)(?:`|^ *(?:[$] )?)(?:bin/)?vestibule ([^`\n|;#>&]+)").FindAllStringSubmatch(strings.ReplaceAll(string(page), "\\\n", " "), -1) {
			words := strings.Fields(found[1])
			if !word.MatchString(words[0]) {
				continue // a placeholder
			}
			commands++
			c, rest, err := root.Find(words)
			if err != nil || c == root || c.HasSubCommands() && len(rest) > 0 && word.MatchString(rest[0]) {
				t.Errorf("%s: vestibule %s: no such command", file, found[1])
				continue
			}
			for _, w := range words {
				name, flag := strings.CutPrefix(w, "--")
				if name, _, _ = strings.Cut(strings.TrimRight(name, ".,:…]"), "="); !flag || name == "help" {
					continue
				}
				if c.Flags().Lookup(name) == nil && c.InheritedFlags().Lookup(name) == nil {
					t.Errorf("%s: vestibule %s: no flag --%s", file, found[1], name)
				}
			}
		}
	}
	t.Logf("%d commands", commands)
	if commands < 100 {
		t.Errorf("only %d commands are found", commands)
	}
}
