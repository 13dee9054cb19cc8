package match_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"vestibule/internal/core/room/match"
)

func collect(path string) (all []string, ok bool) {
	ok = match.Readings(path, func(r string) bool {
		all = append(all, r)
		return true
	})
	return all, ok
}

func TestReadings(t *testing.T) {
	for _, c := range []struct {
		path string
		want []string // nil: no reliable readings
	}{
		{"/", []string{"/"}},
		{"/sale/x-1_2~3!'()*+,=:@&$", []string{"/sale/x-1_2~3!'()*+,=:@&$"}},
		{"/Sale", []string{"/Sale"}}, // case is for Fold
		{"/a.b/c", []string{"/a.b/c"}},
		{"/s%61le", []string{"/s%61le", "/sale"}},
		{"/s%2561le", []string{"/s%2561le", "/s%61le", "/sale"}},
		{"/a%2fb", []string{"/a%2fb", "/a/b"}},
		{"/a%2f%62", []string{"/a%2f%62", "/a/b", "/a%2fb"}},
		{`/a\b`, []string{`/a\b`, "/a/b"}},
		{"/a;v=1/b;w", []string{"/a;v=1/b;w", "/a/b"}},
		{"/a%3Fb", []string{"/a%3Fb", "/a?b", "/a"}},
		{"/a#b", []string{"/a#b", "/a"}},
		{"/a//b", []string{"/a//b", "/a/b"}},
		{"//h/a", []string{"//h/a", "/h/a", "/a"}},
		{"//h", []string{"//h", "/h", "/"}},
		{"///h/a", []string{"///h/a", "/h/a", "/a"}},
		{"/a/./b", []string{"/a/./b", "/a/b"}},
		{"/a/../b", []string{"/a/../b", "/b"}},
		{"/../..", []string{"/../..", "/"}},
		{"/a/b/..", []string{"/a/b/..", "/a/"}},
		{"/.well-known/x", []string{"/.well-known/x"}},
		{"/a./b", []string{"/a./b", "/a/b"}},
		{"/a%20", []string{"/a%20", "/a ", "/a"}},
		{"/a%20b", []string{"/a%20b", "/a b"}},
		{"/a::$DATA", []string{"/a::$DATA", "/a"}},
		{"/a:b", []string{"/a:b"}},
		{"/(S(x))/a", []string{"/(S(x))/a", "/a"}},
		{"/a/(S(x)F(y))b", []string{"/a/(S(x)F(y))b", "/ab"}},
		{"/(S(x))", []string{"/(S(x))", "/"}},
		{"/(S)/a", []string{"/(S)/a"}},
		{"/Foo_(bar)", []string{"/Foo_(bar)"}},
		{"/ｓale", []string{"/ｓale", "/sale"}},
		{"/sa\u200ble", []string{"/sa\u200ble", "/sale"}},
		{"/café", []string{"/café"}},
		{"/100%25", []string{"/100%25", "/100%"}}, // a stray percent sign after decoding is no error
		{"", nil},
		{"*", nil},
		{"sale", nil},
		{"http://h/sale", nil},
		{"/%", nil},
		{"/%2", nil},
		{"/%zz", nil},
		{"/%u0073ale", nil},
		{"/a%00", nil},
		{"/a%2500", nil},
		{"/a\x00b", nil},
		{"/a%0d%0ab", nil},
		{"/a\x7f", nil},
		{"/a\xff", nil},
		{"/a%ff", nil},
		{"/%c0%af", nil},
		{"/%c2%80", nil}, // a control character beyond ASCII
		{"/%" + strings.Repeat("25", match.MaxReadings) + "61", nil},
		{"/" + strings.Repeat("a", match.MaxReadingBytes) + "%61", nil},
	} {
		got, ok := collect(c.path)
		if ok != (c.want != nil) {
			t.Errorf("Readings(%q) ok = %v, readings %q", c.path, ok, got)
		}
		want := slices.Clone(c.want)
		if len(got) > 0 && got[0] != c.path {
			t.Errorf("Readings(%q) begins with %q", c.path, got[0])
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("Readings(%q): %s", c.path, cmp.Diff(want, got))
		}
	}
}

// TestReadingsStops checks that yield can end the iteration, which is no failure.
func TestReadingsStops(t *testing.T) {
	calls := 0
	if ok := match.Readings("/s%61le//x", func(string) bool { calls++; return false }); !ok || calls != 1 {
		t.Errorf("ok %v after %d calls", ok, calls)
	}
}

// TestReadingsBound checks both limits from both sides.
func TestReadingsBound(t *testing.T) {
	nested := func(n int) string { return "/%" + strings.Repeat("25", n) + "61" } // has n+2 readings
	if all, ok := collect(nested(match.MaxReadings - 2)); !ok || len(all) != match.MaxReadings {
		t.Errorf("as many readings as allowed: ok %v, %d readings", ok, len(all))
	}
	if _, ok := collect(nested(match.MaxReadings - 1)); ok {
		t.Error("one reading more than allowed is not refused")
	}
	long := strings.Repeat("a", match.MaxReadingBytes/2-10)
	if _, ok := collect("/%61" + long); !ok {
		t.Error("two readings of half the bound are refused")
	}
	if _, ok := collect("/%61%2561" + long); ok {
		t.Error("three readings of half the bound are not refused")
	}
}

// nasty are building blocks of attacks.
var nasty = []string{
	"/", "/", "/", "//", "/./", "/../", "/..;/", "..", ".", "%2f", "%2F", "%252f", "%5c", `\`, ";x", "%3b", "?",
	"%3f", "#",
	"%2e", "%252e", "%2e%2e", "sale", "sale", "SALE", "Sale", "s%61le", "s%2561le", "ｓale", "%EF%BD%93ale", "vip", "VIP",
	"a", "b",
	"%00", "%0a", "\x01", "%c0%af", "\xff", "%", "%25", " ", "%20", "a.test", "b.test", "A.TEST", "@", ":80", "é", "É",
	"%C3%A9", "%c3%a9", "É%",
	":$DATA", "(S(x))", "/(S(x))", "\u200b", "…", "％", "／", "\u212a", "my sale", "my%20sale", "s", "+", "~",
}

func nastyPath() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		pieces := rapid.SliceOfN(rapid.SampledFrom(nasty), 0, 8).Draw(t, "pieces")
		path := strings.Join(pieces, "")
		if rapid.IntRange(0, 15).Draw(t, "bare") > 0 {
			path = "/" + path
		}
		return path
	})
}

func checkReadings(t rapid.TB, path string) {
	got, ok := collect(path)
	want := twinReadings(path)
	if ok != (want != nil) {
		t.Fatalf("Readings(%q) ok = %v, twin has %v", path, ok, want)
	}
	set := make(map[string]bool)
	for _, r := range got {
		if set[r] {
			t.Fatalf("Readings(%q) yields %q twice", path, r)
		}
		set[r] = true
	}
	if len(set) != len(want) {
		t.Fatalf("Readings(%q): %s", path, cmp.Diff(want, set))
	}
	for r := range want {
		if !set[r] {
			t.Fatalf("Readings(%q) lacks %q", path, r)
		}
	}
	// The quick test must never call a path with other readings ordinary; a false negative only costs time.
	if match.IsOrdinary(path) && len(want) != 1 {
		t.Fatalf("match.IsOrdinary(%q), but the twin reads %v", path, want)
	}
}

func TestReadingsLikeTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkReadings(t, nastyPath().Draw(t, "path")) })
}

func FuzzReadings(f *testing.F) {
	for _, a := range pathAttacks {
		f.Add(a.path)
	}
	for _, p := range nasty {
		f.Add("/x" + p + "y")
	}
	f.Fuzz(func(t *testing.T, path string) {
		if len(path) > 200 {
			return // the twin is slow
		}
		checkReadings(t, path)
	})
}
