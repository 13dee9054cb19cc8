package waiting

import (
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
	steps  []step
	doubts []string // see Page.Doubts
}

// step is one thing that rendering does.
type step struct {
	kind  stepKind
	text  string // to append, or the variable's name
	value int    // index of the variable, or unknown
	skip  int    // steps inside a section
}

// unknown is the index of every variable that there is not.
const unknown = -1

func (s *step) of(v *Visitor) string {
	if s.value == unknown {
		return ""
	}
	return values[s.value].text(v)
}

func (s *step) truth(v *Visitor) bool { return s.value != unknown && values[s.value].truth(v) }

type stepKind uint8

const (
	stepText stepKind = iota
	stepValue
	stepRaw
	stepSection
	stepInverted
	stepNonce // inside of a script's tag, for the content security policy
)

// render appends the page for one visitor.
func (t *template) render(dst []byte, v *Visitor) []byte {
	for i := 0; i < len(t.steps); i++ {
		s := &t.steps[i]
		switch s.kind {
		case stepText:
			dst = append(dst, s.text...)
		case stepRaw:
			dst = append(dst, s.of(v)...)
		case stepValue:
			dst = append(dst, html.EscapeString(s.of(v))...)
		case stepNonce:
			if v.Nonce != "" {
				dst = append(dst, " nonce="...)
				dst = append(dst, v.Nonce...)
			}
		case stepSection:
			if !s.truth(v) {
				i += s.skip
			}
		case stepInverted:
			if s.truth(v) {
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

// waitMinutes returns the estimate, 0 where there is none: of a known one at least 1, as
// waitTimeFormatted says.
func waitMinutes(v *Visitor) int64 {
	if !v.known() {
		return 0
	}
	return max(1, wholeMinutes(v.wait()))
}

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
		return formatted(waitMinutes(v))
	}},
	{"queueIsFull", func(v *Visitor) any { return v.wait() >= 24*time.Hour || v.method() == "reject" }},
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

// valueNames are the names of all variables.
var valueNames = func() []string {
	names := make([]string, len(values))
	for i := range values {
		names[i] = values[i].name
	}
	return names
}()

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
