package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"time"

	"vestibule/internal/global/control/api"
)

// envelope is common to all answers.
type envelope struct {
	turns *turns
	count func(operation string, status int) // may be nil
	log   *slog.Logger
}

// serve calls handler and counts its answer. It bounds the body, and refuses paths that a mux would redirect.
func (e *envelope) serve(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	c := &counted{ResponseWriter: w, status: http.StatusOK, operation: NoOperation}
	if w = c; e.count != nil {
		defer func() { e.count(c.operation, c.status) }()
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if p := r.URL.Path; r.Method == http.MethodConnect || p == "" || p[0] != '/' || p != "/" && path.Clean(p) != p {
		e.fail(w, noRoute(r)) // a mux would redirect
		return
	}
	most := int64(maxBody)
	if r.URL.Path == applyPath {
		most = maxApply
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
	handler.ServeHTTP(w, r)
}

// NoOperation is the operation of counted requests that are refused before their operation is known, or have none.
const NoOperation = "none"

// counted records the outcome of a request.
type counted struct {
	http.ResponseWriter
	operation string
	status    int
}

func (c *counted) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// answer serves an operation and writes its result.
func (e *envelope) answer(w http.ResponseWriter, r *http.Request, o *operation) {
	c, ok := w.(*counted)
	if ok {
		c.operation = o.id
	}
	result, err := o.call(w, r, e.turns)
	if err != nil {
		e.fail(w, err)
		return
	}
	messages := []api.Note{}
	if d, ok := result.(dated); ok {
		result = d.result
		messages = append(messages, api.Note{
			Code: codeOld, Message: d.old.why + ": this is as of " + d.old.at.UTC().Format(time.RFC3339),
		})
	}
	if t, ok := result.(tagged); ok {
		result = t.result
		messages = append(messages, t.notes...)
		if t.revision != 0 {
			w.Header().Set("ETag", etag(t.revision))
		}
	}
	if table, ok := result.(csvTable); ok {
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		if _, err := w.Write(table); err != nil {
			e.log.Debug("control: answer not written", slog.Any("error", err))
		}
		return
	}
	if s, ok := result.(api.Stats); ok && c != nil {
		if own, ok := c.ResponseWriter.(*recorder); ok && own.stats != nil {
			*own.stats, result = s, nil
		}
	}
	a := map[string]any{"success": true, "errors": []api.Note{}, "messages": messages, "result": result}
	if l, ok := result.(listPage); ok {
		a["result"], a["result_info"] = l.result, l.info
	}
	e.write(w, http.StatusOK, a)
}

// fail answers with an error.
func (e *envelope) fail(w http.ResponseWriter, err error) {
	r := explain(err)
	if r.Status == http.StatusServiceUnavailable {
		e.log.Warn("control: not answered", slog.Any("error", err))
		w.Header().Set("Retry-After", "1")
	}
	if errors.As(err, new(*busyError)) {
		w.Header().Set("Retry-After", "1")
	}
	e.write(w, r.Status, api.Failure{Errors: r.Notes, Messages: []api.Note{}})
}

func (e *envelope) write(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		e.log.Debug("control: answer not written", slog.Any("error", err))
	}
}

// recorder keeps an answer in memory.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
	stats  *api.Stats // takes a history, which is large; nil for none
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) { w.status = status }

func (w *recorder) Write(p []byte) (int, error) { return w.body.Write(p) }
