package page

import (
	"math"
	"strconv"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/wire"
)

// Broadcast is a message to all waiting visitors of a room. A reader that knows its ticket's join time can compute
// its own position.
type Broadcast struct {
	Now      fleettime.Time
	View     *wire.View     // nil before the first view
	Counting bool           // waiting visitors are being recounted: positions are unknown
	PausedBy string         // why the edge admits nobody, or ""
	Closed   bool           // new visitors get no place
	Starts   fleettime.Time // start of a gathering event, or 0
	// close of entries of a draw for an event that has not begun: earlier visitors have a drawn place; or 0
	Drawn    fleettime.Time
	Entrants uint64 // of that draw, once positions are counted by drawn places; 0 before
}

const (
	// eventSlices bounds the queue in a message, which is sent to every page each second. It gives positions to
	// within a sixteenth.
	eventSlices = 48

	// MaxDate is the latest date in JavaScript, in milliseconds. In a message it stands for [estimate.Open].
	MaxDate = 8_640_000_000_000_000
)

// LineFollows ends the state of the room in a message; the line of visitors follows.
const LineFollows = `"cutoff":`

// AppendBroadcast appends a message of an event stream. The first field is the time, so that no two messages are
// equal.
func AppendBroadcast(dst []byte, b *Broadcast) []byte {
	whole := func(name string, n int64) {
		dst = append(dst, name...)
		dst = strconv.AppendInt(dst, n, 10)
	}
	whole(`data: {"at":`, int64(b.Now))
	if b.PausedBy != "" {
		dst = appendString(append(dst, `,"pausedBy":`...), b.PausedBy)
	}
	if b.Counting {
		dst = append(dst, `,"counting":true`...)
	}
	if b.Closed {
		dst = append(dst, `,"closed":true`...)
	}
	if b.Starts != 0 {
		whole(`,"starts":`, int64(b.Starts))
	}
	if b.Drawn != 0 {
		whole(`,"drawn":`, int64(b.Drawn))
	}
	if b.Entrants != 0 {
		whole(`,"entrants":`, int64(b.Entrants))
	}
	if v := b.View; v != nil && !b.Counting {
		cutoff, park := min(int64(v.Cutoff), MaxDate), min(int64(v.Park), MaxDate)
		if len(v.Rounds) > 0 && v.Queues() { // no page knows which visitors were called
			cutoff, park = 0, 0
		}
		whole(","+LineFollows, cutoff)
		whole(`,"park":`, park)
		whole(`,"slots":`, v.Free)
		dst = append(dst, `,"paces":[`...)
		for i, p := range v.Paces {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendFloat(dst, p.For.Seconds())
			dst = appendFloat(append(dst, ','), p.Mu)
		}
		dst = appendFloat(append(dst, `],"joining":`...), v.Joining)
		dst = appendFloat(append(dst, `,"theta":`...), v.Theta)
		dst = append(dst, `,"line":[`...)
		dst = appendLine(dst, v.Line.Histogram())
		dst = append(dst, ']')
	}
	return append(dst, "}\n\n"...)
}

// appendLine writes three numbers per slice: milliseconds from the end of the previous slice to its start, its
// width in milliseconds, and visitors.
func appendLine(dst []byte, h estimate.Histogram) []byte {
	end := fleettime.Time(0)
	for i, s := range h.Compact(eventSlices) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(s.Start-end), 10)
		dst = append(dst, ',')
		dst = strconv.AppendInt(dst, s.Width, 10)
		dst = append(dst, ',')
		dst = strconv.AppendFloat(dst, math.Round(s.N*10)/10, 'f', -1, 64)
		end = s.End()
	}
	return dst
}

// appendFloat writes a number with four digits, or 0 if it is not finite.
func appendFloat(dst []byte, x float64) []byte {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		x = 0
	}
	return strconv.AppendFloat(dst, x, 'g', 4, 64)
}

// AppendOver appends the last message of a stream; do is the next action of the page, [OverAsk] or [OverPoll].
func AppendOver(dst []byte, do string) []byte {
	dst = append(dst, "event: over\ndata: "...)
	dst = append(dst, do...)
	return append(dst, "\n\n"...)
}

// Actions in the last message of a stream.
const (
	OverAsk  = "ask"  // ask at once: the place has changed
	OverPoll = "poll" // continue without a stream: the same ticket has a newer one
)
