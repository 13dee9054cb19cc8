package global

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/wire"
	"vestibule/internal/global/access"
	"vestibule/internal/global/console"
	"vestibule/internal/global/control"
	"vestibule/internal/node"
)

// Control serves the API and the console of a candidate.
type Control struct {
	API      *control.Server
	s        *Server
	access   *access.Access
	handler  http.Handler
	end      func() // ends the streams of the console
	listener net.Listener
	scheme   string
	file     string        // the first token is written here
	first    chan struct{} // closed once there is a token
}

// TokenFile is the name of the file with the first token.
const TokenFile = "control.token"

func newControl(s *Server, docs wire.DocumentStore) (*Control, error) {
	cfg := s.Config.Control
	provider, err := cfg.OIDC.config(cfg.URL)
	if err != nil {
		return nil, err
	}
	c := &Control{
		s: s, scheme: "http", file: filepath.Join(s.Config.DataDir, TokenFile), first: make(chan struct{}),
	}
	c.access = access.New(access.Options{
		Docs: docs, OIDC: provider, Log: s.log, HTTPS: strings.HasPrefix(cfg.URL, "https://"),
		Refused: func(ctx context.Context, who, from, why string) { c.API.RefusedLogin(ctx, who, from, why) },
		Token: func(ctx context.Context, id string) (control.Principal, bool, error) {
			return c.API.Principal(ctx, id)
		},
	})
	options := control.Options{
		Name: s.Config.Name, Rooms: s.rooms, Origin: cfg.Origin, Origins: cfg.Origins, Audit: s.Audit, Docs: docs,
		Ring: s.fleet.Ring, Rotation: s.Config.KeyRotation, Link: c.access.Link, Sessions: c.access, Page: s.fleet.Page, Numbers: s.Numbers, Fleet: s.candidates.view, OwnSites: s.ownSites,
		Forget: s.Orders.Forget, Find: s.Orders.Find, Count: s.metrics.answered, Log: s.log, Shared: s.Docs,
		Controls: s.fleet.Controls, Board: s.fleet.Board, Time: s.time, Post: s.poster.Post, Refuses: s.poster.Refuses,
	}
	if s.history != nil {
		options.History = s.history
	}
	c.API = control.New(options)
	var secure *tls.Config
	if cfg.Cert != "" {
		cert, err := node.NewCertificates([]string{cfg.Cert}, []string{cfg.Key}, s.log, time.Now)
		if err != nil {
			return nil, fmt.Errorf("control: %w", err)
		}
		secure = cert.TLS(tls.VersionTLS12)
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("control.listen: %w", err)
	}
	s.Listeners.Add(l.Addr())
	c.handler = c.routes()
	if c.listener = l; secure != nil {
		c.listener, c.scheme = tls.NewListener(l, secure), "https"
	}
	return c, nil
}

// routes serves the API, the console and its logins.
func (c *Control) routes() http.Handler {
	mux := http.NewServeMux()
	screens := console.New(console.Options{
		API: c.API, Who: c.access.Who, Once: c.access.Once, Log: c.s.log, Live: c.s.lastMinute,
	})
	c.end = screens.Stop
	for _, path := range []string{"/console", "/console/", "/static/"} {
		mux.Handle(path, screens)
	}
	for _, path := range access.Paths {
		mux.Handle(path, c.access)
	}
	mux.Handle("GET /{$}", http.RedirectHandler("/console/", http.StatusSeeOther))
	mux.Handle("/", c.API)
	return mux
}

// ControlInfo tells where the API of a candidate listens.
type ControlInfo struct {
	URL       string `json:"url"`
	Token     string `json:"token,omitempty"`
	Console   string `json:"console,omitempty"`    // one-time link of Token to the console
	TokenFile string `json:"token_file,omitempty"` // path of the first token, once there is one
	Zone      string `json:"zone"`
	Account   string `json:"account"`
}

// Info returns the address of the API, without a token.
func (c *Control) Info() *ControlInfo {
	return &ControlInfo{
		URL: c.scheme + "://" + c.listener.Addr().String() + control.Prefix, TokenFile: c.file, Zone: control.Zone,
		Account: control.Account,
	}
}

// Token returns a valid admin token: the first one, the one made here before, or a new one. It is for owners of the
// whole fleet, such as a demo.
func (c *Control) Token(ctx context.Context) (string, error) {
	select {
	case <-c.first:
	case <-ctx.Done():
		return "", fmt.Errorf("first token: %w", ctx.Err())
	}
	data, err := os.ReadFile(c.file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("first token: %w", err)
	}
	if token := strings.TrimSpace(string(data)); c.API.Good(ctx, token) {
		return token, nil
	}
	token, err := c.API.Make(ctx, "demo", control.Admin)
	if err == nil {
		err = node.WriteFile(c.file, []byte(token+"\n"))
	}
	return token, err
}

// run serves the API until ctx ends.
func (c *Control) run(ctx context.Context) error {
	server := &http.Server{
		Handler: node.RefuseForwarded(c.handler), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: time.Minute, MaxHeaderBytes: 32 << 10, ErrorLog: slog.NewLogLogger(c.s.log.Handler(), slog.LevelDebug),
	}
	server.RegisterOnShutdown(c.end)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(c.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("control: %w", err)
		}
		return nil
	})
	g.Go(func() error { return node.IgnoreEnd(ctx, c.makeFirst(ctx)) })
	var watches sync.WaitGroup
	defer watches.Wait()
	watches.Go(func() { c.watchTokens(ctx) })
	watches.Go(func() { c.recoverAdmins(ctx) })
	g.Go(func() error {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := server.Shutdown(last); err != nil {
			return server.Close()
		}
		return nil
	})
	return g.Wait()
}

// watchTokens keeps the next end of a token for metrics and alarms, until ctx ends.
func (c *Control) watchTokens(ctx context.Context) {
	node.Every(ctx, time.Minute, func() {
		next, err := c.API.NextExpiry(ctx)
		if err == nil {
			c.s.expiry.Store(next)
		} else if ctx.Err() == nil {
			c.s.log.Warn("control: the ends of tokens cannot be read", slog.Any("error", err))
		}
	})
}

// makeFirst writes the first token of a fleet to a file that only this user can read. A printed token would stay in
// the service's log.
func (c *Control) makeFirst(ctx context.Context) error {
	for begun, logged := time.Now(), false; ; {
		try, cancel := context.WithTimeout(ctx, 3*time.Second)
		token, err := c.API.First(try)
		cancel()
		if err == nil && token != "" {
			if err = node.WriteFile(c.file, []byte(token+"\n")); err != nil {
				return fmt.Errorf("control: the first token was made and cannot be kept, delete it from the store and start again: %w", err)
			}
			c.s.log.Info("control: the first token of the fleet was made", slog.String("file", c.file))
		}
		if err == nil {
			close(c.first)
			return nil
		}
		if !logged && time.Since(begun) > firstTokenLate && ctx.Err() == nil {
			logged = true
			c.s.log.Warn("control: it is not known whether the fleet has a token, and none can be made yet; retrying",
				slog.String("file", c.file), slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// firstTokenLate is when a log line says why there is no first token: a store needs seconds to start.
const firstTokenLate = 10 * time.Second

// Files of a recovery in the data folder. Anybody that writes there owns the fleet's keys already.
const (
	RecoverFile   = "control.recover"   // asks for a new admin
	RecoveredFile = "control.recovered" // the token of the new admin and a link to the console, one a line
)

// Link makes a one-time link to the console for a token.
func (c *Control) Link(ctx context.Context, token string) (string, error) {
	path, _, err := c.access.Link(ctx, control.TokenID(token))
	return cmp.Or(strings.TrimSuffix(c.s.Config.Control.URL, "/"), c.scheme+"://"+c.listener.Addr().String()) + path, err
}

// recoverAdmins makes a new admin for each request in the data folder, until ctx ends.
func (c *Control) recoverAdmins(ctx context.Context) {
	failing := false
	node.Every(ctx, 500*time.Millisecond, func() {
		err := c.recoverAdmin(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			c.s.log.Warn("control: no admin can be made for the request in the data folder; trying again",
				slog.String("file", RecoverFile), slog.Any("error", err))
		}
		failing = err != nil
	})
}

// recoverAdmin answers a request in the data folder, if there is one.
func (c *Control) recoverAdmin(ctx context.Context) error {
	asked := filepath.Join(c.s.Config.DataDir, RecoverFile)
	if _, err := os.Stat(asked); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	token, err := c.API.Make(ctx, "recovered", control.Admin)
	if err != nil {
		return err
	}
	link, err := c.Link(ctx, token)
	if err != nil {
		return err
	}
	if err := node.WriteFile(filepath.Join(c.s.Config.DataDir, RecoveredFile), []byte(token+"\n"+link+"\n")); err != nil {
		return err
	}
	c.s.log.Warn("control: a new admin was made for a request in the data folder",
		slog.String("token", control.TokenID(token)))
	return os.Remove(asked)
}
