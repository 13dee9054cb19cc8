package preview

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vestibule/internal/lab/testkit"
	"vestibule/internal/page"
)

func ask(t *testing.T, h http.Handler, method, path, accept string) (int, http.Header, string) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("Accept", accept)
	h.ServeHTTP(w, r)
	body := testkit.Must(io.ReadAll(w.Result().Body))(t)
	return w.Code, w.Result().Header, string(body)
}

// Every state can be previewed, as a page and as JSON, in every language.
func TestPreviewsOfTheBuiltinPage(t *testing.T) {
	h := New("", "", slog.New(slog.DiscardHandler))
	_, _, index := ask(t, h, http.MethodGet, "/", "text/html")
	for _, s := range page.Samples {
		if !strings.Contains(index, `href="/`+s.Name+`?lang=fa-IR"`) {
			t.Errorf("the index does not lead to %s", s.Name)
		}
		code, header, body := ask(t, h, http.MethodGet, "/"+s.Name+"?lang=fa-IR", "text/html")
		if code != http.StatusOK || !strings.Contains(body, `<html lang="fa-IR" dir="rtl">`) ||
			!strings.Contains(header.Get("Content-Security-Policy"), "sha256-") {
			t.Errorf("%s: %d %.60q", s.Name, code, body)
		}
		if code, _, body := ask(t, h, http.MethodGet, "/"+s.Name, "application/json"); code != http.StatusOK ||
			!strings.HasPrefix(body, `{"cfWaitingRoom":{`) {
			t.Errorf("%s: %d %.60q", s.Name, code, body)
		}
	}
	if _, _, body := ask(t, h, http.MethodPost, "/.well-known/vestibule/leave?room=sale",
		"text/html"); !strings.Contains(body, "You have left the line") {
		t.Errorf("leaving: %.60q", body)
	}
	// Resources that a page requests exist too: a missing one is an error on its console.
	if code, header, body := ask(t, h, http.MethodGet, "/.well-known/vestibule/events?room=sale",
		"text/event-stream"); code != http.StatusOK || header.Get("Content-Type") != "text/event-stream" ||
		!strings.HasPrefix(body, "retry: ") {
		t.Errorf("the stream: %d %.60q", code, body)
	}
	if code, _, _ := ask(t, h, http.MethodPost, "/.well-known/vestibule/away?room=sale",
		"*/*"); code != http.StatusNoContent {
		t.Errorf("going away: %d", code)
	}
	for _, path := range []string{"/nothing", "/queued?lang=xx"} {
		if code, _, _ := ask(t, h, http.MethodGet, path, "text/html"); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// A file is read on every request, and its faults are shown.
func TestPreviewsOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	h := New(file, "", slog.New(slog.DiscardHandler))
	for _, tc := range []struct {
		text, want string
		code       int
	}{
		{"<h1>{{peopleAhead}}</h1><script>1</script>", "<h1>1234</h1><script nonce=", http.StatusOK},
		{"<h1>{{#queueAll}}</h1>", "is not closed", http.StatusInternalServerError},
		{"<h1>{{peopleAhed}}</h1>", "<h1></h1>", http.StatusOK},
		{":root{--vr-accent:#123456}", "<style>:root{--vr-accent:#123456}</style>", http.StatusOK},
	} {
		testkit.NoError(t, os.WriteFile(file, []byte(tc.text), 0o600))
		if code, _, body := ask(t, h, http.MethodGet, "/queued", "text/html"); code != tc.code ||
			!strings.Contains(body, tc.want) {
			t.Errorf("%q: %d %.200q", tc.text, code, body)
		}
		if _, _, body := ask(t, h, http.MethodGet, "/", "text/html"); strings.Contains(body,
			"cannot be used") != (tc.code != http.StatusOK) {
			t.Errorf("%q: index %.200q", tc.text, body)
		} else if strings.Contains(body, "did you mean") != strings.Contains(tc.text, "peopleAhed") {
			t.Errorf("%q: index %s", tc.text, body)
		}
	}
}
