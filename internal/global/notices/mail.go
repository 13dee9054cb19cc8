package notices

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail"
)

// The securities of a connection to a mail server.
const (
	StartTLS    = "starttls"
	ImplicitTLS = "tls"
)

// MailConfig says how notices are mailed.
type MailConfig struct {
	Server   string // host:port
	Security string // StartTLS or ImplicitTLS
	From     string
	To       []string
	User     string // "" for none
	Password string
	Roots    *x509.CertPool // nil for the system's
}

// Mailer mails notices.
type Mailer struct {
	config MailConfig
	host   string
	port   int
	domain string // of Message-IDs
}

const mailWithin = 30 * time.Second

// NewMailer returns a mailer. Messages and password are sent only over TLS, with a certificate of the server's name.
func NewMailer(c MailConfig) (*Mailer, error) {
	host, text, err := net.SplitHostPort(c.Server)
	if err != nil {
		return nil, fmt.Errorf("server must be an address such as mail.example.org:587, got %q", c.Server)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("server must have a port, got %q", c.Server)
	}
	if c.Security != StartTLS && c.Security != ImplicitTLS {
		return nil, fmt.Errorf("security must be %s or %s, got %q", StartTLS, ImplicitTLS, c.Security)
	}
	m := &Mailer{config: c, host: host, port: port}
	if _, err = m.client(context.Background()); err != nil {
		return nil, err
	}
	if _, m.domain, _ = strings.Cut(c.From, "@"); m.domain == "" {
		return nil, fmt.Errorf("from must be an address such as vestibule@example.org, got %q", c.From)
	}
	if len(c.To) == 0 {
		return nil, errors.New("to must have an address")
	}
	_, err = m.message(&Notice{})
	return m, err
}

// client returns a client for one attempt. Its connection ends with ctx.
func (m *Mailer) client(ctx context.Context) (*mail.Client, error) {
	secure := &tls.Config{ServerName: m.host, MinVersion: tls.VersionTLS12, RootCAs: m.config.Roots}
	dial := (&net.Dialer{}).DialContext
	if m.config.Security == ImplicitTLS {
		dial = (&tls.Dialer{Config: secure}).DialContext
	}
	options := []mail.Option{
		mail.WithPort(m.port), mail.WithTimeout(mailWithin), mail.WithTLSPolicy(mail.TLSMandatory), mail.WithTLSConfig(secure),
		mail.WithDialContextFunc(func(within context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(within, network, address)
			if err == nil {
				context.AfterFunc(ctx, func() { _ = conn.Close() }) // the library does not watch ctx while it sends
			}
			return conn, err
		}),
	}
	if m.config.Security == ImplicitTLS {
		options = append(options, mail.WithSSL())
	}
	if m.config.User != "" {
		options = append(options, mail.WithUsername(m.config.User), mail.WithPassword(m.config.Password),
			mail.WithOpportunisticSMTPAuth(mail.SMTPAuthSCRAMSHA256, mail.SMTPAuthSCRAMSHA1, mail.SMTPAuthPlain, mail.SMTPAuthLogin))
	}
	return mail.NewClient(m.host, options...)
}

// message returns the mail of a notice. Its Message-ID follows from the notice, so that copies are recognized.
func (m *Mailer) message(n *Notice) (*mail.Msg, error) {
	msg := mail.NewMsg()
	if err := msg.From(m.config.From); err != nil {
		return nil, fmt.Errorf("from must be an address such as vestibule@example.org, got %q", m.config.From)
	}
	if err := msg.To(m.config.To...); err != nil {
		return nil, fmt.Errorf("to must be addresses such as ops@example.org, got %q", m.config.To)
	}
	msg.Subject("[Vestibule] " + cut(strings.Join(strings.Fields(n.Data.Text), " "), maxSubject))
	msg.SetMessageIDWithValue(n.ID + "@" + m.domain)
	msg.SetDateWithValue(n.At.Std())
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	lines := []string{n.Data.Text, "", "kind: " + string(n.Kind), "at:   " + n.At.String()}
	for _, line := range [][2]string{{"room: ", n.Data.RoomName}, {"by:   ", n.Data.By}, {"why:  ", n.Data.Reason}} {
		if line[1] != "" {
			lines = append(lines, line[0]+line[1])
		}
	}
	msg.SetBodyString(mail.TypeTextPlain, strings.Join(lines, "\n")+"\n")
	return msg, nil
}

const maxSubject = 150 // bytes

// Send makes one attempt.
func (m *Mailer) Send(ctx context.Context, n *Notice) Result {
	ctx, cancel := context.WithTimeout(ctx, mailWithin)
	defer cancel()
	msg, err := m.message(n)
	if err != nil {
		return Result{Err: err}
	}
	client, err := m.client(ctx)
	if err != nil {
		return Result{Err: err}
	}
	conn, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		return Result{Err: fmt.Errorf("mail server: %w", err)}
	}
	err = client.SendWithSMTPClient(conn, msg)
	closed := client.CloseWithSMTPClient(conn)
	if err != nil {
		return Result{Err: fmt.Errorf("mail server: %w", errors.Join(err, closed))}
	}
	return Result{} // the server has taken the message, even if the goodbye failed
}

// cut returns the beginning of a text, of at most n bytes, with all of its characters whole.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
