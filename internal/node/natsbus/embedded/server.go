// Package embedded runs a nats-server inside this process: for the demo, for tests, and for small installations
// without other programs. It is a separate package because the server doubles the size of a binary; edges do not
// import it.
//
// JetStream is stored in a folder, and every write is synced before its acknowledgement. The one knob is
// [Options.Listen]: without it the server is reachable from this process only. A server that accepts other machines
// requires a password, see [Join].
package embedded

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// Options configure the server.
type Options struct {
	Name   string
	Dir    string // JetStream's folder
	Listen string // host:port for other processes, "" for none; port 0 selects a free one

	Domain string   // JetStream domain; required with Hubs
	Hubs   []string // leaf-node URLs of the servers to join
	Leafs  string   // host:port for joining leaf nodes, "" for none

	Password string // required from clients and leaf nodes, with [User]; "" for none

	Log *slog.Logger
}

// User is the only user of a server with a password.
const User = "vestibule"

// maxPayload is the default of other servers, in bytes. Messages of nodes are smaller (wire.MaxMessage); documents
// may be as large.
const maxPayload = 1 << 20

// Server is a running nats-server.
type Server struct {
	s      *server.Server
	secret string // the password, "" for none
	leave  func() // ends KeepStore
}

// Start starts a server and returns when it accepts connections, within ten seconds.
func Start(o Options) (*Server, error) {
	opts := &server.Options{
		ServerName: o.Name, DontListen: o.Listen == "", NoSigs: true,
		JetStream: true, StoreDir: o.Dir, SyncAlways: true, JetStreamDomain: o.Domain,
		MaxPayload: maxPayload, WriteDeadline: 5 * time.Second,
		NoSystemAccount: true,
	}
	var err error
	if o.Listen != "" {
		if opts.Host, opts.Port, err = hostPort(o.Listen); err != nil {
			return nil, fmt.Errorf("embedded NATS: listen: %w", err)
		}
	}
	if o.Leafs != "" {
		if opts.LeafNode.Host, opts.LeafNode.Port, err = hostPort(o.Leafs); err != nil {
			return nil, fmt.Errorf("embedded NATS: leafs: %w", err)
		}
	}
	if o.Password != "" {
		opts.Username, opts.Password = User, o.Password
		opts.LeafNode.Username, opts.LeafNode.Password = User, o.Password
	}
	if len(o.Hubs) > 0 {
		remote := &server.RemoteLeafOpts{}
		for _, h := range o.Hubs {
			u, err := url.Parse(h)
			if err != nil {
				return nil, fmt.Errorf("embedded NATS: hubs: %w", err)
			}
			remote.URLs = append(remote.URLs, u)
		}
		opts.LeafNode.Remotes = append(opts.LeafNode.Remotes, remote)
		opts.LeafNode.ReconnectInterval = time.Second
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS: %w", err)
	}
	fatal := make(chan string, 1)
	s.SetLoggerV2(logger{o.Log.With(slog.String("component", "nats-server")), fatal}, false, false, false)
	s.Start()
	for deadline := time.Now().Add(startTimeout); !s.ReadyForConnections(50 * time.Millisecond); {
		reason := ""
		select {
		case reason = <-fatal:
		default:
			if time.Now().Before(deadline) {
				continue
			}
			reason = fmt.Sprintf("not ready after %v (folder %s)", startTimeout, o.Dir)
		}
		s.Shutdown()
		s.WaitForShutdown()
		return nil, fmt.Errorf("embedded NATS: %s", reason)
	}
	return &Server{s, o.Password, KeepStore(s, o.Dir, o.Domain)}, nil
}

// startTimeout bounds the start of a server.
const startTimeout = 10 * time.Second

// Join starts the server of cfg, if any, and connects a node called name, with that inbox, to it or to the
// configured servers. It adds both to closer. The server stores its data below dir. It returns the connection and
// the started server, or nil.
func Join(
	name, inbox, dir string, cfg *node.ServerConfig, closer *node.Closer, log *slog.Logger,
) (conn *natsbus.Conn, server *Server, err error) {
	opts := cfg.Options(name, inbox, log)
	opts.Stream = natsbus.LeasesStream
	if cfg.Embedded {
		open := map[string]string{} // listeners reachable from other machines
		for key, addr := range map[string]string{"nats.listen": cfg.Listen, "nats.leafs": cfg.Leafs} {
			if beyondLoopback(addr) {
				open[key] = addr
			}
		}
		secret := ""
		if cfg.Credentials != node.NoCredentials {
			if secret, err = password(dir, len(open) > 0); err != nil {
				return nil, nil, fmt.Errorf("embedded NATS: password: %w", err)
			}
			if secret != "" {
				opts.User, opts.Password = User, secret
			}
		}
		server, err = Start(Options{
			Name: name, Dir: filepath.Join(dir, Store), Listen: cfg.Listen,
			Domain: cfg.Domain, Hubs: cfg.Hubs, Leafs: cfg.Leafs, Password: secret, Log: log,
		})
		if err != nil {
			return nil, nil, err
		}
		closer.Add("nats-server", server.Stop)
		log.Info("nats-server up", slog.String("url", server.URL()), slog.Bool("password", secret != ""))
		for key, addr := range open {
			if secret == "" {
				log.Warn("the embedded NATS server accepts connections from other machines without a password: any client can grant permits and read keys; "+
					"block others with a firewall, or set a password (docs/INTEGRATIONS.md, NATS credentials)",
					slog.String("key", key),
					slog.String("addr", addr))
			} else {
				log.Info("the embedded NATS server accepts connections from other machines with its password, which is sent unencrypted",
					slog.String("key", key), slog.String("addr", addr), slog.String("user", User),
					slog.String("password_file", filepath.Join(dir, passwordFile)))
			}
		}
		opts.InProcess, opts.Listens = server, strings.Fields(node.Listens(server.listeners(cfg.Leafs)))
	}
	if conn, err = natsbus.Connect(opts); err != nil {
		return nil, nil, err
	}
	closer.Add("connection", conn.Close)
	return conn, server, nil
}

// Names below a node's data_dir of the server's store and password file.
const (
	Store        = "nats"
	passwordFile = "nats.password"
)

// minPassword is the minimum length of a password, in bytes: nobody types it.
const minPassword = 20

// password returns the password of a server with its data below dir, or "". It is the content of a file, which is
// created if beyond is true, that is, where the server is reachable from other machines, also if it was not before.
func password(dir string, beyond bool) (string, error) {
	file := filepath.Join(dir, passwordFile)
	data, err := os.ReadFile(file)
	if err == nil {
		text := strings.TrimSpace(string(data))
		if len(text) < minPassword || url.PathEscape(text) != text {
			return "", fmt.Errorf("%s: must be at least %d characters that a URL takes as they are", file, minPassword)
		}
		return text, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if !beyond {
		return "", nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	text := rand.Text()
	return text, node.WriteFile(file, []byte(text+"\n"))
}

// Others returns the number of connections besides the node's own; 0 without a server.
func (s *Server) Others() int {
	if s == nil {
		return 0
	}
	return s.s.NumClients() + s.s.NumLeafNodes() - 1
}

// beyondLoopback reports whether an address is reachable from other machines; "" is not.
func beyondLoopback(addr string) bool { return addr != "" && !node.Loopback(addr) }

func hostPort(addr string) (string, int, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		return "", 0, fmt.Errorf("port of %q: must be 0 to 65535", addr)
	}
	if n == 0 {
		n = server.RANDOM_PORT
	}
	return host, n, nil
}

// Client returns the connection options of another node in this process that receives its answers below inbox.
func (s *Server) Client(name, inbox string, log *slog.Logger) natsbus.Options {
	o := natsbus.Options{Name: name, Inbox: inbox, InProcess: s, Log: log}
	if s.secret != "" {
		o.User, o.Password = User, s.secret
	}
	return o
}

// InProcessConn connects a client in this process without a socket.
func (s *Server) InProcessConn() (net.Conn, error) { return s.s.InProcessConn() }

// listeners returns the addresses of the server, with that for leaf nodes; "" for none.
func (s *Server) listeners(leafs string) (all []net.Addr) {
	if a := s.s.Addr(); a != nil {
		all = append(all, a)
	}
	if leafs != "" {
		if a, err := net.ResolveTCPAddr("tcp", leafs); err == nil {
			all = append(all, a)
		}
	}
	return all
}

// URL returns the address for other processes, or "" without a server or a listener.
func (s *Server) URL() string {
	if s == nil {
		return ""
	}
	if a := s.s.Addr(); a != nil {
		return "nats://" + a.String()
	}
	return ""
}

// Stop stops the server and waits for its end.
func (s *Server) Stop() {
	s.leave()
	s.s.Shutdown()
	s.s.WaitForShutdown()
}

// logger forwards the server's log to slog, and its first fatal error to fatal.
type logger struct {
	log   *slog.Logger
	fatal chan<- string
}

func (l logger) Noticef(format string, v ...any) { l.log.Debug("nats", textAttr(format, v)) }
func (l logger) Warnf(format string, v ...any)   { l.log.Warn("nats", textAttr(format, v)) }
func (l logger) Errorf(format string, v ...any)  { l.log.Error("nats", textAttr(format, v)) }
func (l logger) Debugf(string, ...any)           {}
func (l logger) Tracef(string, ...any)           {}

// textAttr is a log message of the server.
func textAttr(format string, v []any) slog.Attr {
	return slog.String("text", fmt.Sprintf(format, v...))
}

func (l logger) Fatalf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.log.Error("nats", slog.String("text", text))
	select {
	case l.fatal <- text:
	default:
	}
}
