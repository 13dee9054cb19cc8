package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// complete returns what bash offers for a line that is begun.
func complete(t *testing.T, words ...string) string {
	t.Helper()
	var script bytes.Buffer
	if code := run([]string{"completion", "bash"}, &script, &script); code != 0 {
		t.Fatalf("%d %s", code, script.String())
	}
	ask := script.String() + "\nCOMP_WORDS=(vestibule '" + strings.Join(words, "' '") + "'); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _vestibule; echo \"${COMPREPLY[@]}\""
	out, err := exec.CommandContext(t.Context(), "bash", "--norc", "-c", ask).CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestBashCompletesCommands(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"ro", "rooms"},
		{"audit ", "list verify"},
		{"rooms re", "revisions restore"},
		{"rooms --o", "--output"},
		{"completion f", "fish"},
	} {
		if got := complete(t, strings.Split(c.line, " ")...); got != c.want {
			t.Errorf("%q: %q, want %q", c.line, got, c.want)
		}
	}
}

// The verbs that are offered are those that there are, and commands that have verbs offer them.
func TestVerbsThatAreOffered(t *testing.T) {
	for _, c := range commands() {
		var out bytes.Buffer
		run([]string{c.name, "--help"}, &out, &out)
		for _, verb := range verbs[c.name] {
			if !strings.Contains(out.String(), verb) {
				t.Errorf("%s --help does not tell of %s", c.name, verb)
			}
		}
	}
	for _, shell := range []string{"zsh", "fish"} {
		var out bytes.Buffer
		if code := run([]string{"completion", shell}, &out, &out); code != 0 || !strings.Contains(out.String(), "revisions") {
			t.Errorf("%s: %d %s", shell, code, out.String())
		}
	}
	var out bytes.Buffer
	if code := run([]string{"completion", "ksh"}, &out, &out); code != 2 {
		t.Errorf("%d %s", code, out.String())
	}
}
