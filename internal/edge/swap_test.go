package edge

import (
	"net/http"
	"strings"
	"testing"

	"vestibule/internal/core/room"
)

// Libraries that put answers into the page of the site load it as a whole instead: each gets its own answer.
func TestLibrariesLoadThePageAsAWhole(t *testing.T) {
	st := openWith(t, 0, func(*room.Settings) {})
	const page, words = "text/html; charset=utf-8", "text/plain; charset=utf-8"
	htmlOnly := []string{"Accept", "text/html, application/xhtml+xml"}
	script := []string{"Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty", "Sec-Fetch-Site", "same-origin"}
	at := func(address string) []string { return []string{"HX-Request", "true", "HX-Current-URL", address} }
	for _, tc := range []struct {
		name, method string
		header       []string
		code         int
		content      string
		tells, value string
	}{
		{"Turbo visit", "GET", append([]string{"X-Turbo-Request-Id", "1"}, htmlOnly...), 429, words, "", ""},
		{"older Turbo visit", "GET", htmlOnly, 429, words, "", ""},
		{
			"Turbo frame", "GET", append([]string{"X-Turbo-Request-Id", "1", "Turbo-Frame", "cart"}, htmlOnly...), 200, page, "",
			"",
		},
		{"Turbo form", "POST", []string{
			"X-Turbo-Request-Id", "1", "Accept",
			"text/vnd.turbo-stream.html, text/html, application/xhtml+xml",
		}, 429, page, "", ""},
		{"htmx on a page of the room", "GET", at("http://sale.example/shop"), 429, words, "HX-Refresh", "true"},
		{"htmx form", "POST", at("http://sale.example/shop"), 429, words, "HX-Refresh", "true"},
		{"htmx on a page elsewhere", "GET", at("http://other.example/shop"), 429, words, "", ""},
		{
			"htmx link", "GET", append(at("http://other.example/shop"), "HX-Boosted", "true"), 429, words, "HX-Redirect",
			"/a?b=1",
		},
		{
			"Inertia visit", "GET",
			[]string{"X-Inertia", "true", "Accept", "text/html, application/xhtml+xml"},
			409, words,
			"X-Inertia-Location", "/a?b=1",
		},
		{
			"Inertia form", "POST",
			[]string{"X-Inertia", "true", "Referer", "http://sale.example/form?x=1"},
			409, words,
			"X-Inertia-Location", "/form?x=1",
		},
		{"Livewire", "POST", []string{"X-Livewire", ""}, 419, words, "", ""},
		{"Livewire visit", "GET", []string{"X-Livewire-Navigate", "1"}, 429, page, "", ""},
	} {
		for _, header := range [][]string{script, nil} { // with TLS, and without: browsers tell less
			if header == nil && tc.name == "older Turbo visit" {
				continue
			}
			v := st.door.visitor()
			a := v.ask(tc.method, "http://sale.example/a?b=1", "", append(append([]string{}, tc.header...), header...)...)
			if a.StatusCode != tc.code || a.Header.Get("Content-Type") != tc.content ||
				a.Header.Get("Vestibule-Decision") != "wait" {
				t.Errorf("%s %v: %d %v", tc.name, header, a.StatusCode, a.Header)
			}
			for _, name := range []string{"HX-Refresh", "HX-Redirect", "X-Inertia-Location"} {
				if want := map[bool]string{true: tc.value}[name == tc.tells]; a.Header.Get(name) != want {
					t.Errorf("%s %v: %s is %q, want %q", tc.name, header, name, a.Header.Get(name), want)
				}
			}
			if len(a.Cookies()) == 0 {
				t.Errorf("%s: no place was given", tc.name)
			}
			if tc.content == page && !strings.Contains(a.body, `<meta name="turbo-visit-control" content="reload">`) {
				t.Errorf("%s: the page does not tell Turbo", tc.name)
			}
		}
	}
	// No answer leads a library to another host.
	for _, header := range [][]string{{"HX-Request", "true", "HX-Boosted", "true"}, {"X-Inertia", "true"}} {
		a := st.door.visitor().ask(http.MethodGet, "http://sale.example//evil.example/", "", append(header, script...)...)
		for _, name := range []string{"HX-Redirect", "X-Inertia-Location"} {
			if to := a.Header.Get(name); to != "" && to != "/" {
				t.Errorf("%v: %s leads to %q", header, name, to)
			}
		}
	}
}
