package page

import "vestibule/internal/core/room"

// languagesCSS is the style of the list of languages, in addition to that of the page.
const languagesCSS = "ul{list-style:none;margin:1.25rem 0 0;padding:0;columns:9rem}li a{display:block;color:inherit;padding:.4rem 0}li a[aria-current]{font-weight:700}"

// LanguagesPolicy returns the content security policy of the list of languages.
func (p *Page) LanguagesPolicy() string {
	styles := hash(css) + " " + hash(languagesCSS)
	if p.style != "" {
		styles += " " + hash(p.style)
	}
	return "default-src 'none'; style-src " + styles +
		"; img-src data:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
}

// AppendLanguages appends the list of languages of a room's page, in the language shown. back is the untrusted path
// that a choice leads to.
func (p *Page) AppendLanguages(dst []byte, shown Lang, roomName, back string) []byte {
	c := catalogs[shown]
	add := func(texts ...string) {
		for _, t := range texts {
			dst = append(dst, t...)
		}
	}
	add(`<!doctype html>
<html lang="`, c.code, `" dir="`, c.dir, `">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<style>`, css, `</style>
<style>`, languagesCSS, `</style>
`, p.brand, `<title>`, c.languages(), `</title>
</head>
<body>
<main id="vr" data-state="closed">
<div class="logo"></div>
<h1>`, c.languages(), `</h1>
<ul>
`)
	for i, code := range room.Languages {
		o := catalogs[i]
		add(`<li><a lang="`, code, `"`)
		if Lang(i) == shown {
			add(` aria-current="true"`)
		}
		add(` href="?room=`)
		dst = appendPercent(dst, []byte(roomName))
		add("&amp;to=", code, "&amp;back=")
		dst = appendPercent(dst, []byte(back))
		add(`">`, o.msg["language"], "</a></li>\n")
	}
	add("</ul>\n</main>\n</body>\n</html>\n")
	return dst
}
