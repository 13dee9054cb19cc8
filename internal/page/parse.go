package page

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"vestibule/internal/core/room"
)

// parseTemplate compiles a page. The error lists every fault with its line.
func parseTemplate(text string) (*template, error) {
	p := parser{rest: text, line: 1, atStart: true}
	if err := p.parse("", 1); err != nil {
		p.errs = append(p.errs, err)
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	t := &template{steps: p.steps, doubts: p.doubts}
	n := 0
	for i := range t.steps {
		if s := &t.steps[i]; s.kind == stepText {
			s.value = n
			n++
		}
	}
	t.pack = sync.OnceValue(t.packTexts)
	return t, nil
}

type parser struct {
	rest    string
	line    int
	atStart bool // rest begins a line
	depth   int
	steps   []step
	errs    []error
	doubts  []string // probable mistakes
}

// maxDepth bounds the nesting of sections.
const maxDepth = 32

// addText adds a text. It gives the nonce to the operator's own scripts, by which browsers distinguish them from
// injected ones.
func (p *parser) addText(text string) {
	for {
		i := endOfScriptTagName(text)
		if i < 0 {
			break
		}
		p.steps = append(p.steps, step{kind: stepText, text: text[:i]}, step{kind: stepNonce})
		text = text[i:]
	}
	if text != "" {
		p.steps = append(p.steps, step{kind: stepText, text: text})
	}
}

// endOfScriptTagName returns the end of the first "<script" of a tag, or -1.
func endOfScriptTagName(text string) int {
	const tag = "<script"
	for i := 0; i+len(tag) < len(text); i++ {
		if text[i] == '<' && strings.EqualFold(text[i:i+len(tag)], tag) &&
			strings.IndexByte(" \t\r\n/>", text[i+len(tag)]) >= 0 {
			return i + len(tag)
		}
	}
	return -1
}

// tag is a template tag.
type tag struct {
	text string // without delimiters; never empty
	end  string // closing delimiter
	line int    // first line
}

// next adds the text up to the next tag and returns that tag; ok is false at the end of the page.
func (p *parser) next() (t tag, ok bool, err error) {
	before, after, ok := strings.Cut(p.rest, "{{")
	p.line += strings.Count(before, "\n")
	if !ok {
		p.addText(before)
		p.rest = ""
		return t, false, nil
	}
	t.line, t.end = p.line, "}}"
	if strings.HasPrefix(after, "{") {
		t.end = "}}}"
	}
	text, rest, ok := strings.Cut(after, t.end)
	if !ok {
		return t, false, fmt.Errorf("line %d: tag is not closed", p.line)
	}
	p.line += strings.Count(text, "\n")
	t.text = strings.TrimSpace(text)
	if t.text == "" || t.text == "{" {
		return t, false, fmt.Errorf("line %d: tag is empty", t.line)
	}
	alone := false
	if strings.IndexByte("#^/!", t.text[0]) >= 0 {
		before, rest, alone = p.trimLine(before, rest)
	}
	p.addText(before)
	p.rest, p.atStart = rest, alone
	return t, true, nil
}

// trimLine removes the line around a tag, between before and rest, if a section, its end or a comment is alone on
// it.
func (p *parser) trimLine(before, rest string) (left, right string, alone bool) {
	lead := before[strings.LastIndexByte(before, '\n')+1:]
	if strings.Trim(lead, " \t") != "" || (lead == before && !p.atStart) {
		return before, rest, false
	}
	left = before[:len(before)-len(lead)]
	trail := strings.TrimLeft(rest, " \t")
	switch {
	case rest == "":
		return left, rest, true
	case strings.HasPrefix(trail, "\n"):
		p.line++
		return left, trail[1:], true
	case strings.HasPrefix(trail, "\r\n"):
		p.line++
		return left, trail[2:], true
	}
	return before, rest, false // not if only blanks follow up to the end of the page: the library treats them as text
}

// parse reads up to the end of the section name, which begins on line begun, or of the page.
func (p *parser) parse(name string, begun int) error {
	for {
		t, ok, err := p.next()
		switch {
		case err != nil:
			return err
		case !ok && name != "":
			return fmt.Errorf("line %d: section {{#%s}} is not closed", begun, name)
		case !ok:
			return nil
		}
		switch sigil := t.text[0]; sigil {
		case '!':
		case '#', '^':
			if err := p.section(sigil, strings.TrimSpace(t.text[1:]), t.line); err != nil {
				return err
			}
		case '/':
			if end := strings.TrimSpace(t.text[1:]); end != name {
				return fmt.Errorf("line %d: {{/%s}} closes nothing that is open here", t.line, end)
			}
			return nil
		case '>':
			p.errs = append(p.errs,
				fmt.Errorf("line %d: {{%s}}: partials are not supported, a page is one file", t.line, t.text))
		case '=':
			return fmt.Errorf("line %d: {{%s}}: other delimiters are not supported", t.line, t.text)
		case '{':
			if t.end != "}}}" {
				return fmt.Errorf("line %d: {{{ is closed by }}} only, and has no blank inside", t.line)
			}
			p.variable(stepRaw, strings.TrimSpace(t.text[1:]), t.line)
		case '&':
			p.variable(stepRaw, strings.TrimSpace(t.text[1:]), t.line)
		default:
			p.variable(stepValue, t.text, t.line)
		}
	}
}

func (p *parser) section(sigil byte, name string, line int) error {
	kind := stepSection
	if sigil == '^' {
		kind = stepInverted
	}
	at := len(p.steps)
	p.variable(kind, name, line)
	if p.depth++; p.depth > maxDepth {
		return fmt.Errorf("line %d: sections more than %d deep", line, maxDepth)
	}
	if err := p.parse(name, line); err != nil {
		return err
	}
	p.depth--
	if at < len(p.steps) && p.steps[at].kind == kind {
		p.steps[at].skip = len(p.steps) - at - 1
	}
	return nil
}

func (p *parser) variable(kind stepKind, name string, line int) {
	i, ok := findValue(name)
	if !ok { // no value, as in Mustache
		i = unknown
		hint := ""
		if meant := room.Suggest(name, valueNames); meant != "" {
			hint = ", did you mean {{" + meant + "}}?"
		}
		p.doubts = append(p.doubts, fmt.Sprintf("line %d: {{%s}}: no such variable, it stays empty%s", line, name, hint))
	}
	p.steps = append(p.steps, step{kind: kind, text: name, value: i})
}
