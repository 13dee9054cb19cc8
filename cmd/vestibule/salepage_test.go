package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"vestibule/internal/core/room/roomfile"
	"vestibule/internal/lab/testkit"
)

// TestTheSalePage runs every command of docs/SALE.md, in its order, against a fleet with the room, then the blocks of
// other documents that need no more than that.
func TestTheSalePage(t *testing.T) {
	tree := startTree(t)
	script := "vestibule rooms create name=shop host=shop.example total_active_users=100 new_users_per_minute=100\n"
	for _, block := range sections(t, "../../docs/SALE.md", "sh") {
		script += block
	}
	for _, block := range slices.Concat(sections(t, "../../docs/RUNBOOK.md", "sh"),
		sections(t, "../../docs/ROOMS.md", "sh")) {
		switch {
		case strings.Contains(block, "fleet list"):
			script += "vestibule fleet add dublin\n" + block
		case strings.Contains(block, "simulate"):
			script += strings.Replace(block, "--minutes 30", "--minutes 1", 1) // the half hour takes half a minute
		}
	}
	if n := strings.Count(script, "\nvestibule "); n < 20 {
		t.Fatalf("%d commands", n)
	}
	dir := t.TempDir()
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "sale.txtar"), []byte(script), 0o600))
	testscript.Run(t, testscript.Params{Dir: dir, Setup: func(e *testscript.Env) error {
		e.Setenv("VESTIBULE_SERVER", tree.Info.Control.URL)
		e.Setenv("VESTIBULE_TOKEN", tree.Info.Control.Token)
		return nil
	}})
}

// sections returns what the fenced blocks of a document with a language hold.
func sections(t *testing.T, file, lang string) (out []string) {
	t.Helper()
	page := testkit.Must(os.ReadFile(file))(t)
	for _, m := range regexp.MustCompile("(?ms)^```"+lang+"\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		out = append(out, m[1])
	}
	return out
}

// TestRoomsOfTheDocuments: every block of rooms, or of a part of one, is valid.
func TestRoomsOfTheDocuments(t *testing.T) {
	const (
		needed = "    host: doc.example\n    total_active_users: 2\n    new_users_per_minute: 2\n" +
			"    origin: http://127.0.0.1:1\n"
		whole = "rooms:\n  - name: doc\n" + needed
	)
	n := 0
	for _, name := range []string{"APPS", "ROOMS", "WAITING-PAGE"} {
		for _, text := range sections(t, "../../docs/"+name+".md", "yaml") {
			n++
			switch {
			case strings.HasPrefix(text, "rooms:"):
				text = strings.Replace(text, "    # …\n", needed, 1)
			case strings.HasPrefix(text, "hosts:"):
				text = whole + text
			case strings.HasPrefix(text, " "):
				text = whole + text
			default:
				text = whole + "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
			}
			if _, err := roomfile.Parse([]byte(text)); err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
		}
	}
	if n < 6 {
		t.Errorf("%d blocks", n)
	}
}

// TestCommandsOfTheDocuments: every command of the documents, in a block or within a sentence, exists with its flags.
// Those of blocks are run, by TestTheSalePage, in e2e and by make k8s; most others need machines or a fault.
func TestCommandsOfTheDocuments(t *testing.T) {
	root, word := newRootCmd(io.Discard, io.Discard), regexp.MustCompile(`^[a-z][a-z-]*$`)
	files := testkit.Must(filepath.Glob("../../docs/*.md"))(t)
	shown := regexp.MustCompile("(?m)(?:`|^ *(?:[$] )?)(?:bin/)?vestibule ([^`\n|;#>&]+)")
	commands := 0
	for _, file := range append(files, "../../README.md", "../../deploy/examples/notices/relay.py") {
		page := testkit.Must(os.ReadFile(file))(t)
		text := strings.ReplaceAll(string(page), "\\\n", " ")
		for _, found := range shown.FindAllStringSubmatch(text, -1) {
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
