package page

import (
	_ "embed"
	"strings"
)

// CheckDraw is a page by which anybody repeats a draw in a browser, and holds receipts against it. It is whole: it fetches nothing
// but the record.
//
//go:embed checkdraw.html
var CheckDraw string

// CheckDrawPolicy is the content security policy with which it is served.
var CheckDrawPolicy = func() string {
	between := func(from, to string) string {
		_, text, _ := strings.Cut(CheckDraw, from)
		text, _, _ = strings.Cut(text, to)
		return hash(text)
	}
	return "default-src 'none'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src " +
		between("<style>", "</style>") + "; script-src " + between("<script>", "</script>")
}()
