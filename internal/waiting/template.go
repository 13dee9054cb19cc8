package waiting

import (
	"errors"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/fleet"
)

// template is an operator's Mustache page, compiled to a list of steps. It
// knows what a page of one file needs: variables, {{{raw}}} and {{&raw}} ones,
// sections, inverted sections and comments. Partials, lambdas and other
// delimiters are refused. A renderer of our own keeps reflection, and with it
// three megabytes, out of the edge; package checkpage holds every page against a
// full Mustache library before it is published.
type template struct {
	steps []step
}

// step is one thing that rendering does.
type step struct {
	kind  stepKind
	text  string // to append, or the variable's name
	value int    // index of the variable
	skip  int    // steps inside a section
}

type stepKind uint8

const (
	stepText stepKind = iota
	stepValue
	stepRaw
	stepSection
	stepInverted
	stepNonce // inside of a script's tag, for the content security policy
)

// parseTemplate compiles a page; the error tells every fault with its line.
func parseTemplate(text string) (*template, error) {
	p := parser{rest: text, line: 1, atStart: true}
	if err := p.parse("", 1); err != nil {
		p.errs = append(p.errs, err)
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	return &template{steps: p.steps}, nil
}

type parser struct {
	rest    string
	line    int
	atStart bool // rest begins a line
	depth   int
	steps   []step
	errs    []error
}

// maxDepth bounds sections inside sections.
const maxDepth = 32

// add adds a stretch of text. The scripts that the page calls are the
// operator's own, so their tags get the nonce by which browsers tell them from
// what others may have slipped in.
func (p *parser) add(text string) {
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

// endOfScriptTagName returns where the first "<script" of a tag ends, -1 for
// none.
func endOfScriptTagName(text string) int {
	const tag = "<script"
	for i := 0; i+len(tag) < len(text); i++ {
		if text[i] == '<' && strings.EqualFold(text[i:i+len(tag)], tag) && strings.IndexByte(" \t\r\n/>", text[i+len(tag)]) >= 0 {
			return i + len(tag)
		}
	}
	return -1
}

// parse reads up to the end of the section called name, which begins on line
// begun, or of the page.
func (p *parser) parse(name string, begun int) error {
	for {
		before, after, ok := strings.Cut(p.rest, "{{")
		p.line += strings.Count(before, "\n")
		if !ok {
			p.add(before)
			p.rest = ""
			if name != "" {
				return fmt.Errorf("line %d: section {{#%s}} is not closed", begun, name)
			}
			return nil
		}
		end := "}}"
		if strings.HasPrefix(after, "{") {
			end = "}}}"
		}
		tag, rest, ok := strings.Cut(after, end)
		if !ok {
			return fmt.Errorf("line %d: tag is not closed", p.line)
		}
		tagLine := p.line
		p.line += strings.Count(tag, "\n")
		tag = strings.TrimSpace(tag)
		if tag == "" || tag == "{" {
			return fmt.Errorf("line %d: tag is empty", tagLine)
		}
		sigil := tag[0]
		// A section, its end or a comment that stands alone on its line takes
		// the line with it.
		lead := before[strings.LastIndexByte(before, '\n')+1:]
		alone := strings.Trim(lead, " \t") == "" && (lead != before || p.atStart)
		if alone && strings.IndexByte("#^/!", sigil) >= 0 {
			trail := strings.TrimLeft(rest, " \t")
			switch {
			case rest == "":
				before = before[:len(before)-len(lead)]
			case trail == "":
				alone = false // blanks before the end of the page are text, says the library
			case trail[0] == '\n':
				before, rest = before[:len(before)-len(lead)], trail[1:]
				p.line++
			case strings.HasPrefix(trail, "\r\n"):
				before, rest = before[:len(before)-len(lead)], trail[2:]
				p.line++
			default:
				alone = false
			}
		} else {
			alone = false
		}
		p.add(before)
		p.rest = rest
		p.atStart = alone
		switch sigil {
		case '!':
		case '#', '^':
			if err := p.section(sigil, strings.TrimSpace(tag[1:]), tagLine); err != nil {
				return err
			}
		case '/':
			if end := strings.TrimSpace(tag[1:]); end != name {
				return fmt.Errorf("line %d: {{/%s}} closes nothing that is open here", tagLine, end)
			}
			return nil
		case '>':
			p.errs = append(p.errs, fmt.Errorf("line %d: {{%s}}: partials are not supported, a page is one file", tagLine, tag))
		case '=':
			return fmt.Errorf("line %d: {{%s}}: other delimiters are not supported", tagLine, tag)
		case '{':
			if end != "}}}" {
				return fmt.Errorf("line %d: {{{ is closed by }}} only, and has no blank inside", tagLine)
			}
			p.variable(stepRaw, strings.TrimSpace(tag[1:]), tagLine)
		case '&':
			p.variable(stepRaw, strings.TrimSpace(tag[1:]), tagLine)
		default:
			p.variable(stepValue, tag, tagLine)
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
	if !ok {
		p.errs = append(p.errs, fmt.Errorf("line %d: {{%s}}: no such variable", line, name))
		return
	}
	p.steps = append(p.steps, step{kind: kind, text: name, value: i})
}

// render appends the page for one visitor.
func (t *template) render(dst []byte, v *Visitor) []byte {
	for i := 0; i < len(t.steps); i++ {
		s := &t.steps[i]
		switch s.kind {
		case stepText:
			dst = append(dst, s.text...)
		case stepRaw:
			dst = append(dst, values[s.value].text(v)...)
		case stepValue:
			dst = append(dst, html.EscapeString(values[s.value].text(v))...)
		case stepNonce:
			if v.Nonce != "" {
				dst = append(dst, " nonce="...)
				dst = append(dst, v.Nonce...)
			}
		case stepSection:
			if !values[s.value].truth(v) {
				i += s.skip
			}
		case stepInverted:
			if values[s.value].truth(v) {
				i += s.skip
			}
		}
	}
	return dst
}

// value is one variable of a page.
type value struct {
	name string
	get  func(v *Visitor) any // bool, int64, uint64 or string
}

func (x *value) text(v *Visitor) string {
	switch a := x.get(v).(type) {
	case bool:
		return strconv.FormatBool(a)
	case int64:
		return strconv.FormatInt(a, 10)
	case uint64:
		return strconv.FormatUint(a, 10)
	case string:
		return a
	}
	return ""
}

// truth is Mustache's: false, zero and blank text are false.
func (x *value) truth(v *Visitor) bool {
	switch a := x.get(v).(type) {
	case bool:
		return a
	case int64:
		return a != 0
	case uint64:
		return a != 0
	case string:
		return strings.TrimSpace(a) != ""
	}
	return false
}

// wholeMinutes rounds up, as nobody is to wait for longer than was said.
func wholeMinutes(d time.Duration) int64 { return int64((d + time.Minute - 1) / time.Minute) }

func waitMinutes(v *Visitor) int64 { return wholeMinutes(v.wait()) }

// untilMinutes returns for how many minutes a moment is away, 0 for none or one
// that is over.
func untilMinutes(v *Visitor, t fleet.Time) int64 {
	if t == 0 {
		return 0
	}
	return max(0, wholeMinutes(t.Sub(v.Now)))
}

// formatted writes minutes in English, as Cloudflare's variables have it.
func formatted(n int64) string {
	return string(catalogs[English].appendSpan(nil, time.Duration(n)*time.Minute))
}

func untilFormatted(v *Visitor, t fleet.Time) string {
	if t == 0 {
		return "unavailable"
	}
	return formatted(untilMinutes(v, t))
}

// values are the variables by name: Cloudflare's with their meanings, and ours.
var values = sortValues([]value{
	{"inWaitingRoom", func(v *Visitor) any { return !v.Left && !v.Decision.Enters() }},
	{"waitTimeKnown", func(v *Visitor) any { return v.known() }},
	{"waitTime", func(v *Visitor) any { return waitMinutes(v) }},
	{"waitTimeHours", func(v *Visitor) any { return waitMinutes(v) / 60 }},
	{"waitTimeHourMinutes", func(v *Visitor) any { return waitMinutes(v) % 60 }},
	{"waitTime25Percentile", func(*Visitor) any { return int64(0) }},
	{"waitTime50Percentile", func(*Visitor) any { return int64(0) }},
	{"waitTime75Percentile", func(*Visitor) any { return int64(0) }},
	{"waitTimeFormatted", func(v *Visitor) any {
		if !v.known() {
			return "unavailable"
		}
		return formatted(max(1, waitMinutes(v)))
	}},
	{"queueIsFull", func(v *Visitor) any { return v.wait() >= 24*time.Hour }},
	{"queueAll", func(v *Visitor) any { return v.QueueAll }},
	{"lastUpdated", func(v *Visitor) any { return v.Now.Std().Format(time.RFC3339) }},
	{"refreshIntervalSeconds", func(v *Visitor) any { return v.Retry() }},
	{"queueingMethod", func(v *Visitor) any { return v.method() }},
	{"isFIFOQueue", func(v *Visitor) any { return v.method() == "fifo" }},
	{"isRandomQueue", func(v *Visitor) any { return v.method() == "random" }},
	{"isPassthroughQueue", func(v *Visitor) any { return v.method() == "passthrough" }},
	{"isRejectQueue", func(v *Visitor) any { return v.method() == "reject" }},
	{"isEventActive", func(v *Visitor) any { return v.Event.Start != 0 }},
	{"isEventPrequeueing", func(v *Visitor) any { return v.Event.Prequeue }},
	{"timeUntilEventStart", func(v *Visitor) any { return untilMinutes(v, v.Event.Start) }},
	{"timeUntilEventStartFormatted", func(v *Visitor) any { return untilFormatted(v, v.Event.Start) }},
	{"timeUntilEventEnd", func(v *Visitor) any { return untilMinutes(v, v.Event.End) }},
	{"timeUntilEventEndFormatted", func(v *Visitor) any { return untilFormatted(v, v.Event.End) }},
	{"shuffleAtEventStart", func(v *Visitor) any { return v.Event.Shuffle }},
	{"turnstile", func(*Visitor) any { return "" }},
	{"infiniteQueue", func(*Visitor) any { return false }},

	{"state", func(v *Visitor) any { return v.State().String() }},
	{"pausedBy", func(v *Visitor) any { return v.shownPause() }},
	{"placeLost", func(v *Visitor) any { return v.lost() }},
	{"counting", func(v *Visitor) any { return v.counting() }},
	{"peopleAhead", func(v *Visitor) any { return v.Decision.Ahead }},
	{"peopleWaiting", func(v *Visitor) any { return v.total() }},
	{"waitTimeLow", func(v *Visitor) any { low, _ := v.span(); return int64(low / time.Minute) }},
	{"waitTimeHigh", func(v *Visitor) any { _, high := v.span(); return wholeMinutes(high) }},
	{"progressPercent", func(v *Visitor) any { percent, _ := v.progress(); return int64(percent) }},
	{"joinedAt", func(v *Visitor) any { return v.Decision.Ticket.Joined.Std().Format(time.RFC3339) }},
	{"waitedSeconds", func(v *Visitor) any { return wholeSeconds(v.waited()) }},
	{"placeKeptSeconds", func(v *Visitor) any { return wholeSeconds(v.Grace) }},
	{"queueMessage", func(v *Visitor) any { return v.Message }},
	{"roomName", func(v *Visitor) any { return v.Room }},
	{"leaveURL", func(v *Visitor) any { return "/.well-known/vestibule/leave?room=" + v.Room }},
	{"liveScript", func(v *Visitor) any { return v.liveScript() }},
	{"rejoinURL", func(v *Visitor) any { return v.back() }},
	{"language", func(v *Visitor) any { return v.Lang.Code() }},
	{"direction", func(v *Visitor) any { return v.Lang.Dir() }},
})

// liveScript returns what makes a custom page live, as an element.
func (v *Visitor) liveScript() string {
	if v.Left {
		return ""
	}
	dst := []byte("<script")
	if v.Nonce != "" {
		dst = append(dst, ` nonce="`...)
		dst = append(dst, v.Nonce...)
		dst = append(dst, '"')
	}
	dst = append(dst, ">("...)
	dst = append(dst, live...)
	dst = append(dst, ")("...)
	dst = appendOurs(dst, v)
	return string(append(dst, ")</script>"...))
}

func sortValues(vs []value) []value {
	slices.SortFunc(vs, func(a, b value) int { return strings.Compare(a.name, b.name) })
	return vs
}

func findValue(name string) (index int, ok bool) {
	return slices.BinarySearchFunc(values, name, func(v value, name string) int { return strings.Compare(v.name, name) })
}

// indexValues returns where the variables with these names are. It panics on an
// unknown one: the names are part of the program.
func indexValues(names []string) []int {
	out := make([]int, len(names))
	for i, name := range names {
		at, ok := findValue(name)
		if !ok {
			panic("waiting page: unknown variable " + name)
		}
		out[i] = at
	}
	return out
}

// Values returns every variable of a custom page as it is for v.
func Values(v *Visitor) map[string]any {
	out := make(map[string]any, len(values))
	for i := range values {
		out[values[i].name] = values[i].get(v)
	}
	return out
}
