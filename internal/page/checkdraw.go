package page

import (
	_ "embed"
	"strings"
	"sync"
)

// checkDraw is a page with which anyone can repeat a draw in a browser and check receipts. It is self-contained and
// fetches only the record. It is in English, so that it may be opened as a file.
//
//go:embed checkdraw.html
var checkDraw string

// CheckDraw returns that page in a language. What it finds in detail stays in English, as the command says it.
func CheckDraw(l Lang) string { return checkDraws[l]() }

// checkDraws are the pages in every language, made on first use.
var checkDraws = inEveryLanguage(func(_ Lang, c *catalog) func() string {
	return sync.OnceValue(func() string {
		text := strings.Replace(checkDraw, `lang="en-US" dir="ltr"`, `lang="`+c.code+`" dir="`+c.dir+`"`, 1)
		for key, word := range catalogs[English].msg {
			if key == "check" || strings.HasPrefix(key, "check_") {
				text = strings.ReplaceAll(strings.ReplaceAll(text, ">"+word+"<", ">"+c.msg[key]+"<"), `="`+word+`"`,
					`="`+c.msg[key]+`"`)
			}
		}
		return text
	})
})

// CheckDrawPolicy is the content security policy of the page in any language.
var CheckDrawPolicy = func() string {
	between := func(from, to string) string {
		_, text, _ := strings.Cut(checkDraw, from)
		text, _, _ = strings.Cut(text, to)
		return hash(text)
	}
	return "default-src 'none'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; style-src " +
		between("<style>", "</style>") + "; script-src " + between("<script>", "</script>")
}()
