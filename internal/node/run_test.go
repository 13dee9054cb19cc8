package node

import "testing"

// TestShortBuild: 64 bytes hold it, and no hash is cut.
func TestShortBuild(t *testing.T) {
	const commit = "b126671a0f2c4d5e6f708192a3b4c5d6e7f80911"
	for want, b := range map[string]build{
		"v0.2.0 (commit b126671a0f2c, go1.27.1)": {"v0.2.0", commit, "go1.27.1"},
		"v0.0.0-20261129024405-b126671a0f2c+dirty (go1.27.1)": {
			"v0.0.0-20261129024405-b126671a0f2c+dirty", commit, "go1.27.1",
		},
		"devel (commit unknown, go1.27.1)": {"devel", "unknown", "go1.27.1"},
	} {
		if got := b.short(); got != want || len(got) > 64 {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
