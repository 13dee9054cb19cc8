// Package page renders the waiting page, in the languages of [room.Languages], and its JSON form for apps.
//
// A page is compiled once into the texts between its variables. Rendering only appends text and numbers for one
// visitor. Nothing of the request appears in it. The page works without scripts: then it reloads periodically. With
// scripts it fetches the JSON form of its own address and updates itself; see page.js, where one function handles
// all updates.
//
// Operators brand the page with a few lines of CSS, or provide their own page: see [Custom]. Translators edit the
// files in messages: see messages/README.md.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"vestibule/internal/core/room"
)

// Page is a page ready for rendering. It is immutable and safe for concurrent use.
type Page struct {
	custom *template // nil for the built-in page
	brand  string    // the operator's style element, or ""
	policy string
}

var (
	//go:embed page.html
	pageHTML string
	// The style and the scripts, minified by `make scripts`.
	//go:embed min/page.css
	css string
	//go:embed min/page.js
	scriptJS string
	//go:embed min/draw.js
	drawn string
	//go:embed min/watch.js
	watch string
	//go:embed min/live.js
	liveJS string
)

var (
	live   = strings.TrimSuffix(liveJS, ";\n") // a function, to be called
	script = strings.Replace(scriptJS, "{{fields}}", nowFields(), 1)
)

// part is a text and the variable after it, or nil.
type part struct {
	text     string
	variable variable
}

type variable func(dst []byte, v *Visitor, c *catalog, p *Page) []byte

var builtin = branded("")

// Builtin returns the built-in page.
func Builtin() *Page { return builtin }

// branded returns the built-in page with an operator's style after its own.
func branded(style string) *Page {
	p := &Page{}
	styles := hash(css)
	if style != "" {
		p.brand = "<style>" + style + "</style>\n"
		styles += " " + hash(style)
	}
	p.policy = "default-src 'none'; style-src " + styles + "; script-src " + hash(watch) + " " + hash(drawn) + " " + hash(script) +
		"; img-src data:; font-src data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
	return p
}

// hash returns the source expression of a style or script in a content security policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// style returns the operator's style.
func (p *Page) style() string {
	return strings.TrimSuffix(strings.TrimPrefix(p.brand, "<style>"), "</style>\n")
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
	return "default-src 'none'; style-src 'unsafe-inline' https:" + sources + "; img-src data: https:" + sources + "; font-src data: https:" + sources +
		"; media-src data: https:" + sources + "; connect-src 'self'" + sources + "; frame-src https:" + sources +
		"; form-action 'self'; base-uri 'none'; frame-ancestors 'self'; script-src 'nonce-" + nonce + "'" + sources
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
var compiled = compileAll()

func compileAll() [][]part {
	all := make([][]part, len(catalogs))
	for i, c := range catalogs {
		all[i] = compile(pageHTML, c)
	}
	return all
}

// compile splits the built-in page at its variables and fills in those that do not depend on the visitor. It panics
// on an unknown one: the page is embedded.
func compile(text string, c *catalog) []part {
	fixed := map[string]string{
		"lang": c.code, "dir": c.dir, "css": css, "watch": watch, "script": script, "words": c.script, "languages": c.languages(),
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
		case isMessage && c.byKey[key] != "":
			before += c.byKey[key]
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
var packs = packAll()

func packAll() []func() *pack {
	all := make([]func() *pack, len(catalogs))
	for i, c := range catalogs {
		all[i] = sync.OnceValue(func() *pack {
			var texts []string
			var sample []byte
			v := Samples[0].Visitor
			v.Lang = Lang(i)
			for _, p := range compiled[i] {
				texts = append(texts, p.text)
				if p.variable != nil {
					sample = p.variable(sample, &v, c, builtin)
				}
			}
			return newPack(texts, sample)
		})
	}
	return all
}

var variables = map[string]variable{
	"title": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte {
		if v.State() == Queued && !v.counting() && !v.randomOrder() {
			dst = append(dst, '(')
			dst = c.appendNumber(dst, v.Decision.Ahead)
			dst = append(dst, ") "...)
		}
		return append(dst, c.heading(v)...)
	},
	// Scripts poll by themselves. A reload would lose the visitor's sound and scroll position, and end at the
	// browser's error page after a short loss of the connection.
	"refresh": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte {
		if v.Retry() == 0 {
			return dst
		}
		dst = append(dst, `<noscript><meta http-equiv="refresh" content="`...)
		dst = strconv.AppendInt(dst, v.Retry(), 10)
		return append(dst, "\"></noscript>\n"...)
	},
	"brand":   func(dst []byte, _ *Visitor, _ *catalog, p *Page) []byte { return append(dst, p.brand...) },
	"state":   func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte { return append(dst, v.State().String()...) },
	"order":   func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte { return append(dst, v.method()...) },
	"heading": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte { return append(dst, c.heading(v)...) },
	"text":    func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte { return append(dst, c.textOrDraw(v)...) },
	"lost":    func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte { return append(dst, c.lost(v)...) },
	"message": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte { return appendEscaped(dst, v.Message) },
	"bar": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte {
		percent, ok := v.progress()
		if !ok {
			return dst
		}
		return strconv.AppendInt(dst, int64(percent), 10)
	},
	"ahead": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte {
		n, told := v.ahead()
		if v.counting() || !told {
			return append(dst, "–"...)
		}
		return c.appendNumber(dst, n)
	},
	"wait": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte {
		if v.State() == Next {
			return append(dst, c.msg.WaitNow...)
		}
		if v.quartile(0) > 0 {
			return c.appendQuartiles(dst, v)
		}
		return c.appendWait(dst, v)
	},
	"starts": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte {
		if v.State() != Before {
			return dst
		}
		return c.appendSpan(dst, v.Event.Start.Sub(v.Now))
	},
	"total": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte {
		return c.appendNumber(dst, v.total())
	},
	"kept":   func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte { return c.appendSpan(dst, v.Grace) },
	"waited": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte { return c.appendSpan(dst, v.waited()) },
	"joined": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte {
		if v.Moment {
			return dst
		}
		return append(appendClock(dst, v.Decision.Ticket.Joined), " UTC"...)
	},
	"joined-iso": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte {
		if v.Moment {
			return dst
		}
		return appendSecond(dst, v.Decision.Ticket.Joined)
	},
	"updated": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte {
		return append(appendTwo(append(appendClock(dst, v.Now), ':'), int64(v.Now)/1000%60), " UTC"...)
	},
	"updated-iso": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte {
		return appendSecond(dst, v.Now)
	},
	"number": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte {
		if v.Moment {
			return dst
		}
		return v.appendNumber(dst)
	},
	// Parts of pages with a draw; other pages do not carry them.
	"place": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte {
		if v.stage() == "" {
			return dst
		}
		place, of, ok := v.drawnPlace()
		hidden := " hidden>"
		if ok {
			hidden = ">"
		}
		dst = append(append(append(append(dst, `<div class="s"`...), hidden...), "<dt>"...), c.msg.DrawPlace...)
		dst = append(dst, `</dt><dd id="place">`...)
		if ok {
			dst = c.appendNumber(append(c.appendNumber(dst, place), '/'), of)
		}
		return append(dst, "</dd></div>\n"...)
	},
	"proof": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte {
		if v.stage() == "" {
			return dst
		}
		var room [256]byte // a receipt has fewer
		proof := v.appendProof(room[:0])
		dst = append(append(append(dst, `<details class="d"><summary>`...), c.msg.DrawCheck...), "</summary>\n<p><code id=\"proof\">"...)
		dst = append(appendEscaped(dst, proof), `</code></p><p class="tools"><button type="button" id="copy" hidden>`...)
		dst = append(append(dst, c.msg.Copy...), `</button> <a id="save" download="draw.json" href="data:application/json,`...)
		dst = append(append(append(appendPercent(dst, proof), `">`...), c.msg.Save...), `</a></p><p><a href="/.well-known/vestibule/check-draw?room=`...)
		dst = append(append(appendEscaped(dst, v.Room), "\">"...), c.msg.DrawCheck...)
		dst = append(append(dst, "</a></p></details>\n<script>"...), drawn...)
		return append(dst, "</script>\n"...)
	},
	"room": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte { return appendEscaped(dst, v.Room) },
	"back": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte { return appendEscaped(dst, v.back()) },
	"now":  func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte { return appendNow(dst, v) },
}

// back returns the address for joining the queue again.
func (v *Visitor) back() string {
	if v.Back == "" {
		return "/"
	}
	return v.Back
}

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
		if c == '-' || c == '.' || c == ':' || c == ',' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}

// Custom parses the operator's page. A text with markup is a complete page: a Mustache template with Cloudflare's
// variable names and ours. A text without markup is CSS that brands the built-in page. The error lists everything
// wrong with it.
func Custom(text []byte) (*Page, error) {
	if len(text) > MaxPage {
		return nil, fmt.Errorf("waiting page: must be at most %d bytes, got %d", MaxPage, len(text))
	}
	s := string(text)
	if !strings.Contains(s, "<") && !strings.Contains(s, "{{") {
		// like browsers before they compare hashes
		s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
		if err := checkStyle(s); err != nil {
			return nil, fmt.Errorf("waiting page: %w", err)
		}
		return branded(strings.TrimSpace(s)), nil
	}
	t, err := parseTemplate(s)
	if err != nil {
		return nil, fmt.Errorf("waiting page: %w", err)
	}
	return &Page{custom: t}, nil
}

// MaxPage bounds a custom page, in bytes.
const MaxPage = room.MaxPageBytes

// checkStyle returns the fault of a style sheet, or nil. It checks brackets, strings and comments; browsers
// tolerate other mistakes.
func checkStyle(s string) error {
	var errs []error
	var open []byte
	line, rules := 1, false
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("line %d: "+format, append([]any{line}, args...)...))
	}
	closes := map[byte]byte{'}': '{', ')': '(', ']': '['}
	for i := 0; i < len(s); i++ {
		rest := strings.ToLower(s[i:min(len(s), i+12)])
		switch c := s[i]; {
		case c == '\n':
			line++
		case c == '\\':
			i++
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(s[i+2:], "*/")
			if end < 0 {
				fault("comment is not closed")
				return errors.Join(errs...)
			}
			line += strings.Count(s[i:i+2+end], "\n")
			i += end + 3
		case c == '"' || c == '\'':
			end := i + 1
			for end < len(s) && s[end] != c && s[end] != '\n' {
				if s[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(s) || s[end] != c {
				fault("text in quotes is not closed")
				return errors.Join(errs...)
			}
			i = end
		case c == '{' || c == '(' || c == '[':
			open = append(open, c)
			rules = rules || c == '{'
			if c == '(' && i >= 3 && strings.EqualFold(s[i-3:i], "url") && !strings.HasPrefix(strings.TrimLeft(rest[1:], " '\""), "data:") {
				fault("url() must be a data: URL, the page fetches nothing")
			}
		case closes[c] != 0:
			if len(open) == 0 || open[len(open)-1] != closes[c] {
				fault("%q closes nothing", c)
				return errors.Join(errs...)
			}
			open = open[:len(open)-1]
		case strings.HasPrefix(rest, "@import"):
			fault("@import is not possible, the page fetches nothing")
		}
	}
	if len(open) > 0 {
		fault("%q is not closed", open[len(open)-1])
	}
	if !rules && strings.TrimSpace(s) != "" {
		fault("neither a page with markup nor CSS: there is no rule in it")
	}
	return errors.Join(errs...)
}
