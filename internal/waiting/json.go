package waiting

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// AppendJSON appends what apps are told: the fields of Cloudflare's waiting
// rooms in cfWaitingRoom, ours in vestibule.
func AppendJSON(dst []byte, v *Visitor) []byte {
	dst = append(dst, `{"cfWaitingRoom":{`...)
	for i, name := range cloudflareFields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = append(dst, name...)
		dst = append(dst, `":`...)
		switch a := values[cloudflareIndex[i]].get(v).(type) {
		case bool:
			dst = strconv.AppendBool(dst, a)
		case int64:
			dst = strconv.AppendInt(dst, a, 10)
		case uint64:
			dst = strconv.AppendUint(dst, a, 10)
		case string:
			dst = appendString(dst, a)
		}
	}
	dst = append(dst, `},"vestibule":`...)
	dst = appendOurs(dst, v)
	return append(dst, "}\n"...)
}

// AppendNews appends the answer to a page that asks for news, where there is
// nothing to tell but what to do: enter or reload. cookies tells whether the question
// brought any ticket: where a page was given one, the browser has kept it.
func AppendNews(dst []byte, state string, cookies bool) []byte {
	dst = append(dst, `{"vestibule":{"state":`...)
	dst = appendString(dst, state)
	dst = append(dst, `,"cookies":`...)
	dst = strconv.AppendBool(dst, cookies)
	return append(dst, "}}\n"...)
}

// cloudflareFields are the documented fields, in the documented order.
var cloudflareFields = []string{
	"inWaitingRoom", "waitTimeKnown", "waitTime", "waitTime25Percentile", "waitTime50Percentile", "waitTime75Percentile", "waitTimeFormatted",
	"queueIsFull", "queueAll", "lastUpdated", "refreshIntervalSeconds", "queueingMethod", "isFIFOQueue", "isRandomQueue", "isPassthroughQueue",
	"isRejectQueue", "isEventActive", "isEventPrequeueing", "timeUntilEventStart", "timeUntilEventStartFormatted", "timeUntilEventEnd",
	"timeUntilEventEndFormatted", "shuffleAtEventStart", "turnstile", "infiniteQueue",
}

var cloudflareIndex = indexValues(cloudflareFields)

// appendOurs writes the vestibule object. The page's script reads it too.
func appendOurs(dst []byte, v *Visitor) []byte {
	text := func(name, value string) {
		dst = append(dst, '"')
		dst = append(dst, name...)
		dst = append(dst, `":`...)
		dst = appendString(dst, value)
		dst = append(dst, ',')
	}
	whole := func(name string, value int64) {
		dst = append(dst, '"')
		dst = append(dst, name...)
		dst = append(dst, `":`...)
		dst = strconv.AppendInt(dst, value, 10)
		dst = append(dst, ',')
	}
	moment := func(name string, value time.Time) {
		dst = append(dst, '"')
		dst = append(dst, name...)
		dst = append(dst, `":"`...)
		dst = value.AppendFormat(dst, "2006-01-02T15:04:05.000Z07:00")
		dst = append(dst, `",`...)
	}
	low, high := v.span()
	dst = append(dst, '{')
	text("state", v.State().String())
	text("pausedBy", v.shownPause())
	text("lost", v.lost())
	text("queueingMethod", v.method())
	text("room", v.Room)
	whole("peopleAhead", int64(v.Decision.Ahead))
	whole("peopleWaiting", int64(v.total()))
	dst = append(dst, `"counting":`...)
	dst = strconv.AppendBool(dst, v.counting())
	dst = append(dst, `,"waitTimeKnown":`...)
	dst = strconv.AppendBool(dst, v.known())
	dst = append(dst, ',')
	whole("waitTimeSeconds", wholeSeconds(v.wait()))
	whole("waitTimeLowSeconds", wholeSeconds(low))
	whole("waitTimeHighSeconds", wholeSeconds(high))
	dst = append(dst, `"waitTimeLonger":`...)
	dst = strconv.AppendBool(dst, v.longer())
	dst = append(dst, ',')
	percent, ok := v.progress()
	if !ok {
		percent = -1
	}
	whole("progressPercent", int64(percent))
	whole("retryAfterSeconds", v.Retry())
	whole("placeKeptSeconds", wholeSeconds(v.Grace))
	whole("answer", int64(v.Decision.Ticket.Answer))
	if v.Event.Start != 0 {
		moment("startsAt", v.Event.Start.Std())
	}
	if !v.Moment {
		moment("joinedAt", v.Decision.Ticket.Joined.Std())
	}
	moment("updatedAt", v.Now.Std())
	text("language", v.Lang.Code())
	text("message", v.Message)
	dst[len(dst)-1] = '}'
	return dst
}

func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second/2) / time.Second) }

const hexDigits = "0123456789abcdef"

// appendString writes a text as a JSON string that may stand in a script
// element: nothing in it can end one.
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
			case r == '\u2028' || r == '\u2029': // line ends to older scripts
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
