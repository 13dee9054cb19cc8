package console

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"vestibule/internal/core/history"
	"vestibule/internal/core/room"
	"vestibule/internal/global/control"
)

// API serves operations in the process: a [control.Server].
type API interface {
	Call(ctx context.Context, who control.Principal, remote, method, path string, body, result any) error
	SetLimits(ctx context.Context, who control.Principal, remote string, c control.LimitChange) (
		*control.LimitEffect, error)
	Sessions(ctx context.Context, who control.Principal) ([]control.Session, error)
	EndSession(ctx context.Context, who control.Principal, remote, id, reason string) error
	Turn(w http.ResponseWriter, r *http.Request, who control.Principal, most int64) (
		turned *http.Request, end func(), err error)
}

// Options are the parts of a console.
type Options struct {
	API API
	Who func(*http.Request) (control.Principal, bool) // the operator of a session; false: the request goes to /login
	Log *slog.Logger

	// Once uses up the name of a form. It returns false if it was used before, at any global.
	Once func(ctx context.Context, form string) (bool, error)

	// Live returns the last minute of a room; nil for none.
	Live func(room.ID) (last history.Minute, ok bool)
}

// Console serves /console/ and /static/. It is safe for concurrent use.
type Console struct {
	Options
	screens  map[string]*template.Template
	readings *lru.Cache[string, *shared] // by what is read, and by whom
	streams  chan struct{}               // holds one value per open stream
	stopped  chan struct{}               // closed by Stop
	stop     sync.Once
	handler  http.Handler
}

//go:embed templates/*.html
var templates embed.FS

// policy allows nothing but our own files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// maxForm bounds a form: the largest waiting page, escaped.
const maxForm = 6 << 20

// mostOf bounds the body of a request. Go bounds the parts of a multipart form; other forms are small.
func mostOf(r *http.Request) int64 {
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		return maxForm
	}
	return 64 << 10
}

// New returns a console.
func New(o Options) *Console {
	readings, err := lru.New[string, *shared](maxShared)
	if err != nil {
		panic(err) // for a size below 1
	}
	c := &Console{
		Options: o, screens: map[string]*template.Template{}, readings: readings,
		streams: make(chan struct{}, maxStreams), stopped: make(chan struct{}),
	}
	base := template.Must(template.New("").Funcs(functions).ParseFS(templates, "templates/layout.html",
		"templates/forms.html", "templates/fields.html", "templates/charts.html"))
	for _, name := range screens {
		t := template.Must(base.Clone())
		c.screens[name] = template.Must(t.ParseFS(templates, "templates/"+name+".html"))
	}
	mux := http.NewServeMux()
	for route, serve := range routes {
		mux.Handle(route, c.signedIn(serve))
	}
	mux.HandleFunc("GET /console", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/console/", http.StatusSeeOther)
	})
	mux.Handle("GET /static/", newFiles())
	cross := http.NewCrossOriginProtection()
	c.handler = cross.Handler(mux)
	return c
}

// screens are the templates of pages.
var screens = []string{
	"rooms", "room", "confirm", "failed", "fleet", "rules", "rule", "events", "event", "newevent",
	"page", "changes", "restore", "audit", "access", "history", "webhooks",
}

// one is the address of the page of a room.
const one = "/console/rooms/{id}"

// routes are the handlers for operators by their patterns.
var routes = map[string]func(*request) error{
	"/console/":                           serveNothing,
	"GET /console/{$}":                    serveRooms,
	"GET /console/stream":                 streamRooms,
	"GET /console/fleet":                  serveFleet,
	"GET /console/fleet/stream":           streamFleet,
	"GET /console/audit":                  serveAudit,
	"GET /console/access":                 serveAccess,
	"GET /console/webhooks":               serveWebhooks,
	"POST /console/webhooks":              addWebhook,
	"POST /console/webhooks/{webhook}":    changeWebhook,
	"POST /console/access/tokens":         addToken,
	"POST /console/access/tokens/{token}": revokeToken,

	"POST /console/access/sessions/{session}": endSession,
	"GET " + one:                      serveRoom,
	"GET " + one + "/stream":          streamRoom,
	"GET " + one + "/rules":           serveRules,
	"POST " + one + "/rules":          addRule,
	"GET " + one + "/rules/{rule}":    serveRule,
	"POST " + one + "/rules/{rule}":   changeRule,
	"GET " + one + "/events":          serveEvents,
	"POST " + one + "/events":         addEvent,
	"GET " + one + "/events/new":      serveNewEvent,
	"GET " + one + "/events/{event}":  serveEvent,
	"POST " + one + "/events/{event}": changeEvent,
	"GET " + one + "/page":            servePage,
	"POST " + one + "/page":           changePage,
	"GET " + one + "/changes":         serveChanges,
	"GET " + one + "/history":         serveHistory,
	"GET " + one + "/history.csv":     serveHistoryFile,
	"GET " + one + "/charts":          serveCharts,

	"GET " + one + "/changes/{revision}":  serveRestore,
	"POST " + one + "/changes/{revision}": restoreRevision,
	"GET " + one + "/actions/{name}":      serveConfirm,
	"POST " + one + "/actions/{name}":     act,
}

// ServeHTTP implements [http.Handler].
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	c.handler.ServeHTTP(w, r)
}

// Stop ends all streams, so that a server can shut down.
func (c *Console) Stop() { c.stop.Do(func() { close(c.stopped) }) }

// request is a request of an operator.
type request struct {
	*http.Request
	w   http.ResponseWriter
	c   *Console
	who control.Principal
	now time.Time

	exact   bool     // answers must be current
	expects uint64   // revision that the room of a change must have, 0 for any
	notes   []string // why something on the page is old
}

// signedIn serves requests of operators. Others are sent to the login page.
func (c *Console) signedIn(serve func(*request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, ok := c.Who(r)
		if !ok {
			http.Redirect(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
			return
		}
		q := &request{Request: r, w: w, c: c, who: who, now: time.Now(), exact: r.Method != http.MethodGet}
		var err error
		if q.exact { // pages read by several calls, each in its turn
			var end func()
			if q.Request, end, err = c.API.Turn(w, r, who, mostOf(r)); end != nil {
				defer end()
			}
		}
		if err == nil {
			err = q.takeForm()
		}
		if err == nil {
			err = serve(q)
		}
		if err != nil {
			q.fail(err)
		}
	})
}

// get reads from the API.
func (q *request) get(path string, result any) error {
	return q.call(http.MethodGet, path, nil, result)
}

// call calls an operation of the API for the operator.
func (q *request) call(method, path string, body, result any) error {
	ctx := q.Context()
	if !q.exact {
		ctx = control.Noting(ctx, q.note)
	}
	if q.expects != 0 && method != http.MethodGet {
		ctx = control.Expecting(ctx, q.expects)
	}
	return q.c.API.Call(ctx, q.who, q.RemoteAddr, method, path, body, result)
}

// note adds a note to the page, once.
func (q *request) note(message string) {
	if !slices.Contains(q.notes, message) {
		q.notes = append(q.notes, message)
	}
}

// change is call for a change, with the reason in the form for the audit log.
func (q *request) change(method, path string, body, result any) error {
	if reason := strings.TrimSpace(q.PostFormValue("reason")); reason != "" {
		path += "?" + url.Values{"reason": {reason}}.Encode()
	}
	return q.call(method, path, body, result)
}

// changeAnd makes a change without a result, and leads to another page.
func (q *request) changeAnd(method, path string, body any, next string) error {
	if err := q.change(method, path, body, nil); err != nil {
		return err
	}
	return q.to(next)
}

// may reports whether the operator has a role, or one that includes it.
func (q *request) may(role control.Role) bool { return q.who.Role.May(role) }

// oldWords says that something is old; "" without a note.
func oldWords(notes []string) string {
	if len(notes) == 0 {
		return ""
	}
	return "These numbers are old: " + strings.Join(notes, "; ")
}

// frame is the part that every page has.
type frame struct {
	Title   string
	Current string // current item of the navigation
	Stream  string // address of the event stream of this page, "" for none
	Charts  bool   // the page has charts
	Room    *place // of pages of a room
	Who     control.Principal
	Admin   bool
	Old     string // why something on the page is old, "" for current
	Main    any
}

// place is the room of a page.
type place struct {
	ID, Name string
	Tab      string // current item of the room's navigation
	Editor   bool   // the operator may see changes
}

// show renders a screen.
func (q *request) show(status int, screen string, f *frame) error {
	f.Who, f.Admin, f.Old = q.who, q.may(control.Admin), oldWords(q.notes)
	if f.Room != nil {
		f.Room.Editor = q.may(control.Editor)
	}
	var page bytes.Buffer
	if err := q.c.screens[screen].ExecuteTemplate(&page, "layout", f); err != nil {
		return fmt.Errorf("screen %s: %w", screen, err)
	}
	q.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if err := q.write(status, page.Bytes()); err != nil {
		q.c.Log.Debug("console: page not written", slog.Any("error", err))
	}
	return nil
}

// showIn renders a screen about a room.
func (q *request) showIn(status int, screen, title string, at *place, main any) error {
	return q.show(status, screen, &frame{Title: title, Current: "rooms", Room: at, Main: main})
}

// compressFrom is the size from which answers are compressed.
const compressFrom = 1 << 10

// write writes an answer, compressed if the browser takes it. Its length cannot be used to guess a secret: a secret
// is in
// one answer only.
func (q *request) write(status int, data []byte) error {
	h := q.w.Header()
	h.Set("Vary", "Accept-Encoding")
	if len(data) < compressFrom || !strings.Contains(q.Header.Get("Accept-Encoding"), "gzip") {
		q.w.WriteHeader(status)
		_, err := q.w.Write(data)
		return err
	}
	h.Set("Content-Encoding", "gzip")
	q.w.WriteHeader(status)
	return pack(q.w, data, gzip.BestSpeed)
}

// to sends the operator to another page after a change.
func (q *request) to(path string) error {
	http.Redirect(q.w, q.Request, path, http.StatusSeeOther)
	return nil
}

// notFoundError is the absence of a page.
type notFoundError struct{}

func (notFoundError) Error() string { return "This page does not exist." }

func serveNothing(*request) error { return notFoundError{} }

// failure is the content of the page of an error.
type failure struct {
	Status int
	Notes  []string
}

// failureOf returns the answer to an error.
func failureOf(err error) failure {
	if _, ok := errors.AsType[notFoundError](err); ok {
		return failure{http.StatusNotFound, []string{err.Error()}}
	}
	if fault, ok := errors.AsType[*formError](err); ok {
		return failure{http.StatusUnprocessableEntity, []string{fault.message}}
	}
	refusal, ok := errors.AsType[*control.RefusalError](err)
	if !ok {
		return failure{
			http.StatusInternalServerError,
			[]string{"The page could not be made. The log of this global has the reason."},
		}
	}
	f := failure{Status: refusal.Status}
	if f.Status == http.StatusPreconditionFailed {
		return failure{http.StatusConflict, []string{changedMeanwhile + " Open the page again."}}
	}
	for _, n := range refusal.Notes {
		f.Notes = append(f.Notes, n.Message)
	}
	if len(f.Notes) == 0 {
		f.Notes = []string{http.StatusText(f.Status)}
	}
	return f
}

// fail shows an error as a page.
func (q *request) fail(err error) {
	f := failureOf(err)
	if f.Status >= http.StatusInternalServerError {
		q.c.Log.Warn("console: a page failed", slog.String("path", q.URL.Path), slog.Any("error", err))
	}
	title := http.StatusText(f.Status)
	if err := q.show(f.Status, "failed", &frame{Title: title, Main: f}); err != nil {
		q.c.Log.Error("console: the page of an error failed", slog.Any("error", err))
		http.Error(q.w, title, http.StatusInternalServerError)
	}
}
