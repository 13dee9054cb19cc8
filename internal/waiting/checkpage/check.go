// Package checkpage judges an operator's custom page before it is published:
// it must mean to us what it means to everybody else's Mustache. The page is
// rendered by us and by a full Mustache library, for visitors in every state,
// and refused where the two differ. It is a package of its own because only
// global needs the library.
package checkpage

import (
	"fmt"

	"github.com/cbroglie/mustache"

	"vestibule/internal/waiting"
)

// Check returns what is wrong with a page, nil for nothing.
func Check(text []byte) error {
	page, err := waiting.Custom(text)
	if err != nil {
		return err
	}
	if !page.IsCustom() {
		return nil // a style for the built-in page
	}
	t, err := mustache.ParseString(string(text))
	if err != nil {
		return fmt.Errorf("waiting page: %w", err)
	}
	for i := range waiting.Samples {
		v := &waiting.Samples[i].Visitor
		want, err := t.Render(waiting.Values(v))
		if err != nil {
			return fmt.Errorf("waiting page: %w", err)
		}
		if got := page.Render(nil, v); string(got) != want {
			return fmt.Errorf("waiting page: uses a corner of Mustache that is not supported: near %q", firstDifference(string(got), want))
		}
	}
	return nil
}

// firstDifference returns some text from where a and b begin to differ.
func firstDifference(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return b[max(0, i-20):min(len(b), i+40)]
}
