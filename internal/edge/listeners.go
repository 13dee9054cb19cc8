package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"vestibule/internal/edge/front"
	"vestibule/internal/node"
)

// listen opens the listeners, or takes them from sockets, and adds them to own, those of the process.
func (s *Server) listen(sockets *node.Sockets, own *node.Listeners) error {
	for _, l := range []struct {
		key     string
		addr    string
		tls     bool
		headers *proxyHeaders
		auth    *authServer
	}{
		{"listen", s.cfg.Listen, false, s.headers, nil},
		{"tls.listen", s.cfg.TLS.Listen, true, s.headers, nil},
		{"front_auth.listen", s.cfg.Front.Listen, false, nil, newAuthServer(s)},
	} {
		if l.addr == "" {
			continue
		}
		next := listener{tls: l.tls, handler: s, headers: l.headers}
		if l.auth != nil {
			next.handler, next.auth, next.grpc = l.auth, l.auth, s.cfg.Front.Form == formGRPC
		}
		if err := s.listeners.open(l.addr, next, sockets); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", l.key, err), s.listeners.close())
		}
	}
	for _, l := range s.listeners {
		own.Add(l.Addr())
	}
	s.dials.Refuse(own.All)
	s.up.listens = node.Listens(own.All())
	if left := sockets.Left(); len(left) > 0 {
		return errors.Join(fmt.Errorf("LISTEN_FDS: a socket was passed for %s, which is none of listen, tls.listen and front_auth.listen: give the socket unit the addresses of the configuration",
			strings.Join(left, ", ")), s.listeners.close())
	}
	return nil
}

// listenerSet are the listeners of an edge.
type listenerSet []listener

// open opens the listeners of one address. localhost is both 127.0.0.1 and ::1, with the same port: programs try
// either.
func (ls *listenerSet) open(addr string, kind listener, sockets *node.Sockets) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if host != "localhost" {
		return ls.openOne(addr, kind, sockets)
	}
	for try := 1; ; try++ {
		if err := ls.openOne(net.JoinHostPort("127.0.0.1", port), kind, sockets); err != nil {
			return err
		}
		first := (*ls)[len(*ls)-1]
		_, same, err := net.SplitHostPort(first.Addr().String())
		if err != nil {
			return err
		}
		err = ls.openOne(net.JoinHostPort("::1", same), kind, sockets)
		switch {
		case err == nil, errors.Is(err, syscall.EADDRNOTAVAIL),
			errors.Is(err, syscall.EAFNOSUPPORT): // a machine without IPv6
			return nil
		case port != "0" || try == 10:
			return err
		}
		// The free port of one family is taken in the other: try another one.
		*ls = (*ls)[:len(*ls)-1]
		if err := first.Close(); err != nil {
			return err
		}
	}
}

// openOne opens a listener at one address, or takes the socket passed for it.
func (ls *listenerSet) openOne(addr string, kind listener, sockets *node.Sockets) error {
	kind.TCPListener = sockets.Take(addr)
	if kind.passed = kind.TCPListener != nil; !kind.passed {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return err
		}
		kind.TCPListener = ln.(*net.TCPListener)
	}
	*ls = append(*ls, kind)
	return nil
}

func (ls listenerSet) close() error {
	var errs []error
	for _, l := range ls {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// URL returns the URL of this edge for visitors.
func (s *Server) URL() string {
	l, addr, scheme := s.listeners[0], s.cfg.Listen, "http://"
	if l.tls {
		addr, scheme = s.cfg.TLS.Listen, "https://"
	}
	is := l.Addr().String()
	if port, ok := strings.CutPrefix(is, "127.0.0.1:"); ok && strings.HasPrefix(addr, "localhost:") {
		is = "localhost:" + port
	}
	return scheme + is
}

// servers returns one server per listener. Their requests' contexts derive from base.
func (s *Server) servers(base context.Context) ([]*http.Server, error) {
	var out []*http.Server
	for _, l := range s.listeners {
		srv := &http.Server{
			Handler:           l.handler,
			ReadHeaderTimeout: s.cfg.Timeouts.Header,
			IdleTimeout:       s.cfg.Timeouts.Idle,
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				return s.lines.begin(withProgress(ctx, c), c)
			},
			ConnState: func(c net.Conn, state http.ConnState) {
				s.lines.end(c, state)
				s.conns.State(c, state)
			},
			BaseContext:    func(net.Listener) context.Context { return base },
			MaxHeaderBytes: 16 << 10,
			ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
			HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: 100},
		}
		if l.grpc {
			srv.Protocols = new(http.Protocols)
			srv.Protocols.SetHTTP1(true)
			srv.Protocols.SetUnencryptedHTTP2(true)
		}
		if l.tls && s.secure == nil {
			certs, err := node.NewCertificates(s.cfg.TLS.Cert, s.cfg.TLS.Key, s.log, time.Now)
			if err != nil {
				return nil, fmt.Errorf("tls.cert, tls.key: %w", err)
			}
			s.secure = certs.TLS(s.cfg.TLS.version())
			s.gate.ServeCertificates(certs.Covers)
		}
		if l.tls {
			srv.TLSConfig = s.secure.Clone() // net/http changes it
		}
		out = append(out, srv)
	}
	return out, nil
}

// renewSessionKeys gives TLS the keys of session tickets, until ctx ends.
func (s *Server) renewSessionKeys(ctx context.Context) {
	var had [][32]byte
	node.Every(ctx, sessionKeysEvery, func() {
		keys, err := s.fleet.Ring().SessionKeys(s.gate.Engine.Time())
		switch {
		case err != nil:
			s.log.Error("TLS sessions are resumed under old keys", slog.Any("error", err))
		case len(keys) > 0 && !slices.Equal(keys, had):
			s.secure.SetSessionTicketKeys(keys)
			had = keys
		}
	})
}

// sessionKeysEvery is the time between two looks at the keys of session tickets, which change daily and with the ring.
const sessionKeysEvery = time.Second

// serve serves a listener until the server shuts down: net/http serves the connections that the front hands over, and
// gRPC.
func (s *Server) serve(srv *http.Server, l cappedListener) error {
	to := net.Listener(front.Guarded{Listener: l})
	if !l.grpc {
		cfg := s.secure
		if !l.tls {
			cfg = nil
		}
		to = s.front.Serve(l, cfg, l.auth)
	}
	err := srv.Serve(to)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}

// shutDown closes the listeners, and closes connections after their answer, or after timeouts.shutdown.
func (s *Server) shutDown(servers []*http.Server) {
	grace, cancel := context.WithTimeout(context.Background(), s.cfg.Timeouts.Shutdown)
	defer cancel()
	s.front.Shutdown(grace) // first: it may still hand connections over
	var all sync.WaitGroup
	for _, srv := range servers {
		all.Go(func() {
			if err := srv.Shutdown(grace); err != nil {
				s.log.Warn("requests were cut off", slog.Any("error", err))
				if err := srv.Close(); err != nil {
					s.log.Debug("close", slog.Any("error", err))
				}
			}
		})
	}
	all.Wait()
}
