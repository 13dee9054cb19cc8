package http1

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// pairOf returns both ends of a connection.
func pairOf(t *testing.T) (here, there *net.TCPConn) {
	t.Helper()
	ln := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer ln.Close()
	a := testkit.Must(net.Dial("tcp", ln.Addr().String()))(t)
	t.Cleanup(func() { a.Close() })
	b := testkit.Must(ln.Accept())(t)
	t.Cleanup(func() { b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

// Bytes are read as they arrive, available or awaited, from a socket and from another connection; then the end.
func TestASourceTellsAllThatComes(t *testing.T) {
	want := strings.Repeat("0123456789abcdef", 4<<10)
	for name, hide := range map[string]bool{"a socket": false, "something else": true} {
		t.Run(name, func(t *testing.T) {
			here, there := pairOf(t)
			var s Source
			if s.Of(here); hide {
				s.Of(struct{ net.Conn }{here})
			}
			if s.Direct() == hide && canTry {
				t.Fatal("read by the system: ", s.Direct())
			}
			wrote := make(chan error, 1)
			go func() {
				for rest := want; rest != ""; {
					n := min(1+len(rest)%777, len(rest))
					if _, err := io.WriteString(there, rest[:n]); err != nil {
						wrote <- err
						return
					}
					rest = rest[n:]
				}
				wrote <- there.CloseWrite()
			}()
			var got bytes.Buffer
			if _, err := io.CopyBuffer(struct{ io.Writer }{&got}, &s, make([]byte, 1000)); err != nil || got.String() != want {
				t.Errorf("%d bytes, want %d; %v", got.Len(), len(want), err)
			}
			if err := <-wrote; err != nil {
				t.Error(err)
			}
			if n, err := s.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("after the end: %d, %v", n, err)
			}
		})
	}
}

// The buffer can be used otherwise while waiting; bytes then go into another one.
func TestASourceThatWaitsNeedsNoBuffer(t *testing.T) {
	if !canTry {
		t.Skip("the system cannot be asked without waiting")
	}
	here, there := pairOf(t)
	waits := make(chan struct{}, 1)
	first, second := make([]byte, 8), make([]byte, 8)
	s := Source{Waits: func() bool {
		select {
		case waits <- struct{}{}:
		default:
		}
		return true
	}, Room: func() []byte { return second }}
	s.Of(here)
	var n int
	read := make(chan error, 1)
	go func() {
		var err error
		n, err = s.Read(first)
		read <- err
	}()
	select {
	case <-waits:
	case <-time.After(testkit.Patience):
		t.Fatal("nobody waits")
	}
	testkit.Must(io.WriteString(there, "hello"))(t)
	if err := <-read; err != nil || string(second[:n]) != "hello" || !bytes.Equal(first, make([]byte, 8)) {
		t.Errorf("%q, %q, %v", first, second[:n], err)
	}
}

// A deadline ends a read of a source as that of its connection, and reading continues after it.
func TestASourceKeepsDeadlines(t *testing.T) {
	here, there := pairOf(t)
	var s Source
	s.Of(here)
	testkit.NoError(t, here.SetReadDeadline(time.Now().Add(time.Millisecond)))
	n, err := s.Read(make([]byte, 8))
	if late, ok := errors.AsType[net.Error](err); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !ok ||
		!late.Timeout() {
		t.Errorf("%d, %v", n, err)
	}
	testkit.NoError(t, here.SetReadDeadline(time.Time{}))
	testkit.Must(io.WriteString(there, "x"))(t)
	if n, err := s.Read(make([]byte, 8)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	testkit.NoError(t, here.Close())
	if n, err := s.Read(make([]byte, 8)); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %d, %v", n, err)
	}
}
