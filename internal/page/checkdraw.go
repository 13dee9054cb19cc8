package page

import (
	_ "embed"
	"strings"
)

// CheckDraw is a page with which anyone can repeat a draw in a browser and check receipts. It is self-contained and
// fetches only the record.
//
//go:embed checkdraw.html
var CheckDraw string

// CheckDrawPolicy is the content security policy of CheckDraw.
var CheckDrawPolicy = func() string {
	between := func(from, to string) string {
		_, text, _ := strings.Cut(CheckDraw, from)
		text, _, _ = strings.Cut(text, to)
		return hash(text)
	}
	return "default-src 'none'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src " +
		between("<style>", "</style>") + "; script-src " + between("<script>", "</script>")
}()
