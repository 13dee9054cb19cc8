// Package page renders the waiting page, in the languages of [room.Languages], and its JSON form for apps.
//
// A page is compiled once into the texts between its variables. Rendering only appends text and numbers for one
// visitor. Of the request only the address appears in it. Without its script, a file of its own ([ScriptPath]), the page
// reloads periodically. With it, it fetches the JSON form of its own address and updates itself; see page.js, where one
// function handles all updates.
//
// Operators brand the page with a few lines of CSS, or provide their own page: see [Custom]. Translators edit the
// files in messages: see messages/README.md.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"strings"
	"sync"

	"vestibule/internal/core/room"
)

// Page is a page ready for rendering. It is immutable and safe for concurrent use.
type Page struct {
	custom *template // nil for the built-in page
	style  string    // the operator's, or ""
	brand  string    // its element, or ""
	policy string
}

var (
	//go:embed page.html
	pageHTML string
	// The style and the script of custom pages, minified by `make scripts`.
	//go:embed min/page.css
	css string
	//go:embed min/live.js
	liveJS string
)

var live = strings.TrimSuffix(liveJS, ";\n") // a function, to be called

// part is a text and the variable after it, or nil.
type part struct {
	text     string
	variable variable
}

var builtin = branded("")

// Builtin returns the built-in page.
func Builtin() *Page { return builtin }

// branded returns the built-in page with an operator's style after its own.
func branded(style string) *Page {
	p := &Page{style: style}
	styles := hash(css)
	if style != "" {
		p.brand = "<style>" + style + "</style>\n"
		styles += " " + hash(style)
	}
	p.policy = "default-src 'none'; style-src " + styles + "; script-src 'self'" +
		"; img-src data:; font-src data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
	return p
}

// hash returns the source expression of a style or script in a content security policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// IsCustom reports whether the page is the operator's own, which has one language and its own way to ask again.
func (p *Page) IsCustom() bool { return p.custom != nil }

// Doubts returns warnings about probable mistakes in a custom page, by line.
func (p *Page) Doubts() []string {
	if p.custom == nil {
		return nil
	}
	return p.custom.doubts
}

// Policy returns the content security policy of the page; nonce is the one in v.Nonce. A custom page may also use
// the space-separated origins in sources, as in room.Settings.PageSources.
func (p *Page) Policy(nonce, sources string) string {
	if p.custom == nil {
		return p.policy
	}
	if sources != "" {
		sources = " " + sources
	}
	return "default-src 'none'; style-src 'unsafe-inline' https:" + sources + "; img-src data: https:" + sources +
		"; font-src data: https:" + sources +
		"; media-src data: https:" + sources + "; connect-src 'self'" + sources + "; frame-src https:" + sources +
		"; form-action 'self'; base-uri 'none'; frame-ancestors 'self'; script-src 'nonce-" + nonce + "'" + sources
}

// WithPush extends a policy so that the page may load the script of [AppendPush], and that its service worker.
func WithPush(policy string) string {
	if !strings.Contains(policy, "script-src 'self'") {
		policy = strings.Replace(policy, "script-src ", "script-src 'self' ", 1)
	}
	return policy + "; worker-src 'self'"
}

// FramedBy extends a policy so that the pages of ancestors may frame the page, as in room.Settings.FrameAncestors:
// "" for its own origin only.
func FramedBy(policy, ancestors string) string {
	switch ancestors {
	case "":
		return policy
	case room.FramedByNone:
		return strings.Replace(policy, "frame-ancestors 'self'", "frame-ancestors 'none'", 1)
	}
	return strings.Replace(policy, "frame-ancestors 'self'", "frame-ancestors 'self' "+ancestors, 1)
}

// compiled are the parts of the built-in page in every language.
var compiled = inEveryLanguage(func(_ Lang, c *catalog) []part { return compile(pageHTML, c) })

// inEveryLanguage returns what f makes for each language.
func inEveryLanguage[T any](f func(l Lang, c *catalog) T) []T {
	all := make([]T, len(catalogs))
	for i, c := range catalogs {
		all[i] = f(Lang(i), c)
	}
	return all
}

// compile splits the built-in page at its variables and fills in those that do not depend on the visitor. It panics
// on an unknown one: the page is embedded.
func compile(text string, c *catalog) []part {
	fixed := map[string]string{
		"lang": c.code, "dir": c.dir, "css": css, "script": ScriptPath(), "words": c.script,
		"languages": c.languages(),
	}
	var parts []part
	before := ""
	for {
		more, rest, ok := strings.Cut(text, "{{")
		before += more
		if !ok {
			return append(parts, part{text: before})
		}
		name, after, _ := strings.Cut(rest, "}}")
		key, isMessage := strings.CutPrefix(name, "t.")
		switch f := variables[name]; {
		case isMessage && c.msg[key] != "":
			before += c.msg[key]
		case f != nil:
			parts = append(parts, part{before, f})
			before = ""
		case fixed[name] != "":
			before += fixed[name]
		default:
			panic("waiting page: unknown variable " + name)
		}
		text = after
	}
}

// Render appends the page for one visitor.
func (p *Page) Render(dst []byte, v *Visitor) []byte { return p.render(dst, v, nil) }

// RenderGzip appends the page for one visitor, compressed with gzip.
func (p *Page) RenderGzip(dst []byte, v *Visitor, out *Packer) []byte {
	texts := packs[v.Lang]
	if p.custom != nil {
		texts = p.custom.pack
	}
	return out.end(dst, p.render(out.begin(texts()), v, out))
}

// render appends the page to dst. If out is not nil, dst is its buffer, and it adds the texts.
func (p *Page) render(dst []byte, v *Visitor, out *Packer) []byte {
	if p.custom != nil {
		return p.custom.render(dst, v, out)
	}
	c := catalogs[v.Lang]
	parts := compiled[v.Lang]
	for i := range parts {
		if out == nil {
			dst = append(dst, parts[i].text...)
		} else {
			dst = out.text(dst, i)
		}
		if f := parts[i].variable; f != nil {
			dst = f(dst, v, c, p)
		}
	}
	return dst
}

// packs are the compressed texts of the built-in page in every language, made on first use.
var packs = inEveryLanguage(func(l Lang, c *catalog) func() *pack {
	return sync.OnceValue(func() *pack {
		var texts []string
		var sample []byte
		v := Samples[0].Visitor
		v.Lang = l
		for _, p := range compiled[l] {
			texts = append(texts, p.text)
			if p.variable != nil {
				sample = p.variable(sample, &v, c, builtin)
			}
		}
		return newPack(texts, sample)
	})
})

// appendEscaped writes a text, escaped for an element or a quoted attribute.
func appendEscaped[T string | []byte](dst []byte, text T) []byte {
	for i := range len(text) {
		switch c := text[i]; c {
		case '<':
			dst = append(dst, "&lt;"...)
		case '>':
			dst = append(dst, "&gt;"...)
		case '&':
			dst = append(dst, "&amp;"...)
		case '"':
			dst = append(dst, "&#34;"...)
		case '\'':
			dst = append(dst, "&#39;"...)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// appendPercent writes a text, escaped for a query or a data: URL.
func appendPercent(dst, text []byte) []byte {
	const digits = "0123456789ABCDEF"
	for _, c := range text {
		if c == '-' || c == '.' || c == ':' || c == ',' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' ||
			c >= 'a' && c <= 'z' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}
