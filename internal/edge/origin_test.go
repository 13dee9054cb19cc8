package edge

import (
	"bytes"
	"context"
	"crypto/hmac"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"vestibule/internal/edge/origin"
	"vestibule/internal/lab/testkit"
)

// auditor is a site that audits: every request it sees must have been decided
// by the edge, once.
type auditor struct {
	dead atomic.Bool // accepts connections and says nothing
	*httptest.Server
	t      testing.TB
	secret []byte

	mu     sync.Mutex
	nonces map[string]bool
	seen   []*http.Request
	handle http.HandlerFunc
}

func newOrigin(t testing.TB) *auditor {
	o := &auditor{t: t, secret: make([]byte, 32), nonces: map[string]bool{}}
	testkit.Must(crand.Read(o.secret))(t)
	o.Server = httptest.NewServer(o)
	return o
}

func (o *auditor) sign(nonce string) string {
	m := hmac.New(sha256.New, o.secret)
	m.Write([]byte(nonce))
	return nonce + "." + hex.EncodeToString(m.Sum(nil))
}

// stamping signs each request that the proxy passes on: it does so only for an
// outcome that enters.
type stamping struct {
	http.RoundTripper
	o *auditor
}

func (s stamping) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get(auditHeader) != "" {
		s.o.t.Errorf("%s of a visitor was forwarded", auditHeader)
	}
	var b [8]byte
	if _, err := crand.Read(b[:]); err != nil {
		s.o.t.Error(err)
	}
	r = r.Clone(r.Context())
	r.Header.Set(auditHeader, s.o.sign(hex.EncodeToString(b[:])))
	return s.RoundTripper.RoundTrip(r)
}

// audit has an origin record the requests that the edge admitted.
func (st *stage) audit(o *auditor) {
	st.server.proxy.trip = stamping{st.server.proxy.transport, o}
	if p := st.server.pool; p != nil {
		if st.dialOrigin == nil {
			st.dialOrigin = p.Dial
		}
		p.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := st.dialOrigin(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &stampingConn{c.(*origin.Conn), o}, nil
		}
	}
}

// unaudited has the edge pass requests on as they are, to a site that does not audit.
func (st *stage) unaudited() {
	st.server.proxy.trip = st.server.proxy.transport
	if p := st.server.pool; p != nil {
		p.Dial = st.dialOrigin
	}
}

// stampingConn does the same for the fast front, which writes each request at once.
type stampingConn struct {
	*origin.Conn
	o *auditor
}

func (c *stampingConn) Write(p []byte) (int, error) {
	head, _, _ := bytes.Cut(p, []byte("\r\n\r\n"))
	if bytes.Contains(bytes.ToLower(head), []byte(strings.ToLower(auditHeader))) {
		c.o.t.Errorf("%s of a visitor was forwarded", auditHeader)
	}
	line, rest, _ := bytes.Cut(p, []byte("\r\n"))
	var b [8]byte
	if _, err := crand.Read(b[:]); err != nil {
		c.o.t.Error(err)
	}
	stamped := fmt.Sprintf("%s\r\n%s: %s\r\n%s", line, auditHeader, c.o.sign(hex.EncodeToString(b[:])), rest)
	if _, err := io.WriteString(c.Conn, stamped); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (o *auditor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if o.dead.Load() {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			o.t.Error(err)
			return
		}
		if err := conn.Close(); err != nil {
			o.t.Error(err)
		}
		return
	}
	if r.UserAgent() == "vestibule" { // the edge itself asks whether there is life
		if r.Method != http.MethodHead || r.RequestURI != "/" || r.Header["Cookie"] != nil || r.Header[auditHeader] != nil {
			o.t.Errorf("a sign of life is asked for by %s %s with %v", r.Method, r.RequestURI, r.Header)
		}
		return
	}
	proofs := r.Header.Values(auditHeader)
	o.mu.Lock()
	nonce := ""
	if len(proofs) == 1 {
		nonce, _, _ = strings.Cut(proofs[0], ".")
	}
	if nonce == "" || proofs[0] != o.sign(nonce) || o.nonces[nonce] {
		o.t.Errorf("%s %s reached the origin undecided: %q", r.Method, r.RequestURI, proofs)
	}
	o.nonces[nonce] = true
	o.seen = append(o.seen, r)
	handle := o.handle
	o.mu.Unlock()
	if handle != nil {
		handle(w, r)
		return
	}
	io.WriteString(w, "the site") //nolint:errcheck // the client checks the answer
}

// serves sets the site's handler.
func (o *auditor) serves(h http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.handle = h
}

// requests returns how many requests the site saw.
func (o *auditor) requests() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.seen)
}

// untouched fails if the site saw a request.
func (o *auditor) untouched() {
	o.t.Helper()
	if n := o.requests(); n > 0 {
		o.t.Errorf("%d requests reached the site, the last %s for %s", n, o.last().RequestURI, o.last().Host)
	}
}

// last returns the newest request that the site saw.
func (o *auditor) last() *http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.seen) == 0 {
		o.t.Fatal("the site saw no request")
	}
	return o.seen[len(o.seen)-1]
}
