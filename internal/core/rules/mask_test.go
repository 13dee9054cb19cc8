package rules

import (
	"strings"
	"testing"
)

func TestMask(t *testing.T) {
	for in, want := range map[string]string{
		`http.host eq "a.example"`: `http.host eq ***`,
		`http.request.headers["x-key"][0] eq "s3cret" or ip.src eq 1.2.3.4`: `http.request.headers["x-key"][0] eq *** or ip.src eq 1.2.3.4`,
		`http.request.headers[ "x-key" ][0] == "a\"b" and true`:             `http.request.headers[ "x-key" ][0] == *** and true`,
		`http.host in {"a" "b"}`:                             `http.host in {*** ***}`,
		`http.host matches r"^a\" and http.host eq r#"x"y"#`: `http.host matches *** and http.host eq ***`,
		`http.host eq "open`:                                 `http.host eq ***`,
		``:                                                   ``,
	} {
		if got := Mask(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// FuzzMask: no text of a valid expression is in the masked one, and the masked one is refused.
func FuzzMask(f *testing.F) {
	f.Add("s3cret", true)
	f.Add(`a"b`, false)
	f.Add(`a\`, false)
	f.Fuzz(func(t *testing.T, secret string, raw bool) {
		literal := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(secret) + `"`
		if raw {
			literal = `r##"` + secret + `"##`
		}
		expression := `http.request.headers["x-key"][0] eq ` + literal
		if _, err := Compile(expression, Sources{}); err != nil {
			return
		}
		got := Mask(expression)
		if got != `http.request.headers["x-key"][0] eq ***` {
			t.Errorf("%s: %s", expression, got)
		}
		if _, err := Compile(got, Sources{}); err == nil {
			t.Errorf("%s is valid", got)
		}
	})
}
