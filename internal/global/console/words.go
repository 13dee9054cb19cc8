package console

import (
	"fmt"
	"html/template"
	"math"
	"time"

	"vestibule/internal/global/report"
)

// functions are those of the templates.
var functions = template.FuncMap{
	"count": count,
	"day":   day,
	"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"asset": asset,
	"once":  newForm,

	"unix":     func(at int64) string { return time.Unix(at, 0).UTC().Format(time.RFC3339) },
	"unixTime": func(at int64) string { return time.Unix(at, 0).UTC().Format("2 Jan, 15:04:05 UTC") },
}

// unknown stands for a missing number.
const unknown = report.Unknown

// count returns a number with separators: 12,400.
func count(n int) string { return report.Count(n) }

// plural returns a number of things.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + many
}

func people(n int) string { return plural(n, "person", "people") }

// minutes returns a wait in words.
func minutes(n int) string {
	if n < 120 {
		return plural(n, "minute", "minutes")
	}
	return plural(int(math.Round(float64(n)/60)), "hour", "hours")
}

// ago returns the age of something.
func ago(now, at time.Time) string {
	switch d := now.Sub(at); {
	case d < 5*time.Second:
		return "just now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d d ago", int(d.Hours()/24))
	}
}

// clock returns a time of day, with the date if it is not within 12 hours.
func clock(now, at time.Time) string {
	form := "15:04 UTC"
	if d := at.Sub(now); d > 12*time.Hour || d < -12*time.Hour {
		form = "2 Jan 2006, 15:04 UTC"
	}
	return at.UTC().Format(form)
}

// until returns a moment and the time left to it.
func until(now, at time.Time) string { return clock(now, at) + ", in " + left(at.Sub(now)) }

// left returns a duration that is still to come.
func left(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "less than a minute"
	case d < 2*time.Hour:
		return plural(int(d.Round(time.Minute).Minutes()), "minute", "minutes")
	case d < 48*time.Hour:
		return plural(int(d.Round(time.Hour).Hours()), "hour", "hours")
	default:
		return plural(int(d.Hours()/24), "day", "days")
	}
}

// day returns a date.
func day(t time.Time) string { return t.UTC().Format("2 Jan 2006") }
