package edge

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"vestibule/internal/core/room"
)

// TestTheClientModule: browsers of all origins may load the module and its texts, cache them, and check for newer
// ones.
func TestTheClientModule(t *testing.T) {
	st := openWith(t, 10, func(*room.Settings) {})
	const base = "http://sale.example/.well-known/vestibule/"
	for path, contentType := range map[string]string{
		"client.js":             "text/javascript; charset=utf-8",
		"words.json?lang=de-DE": "application/json",
	} {
		a := st.door.visitor().get(base + path)
		h := a.Header
		if a.StatusCode != 200 || h.Get("Content-Type") != contentType || h.Get("Cache-Control") != "public, max-age=3600" ||
			h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Cross-Origin-Resource-Policy") != "cross-origin" ||
			h.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %v", path, a.StatusCode, h)
		}
		again := st.door.visitor().get(base+path, "If-None-Match", `"older", `+h.Get("ETag"))
		if again.StatusCode != http.StatusNotModified || again.body != "" || again.Header.Get("ETag") != h.Get("ETag") ||
			again.Header.Get("Content-Length") != "" {
			t.Errorf("%s, asked whether it has changed: %d %v %q", path, again.StatusCode, again.Header, again.body)
		}
		if older := st.door.visitor().get(base+path, "If-None-Match", `"older"`); older.StatusCode != 200 ||
			older.body != a.body {
			t.Errorf("%s, of which an older one is there: %d", path, older.StatusCode)
		}
		st.door.visitor().ask("POST", base+path, "").has(t, http.StatusMethodNotAllowed, "POST %s", path)
	}
	for lang, want := range map[string]string{
		"de-DE": "Du stehst in der Schlange", "xx": "You are in line",
		"": "You are in line", "%zz": "You are in line",
	} {
		var words map[string]any
		if a := st.door.visitor().get(base + "words.json?lang=" + lang); json.Unmarshal([]byte(a.body), &words) != nil ||
			words["queued"] != want {
			t.Errorf("words in %q: %q", lang, a.body)
		}
	}
	if a := st.door.visitor().get(base + "client.js"); !strings.Contains(a.body, "export async function waitingFetch(") ||
		strings.Contains(a.body, "\n//") {
		t.Errorf("the module is %s", a.body)
	}
}
