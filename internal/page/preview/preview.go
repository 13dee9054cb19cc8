// Package preview shows a waiting page before visitors see it: in every state and language, built-in or custom. It
// reads the file on every request, so that it can be edited beside a browser. Faults are shown instead of the page,
// with the error texts of global.
package preview

import (
	crand "crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"

	"vestibule/internal/core/room"
	"vestibule/internal/page"
	"vestibule/internal/page/checkpage"
)

// Load returns the page in a file, or the built-in one for "". The error lists everything wrong with it, doubts are
// probable mistakes.
func Load(file string) (shown *page.Page, doubts []string, err error) {
	if file == "" {
		return page.Builtin(), nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	if doubts, err = checkpage.Check(text); err != nil {
		return nil, nil, err
	}
	shown, err = page.Custom(text)
	return shown, doubts, err
}

// Handler serves the previews of a file. It is safe for concurrent use.
type Handler struct {
	File    string // "" for the built-in page
	Sources string // the room's waiting_page_sources
	Log     *slog.Logger
	mux     *http.ServeMux
}

// New returns a handler with the previews of a file, "" for the built-in page; sources is the setting
// waiting_page_sources.
func New(file, sources string, log *slog.Logger) *Handler {
	h := &Handler{File: file, Sources: sources, Log: log, mux: http.NewServeMux()}
	h.mux.HandleFunc("GET /{$}", h.index)
	h.mux.HandleFunc("GET /{state}", func(w http.ResponseWriter, r *http.Request) { h.page(w, r, r.PathValue("state")) })
	h.mux.HandleFunc("GET /.well-known/vestibule/events", h.listen)
	h.mux.HandleFunc("GET /.well-known/vestibule/language", h.languages)
	h.mux.HandleFunc("GET "+page.ScriptPath(), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		s, _ := page.ScriptAt(r.URL.Path)
		if _, err := io.WriteString(w, s.Text); err != nil {
			h.Log.Debug("script not written", slog.Any("error", err))
		}
	})
	h.mux.HandleFunc("POST /.well-known/vestibule/away",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	h.mux.HandleFunc("POST /.well-known/vestibule/leave",
		func(w http.ResponseWriter, r *http.Request) { h.page(w, r, "left") })
	return h
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	h.mux.ServeHTTP(w, r)
}

var index = template.Must(template.New("index").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>Preview of the waiting page</title>
<style>body{font:1rem/1.6 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}h1{font-size:1.5rem}li{margin:.2rem 0}.l{font-size:.9rem}pre{white-space:pre-wrap;border-left:4px solid #c00;padding-left:1rem}</style>
<h1>Preview of {{with .File}}{{.}}{{else}}the built-in waiting page{{end}}</h1>
{{with .Fault}}<p>It cannot be used:</p><pre>{{.}}</pre>{{else}}{{with $.Doubts}}<p>It can be used, but:</p><pre>{{range .}}{{.}}
{{end}}</pre>{{end}}<ul>
{{range $.States}}{{$state := .}}<li><a href="/{{.}}">{{.}}</a> <span class="l">{{range $.Languages}}<a href="/{{$state}}?lang={{.}}" hreflang="{{.}}">{{.}}</a> {{end}}</span></li>
{{end}}</ul>{{end}}
</html>
`))

// listen answers a page's event stream: a preview has no events, and the page should retry tomorrow.
func (h *Handler) listen(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	if _, err := io.WriteString(w, "retry: 86400000\n\n"); err != nil {
		h.Log.Debug("stream not written", slog.Any("error", err))
	}
}

// languages shows the list of languages, and then a page in the chosen one.
func (h *Handler) languages(w http.ResponseWriter, r *http.Request) {
	if to := r.FormValue("to"); to != "" {
		http.Redirect(w, r, "/queued?lang="+page.LangOf(to).Code(), http.StatusSeeOther)
		return
	}
	shown, _, err := Load(h.File)
	if err != nil || shown.IsCustom() {
		shown = page.Builtin()
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", shown.LanguagesPolicy())
	if _, err := w.Write(shown.AppendLanguages(nil, page.English, r.FormValue("room"), "/queued")); err != nil {
		h.Log.Debug("preview not written", slog.Any("error", err))
	}
}

func (h *Handler) index(w http.ResponseWriter, _ *http.Request) {
	var states []string
	for _, s := range page.Samples {
		states = append(states, s.Name)
	}
	fault := ""
	_, doubts, err := Load(h.File)
	if err != nil {
		fault = err.Error()
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	err = index.Execute(w, map[string]any{
		"File": h.File, "Fault": fault, "Doubts": doubts, "States": states, "Languages": room.Languages,
	})
	if err != nil {
		h.Log.Debug("index not written", slog.Any("error", err))
	}
}

func (h *Handler) page(w http.ResponseWriter, r *http.Request, state string) {
	v, err := h.visitor(state, r.FormValue("lang"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	shown, _, err := Load(h.File)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	head := w.Header()
	if n := v.Retry(); n > 0 {
		head.Set("Retry-After", strconv.FormatInt(n, 10))
	}
	var body []byte
	if page.PrefersJSON(r.Header["Accept"]) {
		head.Set("Content-Type", "application/json")
		body = page.AppendJSON(nil, v)
	} else {
		if shown.IsCustom() {
			var b [16]byte
			crand.Read(b[:]) // documented never to fail
			v.Nonce = base64.RawURLEncoding.EncodeToString(b[:])
		}
		v.Again = page.Again(r.URL.RequestURI())
		head.Set("Content-Type", "text/html; charset=utf-8")
		head.Set("Content-Security-Policy", shown.Policy(v.Nonce, h.Sources))
		body = shown.Render(nil, v)
	}
	if _, err := w.Write(body); err != nil {
		h.Log.Debug("preview not written", slog.Any("error", err))
	}
}

// visitor returns the sample visitor in this state with this language.
func (h *Handler) visitor(state, lang string) (*page.Visitor, error) {
	for _, s := range page.Samples {
		if s.Name != state {
			continue
		}
		v := s.Visitor
		v.Lang = page.LangOf(lang)
		if lang != "" && v.Lang.Code() != lang {
			return nil, fmt.Errorf("no language %q", lang)
		}
		return &v, nil
	}
	return nil, errors.New("no such state")
}
