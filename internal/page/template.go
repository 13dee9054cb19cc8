package page

import (
	"bytes"
	"html"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/core/fleettime"
)

// template is an operator's Mustache page, compiled to a list of steps. It supports the features of a single-file
// page: variables, {{{raw}}} and {{&raw}} ones, sections, inverted sections and comments. Partials, lambdas and
// other delimiters are rejected. Our own renderer keeps reflection, and with it three megabytes, out of the edge.
// Package checkpage compares every page with a full Mustache library before publication.
type template struct {
	steps  []step
	doubts []string     // see Page.Doubts
	pack   func() *pack // of its texts, made on first use
}

// step is one step of rendering.
type step struct {
	kind  stepKind
	text  string // the text, or the variable's name
	value int    // index of the variable, or unknown; for a text, its number
	skip  int    // number of steps inside the section
}

// unknown is the index of unknown variables.
const unknown = -1

func (s *step) of(v *Visitor) string {
	if s.value == unknown {
		return ""
	}
	return string(values[s.value].text(nil, v))
}

func (s *step) truth(v *Visitor) bool { return s.value != unknown && values[s.value].truth(v) }

type stepKind uint8

const (
	stepText stepKind = iota
	stepValue
	stepRaw
	stepSection
	stepInverted
	stepNonce // inside of a script tag, for the content security policy
)

// packTexts compresses the texts.
func (t *template) packTexts() *pack {
	var texts []string
	sample := []byte(pageHTML) // HTML, if there is little else
	for i := range t.steps {
		switch s := &t.steps[i]; s.kind {
		case stepText:
			texts = append(texts, s.text)
		case stepValue, stepRaw:
			sample = append(sample, s.of(&Samples[0].Visitor)...)
		case stepSection, stepInverted, stepNonce:
		}
	}
	return newPack(texts, sample)
}

// render appends the page for one visitor to dst: see Page.render.
func (t *template) render(dst []byte, v *Visitor, out *Packer) []byte {
	for i := 0; i < len(t.steps); i++ {
		s := &t.steps[i]
		switch s.kind {
		case stepText:
			if out != nil {
				dst = out.text(dst, s.value)
				continue
			}
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

// value is one variable of a page: a Boolean, a number or a text.
type value struct {
	name   string
	is     func(v *Visitor) bool
	number func(v *Visitor) int64
	count  func(v *Visitor) (n uint64, known bool) // a number that may be unknown: then the value is empty
	append func(dst []byte, v *Visitor) []byte
}

func truth(name string, f func(v *Visitor) bool) value { return value{name: name, is: f} }
func num(name string, f func(v *Visitor) int64) value  { return value{name: name, number: f} }
func text(name string, f func(v *Visitor) string) value {
	return value{name: name, append: func(dst []byte, v *Visitor) []byte { return append(dst, f(v)...) }}
}

func (x *value) text(dst []byte, v *Visitor) []byte {
	switch {
	case x.is != nil:
		return strconv.AppendBool(dst, x.is(v))
	case x.number != nil:
		return strconv.AppendInt(dst, x.number(v), 10)
	case x.count != nil:
		if n, known := x.count(v); known {
			dst = strconv.AppendUint(dst, n, 10)
		}
		return dst
	}
	return x.append(dst, v)
}

// truth is Mustache's: false, zero, unknown numbers and blank text are false.
func (x *value) truth(v *Visitor) bool {
	switch {
	case x.is != nil:
		return x.is(v)
	case x.number != nil:
		return x.number(v) != 0
	case x.count != nil:
		n, known := x.count(v)
		return known && n != 0
	}
	return len(bytes.TrimSpace(x.append(nil, v))) > 0
}

// wholeMinutes rounds up, so that no wait exceeds the shown one.
func wholeMinutes(d time.Duration) int64 { return int64((d + time.Minute - 1) / time.Minute) }

// waitMinutes returns the estimate, at least 1 if it is known, like waitTimeFormatted, or 0.
func waitMinutes(v *Visitor) int64 {
	if !v.known() {
		return 0
	}
	return max(1, wholeMinutes(v.wait()))
}

// untilMinutes returns the minutes until a time, or 0 for none or a past one.
func untilMinutes(v *Visitor, t fleettime.Time) int64 {
	if t == 0 {
		return 0
	}
	return max(0, wholeMinutes(t.Sub(v.Now)))
}

// appendFormatted writes minutes in English, like Cloudflare's variables.
func appendFormatted(dst []byte, n int64) []byte {
	return catalogs[English].appendSpan(dst, time.Duration(n)*time.Minute)
}

func appendUntil(dst []byte, v *Visitor, t fleettime.Time) []byte {
	if t == 0 {
		return append(dst, "unavailable"...)
	}
	return appendFormatted(dst, untilMinutes(v, t))
}

// values are the variables by name: Cloudflare's with their meanings, and ours.
var values = slices.SortedFunc(slices.Values([]value{
	truth("inWaitingRoom", func(v *Visitor) bool { return !v.Left && !v.Decision.Enters() }),
	truth("waitTimeKnown", func(v *Visitor) bool { return v.known() }),
	num("waitTime", func(v *Visitor) int64 { return waitMinutes(v) }),
	num("waitTimeHours", func(v *Visitor) int64 { return waitMinutes(v) / 60 }),
	num("waitTimeHourMinutes", func(v *Visitor) int64 { return waitMinutes(v) % 60 }),
	num("waitTime25Percentile", func(v *Visitor) int64 { return wholeMinutes(v.quartile(0)) }),
	num("waitTime50Percentile", func(v *Visitor) int64 { return wholeMinutes(v.quartile(1)) }),
	num("waitTime75Percentile", func(v *Visitor) int64 { return wholeMinutes(v.quartile(2)) }),
	{name: "waitTimeFormatted", append: func(dst []byte, v *Visitor) []byte {
		if !v.known() {
			return append(dst, "unavailable"...)
		}
		if least := wholeMinutes(v.quartile(0)); least > 0 {
			return appendFormatted(append(appendFormatted(dst, least), " to "...), wholeMinutes(v.quartile(2)))
		}
		return appendFormatted(dst, waitMinutes(v))
	}},
	truth("queueIsFull", func(v *Visitor) bool { return v.wait() >= 24*time.Hour || v.method() == "reject" }),
	truth("queueAll", func(v *Visitor) bool { return v.QueueAll }),
	{name: "lastUpdated", append: func(dst []byte, v *Visitor) []byte { return appendSecond(dst, v.Now) }},
	num("refreshIntervalSeconds", func(v *Visitor) int64 { return v.Retry() }),
	text("queueingMethod", func(v *Visitor) string { return v.method() }),
	truth("isFIFOQueue", func(v *Visitor) bool { return v.method() == "fifo" }),
	truth("isRandomQueue", func(v *Visitor) bool { return v.method() == "random" }),
	truth("isPassthroughQueue", func(v *Visitor) bool { return v.method() == "passthrough" }),
	truth("isRejectQueue", func(v *Visitor) bool { return v.method() == "reject" }),
	truth("isEventActive", func(v *Visitor) bool { return v.Event.Start != 0 }),
	truth("isEventPrequeueing", func(v *Visitor) bool { return v.Event.Prequeue }),
	num("timeUntilEventStart", func(v *Visitor) int64 { return untilMinutes(v, v.Event.Start) }),
	{
		name:   "timeUntilEventStartFormatted",
		append: func(dst []byte, v *Visitor) []byte { return appendUntil(dst, v, v.Event.Start) },
	},
	num("timeUntilEventEnd", func(v *Visitor) int64 { return untilMinutes(v, v.Event.End) }),
	{
		name:   "timeUntilEventEndFormatted",
		append: func(dst []byte, v *Visitor) []byte { return appendUntil(dst, v, v.Event.End) },
	},
	truth("shuffleAtEventStart", func(v *Visitor) bool { return v.Event.Shuffle }),
	text("drawStage", func(v *Visitor) string { return v.stage() }),
	text("drawCommit", func(v *Visitor) string {
		if v.stage() == "" {
			return ""
		}
		return v.Event.Draw.Commit
	}),
	text("drawReceipt", func(v *Visitor) string {
		if v.stage() != DrawPlaced {
			return ""
		}
		return string(appendReceipt(nil, v))
	}),
	text("turnstile", func(*Visitor) string { return "" }),
	truth("infiniteQueue", func(*Visitor) bool { return false }),

	text("state", func(v *Visitor) string { return v.State().String() }),
	text("pausedBy", func(v *Visitor) string { return v.shownPause() }),
	text("placeLost", func(v *Visitor) string { return lost[v.Decision.Fresh] }),
	truth("counting", func(v *Visitor) bool { return v.counting() }),
	{name: "peopleAhead", count: (*Visitor).ahead},
	{name: "peopleWaiting", count: (*Visitor).total},
	num("waitTimeLow", func(v *Visitor) int64 { low, _ := v.span(); return int64(low / time.Minute) }),
	num("waitTimeHigh", func(v *Visitor) int64 { _, high := v.span(); return wholeMinutes(high) }),
	num("progressPercent", func(v *Visitor) int64 { percent, _ := v.progress(); return int64(percent) }),
	{name: "joinedAt", append: func(dst []byte, v *Visitor) []byte { return appendSecond(dst, v.Decision.Ticket.Joined) }},
	num("waitedSeconds", func(v *Visitor) int64 { return wholeSeconds(v.waited()) }),
	num("placeKeptSeconds", func(v *Visitor) int64 { return wholeSeconds(v.Grace) }),
	text("queueMessage", func(v *Visitor) string { return v.Message }),
	text("roomName", func(v *Visitor) string { return v.Room }),
	text("leaveURL", func(v *Visitor) string { return "/.well-known/vestibule/leave?room=" + v.Room }),
	text("liveScript", liveScriptOf),
	text("rejoinURL", rejoinURL),
	text("language", func(v *Visitor) string { return v.Lang.Code() }),
	text("direction", func(v *Visitor) string { return v.Lang.Dir() }),
}), func(a, b value) int { return strings.Compare(a.name, b.name) })

// liveScriptOf returns the script element that keeps a custom page up to date.
func liveScriptOf(v *Visitor) string {
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

// indexValues returns the indices of variables. It panics on an unknown name: the names are embedded.
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

// Values returns the values of all variables of a custom page for v.
func Values(v *Visitor) map[string]any {
	out := make(map[string]any, len(values))
	for i := range values {
		switch x := &values[i]; {
		case x.is != nil:
			out[x.name] = x.is(v)
		case x.number != nil:
			out[x.name] = x.number(v)
		case x.count != nil:
			if n, known := x.count(v); known {
				out[x.name] = int64(n)
			} else {
				out[x.name] = ""
			}
		default:
			out[x.name] = string(x.append(nil, v))
		}
	}
	return out
}
