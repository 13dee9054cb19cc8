// Package waiting is the page that a visitor sees while waiting.
//
// A page is compiled once into the text between its variables; rendering
// appends text and numbers for one visitor and nothing else. The page works
// without script: the server's Refresh header asks again. Nothing of the
// request appears in it. The one knob is the page itself: see [Custom].
package waiting

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/admission"
	"vestibule/internal/fleet"
)

// Visitor is what one visitor is told.
type Visitor struct {
	Decision admission.Decision
	Now      fleet.Time
	Grace    time.Duration // for which the place is kept
	Method   string        // queueing method of the room
}

// Page is a page ready for rendering. It is immutable and safe for concurrent
// use.
type Page struct {
	parts  []part
	custom *template
}

// part is a stretch of text and the variable that follows it.
type part struct {
	text     string
	variable func(dst []byte, v *Visitor) []byte
}

//go:embed page.html
var builtin string

// Builtin returns the page that comes with the product.
func Builtin() *Page { return compiled }

var compiled = compile(builtin)

// compile cuts the built-in page at its variables. It panics on an unknown one:
// the page is part of the program.
func compile(text string) *Page {
	p := &Page{}
	for {
		before, rest, ok := strings.Cut(text, "{{")
		if !ok {
			p.parts = append(p.parts, part{text: before})
			return p
		}
		name, after, _ := strings.Cut(rest, "}}")
		f := variables[name]
		if f == nil {
			panic("waiting page: unknown variable " + name)
		}
		p.parts = append(p.parts, part{text: before, variable: f})
		text = after
	}
}

// Render appends the page for one visitor.
func (p *Page) Render(dst []byte, v *Visitor) []byte {
	if p.custom != nil {
		return p.custom.render(dst, v)
	}
	for i := range p.parts {
		dst = append(dst, p.parts[i].text...)
		if f := p.parts[i].variable; f != nil {
			dst = f(dst, v)
		}
	}
	return dst
}

var variables = map[string]func([]byte, *Visitor) []byte{
	"title": func(dst []byte, v *Visitor) []byte {
		if closed(v) {
			return append(dst, "Closed for the moment"...)
		}
		if v.Decision.Ahead > 0 {
			dst = appendCount(dst, v.Decision.Ahead)
			dst = append(dst, " ahead – "...)
		}
		return append(dst, "You are in line"...)
	},
	"heading": func(dst []byte, v *Visitor) []byte {
		switch {
		case closed(v):
			return append(dst, "Closed for the moment"...)
		case next(v):
			return append(dst, "You are next"...)
		}
		return append(dst, "You are in line"...)
	},
	"notice": func(dst []byte, v *Visitor) []byte {
		text := ""
		switch v.Decision.Fresh {
		case admission.Expired:
			text = "Your earlier visit has ended, so you are in line again."
		case admission.Lost:
			text = "You were away for too long, so your earlier place was given up."
		case admission.Void:
			text = "The line was started anew, so your earlier place no longer counts."
		case admission.Gone:
			text = "You left, so your earlier place was given up."
		case admission.Kept, admission.Newcomer:
			return dst
		}
		dst = append(dst, `<p class="notice">`...)
		dst = append(dst, text...)
		return append(dst, "</p>\n"...)
	},
	"explain": func(dst []byte, v *Visitor) []byte {
		switch {
		case closed(v):
			return append(dst, "No new visitors can be let in for the moment. Please come back a little later."...)
		case paused(v):
			return append(dst, "Nobody can be let in for the moment. Your place is kept, and the line moves on as soon as it can."...)
		case next(v):
			return append(dst, "You will be let in as soon as there is room."...)
		}
		return append(dst, "There are more visitors than the site can take at once. They are let in in the order in which they came."...)
	},
	"ahead": func(dst []byte, v *Visitor) []byte { return appendCount(dst, v.Decision.Ahead) },
	"wait": func(dst []byte, v *Visitor) []byte {
		switch {
		case paused(v):
			return append(dst, "paused"...)
		case next(v):
			return append(dst, "any moment"...)
		case !v.Decision.Known:
			return append(dst, "not known yet"...)
		}
		return appendWait(dst, v.Decision.Wait)
	},
	"waiting": func(dst []byte, v *Visitor) []byte { return appendCount(dst, max(v.Decision.Waiting, 1)) },
	"grace":   func(dst []byte, v *Visitor) []byte { return appendDuration(dst, v.Grace) },
	"retry":   func(dst []byte, v *Visitor) []byte { return appendDuration(dst, v.Decision.Retry) },
	"joined": func(dst []byte, v *Visitor) []byte {
		return v.Decision.Ticket.Joined.Std().AppendFormat(dst, time.TimeOnly)
	},
	"joined-iso": func(dst []byte, v *Visitor) []byte {
		return v.Decision.Ticket.Joined.Std().AppendFormat(dst, time.RFC3339)
	},
	"updated":     func(dst []byte, v *Visitor) []byte { return v.Now.Std().AppendFormat(dst, time.TimeOnly) },
	"updated-iso": func(dst []byte, v *Visitor) []byte { return v.Now.Std().AppendFormat(dst, time.RFC3339) },
}

// paused reports whether nobody is let in for a reason that is not the line.
func paused(v *Visitor) bool {
	r := v.Decision.Reason
	return closed(v) || r == admission.Isolated || r == admission.Unsure || r == admission.Unknown
}

// closed reports whether the room takes no newcomers until further notice.
func closed(v *Visitor) bool { return v.Decision.Reason == admission.Closed }

// next reports whether nobody without a slot stands in front.
func next(v *Visitor) bool { return v.Decision.Ahead == 0 && !paused(v) }

// appendCount writes a number with its thousands apart.
func appendCount(dst []byte, n uint64) []byte {
	start := len(dst)
	dst = strconv.AppendUint(dst, n, 10)
	for i := len(dst) - 3; i > start; i -= 3 {
		dst = append(dst, 0)
		copy(dst[i+1:], dst[i:])
		dst[i] = ','
	}
	return dst
}

// appendWait writes an estimate as coarsely as it is known.
func appendWait(dst []byte, d time.Duration) []byte {
	switch m := (d + 30*time.Second) / time.Minute; {
	case d < 45*time.Second:
		return append(dst, "less than a minute"...)
	case m < 60:
		dst = append(dst, "about "...)
		return appendDuration(dst, m*time.Minute)
	case d < 24*time.Hour:
		dst = append(dst, "about "...)
		return appendDuration(dst, (d + 30*time.Minute).Truncate(time.Hour))
	}
	return append(dst, "more than a day"...)
}

// appendDuration writes whole hours, minutes or seconds, the largest unit that
// fits.
func appendDuration(dst []byte, d time.Duration) []byte {
	n, unit := int64((d+time.Second/2)/time.Second), " second"
	switch {
	case d >= time.Hour:
		n, unit = int64(d/time.Hour), " hour"
	case d >= 2*time.Minute || d == time.Minute:
		n, unit = int64(d/time.Minute), " minute"
	}
	dst = strconv.AppendInt(dst, n, 10)
	dst = append(dst, unit...)
	if n != 1 {
		dst = append(dst, 's')
	}
	return dst
}

// Custom returns the operator's page: a Mustache template with Cloudflare's
// variable names. The error says everything that is wrong with it.
func Custom(text []byte) (*Page, error) {
	if len(text) > MaxPage {
		return nil, fmt.Errorf("waiting page: must be at most %d bytes, got %d", MaxPage, len(text))
	}
	t, err := parseTemplate(string(text))
	if err != nil {
		return nil, fmt.Errorf("waiting page: %w", err)
	}
	return &Page{custom: t}, nil
}

// MaxPage bounds a custom page, in bytes: it travels as one message.
const MaxPage = 180 << 10
