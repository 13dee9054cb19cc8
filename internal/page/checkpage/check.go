// Package checkpage judges an operator's custom page before it is published:
// it must mean to us what it means to everybody else's Mustache. The page is
// rendered by us and by a full Mustache library, for visitors in every state,
// and refused where the two differ. It is a package of its own because only
// global needs the library.
package checkpage

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/cbroglie/mustache"

	"vestibule/internal/page"
)

// Check returns what is wrong with a page, nil for nothing, and what of it will probably not
// do what it is there for, line by line.
func Check(text []byte) (doubts []string, err error) {
	custom, err := page.Custom(text)
	if err != nil {
		return nil, err
	}
	if !custom.IsCustom() {
		return nil, nil // a style for the built-in page
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
			return nil, fmt.Errorf("waiting page: uses a corner of Mustache that is not supported: near %q", firstDifference(string(got), want))
		}
	}
	return append(custom.Doubts(), blocked(string(text))...), nil
}

var (
	handler   = regexp.MustCompile(`(?i)<[a-z][^<>]*?[\s"'/](on[a-z]+)\s*=`)
	scriptURL = regexp.MustCompile(`(?i)<[a-z][^<>]*?\s(?:href|src|action|formaction)\s*=\s*["']?\s*javascript:`)
	plainLoad = regexp.MustCompile(`(?i)<(?:script|img|link|iframe|video|audio|source)\s[^<>]*?(?:href|src)\s*=\s*["']?\s*(http://[^\s"'<>]+)`)
)

// blocked tells of what the page's content security policy stops in every browser.
func blocked(text string) (doubts []string) {
	say := func(at int, format string, args ...any) {
		line := 1 + strings.Count(text[:at], "\n")
		doubts = append(doubts, fmt.Sprintf("line %d: %s", line, fmt.Sprintf(format, args...)))
	}
	for _, m := range handler.FindAllStringSubmatchIndex(text, -1) {
		say(m[2], "%s does not run: the policy of the page takes no scripts in attributes; use addEventListener in a script element", strings.ToLower(text[m[2]:m[3]]))
	}
	for _, m := range scriptURL.FindAllStringIndex(text, -1) {
		say(m[1], "javascript: does not run: the policy of the page takes scripts in script elements only")
	}
	for _, m := range plainLoad.FindAllStringSubmatchIndex(text, -1) {
		say(m[2], "%s is not loaded: the policy of the page takes https: only", text[m[2]:m[3]])
	}
	return doubts
}

// firstDifference returns some text from where a and b begin to differ.
func firstDifference(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return b[max(0, i-20):min(len(b), i+40)]
}
