package waiting

import (
	"errors"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/admission"
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
)

// parseTemplate compiles a page; the error tells every fault with its line.
func parseTemplate(text string) (*template, error) {
	p := parser{rest: text, line: 1, atStart: true}
	if err := p.parse(""); err != nil {
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

func (p *parser) add(text string) {
	if text != "" {
		p.steps = append(p.steps, step{kind: stepText, text: text})
	}
}

// parse reads up to the end of the section called name, or of the page.
func (p *parser) parse(name string) error {
	begun := p.line
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
	if err := p.parse(name); err != nil {
		return err
	}
	p.depth--
	if at < len(p.steps) && p.steps[at].kind == kind {
		p.steps[at].skip = len(p.steps) - at - 1
	}
	return nil
}

func (p *parser) variable(kind stepKind, name string, line int) {
	i, ok := slices.BinarySearchFunc(values, name, func(v value, name string) int { return strings.Compare(v.name, name) })
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

// known reports whether there is an estimate that may be shown.
func known(v *Visitor) bool { return v.Decision.Known && !paused(v) }

// minutes returns the estimate in whole minutes, 0 for none.
func minutes(v *Visitor) int64 {
	if !known(v) {
		return 0
	}
	return int64((v.Decision.Wait + time.Minute - 1) / time.Minute)
}

func method(v *Visitor) string {
	if v.Method == "" {
		return "fifo"
	}
	return v.Method
}

// values are the variables by name: Cloudflare's with their meanings, and ours.
var values = sortValues([]value{
	{"inWaitingRoom", func(*Visitor) any { return true }},
	{"waitTimeKnown", func(v *Visitor) any { return known(v) }},
	{"waitTime", func(v *Visitor) any { return minutes(v) }},
	{"waitTimeHours", func(v *Visitor) any { return minutes(v) / 60 }},
	{"waitTimeHourMinutes", func(v *Visitor) any { return minutes(v) % 60 }},
	{"waitTime25Percentile", func(*Visitor) any { return int64(0) }},
	{"waitTime50Percentile", func(*Visitor) any { return int64(0) }},
	{"waitTime75Percentile", func(*Visitor) any { return int64(0) }},
	{"waitTimeFormatted", func(v *Visitor) any {
		if !known(v) {
			return "unavailable"
		}
		return string(appendDuration(nil, time.Duration(max(1, minutes(v)))*time.Minute))
	}},
	{"queueIsFull", func(v *Visitor) any { return known(v) && v.Decision.Wait >= 24*time.Hour }},
	{"queueAll", func(*Visitor) any { return false }},
	{"lastUpdated", func(v *Visitor) any { return v.Now.Std().Format(time.RFC3339) }},
	{"refreshIntervalSeconds", func(v *Visitor) any { return int64(v.Decision.Retry / time.Second) }},
	{"queueingMethod", func(v *Visitor) any { return method(v) }},
	{"isFIFOQueue", func(v *Visitor) any { return method(v) == "fifo" }},
	{"isRandomQueue", func(v *Visitor) any { return method(v) == "random" }},
	{"isPassthroughQueue", func(v *Visitor) any { return method(v) == "passthrough" }},
	{"isRejectQueue", func(v *Visitor) any { return method(v) == "reject" }},
	{"isEventActive", func(*Visitor) any { return false }},
	{"isEventPrequeueing", func(*Visitor) any { return false }},
	{"timeUntilEventStart", func(*Visitor) any { return int64(0) }},
	{"timeUntilEventStartFormatted", func(*Visitor) any { return "unavailable" }},
	{"timeUntilEventEnd", func(*Visitor) any { return int64(0) }},
	{"timeUntilEventEndFormatted", func(*Visitor) any { return "unavailable" }},
	{"shuffleAtEventStart", func(*Visitor) any { return false }},
	{"turnstile", func(*Visitor) any { return "" }},
	{"infiniteQueue", func(*Visitor) any { return false }},

	{"peopleAhead", func(v *Visitor) any { return v.Decision.Ahead }},
	{"peopleWaiting", func(v *Visitor) any { return v.Decision.Waiting }},
	{"joinedAt", func(v *Visitor) any { return v.Decision.Ticket.Joined.Std().Format(time.RFC3339) }},
})

func sortValues(vs []value) []value {
	slices.SortFunc(vs, func(a, b value) int { return strings.Compare(a.name, b.name) })
	return vs
}

// Values returns every variable of a custom page as it is for v.
func Values(v *Visitor) map[string]any {
	out := make(map[string]any, len(values))
	for i := range values {
		out[values[i].name] = values[i].get(v)
	}
	return out
}

// Samples are visitors in all states that pages differ by, for checks.
var Samples = []Visitor{
	{Now: 1622133200_000, Grace: 5 * time.Minute, Decision: admission.Decision{Ahead: 60, Waiting: 112, Wait: 2 * time.Minute, Known: true, Retry: 20 * time.Second}},
	{Now: 1622133200_000, Decision: admission.Decision{Ahead: 0, Waiting: 1, Wait: 0, Known: true, Retry: 2 * time.Second}},
	{Now: 1622133200_000, Decision: admission.Decision{Ahead: 1e6, Waiting: 2e6, Wait: 30 * time.Hour, Known: true, Retry: 20 * time.Second}},
	{Now: 1622133200_000, Decision: admission.Decision{Reason: admission.Isolated}},
	{Now: 1622133200_000, Decision: admission.Decision{Reason: admission.Closed}},
	{Now: fleet.Time(0), Method: "random", Decision: admission.Decision{Ahead: 3}},
}
