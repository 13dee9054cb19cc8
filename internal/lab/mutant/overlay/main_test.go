package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"vestibule/internal/lab/mutant"
)

// Every patch applies to the product, and the result compiles. They contain every mutant, and no other one.
func TestThePatchesApplyAndHoldEveryMutant(t *testing.T) {
	t.Chdir("../../../..")
	dir := t.TempDir()
	if err := writeAll(dir); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		for _, m := range regexp.MustCompile(`mutant\.On\("(.*?)"\)`).FindAllSubmatch(data, -1) {
			if found[string(m[1])] = true; !known(string(m[1])) {
				t.Errorf("%s has the unknown mutant %s", name, m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutant.All() {
		if !found[m.Name] {
			t.Errorf("%s is in no patch", m.Name)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "mutants", "-overlay",
		filepath.Join(dir, "overlay.json"), "./internal/...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func known(name string) bool {
	_, ok := mutant.Named(name)
	return ok
}

// A hunk may end with an added line.
func TestAnAddedLineBeforeTheNextHunk(t *testing.T) {
	got, err := apply("a\nb\nc\n", "@@ -1,1 +1,2 @@\n a\n+A\n@@ -3,1 +4,1 @@\n-c\n+C\n")
	if want := "a\nA\nb\nC\n"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestAPatchFollowsItsLines(t *testing.T) {
	const diff = "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -9,2 +9,3 @@ func\n x\n+y\n z\n"
	for _, tt := range []struct{ src, want, fault string }{
		{src: "a\nb\nc\nx\nz\n", want: "a\nB\nc\nx\ny\nz\n"},
		{src: "new\nb\na\nb\nc\nmore\nx\nz\nend\n", want: "new\nb\na\nB\nc\nmore\nx\ny\nz\nend\n"},
		{src: "a\nb\nchanged\nx\nz\n", fault: "hunk 1 does not apply"},
		{src: "x\nz\na\nb\nc\n", fault: "hunk 2 does not apply"},
		{src: "aa\nb\nc\nx\nz\n", fault: "hunk 1 does not apply"}, // whole lines only
	} {
		got, err := apply(tt.src, diff)
		if tt.fault != "" {
			if err == nil || !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("%q: %v, want %q", tt.src, err, tt.fault)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%q: got %q, %v", tt.src, got, err)
		}
	}
}
