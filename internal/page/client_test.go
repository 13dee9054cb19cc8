package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"vestibule/internal/core/room"
	"vestibule/internal/lab/testkit"
)

//go:embed client.js
var clientJS string

// TestMinifiedFilesAreCurrent: `make scripts` ran after the last change of a script or the style.
func TestMinifiedFilesAreCurrent(t *testing.T) {
	sums, err := os.ReadFile("min/SUMS")
	if err != nil || len(sums) == 0 {
		t.Fatalf("%d bytes, %v", len(sums), err)
	}
	for line := range strings.Lines(string(sums)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		data := testkit.Must(os.ReadFile(name))(t)
		if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != want {
			t.Errorf("%s has changed: run make scripts", name)
		}
	}
}

// TestTheClientHasItsWords: every message that the module shows exists in every language, and every possible state has
// a heading.
func TestTheClientHasItsWords(t *testing.T) {
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`words\.([a-z_]+)`).FindAllStringSubmatch(clientJS, -1) {
		used[m[1]] = true
	}
	delete(used, "json") // the file
	delete(used, "lang")
	for _, state := range []string{
		"queued", "next", "paused", "closed", "before", "moment", "offline", "paused_system",
		"paused_operator", "paused_site", "minute", "hour",
	} {
		used[state] = true
	}
	if !used["wait_unknown"] {
		t.Fatalf("no words were found in the module: %v", used)
	}
	for _, code := range room.Languages {
		var words map[string]any
		testkit.NoError(t, json.Unmarshal([]byte(LangOf(code).Words()), &words))
		for key := range used {
			if words[key] == nil {
				t.Errorf("%s has no %q", code, key)
			}
		}
	}
}

// TestTheClientIsSmall: pages load it before their first request.
func TestTheClientIsSmall(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(Client)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, %d with gzip", len(Client), b.Len())
	if len(Client) > 16<<10 {
		t.Errorf("%d bytes, want 16 KiB at most", len(Client))
	}
}
