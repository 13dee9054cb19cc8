package edge

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/room"
	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

// echo is a site that echoes after an upgrade.
func echo(t *testing.T, closed chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || r.Header.Get("Connection") != "Upgrade" {
			t.Errorf("the upgrade did not reach the origin: %v", r.Header)
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Set-Cookie: vestibule-sale=x\r\n\r\n")
		if err := rw.Flush(); err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(conn, rw); err != nil {
			t.Log(err) // the edge may cut as it likes
		}
		closed <- struct{}{}
	}
}

// upgrade opens a websocket as the visitor with this cookie.
func (d *door) upgrade(cookie string) (net.Conn, *http.Response, *bufio.Reader) {
	d.Helper()
	return d.upgradeAt("/live", cookie)
}

func (d *door) upgradeAt(path, cookie string) (net.Conn, *http.Response, *bufio.Reader) {
	d.Helper()
	c := testkit.Must(net.Dial("tcp", d.addr(0)))(d)
	d.Cleanup(func() { c.Close() })
	testkit.NoError(d, c.SetDeadline(time.Now().Add(20*time.Second)))
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: sale.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"+
		"Cookie: %s\r\n\r\n", path, cookie)
	br := bufio.NewReader(c)
	res := testkit.Must(http.ReadResponse(br, nil))(d)
	return c, res, br
}

func say(t *testing.T, c net.Conn, br *bufio.Reader, text string) {
	t.Helper()
	testkit.Must(io.WriteString(c, text+"\n"))(t)
	if got, err := br.ReadString('\n'); err != nil || got != text+"\n" {
		t.Fatalf("heard %q, %v", got, err)
	}
}

func TestAWebsocketEndsWithItsSession(t *testing.T) {
	t.Parallel()
	st := open(t, nil)
	closed := make(chan struct{}, 2)
	st.origin.serves(echo(t, closed))
	ends := fleettime.TimeOf(time.Now()).Second() + 2
	s := session(7)
	s.Until = uint32(ends)
	// A regional that allows no renewals, so that the session does end.
	st.up.mu.Lock()
	st.up.held[sale].RenewCeil = 0
	st.up.mu.Unlock()
	s.Home = ticket.Nobody // no edge renews it unless isolated
	c, res, br := st.door.upgrade(st.keys.seal("sale", s))
	if res.StatusCode != http.StatusSwitchingProtocols || len(res.Cookies()) > 0 {
		t.Fatalf("got %d %v", res.StatusCode, res.Header)
	}
	say(t, c, br, "hello")
	if n, err := io.Copy(io.Discard, br); n > 0 {
		t.Errorf("then %d bytes, %v", n, err)
	}
	<-closed
	if now := time.Now().UnixMilli(); now < ends*1000-300 || now > ends*1000+5000 {
		t.Errorf("cut %d ms after the end of the session", now-ends*1000)
	}
}

// A visitor of two rooms is admitted for the shorter of the two sessions.
func TestAWebsocketOfTwoRoomsEndsWithTheShorterSession(t *testing.T) {
	t.Parallel()
	st := openRooms(t, nil, func(d *room.Document) { d.Rooms[1].Host, d.Rooms[1].Path = "sale.example", "/live" })
	closed := make(chan struct{}, 2)
	st.origin.serves(echo(t, closed))
	short, long := session(7), session(8)
	short.Until = uint32(time.Now().Unix() + 2)
	short.Home++
	for _, cookie := range []string{
		st.keys.seal("sale", short) + "; " + st.keys.seal("vip", long),
		st.keys.seal("sale", long) + "; " + st.keys.seal("vip", short),
	} {
		c, res, br := st.door.upgradeAt("/%6cive", cookie)
		if res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("got %d", res.StatusCode)
		}
		say(t, c, br, "hello")
		defer func() {
			if n, err := io.Copy(io.Discard, br); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("then %d bytes, %v", n, err)
			}
			<-closed
		}()
	}
}

// frame returns a websocket frame of a client.
func frame(opcode byte, payload string) string {
	return string([]byte{0x80 | opcode, 0x80 | byte(len(payload))}) + "\x00\x00\x00\x00" + payload
}

// With long_connections: renew the data of a visitor renews its session: the websocket lasts beyond the ticket, with
// which the visitor is inside afterwards. Pings, and data with disable_session_renewal or by default, do not.
func TestALongConnectionRenewsItsSession(t *testing.T) {
	for name, tc := range map[string]struct {
		opcode byte
		change func(*room.Settings)
		lasts  bool
	}{
		"data":             {1, func(r *room.Settings) { r.LongConnections = room.LongRenew }, true},
		"pings":            {9, func(r *room.Settings) { r.LongConnections = room.LongRenew }, false},
		"data, by default": {1, func(*room.Settings) {}, false},
		"disable_session_renewal": {
			1, func(r *room.Settings) { r.LongConnections, r.NoRenewal = room.LongRenew, true },
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t, nil)
			st.up = newParent(t, st.bus, sale, vip)
			st.up.held[sale].RenewCeil = 0 // the upgrade itself renews nothing
			d := document(st.origin.URL)
			tc.change(&d.Rooms[0])
			st.docs.offer(node.RoomsDocument, roomsDocument(t, 1, d))
			st.docs.offer(node.KeysDocument, keysDocument(t, st.keys.ring))
			st.start()
			st.adopted()
			closed := make(chan struct{}, 2)
			st.origin.serves(echo(t, closed))
			ends := time.Now().Unix() + 2
			s := session(7)
			s.Until = uint32(ends)
			s.Admitted = s.Until - 301 // a session ago
			in := st.keys.seal("sale", s)
			c, res, br := st.door.upgrade(in)
			if res.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("got %d %v", res.StatusCode, res.Header)
			}
			st.up.mu.Lock()
			st.up.held[sale].RenewCeil = 1 << 40
			st.up.say()
			st.up.mu.Unlock()
			text := frame(tc.opcode, "hello")
			heard := make([]byte, len(text))
			var err error
			for err == nil && time.Now().Unix() < ends+2 {
				if _, err = io.WriteString(c, text); err == nil {
					_, err = io.ReadFull(br, heard)
				}
			}
			if lasts := err == nil; lasts != tc.lasts {
				t.Fatalf("lasts: %v, %v", lasts, err)
			}
			if n := metric(t, st, "vestibule_edge_connections_cut_total"); (n == 0) != tc.lasts {
				t.Errorf("%v were cut", n)
			}
			st.up.queue(sale, 10, 1)
			st.origin.serves(func(w http.ResponseWriter, _ *http.Request) {
				io.WriteString(w, "the site") //nolint:errcheck // the client checks the answer
			})
			if a := st.door.visitor().get(saleURL, "Cookie", in); (a.body == "the site") != tc.lasts {
				t.Errorf("then %d %.40q", a.StatusCode, a.body)
			}
			c.Close() // it is of no use
			<-closed
		})
	}
}

func TestAWebsocketOfWhoWaitsIsThePage(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	if _, res, _ := st.door.upgrade(""); res.StatusCode != http.StatusOK || res.Header.Get("Retry-After") == "" {
		t.Errorf("got %d %v", res.StatusCode, res.Header)
	}
	st.origin.untouched()
}

// A visitor that enters by a websocket gets the ticket with its answer, and an edge that stops leaves no connection
// open.
func TestAWebsocketIsCutWhenTheEdgeStops(t *testing.T) {
	st := open(t, nil)
	closed := make(chan struct{}, 2)
	st.origin.serves(echo(t, closed))
	c, res, br := st.door.upgrade("")
	if res.StatusCode != http.StatusSwitchingProtocols || cookieOf(answer{res, ""}, "vestibule-sale") == nil ||
		len(res.Cookies()) != 1 {
		t.Fatalf("got %d, %v", res.StatusCode, res.Cookies())
	}
	say(t, c, br, "hello")
	testkit.NoError(t, st.stop())
	<-closed
	if n, err := io.Copy(io.Discard, br); n > 0 {
		t.Errorf("then %d bytes, %v", n, err)
	}
}
