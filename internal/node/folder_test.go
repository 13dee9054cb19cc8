package node_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vestibule/internal/node"
)

func openFolder(t *testing.T, dir string) *node.Folder {
	t.Helper()
	f, err := node.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func closeFolder(t *testing.T, f *node.Folder) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// used returns a folder that two instances have used.
func used(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "edge")
	f := openFolder(t, dir)
	if past := f.Succeeds(slog.New(slog.DiscardHandler)); len(past) > 0 {
		t.Fatalf("a new folder tells of %v", past)
	}
	if err := f.Keep([]uint64{7, 8}); err != nil {
		t.Fatal(err)
	}
	closeFolder(t, f)
	return dir
}

func TestAFolderTellsWhoUsedItBefore(t *testing.T) {
	dir := used(t)
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	f := openFolder(t, moved) // moved, not copied: the same files
	defer closeFolder(t, f)
	if past := f.Succeeds(slog.New(slog.DiscardHandler)); !slices.Equal(past, []uint64{7, 8}) {
		t.Errorf("tells of %v, want 7 and 8", past)
	}
	entries, err := os.ReadDir(moved)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", e.Name(), info.Mode())
		}
	}
}

func TestACopiedFolderProvesNothing(t *testing.T) {
	dir := used(t)
	dup := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	f := openFolder(t, dup)
	defer closeFolder(t, f)
	if past := f.Succeeds(slog.New(slog.NewTextHandler(&log, nil))); len(past) > 0 {
		t.Errorf("a copy tells of %v", past)
	}
	if !strings.Contains(log.String(), "was copied or moved") {
		t.Errorf("the log does not say why: %s", &log)
	}
}

func TestAFolderIsUsedByOneProcess(t *testing.T) {
	dir := used(t)
	f := openFolder(t, dir)
	if _, err := node.OpenFolder(dir); !errors.Is(err, node.ErrFolderInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second process: %v, want %v with the folder's name", err, node.ErrFolderInUse)
	}
	closeFolder(t, f)
	closeFolder(t, openFolder(t, dir))
}

func TestABrokenFolderProvesNothing(t *testing.T) {
	dir := used(t)
	if err := os.WriteFile(filepath.Join(dir, "instances.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := openFolder(t, dir)
	defer closeFolder(t, f)
	if past := f.Succeeds(slog.New(slog.DiscardHandler)); len(past) > 0 {
		t.Errorf("tells of %v", past)
	}
}

// TestAFailureToWriteKeepsItsText: the log of a failure that lasts tells by its text whether it is new.
func TestAFailureToWriteKeepsItsText(t *testing.T) {
	name := filepath.Join(t.TempDir(), "missing", "promises")
	first, second := node.WriteFile(name, nil), node.WriteFile(name, nil)
	if first == nil || second == nil || first.Error() != second.Error() || !errors.Is(first, os.ErrNotExist) ||
		!strings.Contains(first.Error(), name) {
		t.Errorf("first %v, then %v", first, second)
	}
}
