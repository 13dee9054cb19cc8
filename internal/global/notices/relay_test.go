package notices

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"vestibule/internal/lab/testkit"
)

// receiver is an address that answers a status, and keeps what is posted to it.
type receiver struct {
	*httptest.Server
	status int
	bodies []string
}

func receives(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{status: http.StatusOK}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil || q.Header.Get("Content-Type") != "application/json" {
			t.Error(q.Header, err)
		}
		r.bodies = append(r.bodies, string(body))
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

// mailbox is a mail relay for messages of one connection each.
func mailbox(t *testing.T) (addr string, messages <-chan string) {
	t.Helper()
	l := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	got, done := make(chan string, 9), make(chan struct{})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "220 mail.example\r\n")
			in, message, text := bufio.NewScanner(c), false, ""
			for in.Scan() {
				line := in.Text()
				switch {
				case message && line == ".":
					message = false
					got <- text
					fmt.Fprint(c, "250 ok\r\n")
				case message:
					text += line + "\n"
				case strings.EqualFold(line, "DATA"):
					message = true
					fmt.Fprint(c, "354 go\r\n")
				case strings.EqualFold(line, "QUIT"):
					fmt.Fprint(c, "221 bye\r\n")
				default:
					fmt.Fprint(c, "250 mail.example\r\n")
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}()
	return l.Addr().String(), got
}

// TestTheRelay: the relay of deploy/examples passes a notice on to Slack, Teams and a mail relay in the form of each,
// each once, and refuses what is not signed. A receiver that fails gets it by the next attempt, and the others do not.
func TestTheRelay(t *testing.T) {
	python := testkit.Program(t, "python3")
	slack, teams := receives(t), receives(t)
	smtp, mails := mailbox(t)
	w := hook(t, "")
	old := NewKey()
	relay := exec.CommandContext(t.Context(), python, "../../../deploy/examples/notices/relay.py")
	relay.Env = append(os.Environ(), "LISTEN=127.0.0.1:0", "SECRETS="+string(old)+" "+string(w.Secrets[0].Key),
		"SLACK_URL="+slack.URL, "TEAMS_URL="+teams.URL,
		"SMTP="+smtp, "MAIL_FROM=vestibule@shop.example", "MAIL_TO=ops@shop.example, night@shop.example")
	var log strings.Builder
	relay.Stderr = &log
	out := testkit.Must(relay.StdoutPipe())(t)
	testkit.NoError(t, relay.Start())
	t.Cleanup(func() {
		if err := relay.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = relay.Wait() // it was killed
	})
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err, log.String())
	}
	w.URL = strings.TrimSpace(strings.TrimPrefix(said, "notices at "))
	n := newNotice(RoomPaused, "r1", "c", at(1), Data{
		Text:   "Room A&B <shop>: it is paused.\nBen: “the till”",
		RoomID: "r1",
	})
	post := func(w *Webhook, now time.Time, want int) {
		t.Helper()
		if r := NewPoster(loopbacks).Post(t.Context(), now, w, &n); r.Status != want {
			t.Errorf("status %d, want %d (%v): %s", r.Status, want, r.Err, log.String())
		}
	}
	post(hook(t, w.URL), time.Now(), http.StatusUnauthorized)
	post(w, time.Now().Add(-time.Hour), http.StatusUnauthorized)
	slack.status = http.StatusInternalServerError
	post(w, time.Now(), http.StatusBadGateway)
	slack.status = http.StatusOK
	post(w, time.Now(), http.StatusNoContent)
	post(w, time.Now(), http.StatusNoContent)
	if want := `{"text": "Room A&amp;B &lt;shop&gt;: it is paused.\nBen: \u201cthe till\u201d"}`; !slices.Equal(slack.bodies, []string{want, want}) {
		t.Errorf("to Slack: %q", slack.bodies)
	}
	var message struct {
		Type        string
		Attachments []struct {
			ContentType string
			Content     struct {
				Type, Version string
				Body          []struct{ Type, Text string }
			}
		}
	}
	if len(teams.bodies) != 1 || json.Unmarshal([]byte(teams.bodies[0]), &message) != nil || message.Type != "message" ||
		len(message.Attachments) != 1 {
		t.Fatalf("to Teams: %q", teams.bodies)
	}
	card := message.Attachments[0]
	if card.ContentType != "application/vnd.microsoft.card.adaptive" || card.Content.Type != "AdaptiveCard" ||
		card.Content.Version == "" || len(card.Content.Body) != 1 ||
		card.Content.Body[0].Type != "TextBlock" || card.Content.Body[0].Text != n.Data.Text {
		t.Errorf("to Teams: %+v", message)
	}
	mail := <-mails
	for _, want := range []string{
		"From: vestibule@shop.example\n", "To: ops@shop.example, night@shop.example\n",
		"Subject: Room A&B <shop>: it is paused. Ben:", "room.paused\n",
	} {
		if !strings.Contains(mail, want) {
			t.Errorf("%q is not in the mail: %s", want, mail)
		}
	}
	if len(mails) > 0 {
		t.Errorf("a second mail: %s", <-mails)
	}
	if s := log.String(); strings.Contains(s, slack.URL) || !strings.Contains(s, "slack: HTTPError") {
		t.Errorf("the relay logs: %s", s)
	}
}
