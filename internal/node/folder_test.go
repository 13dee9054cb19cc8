package node_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

func openFolder(t *testing.T, dir string) *node.Folder {
	t.Helper()
	return testkit.Must(node.OpenFolder(dir))(t)
}

func closeFolder(t *testing.T, f *node.Folder) {
	t.Helper()
	testkit.NoError(t, f.Close())
}

// used returns a folder that two instances have used.
func used(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "edge")
	f := openFolder(t, dir)
	if past := f.Succeeds(slog.New(slog.DiscardHandler)); len(past) > 0 {
		t.Fatalf("a new folder tells of %v", past)
	}
	testkit.NoError(t, f.Keep([]uint64{7, 8}))
	closeFolder(t, f)
	return dir
}

func TestAFolderTellsWhoUsedItBefore(t *testing.T) {
	dir := used(t)
	moved := filepath.Join(t.TempDir(), "moved")
	testkit.NoError(t, os.Rename(dir, moved))
	f := openFolder(t, moved) // moved, not copied: the same files
	defer closeFolder(t, f)
	if past := f.Succeeds(slog.New(slog.DiscardHandler)); !slices.Equal(past, []uint64{7, 8}) {
		t.Errorf("tells of %v, want 7 and 8", past)
	}
	entries := testkit.Must(os.ReadDir(moved))(t)
	for _, e := range entries {
		info := testkit.Must(e.Info())(t)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", e.Name(), info.Mode())
		}
	}
}

func TestACopiedFolderProvesNothing(t *testing.T) {
	dir := used(t)
	dup := filepath.Join(t.TempDir(), "copy")
	testkit.NoError(t, os.CopyFS(dup, os.DirFS(dir)))
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
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, "instances.json"), []byte("{"), 0o600))
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
