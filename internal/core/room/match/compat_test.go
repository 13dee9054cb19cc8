package match

import (
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// TestCompatForms compares compatOf with the normal forms of all non-ASCII runes: every rune with a printable ASCII
// NFKC form has that form.
func TestCompatForms(t *testing.T) {
	checked := 0
	for r := rune(utf8.RuneSelf); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		want := norm.NFKC.String(string(r))
		if !printableASCII(want) {
			if got, ok := compatOf(r); ok && lookalikes[r] == "" {
				t.Errorf("compatOf(%U) = %q, but NFKC makes no ASCII of it", r, got)
			}
			continue
		}
		checked++
		if got, _ := compatOf(r); got != want {
			t.Errorf("compatOf(%U) = %q, want %q", r, got, want)
		}
	}
	if checked < 1000 {
		t.Fatalf("only %d runes checked: x/text has lost its tables", checked)
	}
}

func printableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f {
			return false
		}
	}
	return s != ""
}
