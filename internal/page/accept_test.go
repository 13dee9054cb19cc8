package page_test

import (
	"strings"
	"testing"

	"vestibule/internal/page"
)

func TestWhoWantsJSON(t *testing.T) {
	for _, tc := range []struct {
		accept string
		want   bool
	}{
		{"", false},
		{"*/*", false},
		{"application/json", true},
		{"Application/JSON; charset=utf-8", true},
		{"application/json, text/plain, */*", true},                                           // axios
		{"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8", false}, // browsers
		{"text/html, application/json;q=0.9", false},
		{"text/html;q=0.5, application/json;q=0.9", true},
		{"text/html, application/json", false},
		{"application/json, text/html", true},
		{"application/*, text/html;q=0.4", true},
		{"application/json;q=0, */*", false},
		{"application/json;q=0.001", true},
		{"application/json;q=x", false},
		{"application/json;q=NaN, */*;q=0.1", false},
		{"image/png", false},
		{"application/vnd.api+json", true},
		{"application/*+json, text/html;q=0.9", true},
		{"text/html, application/problem+json", false},
		{"application/+json", false},
		{"text/x+json", false},
		{", ,;q=1,", false},
	} {
		if got := page.PrefersJSON([]string{tc.accept}); got != tc.want {
			t.Errorf("%q: JSON is %v", tc.accept, got)
		}
	}
	if !page.PrefersJSON([]string{"text/html;q=0.1", "application/json"}) {
		t.Error("two lines are not read as one")
	}
	if n := testing.AllocsPerRun(100,
		func() { page.PrefersJSON([]string{"text/html,application/json;q=0.9,*/*;q=0.8"}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLanguages(t *testing.T) {
	var p page.Picker
	for _, tc := range []struct{ header, otherwise, want string }{
		{"", "de-DE", "de-DE"},
		{"fr", "de-DE", "fr-FR"},
		{"fr-CA,fr;q=0.9,en;q=0.8", "de-DE", "fr-FR"},
		{"en-GB", "de-DE", "en-US"},
		{"xx", "de-DE", "de-DE"},
		{"xx,ja;q=0.1", "de-DE", "ja-JP"},
		{"pt-PT", "en-US", "pt-BR"},
		{"zh-HK", "en-US", "zh-TW"},
		{"zh-Hant", "en-US", "zh-TW"},
		{"zh-HK,zh;q=0.9,en;q=0.8", "en-US", "zh-TW"},
		{"zh-Hant-MO,zh;q=0.9", "en-US", "zh-TW"},
		{"zh-SG,zh;q=0.9", "en-US", "zh-CN"},
		{"zh", "en-US", "zh-CN"},
		{"no", "en-US", "nb-NO"},
		{"nn", "en-US", "nb-NO"},
		{"iw", "en-US", "he-IL"},
		{"in", "en-US", "id-ID"},
		{"fil", "en-US", "tl-PH"},
		{"tl", "en-US", "tl-PH"},
		{"sr", "en-US", "sr-BA"},
		{"ar", "en-US", "ar-EG"},
		{"de;q=0.1,it;q=0.9", "en-US", "it-IT"},
		{"*", "hu-HU", "hu-HU"},
		{"\x00;;q=,,,", "hu-HU", "hu-HU"},
		{strings.Repeat("x", 5000), "hu-HU", "hu-HU"},
		{"ko," + strings.Repeat("a-b-c,", 5000), "hu-HU", "ko-KR"},
	} {
		for range 2 { // the second time from the cache
			if got := p.Pick(tc.header, page.LangOf(tc.otherwise)).Code(); got != tc.want {
				t.Errorf("%.40q: %s, want %s", tc.header, got, tc.want)
			}
		}
	}
	if got := page.LangOf("xx-XX"); got != page.English {
		t.Errorf("an unknown language is %s", got.Code())
	}
}

// Any header gets an answer, and the same one for the same header.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{
		"text/html,*/*;q=0.8", "application/json;q=1.0;x=y", "fr-CA,fr;q=0.9,*;q=0.1",
		"zh-Hant-HK-x-y;q=", "i-klingon,sl-rozaj-biske",
	} {
		f.Add(s, s)
	}
	var p page.Picker
	f.Fuzz(func(t *testing.T, accept, languages string) {
		if once := page.PrefersJSON([]string{accept}); page.PrefersJSON([]string{accept, accept}) != once {
			t.Errorf("%q: JSON is %v, and said twice it is not", accept, once)
		}
		first := p.Pick(languages, page.English)
		if again := p.Pick(languages, page.English); again != first || again.Code() == "" {
			t.Errorf("%q: %s, then %s", languages, first.Code(), again.Code())
		}
	})
}
