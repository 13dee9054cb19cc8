package control

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"vestibule/internal/core/draw"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/audit"
	"vestibule/internal/global/control/api"
	"vestibule/internal/global/members"
	"vestibule/internal/global/notices"
	"vestibule/internal/global/roomstore"
)

// Options are the parts of a server.
type Options struct {
	Name    string // of this candidate
	Rooms   *roomstore.Store
	Origin  string   // default origin of hosts without a known one; "": such rooms are refused
	Origins []string // loopback origins that editors may set, besides Origin and those in use
	Audit   *audit.Journal
	Docs    wire.DocumentStore                                         // for tokens and webhooks
	Page    func(hash string) []byte                                   // a waiting page that is known here, nil for none
	Numbers func(ctx context.Context, id room.ID) (n Numbers, ok bool) // ok is false without a leading global
	History History                                                    // nil for none
	Fleet   func() api.Fleet                                           // as the candidates last reported
	Count   func(operation string, status int)                         // called for each answered request; may be nil
	Log     *slog.Logger

	// Link makes a one-time link to the console for a token, and returns its path and the end of its validity; nil for
	// none.
	Link func(ctx context.Context, token string) (path string, expires time.Time, err error)

	// Forget orders the leading regional of a data centre to forget an edge.
	Forget func(ctx context.Context, dc string, ask wire.ForgetAsk) (wire.ForgetAnswer, error)

	// Find returns the sessions of a data centre with a reference number.
	Find func(ctx context.Context, dc, number string) ([]wire.FoundSession, error)

	// Post posts a notice to a webhook, as a test.
	Post func(context.Context, time.Time, *notices.Webhook, *notices.Notice) notices.Result

	// Refuses returns why notices cannot be posted to a URL, nil if they can.
	Refuses func(url string) error

	Shared   wire.DocumentStore    // the document of the controls that nodes read
	Controls func() *room.Controls // those that this node applies, nil for none
	Board    func() *draw.Board    // public state of draws, nil for none
	Time     func() fleettime.Time // fleet time as this node knows it
}

// Server serves the API. Its methods are safe for concurrent use.
type Server struct {
	Options
	auditor
	tokens     *tokens
	members    members.List
	hooks      notices.Webhooks
	previews   *previews
	handler    http.Handler
	serveKnown http.Handler // for a principal in the context
	outage     *outage
	now        func() time.Time // the machine's

	mu    sync.Mutex
	state *roomstore.State
	names map[string]string // of the rooms of state, by ID
}

// fleet returns fleet time in Unix milliseconds.
func (s *Server) fleet() int64 { return int64(s.Time()) }
