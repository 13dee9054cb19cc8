package page

import "strconv"

// variable appends a value of the built-in page for one visitor.
type variable func(dst []byte, v *Visitor, c *catalog, p *Page) []byte

// variables are the variables of the built-in page that depend on the visitor or the brand, by name.
var variables = map[string]variable{
	"title": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte {
		if n, shown := v.ahead(); shown && v.State() == Queued && !v.randomOrder() {
			dst = append(dst, '(')
			dst = c.appendNumber(dst, n)
			dst = append(dst, ") "...)
		}
		return append(dst, c.heading(v)...)
	},
	"push": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte {
		// Not before a draw, which changes all places. One more variable would make every page longer.
		if v.Notifies && v.hasPlace() && (!v.Event.Prequeue || !v.Event.Shuffle) {
			dst = append(dst, `<script src="/.well-known/vestibule/push.js?room=`...)
			dst = append(append(append(appendEscaped(dst, v.Room), "&amp;lang="...), v.Lang.Code()...),
				"\" defer></script>\n"...)
		}
		return dst
	},
	// For a browser in which the script does not run, see page.js. A reload would lose the visitor's sound and scroll
	// position, and end at the browser's error page after a short loss of the connection.
	"refresh": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte {
		if v.Retry() == 0 {
			return dst
		}
		dst = strconv.AppendInt(append(dst, `<meta http-equiv="refresh" content="`...), v.Retry(), 10)
		if v.Again != "" {
			dst = appendEscaped(append(dst, ";url="...), v.Again)
		}
		return append(dst, `">`...)
	},
	"brand":   func(dst []byte, _ *Visitor, _ *catalog, p *Page) []byte { return append(dst, p.brand...) },
	"state":   func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte { return append(dst, v.State().String()...) },
	"order":   func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte { return append(dst, v.method()...) },
	"heading": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte { return append(dst, c.heading(v)...) },
	"text":    func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte { return append(dst, c.textOrDraw(v)...) },
	"lost":    func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte { return append(dst, c.lost(v)...) },
	"form": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte {
		if !v.Form {
			return dst
		}
		dst = append(append(append(dst, `<p role="alert"><strong>`...), c.msg["form"]...), "</strong>"...)
		if v.FormPage != "" {
			dst = append(appendEscaped(append(dst, ` <a href="`...), v.FormPage), `">`...)
			dst = append(append(dst, c.msg["form_back"]...), "</a>"...)
		}
		return append(dst, "</p>\n"...)
	},
	"message": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte { return appendEscaped(dst, v.Message) },
	"bar": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte {
		percent, ok := v.progress()
		if !ok {
			return dst
		}
		return strconv.AppendInt(dst, int64(percent), 10)
	},
	"ahead": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte {
		n, shown := v.ahead()
		if !shown {
			return append(dst, "–"...)
		}
		return c.appendNumber(dst, n)
	},
	"wait": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte {
		if v.State() == Next {
			return append(dst, c.msg["wait_now"]...)
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
		n, known := v.total()
		if !known {
			return append(dst, "–"...)
		}
		return c.appendNumber(dst, n)
	},
	"kept":   func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte { return c.appendSpan(dst, v.Grace) },
	"waited": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte { return c.appendSpan(dst, v.waited()) },
	"joined": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte {
		if v.Moment {
			return dst
		}
		return append(appendClock(dst, v.Decision.Ticket.Joined), " UTC"...)
	},
	"updated": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte {
		return append(appendTwo(append(appendClock(dst, v.Now), ':'), int64(v.Now)/1000%60), " UTC"...)
	},
	"number": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte {
		if v.Moment {
			return dst
		}
		return appendReference(dst, v)
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
		dst = append(append(append(append(dst, `<div class=s`...), hidden...), "<dt>"...), c.msg["draw_place"]...)
		dst = append(dst, `<dd id=place>`...)
		if ok {
			dst = append(c.appendNumber(append(dst, "≈\u00a0"...), place), '/')
			dst = c.appendNumber(dst, of)
		}
		return append(dst, "</div>"...)
	},
	"closes": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte {
		stage := v.stage()
		if stage == "" {
			return dst
		}
		hidden := ">"
		if stage != DrawOpen {
			hidden = " hidden>"
		}
		dst = append(append(append(append(append(dst, "<div"...), hidden...), "<dt>"...), c.msg["draw_closes"]...),
			"<dd id=closes>"...)
		return append(appendClock(dst, v.Event.Draw.Closes), " UTC</div>"...)
	},
	"proof": func(dst []byte, v *Visitor, c *catalog, _ *Page) []byte {
		if v.stage() == "" {
			return dst
		}
		var room [256]byte // a receipt has fewer
		proof := appendProof(room[:0], v)
		dst = append(append(append(dst, `<details class="d"><summary>`...), c.msg["draw_check"]...),
			"</summary>\n<p><code id=\"proof\">"...)
		dst = append(appendEscaped(dst, proof), `</code></p><p class="tools"><button type="button" id="copy" hidden>`...)
		dst = append(append(dst, c.msg["copy"]...),
			`</button> <a id="save" download="draw.json" href="data:application/json,`...)
		dst = append(append(append(appendPercent(dst, proof), `">`...), c.msg["save"]...),
			`</a></p><p><a href="/.well-known/vestibule/check-draw?room=`...)
		dst = append(append(appendEscaped(dst, v.Room), "\">"...), c.msg["draw_check"]...)
		return append(dst, "</a></p></details>\n"...)
	},
	"room": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte { return appendEscaped(dst, v.Room) },
	"back": func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte { return appendEscaped(dst, rejoinURL(v)) },
	"now":  func(dst []byte, v *Visitor, _ *catalog, _ *Page) []byte { return appendNow(dst, v) },
}

// rejoinURL returns the address for joining the queue again.
func rejoinURL(v *Visitor) string {
	if v.Back == "" {
		return "/"
	}
	return v.Back
}
