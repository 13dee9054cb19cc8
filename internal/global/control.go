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
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"vestibule/internal/core/room"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/wire"
	"vestibule/internal/global/access"
	"vestibule/internal/global/console"
	"vestibule/internal/global/control"
	"vestibule/internal/global/history"
	"vestibule/internal/node"
)

// ControlConfig is the listener of the API.
type ControlConfig struct {
	Listen  string   `mapstructure:"listen" doc:"host:port of the API; without cert and key a loopback address"`
	Cert    string   `mapstructure:"cert" doc:"certificate file; it is read again when it changes"`
	Key     string   `mapstructure:"key" doc:"key file"`
	URL     string   `mapstructure:"url" doc:"address of this listener for browsers, such as https://console.example.org; empty for listen"`
	OIDC    OIDC     `mapstructure:"oidc"`
	Origins []string `mapstructure:"origins" doc:"sites on loopback addresses that editors may set, such as http://127.0.0.1:3000, beside control.origin and those of rooms and hosts; an admin may set any"`
	Origin  string   `mapstructure:"origin" doc:"site for rooms that the API creates on a host without one, such as http://10.0.0.5:8080, the same at every global; empty refuses them"`
}

// OIDC is a login by OpenID Connect.
type OIDC struct {
	Issuer string   `mapstructure:"issuer" doc:"address of an OpenID Connect provider for logins; needs control.url"`
	Name   string   `mapstructure:"name" doc:"its name on the login page"`
	Client string   `mapstructure:"client_id" doc:"client ID; the redirect address is control.url with /oidc/callback"`
	Secret string   `mapstructure:"client_secret_file" doc:"file with the client secret"`
	Claim  string   `mapstructure:"role_claim" doc:"claim of the ID token that names roles: a string or a list"`
	Roles  []string `mapstructure:"roles" doc:"VALUE=ROLE by value of the claim, with viewer, operator, editor or admin; nobody else logs in"`
}

// validate returns every fault of the keys below control.oidc.
func (o *OIDC) validate(own string) (errs []error) {
	if o.Issuer == "" {
		if o.Client != "" || o.Secret != "" || len(o.Roles) > 0 {
			return []error{errors.New("control.oidc.client_id, client_secret_file, roles: need control.oidc.issuer")}
		}
		return nil
	}
	for key, value := range map[string]string{"control.oidc.issuer": o.Issuer, "control.url": own} {
		if rule := room.CheckOrigin(value); rule != "" && !strings.HasPrefix(value, "https://") {
			errs = append(errs, fmt.Errorf("%s: %s", key, rule))
		}
	}
	for key, value := range map[string]string{"client_id": o.Client, "client_secret_file": o.Secret, "role_claim": o.Claim} {
		if value == "" {
			errs = append(errs, fmt.Errorf("control.oidc.%s: must be given", key))
		}
	}
	if len(o.Roles) == 0 {
		errs = append(errs, errors.New("control.oidc.roles: at least one must be given, or nobody logs in"))
	}
	for _, entry := range o.Roles {
		if value, role := roleOf(entry); value == "" || !role.Known() {
			errs = append(errs, fmt.Errorf("control.oidc.roles: must be VALUE=ROLE with viewer, operator, editor or admin, got %q", entry))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return append(errs, node.CheckFile("control.oidc.client_secret_file", o.Secret)...)
}

// config returns the provider; nil for none.
func (o *OIDC) config(own string) (*access.OIDCConfig, error) {
	if o.Issuer == "" {
		return nil, nil
	}
	secret, err := os.ReadFile(o.Secret)
	if err != nil {
		return nil, fmt.Errorf("control.oidc.client_secret_file: %w", err)
	}
	c := &access.OIDCConfig{
		Name: cmp.Or(o.Name, "single sign-on"), Issuer: o.Issuer, ClientID: o.Client, ClientSecret: strings.TrimSpace(string(secret)),
		URL: strings.TrimSuffix(own, "/"), Claim: o.Claim, Roles: map[string]control.Role{},
	}
	for _, entry := range o.Roles {
		value, role := roleOf(entry)
		c.Roles[value] = role
	}
	return c, nil
}

// roleOf returns the parts of an entry of control.oidc.roles. It is a list, since keys of the configuration have no
// capital letters.
func roleOf(entry string) (value string, role control.Role) {
	i := max(0, strings.LastIndexByte(entry, '='))
	return entry[:i], control.Role(strings.TrimPrefix(entry[i:], "="))
}

// Validate returns every fault of the keys below control.
func (c *ControlConfig) Validate() []error {
	if c.Listen == "" {
		if c.Cert != "" || c.Key != "" || c.Origin != "" || len(c.Origins) > 0 || c.URL != "" || c.OIDC.Issuer != "" {
			return []error{errors.New("control.cert, control.key, control.origin, control.origins, control.url, control.oidc: need control.listen")}
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
	for i, o := range c.Origins {
		if rule := room.CheckOrigin(o); rule != "" {
			errs = append(errs, fmt.Errorf("control.origins[%d]: %s", i, rule))
		}
	}
	errs = append(errs, c.OIDC.validate(c.URL)...)
	errs = append(errs, node.CheckFile("control.cert", c.Cert)...)
	return append(errs, node.CheckFile("control.key", c.Key)...)
}

// Control serves the API and the console of a candidate.
type Control struct {
	API      *control.Server
	access   *access.Access
	handler  http.Handler
	end      func() // ends the streams of the console
	folder   string // with requests for a new admin
	url      string // "" for the address of the listener
	listener net.Listener
	scheme   string
	file     string // the first token is written here
	log      *slog.Logger
	first    chan struct{} // closed once there is a token
	expiry   *atomic.Pointer[control.Expiry]
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
		folder: s.Config.DataDir, url: strings.TrimSuffix(cfg.URL, "/"),
		scheme: "http", file: filepath.Join(s.Config.DataDir, TokenFile), log: s.log, first: make(chan struct{}), expiry: &s.expiry,
	}
	c.access = access.New(access.Options{Docs: docs, OIDC: provider, Log: s.log, Token: func(ctx context.Context, id string) (control.Principal, bool, error) {
		return c.API.Principal(ctx, id)
	}})
	c.API = control.New(control.Options{
		Name: s.Config.Name, Rooms: s.rooms, Origin: cfg.Origin, Origins: cfg.Origins, Audit: s.Audit, Docs: docs, Link: c.access.Link, Page: s.page, Numbers: s.Numbers, History: statsHistory(s.history), Fleet: s.candidates.view, Forget: s.Orders.Forget, Find: s.Orders.Find, Count: s.metrics.answered, Log: s.log,
		Shared: s.Docs, Controls: s.fleet.Controls, Board: s.fleet.Board, Time: s.time, Post: s.poster.Post,
	})
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
	c.handler = c.routes(s)
	if c.listener = l; secure != nil {
		c.listener, c.scheme = tls.NewListener(l, secure), "https"
	}
	return c, nil
}

// routes serves the API, the console and its logins.
func (c *Control) routes(s *Server) http.Handler {
	mux := http.NewServeMux()
	screens := console.New(console.Options{API: c.API, Who: c.access.Who, Once: c.access.Once, Log: s.log, Live: s.lastMinute})
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

// statsHistory returns h for the API; nil for none.
func statsHistory(h *history.History) control.History {
	if h == nil {
		return nil
	}
	return h
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
	Console   string `json:"console,omitempty"`    // one-time link of Token to the console
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
		Handler: c.handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 32 << 10, ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
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
	g.Go(func() error { return node.IgnoreEnd(ctx, c.watchTokens(ctx)) })
	g.Go(func() error { return node.IgnoreEnd(ctx, c.recoverAdmins(ctx)) })
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
func (c *Control) watchTokens(ctx context.Context) error {
	for {
		next, err := c.API.NextExpiry(ctx)
		if err == nil {
			c.expiry.Store(next)
		} else if ctx.Err() == nil {
			c.log.Warn("control: the ends of tokens cannot be read", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Minute):
		}
	}
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

// Files of a recovery in the data folder. Anybody that writes there owns the fleet's keys already.
const (
	RecoverFile   = "control.recover"   // asks for a new admin
	RecoveredFile = "control.recovered" // the token of the new admin and a link to the console, one a line
)

// Link makes a one-time link to the console for a token.
func (c *Control) Link(ctx context.Context, token string) (string, error) {
	path, _, err := c.access.Link(ctx, control.TokenID(token))
	return cmp.Or(c.url, c.scheme+"://"+c.listener.Addr().String()) + path, err
}

// recoverAdmins makes a new admin for each request in the data folder, until ctx ends.
func (c *Control) recoverAdmins(ctx context.Context) error {
	for failing := false; ; {
		err := c.recoverAdmin(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			c.log.Warn("control: no admin can be made for the request in the data folder; trying again", slog.String("file", RecoverFile), slog.Any("error", err))
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// recoverAdmin answers a request in the data folder, if there is one.
func (c *Control) recoverAdmin(ctx context.Context) error {
	asked := filepath.Join(c.folder, RecoverFile)
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
	if err := node.WriteFile(filepath.Join(c.folder, RecoveredFile), []byte(token+"\n"+link+"\n")); err != nil {
		return err
	}
	c.log.Warn("control: a new admin was made for a request in the data folder", slog.String("token", control.TokenID(token)))
	return os.Remove(asked)
}
