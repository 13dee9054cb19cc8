package global

import (
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
	"time"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/control"
	"vestibule/internal/node"
)

// ControlConfig is the listener of the API.
type ControlConfig struct {
	Listen string `mapstructure:"listen" doc:"host:port of the API, empty for none; without cert and key a loopback address"`
	Cert   string `mapstructure:"cert" doc:"certificate file; it is read again when it changes"`
	Key    string `mapstructure:"key" doc:"key file"`
	Origin string `mapstructure:"origin" doc:"site for rooms that the API creates on a host without one, such as http://10.0.0.5:8080, the same at every global; empty refuses them"`
}

// Validate returns every fault of the keys below control.
func (c *ControlConfig) Validate() []error {
	if c.Listen == "" {
		if c.Cert != "" || c.Key != "" || c.Origin != "" {
			return []error{errors.New("control.cert, control.key, control.origin: need control.listen")}
		}
		return nil
	}
	errs := node.CheckAddr("control.listen", c.Listen)
	switch {
	case (c.Cert == "") != (c.Key == ""):
		errs = append(errs, errors.New("control.cert, control.key: must be given together"))
	case c.Cert == "" && len(errs) == 0 && !node.Loopback(c.Listen):
		errs = append(errs, fmt.Errorf("control.listen: must be an address of this machine (127.0.0.1) without control.cert and control.key, got %q", c.Listen))
	}
	if rule := room.CheckOrigin(c.Origin); c.Origin != "" && rule != "" {
		errs = append(errs, fmt.Errorf("control.origin: %s", rule))
	}
	errs = append(errs, node.CheckFile("control.cert", c.Cert)...)
	return append(errs, node.CheckFile("control.key", c.Key)...)
}

// Control serves the API of a candidate.
type Control struct {
	API      *control.Server
	listener net.Listener
	scheme   string
	file     string // the first token is written here
	log      *slog.Logger
	first    chan struct{} // closed once there is a token
}

// TokenFile is the name of the file with the first token.
const TokenFile = "control.token"

func newControl(s *Server, docs wire.DocumentStore) (*Control, error) {
	cfg := s.Config.Control
	c := &Control{
		API: control.New(control.Options{
			Name: s.Config.Name, Rooms: s.rooms, Origin: cfg.Origin, Audit: s.Audit, Docs: docs, Page: s.page, Numbers: s.Numbers, Fleet: s.candidates.view, Count: s.metrics.answered, Log: s.log,
			Shared: s.Docs, Controls: s.fleet.Controls, Board: s.fleet.Board, Time: s.time,
		}),
		scheme: "http", file: filepath.Join(s.Config.DataDir, TokenFile), log: s.log, first: make(chan struct{}),
	}
	var secure *tls.Config
	if cfg.Cert != "" {
		cert, err := node.NewCertificate(cfg.Cert, cfg.Key, s.log, time.Now)
		if err != nil {
			return nil, fmt.Errorf("control: %w", err)
		}
		secure = cert.TLS()
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("control.listen: %w", err)
	}
	if c.listener = l; secure != nil {
		c.listener, c.scheme = tls.NewListener(l, secure), "https"
	}
	return c, nil
}

// page returns a stored waiting page, or nil if there is none of that name.
func (s *Server) page(ctx context.Context, hash string) ([]byte, error) {
	if page := s.fleet.Page(hash); page != nil {
		return page, nil
	}
	data, _, err := s.Docs.Get(ctx, roomdoc.PageDocument(hash))
	if err != nil || data == nil {
		return nil, err
	}
	return roomdoc.DecodePage(hash, data)
}

// ControlInfo tells where the API of a candidate listens.
type ControlInfo struct {
	URL       string `json:"url"`
	Token     string `json:"token,omitempty"`
	TokenFile string `json:"token_file,omitempty"` // path of the first token, once there is one
	Zone      string `json:"zone"`
	Account   string `json:"account"`
}

// Info returns the address of the API, without a token.
func (c *Control) Info() *ControlInfo {
	return &ControlInfo{URL: c.scheme + "://" + c.listener.Addr().String() + control.Prefix, TokenFile: c.file, Zone: control.Zone, Account: control.Account}
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
		Handler: c.API, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 32 << 10, ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(c.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("control: %w", err)
		}
		return nil
	})
	g.Go(func() error { return node.IgnoreEnd(ctx, c.makeFirst(ctx)) })
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

// makeFirst writes the first token of a fleet to a file that only this user can read. A printed token would stay in
// the service's log.
func (c *Control) makeFirst(ctx context.Context) error {
	for {
		try, cancel := context.WithTimeout(ctx, 3*time.Second)
		token, err := c.API.First(try)
		cancel()
		if err == nil && token != "" {
			if err = node.WriteFile(c.file, []byte(token+"\n")); err != nil {
				return fmt.Errorf("control: the first token was made and cannot be kept, delete it from the store and start again: %w", err)
			}
			c.log.Info("control: the first token of the fleet was made", slog.String("file", c.file))
		}
		if err == nil {
			close(c.first)
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(250 * time.Millisecond):
		}
	}
}
