package node

import (
	"errors"
	"fmt"
	"log/slog"
)

// refusal is why a document is refused. The set is closed: it labels metrics.
type refusal string

const (
	older   refusal = "older"   // the store came back older than what was seen
	missing refusal = "missing" // it came back emptier
	differs refusal = "differs" // it has another document of the version in use
	foreign refusal = "foreign" // keys that were begun anew
	invalid refusal = "invalid" // what cannot be read, or breaks a rule
)

type refusedError struct {
	why       refusal
	have, got uint64
}

func (e *refusedError) Error() string {
	switch e.why {
	case missing:
		return fmt.Sprintf("missing, have version %d", e.have)
	case differs:
		return fmt.Sprintf("version %d with another content", e.got)
	case foreign:
		return fmt.Sprintf("version %d does not continue version %d: the keys were begun anew", e.got, e.have)
	case older, invalid:
	}
	return fmt.Sprintf("version %d, have version %d", e.got, e.have)
}

// succeeds decides about a version where another one is in use; nil says that it
// is taken. same tells that the contents are equal.
func succeeds(have, got uint64, same bool) error {
	switch {
	case got < have:
		return &refusedError{older, have, got}
	case got == have && !same:
		return &refusedError{differs, have, got}
	}
	return nil
}

// refuses notes what became of an offer.
func (f *Fleet) refuses(doc string, err error) bool {
	if err == nil {
		f.raise(doc, "")
		return false
	}
	why := invalid
	if r, ok := errors.AsType[*refusedError](err); ok {
		why = r.why
	}
	f.refused.WithLabelValues(doc, string(why)).Inc()
	f.raise(doc, err.Error())
	f.log.Error("document refused, the last good one stays", slog.String("document", doc), slog.String("reason", string(why)), slog.Any("error", err))
	return true
}

// raise sets the alarm of a document, or ends it where there is nothing to say.
func (f *Fleet) raise(doc, why string) {
	f.alarmMu.Lock()
	defer f.alarmMu.Unlock()
	switch {
	case why != "":
		f.alarms[doc] = why
		f.alarm.WithLabelValues(doc).Set(1)
	case f.alarms[doc] != "":
		delete(f.alarms, doc)
		f.alarm.WithLabelValues(doc).Set(0)
		f.log.Info("the store holds again what is in use", slog.String("document", doc))
	}
}

// Alarm returns why what the store holds of a document is refused, "" where it
// is not.
func (f *Fleet) Alarm(doc string) string {
	f.alarmMu.Lock()
	defer f.alarmMu.Unlock()
	return f.alarms[doc]
}

// Alarms returns all alarms, for people.
func (f *Fleet) Alarms() []string {
	var out []string
	for _, doc := range followed {
		if why := f.Alarm(doc); why != "" {
			out = append(out, "the store's "+doc+" are refused: "+why)
		}
	}
	return out
}
