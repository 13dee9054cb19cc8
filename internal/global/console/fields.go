package console

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"vestibule/internal/global/control"
	"vestibule/internal/global/control/api"
)

// field is a field of a form that changes something in the API. Its name is that of the API.
type field struct {
	Name, Label, Hint string
	Kind              string // text, number, time, area, list, check, or choice
	Value             string
	Choices           []choice
	Required          bool
	Fault             string // of the values sent
	Max               int    // length of a text, 0 for none
}

// choice is one value of a field.
type choice struct{ Value, Label string }

// Checked reports whether a check box is set.
func (f *field) Checked() bool { return f.Value == "true" }

// Has reports whether a list has a value.
func (f *field) Has(value string) bool { return slices.Contains(f.list(), value) }

func (f *field) list() []string {
	return strings.FieldsFunc(f.Value, func(r rune) bool { return r == ',' || r == ' ' })
}

// formView is a form with its faults.
type formView struct {
	Action string // address
	Prefix string // of the IDs of fields, if a page has several forms
	Verb   string
	Fields []field
	Fault  string // of the whole
	Seen   string // digest of the values that the form began with, "" for a form of something new
	Cancel string // address, "" for none
}

// editing makes v the form of something that is there: with the values that it has.
func (v *formView) editing() *formView {
	shown := []any{}
	for _, f := range v.Fields {
		shown = append(shown, f.Name, f.Value)
	}
	v.Seen = seenOf(shown...)
	return v
}

// outdated reports whether a form was sent that began with other values than v. The values that differ from v then
// stand beside those that were sent.
func (v *formView) outdated(form url.Values) bool {
	if v.Seen == "" || v.Seen == form.Get("seen") {
		return false
	}
	now := slices.Clone(v.Fields)
	v.take(form)
	for i := range v.Fields {
		if f := &v.Fields[i]; f.Value != now[i].Value {
			f.Fault = "Now it is " + now[i].words() + ". Yours is kept here."
		}
	}
	v.Fault = changedMeanwhile + " Your version stands beside the one that is in force: if you save it, it replaces that one."
	return true
}

// words returns the value of a field for people.
func (f *field) words() string {
	switch {
	case f.Kind == "check" && f.Checked():
		return "on"
	case f.Kind == "check":
		return "off"
	case f.Kind == "choice":
		if i := slices.IndexFunc(f.Choices, func(c choice) bool { return c.Value == f.Value }); i >= 0 {
			return "“" + f.Choices[i].Label + "”"
		}
	case f.Value == "":
		return "empty"
	case f.Kind == "time":
		if at, err := time.Parse(timeForm, f.Value); err == nil {
			return at.Format(stampForm)
		}
	}
	return "“" + f.Value + "”"
}

// take reads the values that a browser sent. A check box that is not sent is off.
func (v *formView) take(form url.Values) {
	for i := range v.Fields {
		f := &v.Fields[i]
		f.Value = strings.TrimSpace(strings.Join(form[f.Name], ",")) // a list may come in parts
		if f.Kind == "check" && f.Value == "" {
			f.Value = "false"
		}
	}
}

// timeForm is the value of an input of kind datetime-local, here in UTC.
const timeForm = "2006-01-02T15:04:05"

// stampForm is a time in text. The script adds the zone of the browser to each "UTC" of a page.
const stampForm = "2 Jan 2006, 15:04:05 UTC"

// body returns the fields as a body of the API. An empty field is null. Faults are recorded in their fields.
func (v *formView) body() (body map[string]any, ok bool) {
	body, ok = map[string]any{}, true
	for i := range v.Fields {
		f := &v.Fields[i]
		value, fault := f.read()
		if f.Fault = fault; fault != "" {
			ok = false
		}
		body[f.Name] = value
	}
	return body, ok
}

func (f *field) read() (value any, fault string) {
	switch {
	case f.Value == "" && f.Required:
		return nil, "This is needed."
	case f.Value == "" && f.Kind != "list":
		return nil, ""
	}
	switch f.Kind {
	case "number":
		n, err := strconv.Atoi(strings.ReplaceAll(f.Value, ",", ""))
		if err != nil {
			return nil, "This must be a number."
		}
		return n, ""
	case "list":
		return append([]string{}, f.list()...), "" // never null
	case "check":
		return f.Value == "true", ""
	case "time":
		for _, form := range []string{timeForm, "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
			if at, err := time.Parse(form, f.Value); err == nil {
				return at.UTC(), ""
			}
		}
		return nil, "This must be a time in UTC such as 2026-11-22T20:15."
	case "choice":
		if f.Value == "true" || f.Value == "false" {
			return f.Value == "true", ""
		}
	}
	return f.Value, ""
}

// blame distributes the notes of a refusal among the fields. It returns an error that no form can show.
func (v *formView) blame(err error) error {
	refusal, ok := errors.AsType[*control.RefusalError](err)
	if !ok || refusal.Status != http.StatusBadRequest {
		return err
	}
	var rest []string
	for _, n := range refusal.Notes {
		text := strings.TrimSuffix(n.Message, ": invalid data")
		if f := v.field(&n); f != nil && f.Fault == "" {
			f.Fault = text
			continue
		}
		rest = append(rest, text)
	}
	v.Fault = strings.Join(rest, "; ")
	return nil
}

// field finds the field of a pointer into the body, nil for none.
func (v *formView) field(n *api.Note) *field {
	if n.Source == nil {
		return nil
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(n.Source.Pointer, "/"), "/")
	for i := range v.Fields {
		if v.Fields[i].Name == name {
			return &v.Fields[i]
		}
	}
	return nil
}

// send sends the form of a request to the API, with fixed fields, and takes the result, if it is not nil. The form has
// its faults afterwards.
func (q *request) send(form *formView, method, path string, fixed map[string]any, result any) error {
	form.take(q.PostForm)
	body, ok := form.body()
	if !ok {
		return nil
	}
	maps.Copy(body, fixed)
	if err := q.change(method, path, body, result); err != nil {
		return form.blame(err)
	}
	return nil
}

// submit sends the form of a request, and then leads to another page, or shows the form again with its faults. A form of
// something that is there begins with the values that it has now.
func (q *request) submit(
	form *formView, method, path string, fixed map[string]any, again func(*request, int, *formView) error, next string,
) error {
	if form.outdated(q.PostForm) {
		return again(q, http.StatusConflict, form)
	}
	if err := q.send(form, method, path, fixed, nil); err != nil {
		return err
	}
	if form.faulty() {
		return again(q, http.StatusUnprocessableEntity, form)
	}
	return q.to(next)
}

// faulty reports whether the form has a fault.
func (v *formView) faulty() bool {
	return v.Fault != "" || slices.ContainsFunc(v.Fields, func(f field) bool { return f.Fault != "" })
}
