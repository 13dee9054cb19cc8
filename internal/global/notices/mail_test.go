package notices

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/mail"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// office is a mail server, and the session of each client.
type office struct {
	mu     sync.Mutex
	user   string // authenticated
	from   string
	to     []string
	text   []byte
	refuse bool // messages

	hang chan struct{} // nil, or closed when messages are answered
	hung func()        // called when one is not answered
}

func (o *office) Reset()        {}
func (o *office) Logout() error { return nil }

func (o *office) Mail(from string, _ *smtp.MailOptions) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.from, o.to = from, nil
	return nil
}

func (o *office) Rcpt(to string, _ *smtp.RcptOptions) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.to = append(o.to, to)
	return nil
}

func (o *office) Data(r io.Reader) (err error) {
	if o.hang != nil {
		o.hung()
		<-o.hang
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refuse {
		return &smtp.SMTPError{Code: 451, Message: "later"}
	}
	o.text, err = io.ReadAll(r)
	return err
}

func (o *office) AuthMechanisms() []string { return []string{sasl.Plain} }

func (o *office) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if password != "secret" {
			return errors.New("wrong password")
		}
		o.user = user
		return nil
	}), nil
}

// open starts the server, and returns its address and the authority of its certificate.
func (o *office) open(t *testing.T, security string) (address string, roots *x509.CertPool) {
	t.Helper()
	certified := httptest.NewUnstartedServer(nil) // for its certificate, of example.com and 127.0.0.1
	certified.StartTLS()
	defer certified.Close()
	config := &tls.Config{Certificates: certified.TLS.Certificates}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	s := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return o, nil }))
	s.Domain, s.TLSConfig, s.ErrorLog = "mail.example", config, quiet{}
	if security == "none" {
		s.TLSConfig = nil
	}
	if security == ImplicitTLS {
		l = tls.NewListener(l, config)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, smtp.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
	roots = x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	return address, roots
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

// TestMail: a notice arrives over TLS with the password, with a Message-ID that follows from it.
func TestMail(t *testing.T) {
	for _, security := range []string{StartTLS, ImplicitTLS} {
		o := &office{}
		address, roots := o.open(t, security)
		m, err := NewMailer(MailConfig{
			Server: address, Security: security, From: "vestibule@example.org", To: []string{"ops@example.org", "night@example.org"},
			User: "vestibule", Password: "secret", Roots: roots,
		})
		if err != nil {
			t.Fatal(err)
		}
		n := newNotice(RoomPaused, "r", "c", at(1), Data{Text: "Room shop:\r\nBcc: evil@example.org\nit is paused – now.", RoomName: "shop", By: "anna", Reason: "a fault"})
		if r := m.Send(t.Context(), &n); r.Err != nil {
			t.Fatalf("%s: %v", security, r.Err)
		}
		got, err := mail.ReadMessage(bytes.NewReader(o.text))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(got.Body)
		if err != nil {
			t.Fatal(err)
		}
		if o.user != "vestibule" || o.from != "vestibule@example.org" || len(o.to) != 2 || got.Header.Get("Message-ID") != "<"+n.ID+"@example.org>" || got.Header.Get("Bcc") != "" {
			t.Errorf("%s: %+v", security, o)
		}
		if !strings.Contains(string(body), "a fault") || !strings.Contains(string(body), "room.paused") || got.Header.Get("Auto-Submitted") != "auto-generated" {
			t.Errorf("%s: %v\n%s", security, got.Header, body)
		}
		o.refuse = true
		if r := m.Send(t.Context(), &n); r.Err == nil || strings.Contains(r.Err.Error(), "secret") {
			t.Errorf("refused: %v", r.Err)
		}
	}
}

// TestMailIsNotSentInTheOpen: without TLS, with a certificate of an unknown authority, and with a wrong password.
func TestMailIsNotSentInTheOpen(t *testing.T) {
	for what, security := range map[string]string{"no TLS": "none", "unknown authority": StartTLS, "wrong password": StartTLS} {
		o := &office{}
		address, roots := o.open(t, security)
		c := MailConfig{Server: address, Security: StartTLS, From: "a@example.org", To: []string{"b@example.org"}, User: "u", Password: "secret", Roots: roots}
		switch what {
		case "unknown authority":
			c.Roots = x509.NewCertPool()
		case "wrong password":
			c.Password = "guess"
		}
		m, err := NewMailer(c)
		if err != nil {
			t.Fatal(err)
		}
		n := newNotice(RoomPaused, "r", "c", at(1), Data{Text: "x"})
		if r := m.Send(t.Context(), &n); r.Err == nil || o.text != nil || o.user != "" {
			t.Errorf("%s: %v, %+v", what, r.Err, o)
		}
	}
}

// TestMailEndsWithTheTerm: a server that does not answer holds nobody up.
func TestMailEndsWithTheTerm(t *testing.T) {
	o := &office{hang: make(chan struct{})}
	address, roots := o.open(t, StartTLS)
	defer close(o.hang)
	m, err := NewMailer(MailConfig{Server: address, Security: StartTLS, From: "a@example.org", To: []string{"b@example.org"}, Roots: roots})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	o.hung = cancel
	n := newNotice(RoomPaused, "r", "c", at(1), Data{Text: "x"})
	if r := m.Send(ctx, &n); r.Err == nil {
		t.Error("sent")
	}
}

func TestMailersThatAreRefused(t *testing.T) {
	good := MailConfig{Server: "mail.example:587", Security: StartTLS, From: "a@example.org", To: []string{"b@example.org"}}
	if _, err := NewMailer(good); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*MailConfig){
		"server":   func(c *MailConfig) { c.Server = "mail.example" },
		"security": func(c *MailConfig) { c.Security = "none" },
		"from":     func(c *MailConfig) { c.From = "vestibule" },
		"to":       func(c *MailConfig) { c.To = []string{"ops"} },
	} {
		c := good
		change(&c)
		if _, err := NewMailer(c); err == nil || !strings.HasPrefix(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
