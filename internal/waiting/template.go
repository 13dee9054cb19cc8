package waiting

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cbroglie/mustache"

	"vestibule/internal/admission"
	"vestibule/internal/fleet"
)

// template is an operator's Mustache page.
type template struct{ t *mustache.Template }

// noPartials refuses partials: a page is one file.
type noPartials struct{}

func (noPartials) Get(name string) (string, error) {
	return "", fmt.Errorf("{{>%s}}: partials are not supported", name)
}

func parseTemplate(text string) (*template, error) {
	t, err := mustache.ParseStringPartials(text, noPartials{})
	if err != nil {
		return nil, err
	}
	if err := checkTags(t.Tags()); err != nil {
		return nil, err
	}
	p := &template{t: t}
	for _, sample := range samples {
		if _, err := p.render(nil, &sample); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// checkTags reports variables that mean nothing: a misspelt one would render as
// nothing on the operator's biggest day.
func checkTags(tags []mustache.Tag) error {
	var errs []error
	for _, tag := range tags {
		switch tag.Type() {
		case mustache.Partial:
			errs = append(errs, fmt.Errorf("{{>%s}}: partials are not supported", tag.Name()))
			continue
		case mustache.Section, mustache.InvertedSection:
			errs = append(errs, checkTags(tag.Tags()))
		case mustache.Variable, mustache.Invalid:
		}
		if _, ok := values(&samples[0])[tag.Name()]; !ok && tag.Name() != "." {
			errs = append(errs, fmt.Errorf("{{%s}}: no such variable", tag.Name()))
		}
	}
	return errors.Join(errs...)
}

// samples are visitors for whom a page must render.
var samples = []Visitor{
	{Now: fleet.Time(1622133200_000), Grace: 5 * time.Minute, Decision: admission.Decision{Ahead: 60, Waiting: 112, Wait: 2 * time.Minute, Known: true, Retry: 20 * time.Second}},
	{Now: fleet.Time(1622133200_000), Decision: admission.Decision{Reason: admission.Isolated}},
}

func (p *template) render(dst []byte, v *Visitor) ([]byte, error) {
	b := bytes.NewBuffer(dst)
	if err := p.t.FRender(b, values(v)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Variables lists the names that a custom page may use.
func Variables() []string {
	var names []string
	for name := range values(&samples[0]) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// values returns the variables of a visitor: Cloudflare's names with their
// meanings, and ours.
func values(v *Visitor) map[string]any {
	d := &v.Decision
	minutes := int64((d.Wait + time.Minute - 1) / time.Minute)
	known := d.Known && !paused(v)
	formatted := "unavailable"
	if known {
		formatted = string(appendDuration(nil, max(1, time.Duration(minutes))*time.Minute))
	} else {
		minutes = 0
	}
	method := v.Method
	if method == "" {
		method = "fifo"
	}
	return map[string]any{
		"inWaitingRoom": true, "waitTimeKnown": known, "waitTime": minutes,
		"waitTimeHours": minutes / 60, "waitTimeHourMinutes": minutes % 60,
		"waitTime25Percentile": 0, "waitTime50Percentile": 0, "waitTime75Percentile": 0,
		"waitTimeFormatted": formatted,
		"queueIsFull":       known && d.Wait >= 24*time.Hour, "queueAll": false,
		"lastUpdated":            v.Now.Std().Format(time.RFC3339),
		"refreshIntervalSeconds": int64(d.Retry / time.Second),
		"queueingMethod":         method, "isFIFOQueue": method == "fifo", "isRandomQueue": false,
		"isPassthroughQueue": false, "isRejectQueue": false,
		"isEventActive": false, "isEventPrequeueing": false,
		"timeUntilEventStart": 0, "timeUntilEventStartFormatted": "unavailable",
		"timeUntilEventEnd": 0, "timeUntilEventEndFormatted": "unavailable",
		"shuffleAtEventStart": false, "turnstile": "", "infiniteQueue": false,

		"peopleAhead": d.Ahead, "peopleWaiting": d.Waiting,
		"joinedAt": d.Ticket.Joined.Std().Format(time.RFC3339),
	}
}
