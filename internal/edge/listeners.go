package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"vestibule/internal/live"
	"vestibule/internal/node"
)

type listener struct {
	*net.TCPListener
	tls     bool
	handler http.Handler
	headers *proxyHeaders // nil where connections begin with none
	asks    *front        // nil where who asks are visitors, not servers in front of the site
	grpc    bool          // HTTP/2 without TLS is spoken too
}

// listen opens the listeners.
func (s *Server) listen() error {
	for _, l := range []struct {
		addr    string
		tls     bool
		headers *proxyHeaders
		asks    *front
	}{
		{s.cfg.Listen, false, s.headers, nil},
		{s.cfg.TLS.Listen, true, s.headers, nil},
		{s.cfg.Front.Listen, false, nil, newFront(s)},
	} {
		if l.addr == "" {
			continue
		}
		ln, err := net.Listen("tcp", l.addr)
		if err != nil {
			return errors.Join(fmt.Errorf("listen: %w", err), s.closeListeners())
		}
		next := listener{TCPListener: ln.(*net.TCPListener), tls: l.tls, handler: s, headers: l.headers, asks: l.asks}
		if l.asks != nil {
			next.handler, next.grpc = l.asks, s.cfg.Front.Form == formGRPC
		}
		s.listeners = append(s.listeners, next)
	}
	return nil
}

func (s *Server) closeListeners() error {
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// URL returns where visitors reach this edge.
func (s *Server) URL() string {
	l := s.listeners[0]
	if l.tls {
		return "https://" + l.Addr().String()
	}
	return "http://" + l.Addr().String()
}

// servers returns one server per listener; what they serve ends with base.
func (s *Server) servers(base context.Context) ([]*http.Server, error) {
	var out []*http.Server
	for _, l := range s.listeners {
		srv := &http.Server{
			Handler:           l.handler,
			ReadHeaderTimeout: s.cfg.Timeouts.Header,
			IdleTimeout:       s.cfg.Timeouts.Idle,
			ConnState:         s.conns.state,
			BaseContext:       func(net.Listener) context.Context { return base },
			MaxHeaderBytes:    16 << 10,
			ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100},
		}
		if l.grpc {
			srv.Protocols = new(http.Protocols)
			srv.Protocols.SetHTTP1(true)
			srv.Protocols.SetUnencryptedHTTP2(true)
		}
		if l.tls {
			cert, err := node.NewCertificate(s.cfg.TLS.Cert, s.cfg.TLS.Key, s.log, time.Now)
			if err != nil {
				return nil, fmt.Errorf("tls.cert, tls.key: %w", err)
			}
			srv.TLSConfig = cert.TLS()
		}
		out = append(out, srv)
	}
	return out, nil
}

// serve serves what comes in at a listener until the server is shut down; with the fast
// front, what that hands over.
func (s *Server) serve(srv *http.Server, l cappedListener) (err error) {
	if s.fast != nil && !l.grpc {
		to := newHandover(l.Addr(), s.conns)
		s.fast.serve(l, srv.TLSConfig.Clone(), to, l.asks)
		err = srv.Serve(to)
	} else if l.tls {
		err = srv.ServeTLS(live.Listener{Listener: l}, "", "")
	} else {
		err = srv.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}

// shutDown closes the listeners, and ends connections once they are answered, or after
// timeouts.shutdown.
func (s *Server) shutDown(servers []*http.Server) {
	grace, cancel := context.WithTimeout(context.Background(), s.cfg.Timeouts.Shutdown)
	defer cancel()
	if s.fast != nil { // first: it may hand over still
		s.fast.shutDown(grace)
	}
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
