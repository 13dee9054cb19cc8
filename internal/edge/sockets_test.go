package edge

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"vestibule/internal/lab/testkit"
)

// localhost is both 127.0.0.1 and ::1, at one port.
func TestLocalhostIsBothLoopbackAddresses(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("needs IPv6: %v", err)
	} else if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	st := open(t, func(st *stage) { st.cfg.Listen = "localhost:0" })
	_, port, err := net.SplitHostPort(st.door.addr(0))
	testkit.NoError(t, err)
	if want := "http://localhost:" + port; st.server.URL() != want {
		t.Errorf("it is at %s, want %s", st.server.URL(), want)
	}
	for _, ip := range []string{"127.0.0.1", "::1"} {
		st.door.instead = net.JoinHostPort(ip, port)
		if a := st.door.visitor().get("http://sale.example/"); a.StatusCode != http.StatusOK || a.body != "the site" {
			t.Errorf("at %s: %d %.60q", st.door.instead, a.StatusCode, a.body)
		}
	}
}

// If another program listens on one of them the start fails: its visitors would reach that program.
func TestLocalhostTakenInOneFamily(t *testing.T) {
	taken, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("needs IPv6: %v", err)
	}
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	testkit.NoError(t, err)
	s := &Server{cfg: DefaultConfig()}
	s.cfg.Listen = "localhost:" + port
	if err := s.listen(nil, nil); err == nil || !strings.HasPrefix(err.Error(), "listen: ") ||
		!strings.Contains(err.Error(), "address already in use") {
		t.Errorf("listen: %v", err)
	}
	testkit.Eventually(t, "the other listener is closed again", func() bool {
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		return err == nil && l.Close() == nil
	})
}
