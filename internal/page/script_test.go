package page

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// What a page and a script of different builds agree about is what the protocol's file says. Whoever changes it raises
// the protocol, keeps min/page.js as min/page.N.js and writes another file.
func TestProtocolOfTheScript(t *testing.T) {
	elements := regexp.MustCompile(`(?:id|data-[a-z]+)="?[a-z]*`).FindAllString(pageHTML, -1)
	var words []string
	for _, m := range regexp.MustCompile(`"([a-z_]+)":`).FindAllStringSubmatch(catalogs[English].script, -1) {
		words = append(words, m[1])
	}
	slices.Sort(elements)
	slices.Sort(words)
	got := "data: " + nowFields() + "\nelements: " + strings.Join(slices.Compact(elements), " ") +
		"\nwords: " + strings.Join(slices.Compact(words), " ") + "\n"
	const name = "testdata/protocol.1.txt"
	if os.Getenv("VESTIBULE_PROTOCOL") != "" {
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil || protocol != 1 || got != string(want) {
		t.Errorf("protocol %d is not that of %s (%v):\n%s", protocol, name, err, got)
	}
}

// An edge has the script of its protocol and of the one before, and answers with it for any content of that protocol.
func TestScriptsOfTwoProtocols(t *testing.T) {
	s, exact := ScriptAt(ScriptPath())
	if s == nil || !exact || !IsScript(ScriptPath()) {
		t.Fatalf("%s: %v %v", ScriptPath(), s, exact)
	}
	z, err := gzip.NewReader(bytes.NewReader(s.Gzip()))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(z); err != nil || string(text) != s.Text || strings.Contains(s.Text, "{{") {
		t.Errorf("gzip has %d bytes, %v", len(text), err)
	}
	if other, exact := ScriptAt(scriptStem + "1.000000000000.js"); other != s || exact {
		t.Errorf("another content of the protocol: %v", exact)
	}
	for _, path := range []string{"2.000000000000.js", "0.000000000000.js", "x.js", "js", ".js", "1"} {
		if s, _ := ScriptAt(scriptStem + path); s != nil && path != "1" {
			t.Errorf("%s is answered", path)
		}
	}
	two := readScripts(fstest.MapFS{"min/page.js": {Data: []byte("new")}, "min/page.4.js": {Data: []byte("old")}}, 5)
	if len(two) != 2 || two[5].Text != "new" || two[4].Text != "old" {
		t.Errorf("%v", two)
	}
}

func TestAgain(t *testing.T) {
	for target, want := range map[string]string{
		"/": "./", "/order": "./order", "/a/b?c=d&e": "./b?c=d&e", "/a/": "./", "/a:b": "./a:b", "/?": "./?", "/a?b=/c": "./a?b=/c",
		"/\xe4": "", "/" + strings.Repeat("a", 3000): "",
	} {
		if got := Again(target); got != want {
			t.Errorf("%q: %q, want %q", target, got, want)
		}
	}
}
