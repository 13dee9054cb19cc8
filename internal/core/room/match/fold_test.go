package match

import (
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestFoldMergesCase checks every rune: texts that any origin treats as equal apart from case have the same Fold.
func TestFoldMergesCase(t *testing.T) {
	merged := 0
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		f := foldRune(r)
		if foldRune(f) != f {
			t.Errorf("%U folds to %U, which folds to %U", r, f, foldRune(f))
		}
		for _, same := range []rune{unicode.ToUpper(r), unicode.ToLower(r), unicode.ToTitle(r), unicode.SimpleFold(r)} {
			if foldRune(same) != f {
				t.Errorf("%U folds to %U, but %U to %U", r, f, same, foldRune(same))
			}
		}
		if f != r {
			merged++
		}
	}
	if merged < 1000 {
		t.Errorf("only %d runes fold", merged)
	}
}

func TestFold(t *testing.T) {
	for in, want := range map[string]string{
		"":         "",
		"/sale":    "/sale",
		"/SaLe":    "/sale",
		"/ÉTÉ":     "/été",
		"/\u212a":  "/k",
		"/ſale":    "/sale",
		"/tıckets": "/tickets",
		"/İ":       "/i",
		"/販売":      "/販売",
	} {
		if got := Fold(in); got != want {
			t.Errorf("Fold(%q) = %q, want %q", in, got, want)
		}
	}
	n := 0
	if allocs := testing.AllocsPerRun(100, func() { n += len(Fold("/sale/販売")) }); allocs != 0 {
		t.Errorf("folding the folded allocates %v times", allocs)
	}
}

// TestIgnorable compares the list with its definition in Unicode's DerivedCoreProperties:
// Other_Default_Ignorable_Code_Point + Cf + Variation_Selector, less white space, interlinear annotations, Egyptian
// format controls and prepended marks.
func TestIgnorable(t *testing.T) {
	for r := rune(0); r <= utf8.MaxRune; r++ {
		want := unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Cf, unicode.Variation_Selector) &&
			!unicode.In(r, unicode.White_Space, unicode.Prepended_Concatenation_Mark) &&
			(r < 0xfff9 || r > 0xfffb) && (r < 0x13430 || r > 0x1343f)
		if ignorable(r) != want {
			t.Errorf("ignorable(%U) = %v", r, !want)
		}
	}
}

func TestLookalikesAreSeparators(t *testing.T) {
	for r, to := range lookalikes {
		if len(to) != 1 || !isSeparator(to[0]) {
			t.Errorf("%U as %q", r, to)
		}
	}
}
