package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/stop"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/members"
	"vestibule/internal/global/notices"
	"vestibule/internal/global/roomstore"
)

// Prefix is the path prefix of the API.
const Prefix = "/client/v4"

// There is one zone, with all hosts, and one account. Their ids never change.
var (
	Zone    = room.PublicID("vestibule zone")
	Account = room.PublicID("vestibule account")
)

// The error codes of the hosted product. Those from 1101 on are ours.
const (
	codeAuthentication = 1000
	codeNotFound       = 1001
	codeInvalid        = 1002
	codeFromFile       = 1101
	codeNotNow         = 1102
	codeChanged        = 1103
	codeOld            = 1104
	codeKept           = 1105
	codeNoRoute        = 7003
	codeForbidden      = 10000
)

// maxBody bounds a body: the largest waiting page, escaped.
const maxBody = 2 << 20

// Numbers is the state of one room according to the leading global.
type Numbers struct {
	Active    int       // sessions
	Waiting   int       // waiting visitors
	Longest   float64   // wait in seconds of the last visitor in the queue; negative if unknown
	PerMinute float64   // recent admissions per minute
	Beyond    int       // sessions beyond T
	Complete  bool      // every data centre is heard
	At        time.Time // when the numbers were read

	Subscribed int // waiting visitors that will be notified

	Stops []stop.Stop // why nobody enters, by data centre, or in the whole room

	Release uint64      // newest release lent by the leader, 0 for none
	LetIn   int         // visitors admitted by the release
	Leader  room.Lender // the leader
}

// Options are the parts of a server.
type Options struct {
	Name    string // of this candidate
	Rooms   Rooms
	Origin  string   // default origin of hosts without a known one; "": such rooms are refused
	Origins []string // loopback origins that editors may set, besides Origin and those in use
	Audit   *audit.Journal
	Docs    wire.DocumentStore                                         // for tokens and webhooks
	Page    func(ctx context.Context, hash string) ([]byte, error)     // a waiting page, nil for none
	Numbers func(ctx context.Context, id room.ID) (n Numbers, ok bool) // ok is false without a leading global
	Link    LinkFunc                                                   // nil for none
	History History                                                    // nil for none
	Fleet   func() api.Fleet                                           // as the candidates last reported
	Forget  ForgetFunc
	Find    FindFunc
	Count   func(operation string, status int) // called for each answered request; may be nil
	Log     *slog.Logger

	// Post posts a notice to a webhook, as a test.
	Post func(context.Context, time.Time, *notices.Webhook, *notices.Notice) notices.Result

	Shared   Shared                // the document of the controls that nodes read
	Controls func() *room.Controls // those that this node applies, nil for none
	Board    func() *draw.Board    // public state of draws, nil for none
	Time     func() fleettime.Time // fleet time as this node knows it
}

// LinkFunc makes a one-time link to the console for a token, and returns its path and the end of its validity.
type LinkFunc func(ctx context.Context, token string) (path string, expires time.Time, err error)

// ForgetFunc orders the leading regional of a data centre to forget an edge.
type ForgetFunc func(ctx context.Context, dc string, ask wire.ForgetAsk) (wire.ForgetAnswer, error)

// FindFunc returns the sessions of a data centre with a reference number.
type FindFunc func(ctx context.Context, dc, number string) ([]wire.FoundSession, error)

// clock holds both sources of time.
type clock struct {
	time func() fleettime.Time // fleet time as this node knows it
	now  func() time.Time      // the machine's
}

// fleet returns fleet time in Unix milliseconds.
func (c clock) fleet() int64 { return int64(c.time()) }

// Server serves the API. Its methods are safe for concurrent use.
type Server struct {
	*tokenService // First, Good and Make are for the owner of the process
	out           *envelope
	handler       http.Handler
	operations    http.Handler // for a principal in the context
}

// services serve the operations. Each has only the fields it needs.
type services struct {
	rooms     *roomService
	hosts     *hostService
	files     *applyService
	revisions *revisionService
	rules     *ruleService
	events    *eventService
	controls  *controlService
	releases  *releaseService
	status    *statusService
	stats     *statsService
	members   *memberService
	audit     *auditService
	tokens    *tokenService
	webhooks  *webhookService
	previews  *previews
	zone      *zoneService
	visitors  *visitorService
}

// New returns a server.
func New(o Options) *Server {
	return serve(newServices(o), &envelope{o.Count, o.Log})
}

func newServices(o Options) *services {
	at := clock{time: o.Time, now: time.Now}
	down := &outage{now: time.Now}
	rooms := &catalog{store: guardedRooms{o.Rooms, append(slices.Clone(o.Origins), o.Origin)}, page: o.Page, origin: o.Origin, outage: down}
	said := &controls{clock: at, rooms: rooms, shared: o.Shared, known: o.Controls, journal: o.Audit, log: o.Log}
	draws := &drawRules{at}
	room := &roomService{rooms, at}
	log := &auditService{rooms, o.Audit}
	return &services{
		rooms:     room,
		hosts:     &hostService{rooms},
		files:     &applyService{rooms, draws},
		revisions: &revisionService{log, room, draws},
		rules:     &ruleService{rooms, at},
		events:    &eventService{rooms, at, o.Board, draws},
		controls:  &controlService{rooms, at, said, o.Board},
		releases:  &releaseService{rooms, at, said, o.Numbers},
		status:    &statusService{rooms, at, said, o.Numbers, o.Board, o.Fleet},
		stats:     &statsService{rooms, at, o.History, log, o.Log},
		members:   &memberService{at, &members.List{Docs: o.Shared}, o.Forget, o.Audit, o.Log},
		audit:     log,
		tokens:    &tokenService{newTokens(o.Docs, o.Audit, o.Log, down), o.Name, rooms, o.Link},
		webhooks:  &webhookService{rooms, at, notices.Webhooks{Docs: o.Docs}, o.Audit, o.Post, o.Log},
		previews:  newPreviews(),
		zone:      &zoneService{at, o.Docs, o.Audit, o.Log},
		visitors:  &visitorService{rooms, o.Fleet, o.Find},
	}
}

// serve returns a server of services.
func serve(s *services, out *envelope) *Server {
	mux := http.NewServeMux()
	for _, o := range s.operations() {
		method, path, _ := strings.Cut(o.route, " ")
		mux.HandleFunc(method+" "+Prefix+path, func(w http.ResponseWriter, r *http.Request) { out.answer(w, r, &o) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { out.fail(w, noRoute(r)) })
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		out.fail(w, refusef(http.StatusForbidden, codeForbidden, "cross-origin requests are refused"))
	}))
	outer := http.NewServeMux()
	outer.Handle("GET /preview/{id}", s.previews)
	outer.Handle("/", cross.Handler(s.tokens.tokens.authenticate(mux, out)))
	return &Server{s.tokens, out, outer, mux}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.out.serve(w, r, s.handler) }

// envelope is common to all answers.
type envelope struct {
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

// RefusalError says why an operation was refused. Notes name every fault.
type RefusalError struct {
	Status int
	Notes  []api.Note
}

func (e *RefusalError) Error() string {
	if len(e.Notes) == 0 {
		return http.StatusText(e.Status)
	}
	return e.Notes[0].Message
}

func refusef(status, code int, format string, args ...any) *RefusalError {
	return &RefusalError{status, []api.Note{{Code: code, Message: fmt.Sprintf(format, args...)}}}
}

func invalid(f faults) error {
	return &RefusalError{http.StatusBadRequest, f}
}

func noRoute(r *http.Request) *RefusalError {
	return refusef(http.StatusNotFound, codeNoRoute, "No route for the URI: %s %s", r.Method, short(r.URL.Path))
}

func badBody(err error) *RefusalError {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refusef(http.StatusRequestEntityTooLarge, codeInvalid, "the body must be at most %d bytes: invalid data",
			large.Limit)
	}
	return refusef(http.StatusBadRequest, codeInvalid, "the body must be one JSON value: %v: invalid data", err)
}

// at adds the place of a fault of JSON.
func at(data []byte, err error) error {
	fault, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err
	}
	before := data[:max(0, min(int(fault.Offset)-1, len(data)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return fmt.Errorf("line %d, column %d: %w", line, column, err)
}

// explain returns the refusal for an error of the store.
func explain(err error) *RefusalError {
	if r, ok := errors.AsType[*RefusalError](err); ok {
		return r
	}
	if file, ok := errors.AsType[*roomstore.FromFileError](err); ok { // not 409: the hosted product's clients would retry
		return refusef(http.StatusBadRequest, codeFromFile, "%v", file)
	}
	if large, ok := errors.AsType[*roomstore.TooLargeError](err); ok {
		return refusef(http.StatusBadRequest, codeInvalid, "%v: invalid data", large)
	}
	if errors.Is(err, roomstore.ErrUnknown) {
		return refusef(http.StatusServiceUnavailable, codeNotNow, "%v: look before you try again", roomstore.ErrUnknown)
	}
	if errors.Is(err, roomstore.ErrRestoring) {
		return refusef(http.StatusServiceUnavailable, codeNotNow, "%v", roomstore.ErrRestoring)
	}
	return refusef(http.StatusServiceUnavailable, codeNotNow, "the store cannot be used now: nothing was changed")
}

// answer serves an operation and writes its result.
func (e *envelope) answer(w http.ResponseWriter, r *http.Request, o *operation) {
	c, ok := w.(*counted)
	if ok {
		c.operation = o.id
	}
	result, err := o.call(r)
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
	e.write(w, r.Status, api.Failure{Errors: r.Notes, Messages: []api.Note{}})
}

func (e *envelope) write(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		e.log.Debug("control: answer not written", slog.Any("error", err))
	}
}

var errNotFound = refusef(http.StatusNotFound, codeNotFound, "Object not found.")
