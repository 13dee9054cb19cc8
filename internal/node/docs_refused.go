package node

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// refusal is why a document is rejected. The set is closed: it labels metrics.
type refusal string

const (
	older   refusal = "older"   // the store was restored from an older state
	missing refusal = "missing" // the store lost it
	differs refusal = "differs" // another document has the version in use
	foreign refusal = "foreign" // keys of another fleet
	invalid refusal = "invalid" // unreadable, or it violates a rule
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
		return fmt.Sprintf("version %d does not continue version %d: the keys were replaced", e.got, e.have)
	case older, invalid:
	}
	return fmt.Sprintf("version %d, have version %d", e.got, e.have)
}

// succeeds decides whether a version may replace the one in use; nil means yes. same reports equal contents.
func succeeds(have, got uint64, same bool) error {
	switch {
	case got < have:
		return &refusedError{older, have, got}
	case got == have && !same:
		return &refusedError{differs, have, got}
	}
	return nil
}

// alarms are a node's alarms about rejected documents.
type alarms struct {
	log     *slog.Logger
	refused *prometheus.CounterVec
	raised  *prometheus.GaugeVec

	mu  sync.Mutex
	why map[string]string // by document: why the stored version is rejected
}

func newAlarms(log *slog.Logger, reg prometheus.Registerer) *alarms {
	a := &alarms{
		log: log, why: map[string]string{},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vestibule_documents_refused_total",
			Help: "Documents from the store that were refused, by document and reason.",
		}, []string{"document", "reason"}),
		raised: Meter{reg}.Gauges("vestibule_document_alarm",
			"1 while what the store holds of the document is refused, 0 while it is what this node uses.", "document",
			followed...),
	}
	reg.MustRegister(a.refused)
	for _, doc := range followed {
		for _, why := range []refusal{older, missing, differs, foreign, invalid} {
			a.refused.WithLabelValues(doc, string(why))
		}
	}
	return a
}

// record records the result of an offer.
func (a *alarms) record(doc string, err error) bool {
	if err == nil {
		a.raise(doc, "")
		return false
	}
	why := invalid
	if r, ok := errors.AsType[*refusedError](err); ok {
		why = r.why
	}
	a.refused.WithLabelValues(doc, string(why)).Inc()
	a.raise(doc, err.Error())
	a.log.Error("document refused, the last good one stays",
		slog.String("document", doc), slog.String("reason", string(why)), slog.Any("error", err))
	return true
}

// raise sets the alarm of a document, or clears it if why is "".
func (a *alarms) raise(doc, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case why != "":
		a.why[doc] = why
		a.raised.WithLabelValues(doc).Set(1)
	case a.why[doc] != "":
		delete(a.why, doc)
		a.raised.WithLabelValues(doc).Set(0)
		a.log.Info("the store holds the document in use again", slog.String("document", doc))
	}
}

// Alarm returns why the stored version of a document is rejected, or "".
func (a *alarms) Alarm(doc string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.why[doc]
}

// Alarms returns all alarms for operators.
func (a *alarms) Alarms() []string {
	var out []string
	for _, doc := range followed {
		if why := a.Alarm(doc); why != "" {
			out = append(out, "the store's "+doc+" are refused: "+why)
		}
	}
	return out
}
