package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// Prefix is the path below which the API answers.
const Prefix = "/client/v4"

// There is one zone, with all hosts, and one account. Their ids never change.
var (
	Zone    = room.PublicID("vestibule zone")
	Account = room.PublicID("vestibule account")
)

// The codes of errors, as clients of the hosted product know them. Those from 1101 are ours.
const (
	codeAuthentication = 1000
	codeNotFound       = 1001
	codeInvalid        = 1002
	codeFromFile       = 1101
	codeNotNow         = 1102
	codeNoRoute        = 7003
	codeForbidden      = 10000
)

// maxBody bounds a body: the largest waiting page, escaped.
const maxBody = 2 << 20

// Numbers is the state of one room, as the leading global knows it.
type Numbers struct {
	Active   int       // sessions
	Waiting  int       // people who wait
	Longest  float64   // seconds that the last one in line is to wait; below 0 where nobody can tell
	Beyond   int       // sessions beyond T
	Complete bool      // every data centre is heard
	At       time.Time // when they were so

	Release uint64      // the newest release that this global lends, 0 for none
	LetIn   int         // people whom it has let in
	Leader  room.Lender // who leads, and tells this
}

// Options are what a server is made of.
type Options struct {
	Name    string // of this candidate
	Rooms   Rooms
	Origin  string // the site of rooms on hosts of which none is known; "": such rooms are refused
	Audit   *audit.Journal
	Docs    Documents                                                  // for tokens
	Page    func(ctx context.Context, hash string) ([]byte, error)     // a waiting page, nil for none
	Numbers func(ctx context.Context, id room.ID) (n Numbers, ok bool) // ok is false where no global leads
	Fleet   func() api.Fleet                                           // as candidates told it of late
	Count   func(operation string, status int)                         // each request that was answered: see Operations; nil for nobody
	Log     *slog.Logger

	Shared   Shared                // where nodes find the controls
	Controls func() *room.Controls // those that this node goes by, nil for none
	Board    func() *draw.Board    // what is public of draws, nil for nothing
	Draws    func() error          // why no draw can be made now, and no room be random: an edge may not know how; nil where it can
	Time     func() fleettime.Time // fleet time, as far as this node knows it
}

// clock tells the time.
type clock struct {
	time func() fleettime.Time // fleet time, as far as this node knows it
	now  func() time.Time      // the machine's
}

// fleet returns fleet time in Unix milliseconds.
func (c clock) fleet() int64 { return int64(c.time()) }

// Server answers for the API. Each of its parts answers for some operations, and has what these need and nothing else.
// Its methods are safe for concurrent use.
type Server struct {
	*roomService
	*hostService
	*applyService
	*revisionService
	*ruleService
	*eventService
	*controlService
	*releaseService
	*statusService
	*auditService
	*tokenService
	*previews
	zoneService

	out     *envelope
	handler http.Handler
}

var _ api.StrictServerInterface = (*Server)(nil)

// New returns a server.
func New(o Options) *Server {
	rooms := &catalog{store: o.Rooms, page: o.Page, origin: o.Origin}
	at := clock{time: o.Time, now: time.Now}
	said := &controls{clock: at, rooms: rooms, shared: o.Shared, known: o.Controls, journal: o.Audit, log: o.Log}
	draws := &drawRules{at, o.Draws}
	s := &Server{
		roomService:    &roomService{rooms, at, draws},
		hostService:    &hostService{rooms},
		applyService:   &applyService{rooms, draws},
		ruleService:    &ruleService{rooms, at},
		eventService:   &eventService{rooms, at, o.Board, draws},
		controlService: &controlService{rooms, at, said, o.Board},
		releaseService: &releaseService{rooms, at, said, o.Numbers},
		statusService:  &statusService{rooms, at, said, o.Numbers, o.Board, o.Fleet},
		auditService:   &auditService{o.Audit},
		tokenService:   &tokenService{newTokens(o.Docs, o.Audit, o.Log), o.Name},
		previews:       newPreviews(),
		out:            &envelope{o.Count, o.Log},
	}
	s.revisionService = &revisionService{o.Audit, s.roomService, draws}
	mux := http.NewServeMux()
	strict := api.NewStrictHandlerWithOptions(s, []api.StrictMiddlewareFunc{authorize}, api.StrictHTTPServerOptions{
		RequestErrorHandlerFunc:  func(w http.ResponseWriter, _ *http.Request, err error) { s.out.fail(w, badBody(err)) },
		ResponseErrorHandlerFunc: func(w http.ResponseWriter, _ *http.Request, err error) { s.out.fail(w, err) },
	})
	api.HandlerWithOptions(strict, api.StdHTTPServerOptions{
		BaseURL: Prefix, BaseRouter: mux,
		ErrorHandlerFunc: func(w http.ResponseWriter, _ *http.Request, err error) {
			s.out.fail(w, refusef(http.StatusBadRequest, codeInvalid, "%v: invalid data", err))
		},
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.out.fail(w, noRoute(r)) })
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.out.fail(w, refusef(http.StatusForbidden, codeForbidden, "requests of other sites are refused"))
	}))
	outer := http.NewServeMux()
	outer.Handle("GET /preview/{id}", s.previews)
	outer.Handle("/", cross.Handler(s.tokens.authenticate(mux, s.out)))
	s.handler = outer
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.out.serve(w, r, s.handler) }

// envelope is what all answers have in common.
type envelope struct {
	count func(operation string, status int) // nil for nobody
	log   *slog.Logger
}

// serve has handler answer, counts the answer, and refuses what handler would send elsewhere or is too large.
func (e *envelope) serve(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	c := &counted{ResponseWriter: w, status: http.StatusOK, operation: NoOperation}
	if w = c; e.count != nil {
		defer func() { e.count(c.operation, c.status) }()
	}
	r = r.WithContext(context.WithValue(r.Context(), countedKey{}, c))
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if p := r.URL.Path; r.Method == http.MethodConnect || p == "" || p[0] != '/' || p != "/" && path.Clean(p) != p {
		e.fail(w, noRoute(r)) // a mux would send clients elsewhere
		return
	}
	most := int64(maxBody)
	if r.URL.Path == applyPath {
		most = maxApply
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
	handler.ServeHTTP(w, r)
}

// NoOperation is what is counted of requests that are refused before their operation is known,
// or that are none.
const NoOperation = "none"

// counted notes what becomes of a request.
type counted struct {
	http.ResponseWriter
	operation string
	status    int
}

type countedKey struct{}

func (c *counted) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// refusalError is why something was not done.
type refusalError struct {
	Status int
	Notes  []api.Note
}

func (e *refusalError) Error() string {
	if len(e.Notes) == 0 {
		return http.StatusText(e.Status)
	}
	return e.Notes[0].Message
}

func refusef(status, code int, format string, args ...any) *refusalError {
	return &refusalError{status, []api.Note{{Code: code, Message: fmt.Sprintf(format, args...)}}}
}

func invalid(f faults) error {
	return &refusalError{http.StatusBadRequest, f}
}

func noRoute(r *http.Request) *refusalError {
	return refusef(http.StatusNotFound, codeNoRoute, "No route for the URI: %s %s", r.Method, short(r.URL.Path))
}

func badBody(err error) *refusalError {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refusef(http.StatusRequestEntityTooLarge, codeInvalid, "the body must be at most %d bytes: invalid data", large.Limit)
	}
	return refusef(http.StatusBadRequest, codeInvalid, "the body must be JSON: invalid data")
}

// explain makes a refusal of what the store says.
func explain(err error) *refusalError {
	if r, ok := errors.AsType[*refusalError](err); ok {
		return r
	}
	if file, ok := errors.AsType[*roomstore.FromFileError](err); ok { // not 409, which the hosted product's clients try again
		return refusef(http.StatusBadRequest, codeFromFile, "%v", file)
	}
	if large, ok := errors.AsType[*roomstore.TooLargeError](err); ok {
		return refusef(http.StatusBadRequest, codeInvalid, "%v: invalid data", large)
	}
	if errors.Is(err, roomstore.ErrUnknown) {
		return refusef(http.StatusServiceUnavailable, codeNotNow, "%v: look before you try again", roomstore.ErrUnknown)
	}
	return refusef(http.StatusServiceUnavailable, codeNotNow, "the store cannot be used now: nothing was changed")
}

// fail answers with what was refused.
func (e *envelope) fail(w http.ResponseWriter, err error) {
	r := explain(err)
	if r.Status == http.StatusServiceUnavailable {
		e.log.Warn("control: not answered", slog.Any("error", err))
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.Status)
	if err := json.NewEncoder(w).Encode(api.Failure{Errors: r.Notes, Messages: []api.Note{}}); err != nil {
		e.log.Debug("control: answer not written", slog.Any("error", err))
	}
}

// checkZone refuses zones that are not there.
func checkZone(id string) error {
	if id != Zone {
		return refusef(http.StatusNotFound, codeNoRoute, "no such zone: %s; there is %s", short(id), Zone)
	}
	return nil
}

var errNotFound = refusef(http.StatusNotFound, codeNotFound, "Object not found.")
