// Package checkpage validates an operator's custom page before publication: it must mean the same to us as to other
// Mustache implementations. It renders the page with our renderer and with a full Mustache library, for visitors in
// every state, and rejects any difference. It is a separate package because only global needs the library.
package checkpage

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/cbroglie/mustache"

	"vestibule/internal/page"
)

// Check returns the fault of a page, or nil, and warnings by line about parts that will probably not work.
func Check(text []byte) (doubts []string, err error) {
	if n := strings.Count(string(text), "{{") + len(script.FindAllIndex(text, maxTags+1)); n > maxTags {
		return nil, fmt.Errorf("waiting page: must have at most %d template tags and scripts, got more", maxTags)
	}
	custom, err := page.Custom(text)
	if err != nil {
		return nil, err
	}
	if !custom.IsCustom() {
		return nil, nil // CSS for the built-in page
	}
	t, err := mustache.ParseString(string(text))
	if err != nil {
		return nil, fmt.Errorf("waiting page: %w", err)
	}
	for i := range page.Samples {
		v := &page.Samples[i].Visitor
		want, err := t.Render(page.Values(v))
		if err != nil {
			return nil, fmt.Errorf("waiting page: %w", err)
		}
		if got := custom.Render(nil, v); string(got) != want {
			return nil, fmt.Errorf("waiting page: uses a corner of Mustache that is not supported: near %q",
				firstDifference(string(got), want))
		}
	}
	return append(custom.Doubts(), blocked(string(text))...), nil
}

// Bounds of a page: each tag is rendered for every sample, by both renderers.
const (
	maxTags   = 5000
	maxDoubts = 100 // of one kind
)

var (
	script    = regexp.MustCompile(`(?i)<script`)
	handler   = regexp.MustCompile(`(?i)<[a-z][^<>]*?[\s"'/](on[a-z]+)\s*=`)
	scriptURL = regexp.MustCompile(`(?i)<[a-z][^<>]*?\s(?:href|src|action|formaction)\s*=\s*["']?\s*javascript:`)
	plainLoad = regexp.MustCompile(`(?i)<(?:script|img|link|iframe|video|audio|source)\s[^<>]*?(?:href|src)\s*=\s*["']?\s*(http://[^\s"'<>]+)`)
)

// blocked returns warnings about content that the page's content security policy blocks in every browser.
func blocked(text string) (doubts []string) {
	say := func(at int, format string, args ...any) {
		line := 1 + strings.Count(text[:at], "\n")
		doubts = append(doubts, fmt.Sprintf("line %d: %s", line, fmt.Sprintf(format, args...)))
	}
	for _, m := range handler.FindAllStringSubmatchIndex(text, maxDoubts) {
		say(m[2],
			"%s does not run: the policy of the page takes no scripts in attributes; use addEventListener in a script element",
			strings.ToLower(text[m[2]:m[3]]))
	}
	for _, m := range scriptURL.FindAllStringIndex(text, maxDoubts) {
		say(m[1], "javascript: does not run: the policy of the page takes scripts in script elements only")
	}
	for _, m := range plainLoad.FindAllStringSubmatchIndex(text, maxDoubts) {
		say(m[2], "%s is not loaded: the policy of the page takes https: only", text[m[2]:m[3]])
	}
	return doubts
}

// firstDifference returns excerpts from the first difference of a and b.
func firstDifference(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return b[max(0, i-20):min(len(b), i+40)]
}
