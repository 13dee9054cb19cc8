package edge

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/fleettime"
	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
	"vestibule/internal/edge/gate"
	"vestibule/internal/lab/testkit"
	"vestibule/internal/node"
)

const streamURL = "http://sale.example" + gate.EventsPath + "?room=sale"

// onStream counts the event streams that are open.
func (st *stage) onStream() int {
	return st.server.streams.hub.Open()
}

// inLine returns the ticket of a visitor that joined a minute ago and came back.
func inLine(id uint64) ticket.Ticket {
	t := session(id)
	t.Admitted, t.Until, t.Home, t.Flags = 0, 0, 0, ticket.Returned
	return t
}

// listening is an event stream as a page hears it.
type listening struct {
	t      *testing.T
	res    *http.Response
	cancel context.CancelFunc
	lines  *bufio.Reader
}

// listen opens an event stream, with any answer.
func (v *visitor) listen(url string, header ...string) *listening {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience) // a stream that does not end fails
	v.t.Cleanup(cancel)
	r := testkit.Must(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))(v.t)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	v.Timeout = 0
	res := testkit.Must(v.Do(r))(v.t)
	v.t.Cleanup(func() { res.Body.Close() })
	return &listening{v.t.(*testing.T), res, cancel, bufio.NewReader(res.Body)}
}

// next returns the next message; ok is false once the stream has ended.
func (l *listening) next() (event, data string, ok bool) {
	l.t.Helper()
	for {
		line, err := l.lines.ReadString('\n')
		if err != nil {
			return "", "", false
		}
		line = strings.TrimSuffix(line, "\n")
		switch field, value, _ := strings.Cut(line, ": "); field {
		case "event":
			event = value
		case "data":
			data = value
		case "":
			if data != "" {
				return event, data, true
			}
		}
	}
}

// until reads messages up to one that is as wanted.
func (l *listening) until(what string, ok func(event string, fields map[string]any) bool) {
	l.t.Helper()
	for {
		event, data, more := l.next()
		if !more {
			l.t.Fatalf("the stream ended before: %s", what)
		}
		fields := map[string]any{"text": data}
		if event == "" {
			if err := json.Unmarshal([]byte(data), &fields); err != nil {
				l.t.Fatalf("%v in %s", err, data)
			}
		}
		if ok(event, fields) {
			return
		}
	}
}

// over waits for the last message of the stream, and its end.
func (l *listening) over(do string) {
	l.t.Helper()
	l.until("over: "+do, func(event string, fields map[string]any) bool {
		if event == "over" && fields["text"] != do {
			l.t.Errorf("the page is to %v", fields["text"])
		}
		return event == "over"
	})
	l.ended()
}

// ended waits until the stream has ended.
func (l *listening) ended() {
	l.t.Helper()
	if rest, err := io.ReadAll(l.lines); err != nil || len(rest) > 0 {
		l.t.Errorf("not the end: %q, %v", rest, err)
	}
}

// Waiting visitors get the state of the line over every kind of connection, and are not counted for it. At the turn
// one question admits the visitor, and the stream ends.
func TestAPageHearsUntilItsTurn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"HTTP/1.1", "HTTP/1.1 by header", "HTTP/1.1 over TLS", "HTTP/2 over TLS"} {
		t.Run(name, func(t *testing.T) {
			secure := strings.Contains(name, "TLS")
			st := open(t, func(st *stage) {
				if secure {
					st.withTLS()
				}
			})
			st.up.queue(sale, 10, 1)
			v := st.door.visitor()
			page, stream := saleURL, streamURL
			var header []string
			if secure {
				v = st.door.secure(strings.Contains(name, "HTTP/2"))
				page, stream = strings.Replace(page, "http:", "https:", 1), strings.Replace(stream, "http:", "https:", 1)
			}
			if strings.Contains(name, "header") {
				v.Jar = nil
			}
			if v.Jar == nil {
				header = []string{gate.TicketHeader, v.get(page, gate.TicketHeader, "new").Header.Get(gate.TicketHeader)}
			} else {
				v.get(page)
			}
			l := v.listen(stream, header...)
			if h := l.res.Header; l.res.StatusCode != http.StatusOK || h.Get("Content-Type") != "text/event-stream" ||
				!strings.Contains(h.Get("Cache-Control"), "no-store") || h.Get("X-Accel-Buffering") != "no" {
				t.Fatalf("%d %v", l.res.StatusCode, h)
			}
			if want := strings.Contains(name, "HTTP/2"); (l.res.ProtoMajor == 2) != want {
				t.Errorf("%s", l.res.Proto)
			}
			l.until("where everybody stands", func(_ string, fields map[string]any) bool {
				slices, ok := fields["line"].([]any)
				return ok && len(slices) == 3 && slices[2] == 10.0 && fmt.Sprint(fields["paces"]) == "[0 1]" &&
					fields["cutoff"] == 1.0
			})
			if l := st.server.Status().Rooms["sale"]; l.Waiting != 0 || l.Spent != 0 || l.Held != 0 {
				t.Errorf("listening counts: %+v", l)
			}
			st.up.view(sale, 0, 2, 1<<60, 1<<60)
			l.until("the turn", func(_ string, fields map[string]any) bool { return fields["cutoff"].(float64) > 1e15 })
			v.get(page, header...).enters(t, "at the turn")
			l.over("ask")
			eventually(t, "the stream is closed", func() bool { return st.onStream() == 0 })
		})
	}
}

// Pages near their turn ask, and are held. Of three with one free session permit the first in line enters, and is
// charged once.
func TestAsManyEnterAsThereAreSlots(t *testing.T) {
	st := open(t, func(st *stage) { st.params.Hold, st.params.Knock = time.Hour, time.Hour })
	st.fill(sale, 1000)
	st.up.queue(sale, 10, 1)
	spent := st.server.Status().Rooms["sale"].Spent
	entered := make(chan int, 3)
	for i := range 3 {
		place := inLine(uint64(i) + 1)
		place.Joined += fleettime.Time(i)
		v := st.door.visitor()
		v.Timeout = 0
		v.Jar.SetCookies(&url.URL{Scheme: "http", Host: "sale.example"},
			[]*http.Cookie{{Name: ticket.CookieName("sale", false), Value: st.keys.value("sale", place)}})
		l := v.listen(streamURL)
		go func() {
			l.until("the turn is near", func(_ string,
				fields map[string]any,
			) bool {
				return fields["park"].(float64) >= float64(place.Joined)
			})
			if a := v.get(saleURL, "Accept", "application/json", gate.PollHeader, "1"); a.json(t).Ours["state"] == "entering" {
				v.get(saleURL).enters(t, "inside")
				entered <- i
				return
			}
			entered <- -1 // the edge stops
		}()
	}
	at := inLine(1).Joined
	st.up.view(sale, 10, 1, at+10, at+10)
	eventually(t, "all are held", func() bool { return st.server.Status().Rooms["sale"].Held == 3 })
	st.up.grant(sale, 1, 1)
	if i := <-entered; i != 0 {
		t.Errorf("number %d came in", i)
	}
	eventually(t, "the stream of who came in is over", func() bool { return st.onStream() == 2 })
	if l := st.server.Status().Rooms["sale"]; l.Held != 2 || l.Spent != spent+1 {
		t.Errorf("%d are held and %d permits spent", l.Held, l.Spent-spent)
	}
	testkit.NoError(t, st.stop())
	for range 2 {
		if i := <-entered; i != -1 {
			t.Errorf("number %d came in too", i)
		}
	}
}

// Only pages of the visitors' own site may listen.
func TestWhoMayListen(t *testing.T) {
	t.Parallel()
	st := open(t, func(st *stage) { st.cfg.Events.Prefix, st.cfg.Events.Total = 1, 3 })
	st.up.queue(sale, 10, 1)
	v := st.door.visitor()
	v.Jar = nil
	cookie := st.keys.seal("sale", inLine(7))
	void := inLine(8)
	void.Epoch = 3
	for _, tc := range []struct {
		name, method, url string
		header            []string
		want              int
	}{
		{"another method", http.MethodPost, streamURL, []string{"Cookie", cookie}, http.StatusMethodNotAllowed},
		{
			"a page of another site", http.MethodGet, streamURL,
			[]string{"Cookie", cookie, "Sec-Fetch-Site", "cross-site"},
			http.StatusForbidden,
		},
		{
			"a page of another origin", http.MethodGet, streamURL,
			[]string{"Cookie", cookie, "Origin", "http://evil.example"},
			http.StatusForbidden,
		},
		{"no room", http.MethodGet, "http://sale.example" + gate.EventsPath, []string{"Cookie", cookie}, http.StatusNotFound},
		{
			"a room that there is not", http.MethodGet, "http://sale.example" + gate.EventsPath + "?room=x",
			[]string{"Cookie", cookie},
			http.StatusNotFound,
		},
		{
			"a host that there is not", http.MethodGet, "http://x.example" + gate.EventsPath + "?room=sale",
			[]string{"Cookie", cookie},
			http.StatusMisdirectedRequest,
		},
		{"nobody", http.MethodGet, streamURL, nil, http.StatusNoContent},
		{
			"somebody inside", http.MethodGet, streamURL,
			[]string{"Cookie", st.keys.seal("sale", session(9))},
			http.StatusNoContent,
		},
		{
			"a place of an earlier epoch", http.MethodGet, streamURL,
			[]string{"Cookie", st.keys.seal("sale", void)},
			http.StatusNoContent,
		},
		{
			"a ticket of another room", http.MethodGet, "http://sale.example" + gate.EventsPath + "?room=vip",
			[]string{"Cookie", cookie},
			http.StatusNoContent,
		},
	} {
		v.ask(tc.method, tc.url, "", tc.header...).has(t, tc.want, "%s", tc.name)
	}
	if n := st.onStream(); n != 0 {
		t.Fatalf("%d streams are open", n)
	}

	first := v.listen(streamURL, "Cookie", cookie, "Sec-Fetch-Site", "same-origin")
	if a := v.ask(http.MethodGet, streamURL, "", "Cookie",
		st.keys.seal("sale", inLine(10))); a.StatusCode != http.StatusServiceUnavailable ||
		a.Header.Get("Retry-After") == "" {
		t.Errorf("one too many of a neighbourhood: %d", a.StatusCode)
	}
	first.cancel()
	eventually(t, "who went away is noticed", func() bool { return st.onStream() == 0 })
	v.listen(streamURL, "Cookie", cookie)
}

// A ticket has one stream, the newest; its other pages fall back to polling. The number of an edge's streams is
// capped.
func TestStreamsAreCapped(t *testing.T) {
	st := open(t, func(st *stage) { st.cfg.Events.Total = 2 })
	st.up.queue(sale, 10, 1)
	v := st.door.visitor()
	v.Jar = nil
	old := v.listen(streamURL, "Cookie", st.keys.seal("sale", inLine(7)))
	v.listen(streamURL, "Cookie", st.keys.seal("sale", inLine(7)))
	old.over("poll")
	eventually(t, "the old stream is closed", func() bool { return st.onStream() == 1 })
	v.listen(streamURL, "Cookie", st.keys.seal("sale", inLine(8)))
	v.ask(http.MethodGet, streamURL, "", "Cookie",
		st.keys.seal("sale", inLine(9))).has(t, http.StatusServiceUnavailable, "one too many")
}

// A stream ends with a hint to ask if its visitor leaves, its place is void or its room is gone. All streams end when
// the edge stops.
func TestStreamsEnd(t *testing.T) {
	st := open(t, nil)
	st.up.queue(sale, 10, 1)
	st.up.queue(vip, 10, 1)
	v := st.door.visitor()
	v.Jar = nil
	const vipStream = "http://shop.example" + gate.EventsPath + "?room=vip"

	place := st.keys.seal("sale", inLine(7))
	l := v.listen(streamURL, "Cookie", place)
	if a := v.ask(http.MethodPost, leaveURL, "", "Cookie", place); a.StatusCode != http.StatusNoContent {
		t.Fatalf("leaving: %d", a.StatusCode)
	}
	l.over("ask")
	v.ask(http.MethodGet, streamURL, "", "Cookie", place).has(t, http.StatusNoContent, "after leaving")

	sales, vips := v.listen(streamURL, "Cookie", st.keys.seal("sale", inLine(8))),
		v.listen(vipStream, "Cookie", st.keys.seal("vip", inLine(8)))
	d := document(st.origin.URL)
	d.Rooms[0].Epoch = 1
	d.Rooms = d.Rooms[:1]
	st.docs.offer(node.RoomsDocument, roomsDocument(t, 2, d))
	sales.over("ask")
	vips.over("ask")

	anew := inLine(9)
	anew.Epoch = 1
	last := v.listen(streamURL, "Cookie", st.keys.seal("sale", anew))
	if err := st.stop(); err != nil {
		t.Errorf("stopping: %v", err)
	}
	for _, _, more := last.next(); more; _, _, more = last.next() {
	}
	if n := st.onStream(); n != 0 {
		t.Errorf("%d streams are open", n)
	}
}

// A stream over HTTP/2 ends with its client, and keeps no edge from stopping.
func TestStreamsOverHTTP2EndWithTheEdge(t *testing.T) {
	st := open(t, func(st *stage) {
		st.withTLS()
		st.cfg.Timeouts.Shutdown = time.Minute
	})
	st.up.queue(sale, 10, 1)
	v := st.door.secure(true)
	v.Jar = nil
	url := strings.Replace(streamURL, "http:", "https:", 1)
	kept := v.listen(url, "Cookie", st.keys.sealTLS("sale", inLine(7)))
	gone := v.listen(url, "Cookie", st.keys.sealTLS("sale", inLine(8)))
	if kept.res.ProtoMajor != 2 || st.onStream() != 2 {
		t.Fatalf("%s, %d streams", kept.res.Proto, st.onStream())
	}
	gone.cancel()
	eventually(t, "who went away is noticed", func() bool { return st.onStream() == 1 })
	begun := time.Now()
	if err := st.stop(); err != nil || time.Since(begun) > st.cfg.Timeouts.Shutdown/2 {
		t.Errorf("stopping: %v after %v", err, time.Since(begun))
	}
	for _, _, more := kept.next(); more; _, _, more = kept.next() {
	}
}

// An edge without a lease, or in a draining data centre, says that admissions are paused.
func TestAStreamTellsOfAPause(t *testing.T) {
	t.Parallel()
	st := open(t, func(st *stage) { st.params.Isolation = time.Hour })
	st.up.queue(sale, 10, 1)
	v := st.door.visitor()
	v.Jar = nil
	l := v.listen(streamURL, "Cookie", st.keys.seal("sale", inLine(7)))
	l.until("no pause", func(_ string, fields map[string]any) bool { return fields["pausedBy"] == nil })
	st.up.stand(wire.Draining)
	l.until("the data centre drains", func(_ string, fields map[string]any) bool { return fields["pausedBy"] == "system" })
	st.up.stand(wire.Listed)
	l.until("it stays after all", func(_ string, fields map[string]any) bool { return fields["pausedBy"] == nil })
	st.engine(func(now fleettime.Mono, eng *admission.Engine) { eng.Lapse(now) })
	st.up.silence()
	l.until("a pause", func(_ string, fields map[string]any) bool { return fields["pausedBy"] == "system" })
}
