package page

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/message"
	"golang.org/x/text/number"
)

// maxDigits bounds the numbers that are grouped; no count of visitors has more digits.
const maxDigits = 18

func (c *catalog) form(n uint64) plural.Form {
	if n < uint64(len(c.small)) {
		return c.small[n]
	}
	return c.cardinal(n)
}

func (c *catalog) cardinal(n uint64) plural.Form {
	return plural.Cardinal.MatchPlural(c.tag, int(n%10_000_000), 0, 0, 0, 0)
}

// nativeDigits are the digits of languages whose browsers do not write 0 to 9; the library does not know them.
var nativeDigits = map[string]string{"ar-EG": "arab", "fa-IR": "arabext"}

// learnNumbers determines the language's digits and separators once, so that rendering only appends.
func (c *catalog) learnNumbers() {
	tag := c.tag
	if digits := nativeDigits[c.code]; digits != "" {
		var err error
		if tag, err = tag.SetTypeForKey("nu", digits); err != nil {
			panic("waiting page: " + c.code + ": " + err.Error())
		}
	}
	p := message.NewPrinter(tag)
	for d := range c.digits {
		c.digits[d] = p.Sprint(number.Decimal(d))
	}
	one := c.digits[1]
	for n, value := 1, int64(1); n <= maxDigits; n, value = n+1, value*10+1 {
		// 1, 11, 111, …: the rest after removing the digits are the separators.
		c.groups[n] = strings.Split(p.Sprint(number.Decimal(value)), one)[:n]
	}
	// Exceptions to the library's older CLDR, as in current browsers: a number must not change its form when the
	// script takes over.
	switch c.code {
	case "es-ES", "it-IT", "pl-PL", "bg-BG", "lv-LV", "hu-HU", "sl-SI":
		c.groups[4] = make([]string, 4) // four digits are not grouped
	case "fr-FR":
		for _, separators := range c.groups {
			for i, s := range separators {
				if s != "" {
					separators[i] = "\u202f"
				}
			}
		}
	}
}

// appendNumber writes a number with the digits and groups of the language.
func (c *catalog) appendNumber(dst []byte, n uint64) []byte {
	var room [20]byte
	digits := strconv.AppendUint(room[:0], n, 10)
	for i, d := range digits {
		if len(digits) <= maxDigits {
			dst = append(dst, c.groups[len(digits)][i]...)
		}
		dst = append(dst, c.digits[d-'0']...)
	}
	return dst
}

// appendUnit writes "5 minutes".
func (c *catalog) appendUnit(dst []byte, u unit, n uint64) []byte {
	f := &c.units[u][c.form(n)]
	dst = append(dst, f.before...)
	if !f.bare {
		dst = c.appendNumber(dst, n)
	}
	return append(dst, f.after...)
}

// appendRange writes "8–11 minutes", in the plural form of the upper end.
func (c *catalog) appendRange(dst []byte, u unit, low, high uint64) []byte {
	if low >= high {
		return c.appendUnit(dst, u, high)
	}
	f := &c.units[u][c.form(high)]
	if f.bare {
		f = &c.units[u][plural.Other]
	}
	dst = append(dst, f.before...)
	dst = c.appendNumber(dst, low)
	dst = append(dst, "–\u2060"...) // no line break inside
	dst = c.appendNumber(dst, high)
	return append(dst, f.after...)
}

// appendSpan writes a duration in its largest unit, and the next one below a small number of hours.
func (c *catalog) appendSpan(dst []byte, d time.Duration) []byte {
	s := uint64(max(0, d) / time.Second)
	switch {
	case s < 60:
		return c.appendUnit(dst, seconds, s)
	case s < 3600:
		return c.appendUnit(dst, minutes, s/60)
	case s < 48*3600:
		dst = c.appendUnit(dst, hours, s/3600)
		if m := s % 3600 / 60; m > 0 && s < 10*3600 {
			dst = append(dst, ' ')
			dst = c.appendUnit(dst, minutes, m)
		}
		return dst
	}
	return c.appendUnit(dst, days, s/(24*3600))
}

// appendQuartiles writes "25% wait at most 5 minutes" for the fastest 25, 50 and 75 percent, one per line. Of equal
// waits only the last.
func (c *catalog) appendQuartiles(dst []byte, v *Visitor) []byte {
	for k := range v.Decision.Quartiles {
		d := coarse(v.quartile(k))
		if k < 2 && d == coarse(v.quartile(k+1)) {
			continue
		}
		before, after, _ := strings.Cut(c.msg["wait_share"], "{n}")
		dst = append(c.appendNumber(append(dst, before...), uint64(25*(k+1))), after...)
		if dst = c.appendSpan(append(dst, ' '), d); k < 2 {
			dst = append(dst, '\n')
		}
	}
	return dst
}

// coarse rounds a quartile up: to five seconds in the first minute, then to minutes.
func coarse(d time.Duration) time.Duration {
	step := 5 * time.Second
	if d = d.Round(time.Second); d > time.Minute {
		step = time.Minute
	}
	return max(step, (d+step-1)/step*step)
}

// appendWait writes an estimate with its precision: minutes up to two hours, then hours. A range is rounded
// outwards, but begins at one.
func (c *catalog) appendWait(dst []byte, v *Visitor) []byte {
	low, high := v.span()
	switch {
	case !v.known():
		return append(dst, c.msg["wait_unknown"]...)
	case high < 45*time.Second, low < high && high < time.Minute:
		return append(dst, c.msg["wait_short"]...)
	case low >= 24*time.Hour:
		return append(dst, c.msg["wait_long"]...)
	}
	u, size := minutes, time.Minute
	if high > 2*time.Hour {
		u, size = hours, time.Hour
	}
	if low >= high {
		return c.appendUnit(dst, u, uint64((high+size/2)/size))
	}
	return c.appendRange(dst, u, max(1, uint64(low/size)), uint64((high+size-1)/size))
}
