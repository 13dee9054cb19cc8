package page

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
)

// AppendJSON appends the JSON form for apps: the fields of Cloudflare's waiting rooms in cfWaitingRoom, ours in
// vestibule.
func AppendJSON(dst []byte, v *Visitor) []byte {
	dst = appendCloudflares(dst, cloudflares[:ofMethod], v)
	if rest := eventless[v.method()]; rest != "" && v.Event == (Event{}) {
		dst = append(dst, rest...)
	} else {
		dst = appendCloudflares(dst, cloudflares[ofMethod:], v)
	}
	dst = append(dst, `},"vestibule":`...)
	dst = appendOurs(dst, v)
	return append(dst, "}\n"...)
}

func appendCloudflares(dst []byte, fields []cloudflare, v *Visitor) []byte {
	for i := range fields {
		f := &fields[i]
		dst = append(dst, f.key...)
		switch x := f.value; {
		case x.is != nil:
			dst = strconv.AppendBool(dst, x.is(v))
		case x.number != nil:
			dst = strconv.AppendInt(dst, x.number(v), 10)
		default: // needs no escaping
			dst = append(x.append(dst, v), '"')
		}
	}
	return dst
}

// ofMethod is the first of the documented fields that describe only the method and the event.
var ofMethod = slices.Index(cloudflareFields, "queueingMethod")

// eventless is the text of these fields by method, without an event.
var eventless = func() map[string]string {
	out := map[string]string{}
	for _, method := range []string{room.MethodFIFO, room.MethodRandom, room.MethodPassthrough, room.MethodReject} {
		out[method] = string(appendCloudflares(nil, cloudflares[ofMethod:], &Visitor{Method: method}))
	}
	return out
}()

// AppendNews appends the answer to a page's poll if the page should only enter or reload. cookies reports whether
// the request brought a ticket: if a page was given one, the browser has kept it.
func AppendNews(dst []byte, state string, cookies bool) []byte {
	dst = append(dst, `{"vestibule":{"state":`...)
	dst = appendString(dst, state)
	dst = append(dst, `,"cookies":`...)
	dst = strconv.AppendBool(dst, cookies)
	return append(dst, "}}\n"...)
}

// cloudflareFields are the documented fields in the documented order.
var cloudflareFields = []string{
	"inWaitingRoom", "waitTimeKnown", "waitTime", "waitTime25Percentile", "waitTime50Percentile", "waitTime75Percentile",
	"waitTimeFormatted", "queueIsFull", "queueAll", "lastUpdated", "refreshIntervalSeconds", "queueingMethod",
	"isFIFOQueue", "isRandomQueue", "isPassthroughQueue", "isRejectQueue", "isEventActive", "isEventPrequeueing",
	"timeUntilEventStart", "timeUntilEventStartFormatted", "timeUntilEventEnd", "timeUntilEventEndFormatted",
	"shuffleAtEventStart", "turnstile", "infiniteQueue",
}

// cloudflares are those fields with the text before their values.
var cloudflares = func() []cloudflare {
	out := make([]cloudflare, len(cloudflareFields))
	for i, at := range indexValues(cloudflareFields) {
		out[i] = cloudflare{`,"` + cloudflareFields[i] + `":`, &values[at]}
		if i == 0 {
			out[i].key = `{"cfWaitingRoom":{` + out[i].key[1:]
		}
		if values[at].append != nil {
			out[i].key += `"`
		}
	}
	return out
}()

// cloudflare is one such field.
type cloudflare struct {
	key   string
	value *value
}

// appendOurs writes the vestibule object. The page's script reads it too.
func appendOurs(dst []byte, v *Visitor) []byte {
	for i := range ours {
		dst = append(dst, ours[i].key...)
		dst = ours[i].append(dst, v)
	}
	return append(dst, '}')
}

// appendNow writes the vestibule object for the page's script, without the names that the script knows: a list of
// the values, and an object with the others.
func appendNow(dst []byte, v *Visitor) []byte {
	dst = append(dst, '[')
	for i := range ours {
		if ours[i].name != "" {
			dst = append(ours[i].append(dst, v), ',')
		}
	}
	others := len(dst)
	dst = appendOthers(dst, v)
	if len(dst) == others {
		dst = append(dst, '{')
	}
	dst[others] = '{'
	return append(dst, "}]"...)
}

// nowFields returns the names of the values in the list.
func nowFields() string {
	var names []string
	for _, f := range ours {
		if f.name != "" {
			names = append(names, f.name)
		}
	}
	return strings.Join(names, " ")
}

// field is a field of the vestibule object with the text before its value. Without a name it is all of appendOthers.
type field struct {
	name, key string
	append    func(dst []byte, v *Visitor) []byte
}

// ours are the fields of the vestibule object.
var ours = func() []field {
	whole := func(name string, f func(v *Visitor) int64) field {
		return field{
			name, `,"` + name + `":`, func(dst []byte, v *Visitor) []byte { return strconv.AppendInt(dst, f(v), 10) },
		}
	}
	text := func(name string, f func(v *Visitor) string) field {
		return field{name, `,"` + name + `":`, func(dst []byte, v *Visitor) []byte { return appendString(dst, f(v)) }}
	}
	is := func(name string, f func(v *Visitor) bool) field {
		return field{name, `,"` + name + `":`, func(dst []byte, v *Visitor) []byte { return strconv.AppendBool(dst, f(v)) }}
	}
	fields := []field{
		text("state", func(v *Visitor) string { return v.State().String() }),
		text("pausedBy", (*Visitor).shownPause),
		text("lost", func(v *Visitor) string { return lost[v.Decision.Fresh] }),
		text("queueingMethod", (*Visitor).method),
		text("room", func(v *Visitor) string { return v.Room }),
		whole("peopleAhead", func(v *Visitor) int64 { return orUnknown(v.ahead()) }),
		whole("peopleWaiting", func(v *Visitor) int64 { return orUnknown(v.total()) }),
		is("counting", (*Visitor).counting),
		is("waitTimeKnown", (*Visitor).known),
		whole("waitTimeSeconds", func(v *Visitor) int64 { return wholeSeconds(v.wait()) }),
		whole("waitTimeLowSeconds", func(v *Visitor) int64 { low, _ := v.span(); return wholeSeconds(low) }),
		whole("waitTimeHighSeconds", func(v *Visitor) int64 { _, high := v.span(); return wholeSeconds(high) }),
		is("waitTimeLonger", (*Visitor).longer),
		whole("progressPercent", func(v *Visitor) int64 {
			if percent, ok := v.progress(); ok {
				return int64(percent)
			}
			return -1
		}),
		whole("retryAfterSeconds", (*Visitor).Retry),
		whole("placeKeptSeconds", func(v *Visitor) int64 { return wholeSeconds(v.Grace) }),
		whole("answer", func(v *Visitor) int64 { return int64(v.Decision.Ticket.Answer) }),
		{"", "", appendOthers},
		{
			"updatedAt", `,"updatedAt":`,
			func(dst []byte, v *Visitor) []byte { return append(appendMoment(append(dst, '"'), v.Now), '"') },
		},
		text("language", func(v *Visitor) string { return v.Lang.Code() }),
		text("message", func(v *Visitor) string { return v.Message }),
	}
	fields[0].key = "{" + fields[0].key[1:]
	return fields
}()

// appendOthers writes the fields that are not always there.
func appendOthers(dst []byte, v *Visitor) []byte {
	if v.Event.Start != 0 {
		dst = append(appendMoment(append(dst, `,"startsAt":"`...), v.Event.Start), '"')
	}
	if !v.Moment {
		t := &v.Decision.Ticket
		dst = append(appendReference(append(dst, `,"number":"`...), v), '"')
		dst = append(appendMoment(append(dst, `,"joinedAt":"`...), t.Joined), '"')
		if place := t.Place(); place != t.Joined {
			dst = append(appendMoment(append(dst, `,"place":"`...), place), '"')
		}
	}
	if text := catalogs[v.Lang].lost(v); text != "" {
		dst = appendString(append(dst, `,"lostText":`...), text)
	}
	if v.randomOrder() && v.known() {
		dst = append(dst, `,"waitTimePercentileSeconds":[`...)
		for i, d := range v.Decision.Quartiles {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendInt(dst, wholeSeconds(d), 10)
		}
		dst = append(dst, ']')
	}
	return appendDraw(dst, v)
}

// appendDraw writes the state of a draw, if there is one: for apps, and the texts of the built-in page that depend
// on it.
func appendDraw(dst []byte, v *Visitor) []byte {
	stage := v.stage()
	if stage == "" {
		return dst
	}
	dst = append(append(append(dst, `,"draw":{"stage":"`...), stage...), `","commit":"`...)
	dst = append(append(dst, v.Event.Draw.Commit...), `","closesAt":"`...)
	dst = append(appendMoment(dst, v.Event.Draw.Closes), '"')
	if stage == DrawPlaced {
		dst = appendReceipt(append(dst, `,"receipt":`...), v)
	}
	if place, of, ok := v.drawnPlace(); ok {
		dst = strconv.AppendUint(append(dst, `,"place":`...), place, 10)
		dst = strconv.AppendUint(append(dst, `,"entrants":`...), of, 10)
	}
	c, state := catalogs[v.Lang], v.State()
	if dst = append(dst, '}'); !c.drawIsState(v, stage) {
		return dst
	}
	text := c.drawText(stage) // the text needs no escaping in JSON or HTML
	dst = append(append(append(append(append(dst, `,"`...), state.String()...), `":"`...), text...), '"')
	if state == Before && (stage == DrawPlaced || stage == DrawLate) { // a page may join the queue before it asks again
		dst = append(append(append(dst, `,"queued":"`...), text...), '"')
	}
	return dst
}

// appendReference writes the visitor's reference number.
func appendReference(dst []byte, v *Visitor) []byte {
	return ticket.AppendNumber(dst, v.Decision.Ticket.ID)
}

func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second/2) / time.Second) }

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string that is safe inside a script element: nothing in it can end one.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && n == 1:
				dst = append(dst, `\ufffd`...)
			case r == '\u2028' || r == '\u2029': // line terminators in older scripts
				dst = append(dst, `\u202`...)
				dst = append(dst, hexDigits[r&15])
			default:
				dst = append(dst, s[i:i+n]...)
			}
			i += n
			continue
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20 || c == '<' || c == '>' || c == '&':
			dst = append(dst, `\u00`...)
			dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
		default:
			dst = append(dst, c)
		}
		i++
	}
	return append(dst, '"')
}

// appendMoment writes a time in RFC 3339, in UTC, in milliseconds.
func appendMoment(dst []byte, t fleettime.Time) []byte {
	dst = appendSecond(dst, t)
	ms := t % 1000
	return append(dst[:len(dst)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// appendSecond is appendMoment in seconds.
func appendSecond(dst []byte, t fleettime.Time) []byte {
	return t.Std().AppendFormat(dst, time.RFC3339)
}

// appendClock writes hours and minutes.
func appendClock(dst []byte, t fleettime.Time) []byte {
	s := int64(max(0, t)) / 1000 % 86400
	return appendTwo(append(appendTwo(dst, s/3600), ':'), s/60%60)
}

func appendTwo(dst []byte, n int64) []byte { return append(dst, byte('0'+n/10), byte('0'+n%10)) }
