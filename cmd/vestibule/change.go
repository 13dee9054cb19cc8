package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vestibule/internal/global/control/api"
)

// change calls an operation that changes something, and prints its result: a line, or all of it as JSON.
func change[T any](
	c *client, method, target string, body object, line func(T) string, edit ...func(*http.Request),
) error {
	got, err := call[json.RawMessage](c, method, c.because(target), body, edit...)
	if err != nil {
		return err
	}
	if c.output == "json" {
		return c.showJSON(got)
	}
	var result T
	if err := json.Unmarshal(got, &result); err != nil {
		return &unreachableError{err: fmt.Errorf("the result is not one of the API: %w", err)}
	}
	_, err = fmt.Fprintln(c.out, line(result))
	return err
}

// ifMatch makes a request fail if the rooms have changed since an answer with this entity tag.
func ifMatch(tag string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("If-Match", tag) }
}

// because returns a target with the reason of the change.
func (c *client) because(target string) string {
	if c.reason == "" {
		return target
	}
	separator := "?"
	if strings.Contains(target, separator) {
		separator = "&"
	}
	return target + separator + url.Values{"reason": {c.reason}}.Encode()
}

// differences returns the fields that differ between two objects of the API, with both values.
func differences(before, after any) string {
	a, b := map[string]any{}, map[string]any{}
	fieldsOf("", before, a)
	fieldsOf("", after, b)
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	var out []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		switch key {
		case "modified_on", "last_updated", "version", "vestibule.revision", "next_event_start_time",
			"next_event_prequeue_start_time":
			continue // follow from the change
		}
		s := api.AppliedSetting{Key: key, Before: a[key], After: b[key]}
		if text := difference(s); fmt.Sprint(s.Before) != fmt.Sprint(s.After) {
			out = append(out, text)
		}
	}
	if len(out) == 0 {
		return "nothing changes"
	}
	return strings.Join(out, ", ")
}

// fieldsOf adds the fields of an object to a map, those of nested objects with dots.
func fieldsOf(prefix string, v any, to map[string]any) {
	m, ok := v.(map[string]any)
	if !ok {
		data, err := json.Marshal(v)
		if err != nil || json.Unmarshal(data, &m) != nil {
			return
		}
	}
	for key, v := range m {
		if nested, ok := v.(map[string]any); ok {
			fieldsOf(prefix+key+".", nested, to)
		} else {
			to[prefix+key] = v
		}
	}
}

// wallTime returns the instant at which clocks of a zone show a time. As in RFC 5545, 3.3.5, a time that comes twice is
// the first, and one that is left out counts by the offset from before.
func wallTime(wall time.Time, zone *time.Location) time.Time {
	utc := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, time.UTC)
	var at [2]time.Time // by the offset from before, and by the one from after
	for i, day := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := utc.Add(day).In(zone).Zone()
		at[i] = utc.Add(-time.Duration(offset) * time.Second).In(zone)
	}
	shows := func(t time.Time) bool { return t.Hour() == utc.Hour() && t.Minute() == utc.Minute() }
	if !shows(at[0]) && shows(at[1]) {
		return at[1]
	}
	return at[0]
}

// zoneFault returns an error if TZ names no zone: Go then takes UTC.
func zoneFault() error {
	name := strings.TrimPrefix(os.Getenv("TZ"), ":")
	if _, err := time.LoadLocation(name); err != nil && !filepath.IsAbs(name) {
		return fmt.Errorf("TZ is %q, which names no time zone: set one such as Europe/Berlin, or write the time with its "+
			"offset, such as 2026-12-01T09:00:00+01:00", name)
	}
	return nil
}

// parseTime reads a time in RFC 3339, "now", "in 10m", "2h ago", or a time of this machine's zone: "2026-12-01 09:00",
// or 22:30 for the next such time. Durations may be in days, such as 2d, and in words, such as "10 minutes".
func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "now" {
		return now, nil
	}
	ahead, future := strings.CutPrefix(text, "in ")
	back, past := strings.CutSuffix(ahead, " ago")
	if d, err := parseDuration(back); err == nil && d >= 0 && future != past {
		if past {
			d = -d
		}
		return now.Add(d), nil
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		if err := zoneFault(); err != nil {
			return t, err
		}
		on := func(day int) time.Time {
			wall := time.Date(now.Year(), now.Month(), day, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
			return wallTime(wall, now.Location())
		}
		if at := on(now.Day()); at.After(now) {
			return at, nil
		}
		return on(now.Day() + 1), nil
	}
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			return wallTime(t, now.Location()), zoneFault()
		}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t, err = time.Parse("2006-01-02T15:04Z07:00", text)
	}
	if err != nil {
		return t, fmt.Errorf("must be a time such as 2026-11-22T20:15:00Z, \"2026-11-22 20:15\", 22:30, now, in 10m or 2h ago, got %q", text)
	}
	return t, nil
}

// parsePast is parseTime for a time that is over: a duration such as 2h is one ago, and 22:30 the last such time.
func parsePast(text string, now time.Time) (time.Time, error) {
	if _, err := parseDuration(text); err == nil {
		text += " ago"
	}
	at, err := parseTime(text, now)
	if err == nil && at.After(now) && isClock(text) {
		at = at.AddDate(0, 0, -1)
	}
	return at, err
}

// isClock reports whether a time is one of the day, such as 22:30.
func isClock(text string) bool {
	return !strings.ContainsAny(text, "- ") && strings.Contains(text, ":")
}

// units are the words of durations, the longer of two with one beginning first.
var units = strings.NewReplacer(" ", "", "seconds", "s", "second", "s", "secs", "s", "sec", "s", "minutes", "m",
	"minute", "m", "mins", "m", "min", "m", "hours", "h", "hour", "h", "hrs", "h", "hr", "h", "days", "d", "day", "d")

func parseDuration(text string) (time.Duration, error) {
	text = units.Replace(strings.ToLower(text))
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

// confirmation asks before a change that cannot be undone easily.
type confirmation struct{ yes bool }

func (a *confirmation) add(cmd *cobra.Command) { a.addTo(cmd, "delete without a question") }

func (a *confirmation) addTo(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, usage)
}

// largeChange is the factor above which a raise of a limit asks first: a typing error is as large, and visitors that
// have entered stay.
const largeChange = 10

// withoutAsking is the usage of --yes for commands that change limits.
const withoutAsking = "raise limits tenfold without a question"

// limitChange is a limit that a command sets. Before is 0 for unknown.
type limitChange struct {
	key           string
	before, after float64
}

// limitsOf returns the changes of the limits that the body of a request sets.
func limitsOf(b object, total, rate int) (all []limitChange) {
	for key, before := range map[string]int{"total_active_users": total, "new_users_per_minute": rate} {
		var after float64
		data, err := json.Marshal(b[key])
		if b[key] != nil && err == nil && json.Unmarshal(data, &after) == nil {
			all = append(all, limitChange{key, float64(before), after})
		}
	}
	slices.SortFunc(all, func(x, y limitChange) int { return -strings.Compare(x.key, y.key) })
	return all
}

// limits asks before limits of an object rise by a large factor.
func (a *confirmation) limits(c *client, object string, changes []limitChange) error {
	var lines []string
	for _, l := range changes {
		if l.before > 0 && l.after > l.before*largeChange {
			lines = append(lines, fmt.Sprintf("%s: %s from %.0f to %.0f", object, l.key, l.before, l.after))
		}
	}
	if len(lines) == 0 || a.yes {
		return nil
	}
	fmt.Fprintf(c.err, "a large change:\n  %s\n", strings.Join(lines, "\n  "))
	if !isTerminal(c.in) {
		return usageError("yes: is needed for so large a change without a terminal")
	}
	return c.ask("Change?", "nothing was changed")
}

// deletion asks whether to delete rooms and hosts. It names the visitors and events of the rooms, and the hosts that
// are served no longer.
func (a *confirmation) deletion(c *client, rooms, hosts, unserved []string) error {
	states, err := c.status()
	if err != nil && !a.yes {
		return fmt.Errorf("what the deletion affects is not known: %w", err)
	}
	var lines []string
	for _, name := range rooms {
		line := "room " + name
		if i := slices.IndexFunc(states, func(s api.Status) bool { return s.Vestibule.Room == name }); i >= 0 {
			s := &states[i]
			line += ": " + visitors(s)
			switch next := nextEvent(s.Vestibule.Next, time.Now()); {
			case s.Vestibule.Event != "":
				line += fmt.Sprintf("; warning: event %s is going on", s.Vestibule.Event)
			case next != "":
				line += "; warning: event " + next
			}
		}
		lines = append(lines, line)
	}
	for _, name := range hosts {
		lines = append(lines, "host "+name)
	}
	for _, name := range unserved {
		lines = append(lines, fmt.Sprintf("warning: %s is served no longer, its visitors get 421", name))
	}
	return a.delete(c, lines...)
}

// event asks whether to delete an event that is going on.
func (a *confirmation) event(c *client, r *api.Room, e *api.Event) error {
	states, err := c.status(r.Name)
	if err != nil && !a.yes {
		return fmt.Errorf("what the deletion affects is not known: %w", err)
	}
	line := fmt.Sprintf("event %s of room %s, which is going on", e.Name, r.Name)
	if len(states) == 1 {
		line += ": " + visitors(&states[0])
	}
	return a.delete(c, line)
}

// visitors tells how many a room has.
func visitors(s *api.Status) string {
	return fmt.Sprintf("%d inside, %d waiting", s.EstimatedTotalActiveUsers, s.EstimatedQueuedUsers)
}

// delete shows what is to be deleted, and asks.
func (a *confirmation) delete(c *client, lines ...string) error {
	fmt.Fprintf(c.err, "to be deleted:\n  %s\n", strings.Join(lines, "\n  "))
	if a.yes {
		return nil
	}
	if !isTerminal(c.in) {
		return usageError("yes: is needed to delete without a terminal")
	}
	return c.ask("Delete?", "nothing was deleted")
}

// ask asks a question, and returns the error no unless the answer is yes. An interrupt is a no.
func (c *client) ask(question, no string) error {
	fmt.Fprint(c.err, question+" [y/N] ")
	var answer string
	var err error
	read := make(chan struct{})
	go func() {
		defer close(read)
		answer, err = bufio.NewReader(c.in).ReadString('\n')
	}()
	select {
	case <-c.ctx.Done():
		fmt.Fprintln(c.err)
		return errors.New(no)
	case <-read:
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New(no)
	}
	return nil
}
