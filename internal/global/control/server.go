package control

import (
	"net/http"
	"strings"
)

// Server serves the API. Its methods are safe for concurrent use.
type Server struct {
	*tokenService // First, Good and Make are for the owner of the process
	limits        *limitService
	sessions      *sessionService
	out           *envelope
	handler       http.Handler
	operations    http.Handler // for a principal in the context
}

// New returns a server.
func New(o Options) *Server {
	return serve(newServices(o), &envelope{newTurns(), o.Count, o.Log})
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
	return &Server{s.tokens, s.limits, s.sessions, out, outer, mux}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.out.serve(w, r, s.handler) }
