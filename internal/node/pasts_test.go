//go:build linux

package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// TestSnapshotsProveOnlyInTheirFolder: the next process reads what the one before wrote, unless the folder was copied,
// or the file was restored from a backup or damaged; also if the machine, which has an ID, was started anew since.
func TestSnapshotsProveOnlyInTheirFolder(t *testing.T) {
	written := []string{"an earlier process", "", "the newest one\n"}
	replace := func(t *testing.T, dir string, change func(data string) string) {
		t.Helper()
		name := filepath.Join(dir, pastFile)
		data, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(name, []byte(change(string(data))), 0o600)
		}
		testkit.NoError(t, err)
	}
	for _, c := range []struct {
		what   string
		change func(t *testing.T, f *Folder) (dir string)
		proves bool
	}{
		{"nothing", func(_ *testing.T, f *Folder) string { return f.dir }, true},
		{"a copy", func(t *testing.T, f *Folder) string {
			to := t.TempDir()
			testkit.NoError(t, os.CopyFS(filepath.Join(to, "copy"), os.DirFS(f.dir)))
			return filepath.Join(to, "copy")
		}, false},
		{"another boot", func(t *testing.T, f *Folder) string {
			replace(t, f.dir, func(data string) string { return strings.Replace(data, f.place.Boot, "another", 1) })
			return f.dir
		}, firstLine("/etc/machine-id") != ""},
		{"another machine", func(t *testing.T, f *Folder) string {
			replace(t, f.dir, func(data string) string {
				data = strings.Replace(data, f.place.Boot, "another", 1)
				return strings.Replace(data, `"machine":"`, `"machine":"x`, 1)
			})
			return f.dir
		}, false},
		{"damage", func(t *testing.T, f *Folder) string {
			replace(t, f.dir, func(data string) string { return strings.Replace(data, "newest", "oldest", 1) })
			return f.dir
		}, false},
		{"a torn end", func(t *testing.T, f *Folder) string {
			replace(t, f.dir, func(data string) string { return data[:len(data)-3] })
			return f.dir
		}, false},
		{"an empty file", func(t *testing.T, f *Folder) string {
			replace(t, f.dir, func(string) string { return "" })
			return f.dir
		}, false},
		{"a removal", func(t *testing.T, f *Folder) string {
			testkit.NoError(t, f.DropPast())
			return f.dir
		}, false},
	} {
		f := testkit.Must(OpenFolder(filepath.Join(t.TempDir(), "data")))(t)
		var data [][]byte
		for _, s := range written {
			data = append(data, []byte(s))
		}
		testkit.NoError(t, f.KeepPast(data))
		dir := c.change(t, f)
		testkit.NoError(t, f.Close())
		f = testkit.Must(OpenFolder(dir))(t)
		var got []string
		for _, s := range f.Pasts(slog.New(slog.DiscardHandler)) {
			got = append(got, string(s))
		}
		if proves := slices.Equal(got, written); proves != c.proves || !proves && len(got) > 0 {
			t.Errorf("after %s the next process reads %q", c.what, got)
		}
		testkit.NoError(t, f.Close())
	}
}

// TestARestoredSnapshotProvesNothing: a file that was written again later than its content says is a backup.
func TestARestoredSnapshotProvesNothing(t *testing.T) {
	name := filepath.Join(t.TempDir(), pastFile)
	testkit.NoError(t, os.WriteFile(name, nil, 0o600))
	now := time.Now()
	if err := unchangedSince(name, now); err != nil {
		t.Errorf("a file just written: %v", err)
	}
	if err := unchangedSince(name, now.Add(-restoreSlack-time.Second)); err == nil {
		t.Error("a file written again after three seconds is taken as it is")
	}
}
