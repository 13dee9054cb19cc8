package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/wire"
)

// Audit is the stream of audit entries. Only globals write and read it. Entries cannot be deleted or purged. They
// expire after auditAge, and the oldest are dropped above auditBytes.
type Audit struct {
	conn     *Conn
	replicas int
}

const (
	auditStream = "VESTIBULE_AUDIT"
	auditAge    = 400 * 24 * time.Hour
	auditBytes  = 256 << 20 // about 200,000 changes of one room; reserved by the server
)

// NewAudit returns the stream behind conn. replicas applies if the stream has to be created.
func NewAudit(conn *Conn, replicas int) *Audit { return &Audit{conn, replicas} }

// makeAudit creates the stream with the given number of replicas.
func makeAudit(ctx context.Context, js jetstream.JetStream, replicas int) (jetstream.Stream, error) {
	config := jetstream.StreamConfig{
		Name: auditStream, Description: "vestibule", Subjects: []string{wire.Audits}, Storage: jetstream.FileStorage,
		MaxAge: auditAge, MaxBytes: auditBytes, Discard: jetstream.DiscardOld, DenyDelete: true, DenyPurge: true, AllowDirect: true,
	}
	return replicated(replicas, func(n int) (jetstream.Stream, error) {
		config.Replicas = n
		return js.CreateStream(ctx, config)
	})
}

// open returns the stream and creates it if necessary.
func (a *Audit) open(ctx context.Context) (jetstream.Stream, error) {
	if !a.conn.Connected() {
		return nil, fmt.Errorf("audit: %w", wire.ErrDown)
	}
	js, err := a.conn.jetStream()
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	s, err := js.Stream(ctx, auditStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) && a.replicas != 0 {
		if s, err = makeAudit(ctx, js, a.replicas); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			s, err = js.Stream(ctx, auditStream) // created concurrently
		}
	}
	if err != nil {
		return nil, fmt.Errorf("audit: stream %s: %w", auditStream, err)
	}
	return s, nil
}

// Bounds implements the interface Stream of package audit. The leader of the stream answers.
func (a *Audit) Bounds(ctx context.Context) (first, last uint64, err error) {
	s, err := a.open(ctx)
	if err != nil {
		return 0, 0, err
	}
	state := s.CachedInfo().State // just read
	if state.Msgs == 0 {
		return state.LastSeq + 1, state.LastSeq, nil
	}
	return state.FirstSeq, state.LastSeq, nil
}

// Append implements the interface Stream of package audit.
func (a *Audit) Append(ctx context.Context, subject string, data []byte, last uint64) (uint64, error) {
	if !a.conn.Connected() {
		return 0, fmt.Errorf("audit: %w", wire.ErrDown)
	}
	js, err := a.conn.jetStream()
	if err != nil {
		return 0, fmt.Errorf("audit: %w", err)
	}
	ack, err := js.Publish(ctx, subject, data, jetstream.WithExpectLastSequence(last), jetstream.WithExpectStream(auditStream))
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return 0, fmt.Errorf("audit: %w", wire.ErrChanged)
	}
	if err != nil {
		return 0, fmt.Errorf("audit: %w", err)
	}
	return ack.Sequence, nil
}

// readBytes bounds an answer of a server, except for its first entry.
const readBytes = 4 << 20

// Read implements the interface Stream of package audit.
func (a *Audit) Read(ctx context.Context, from uint64, n int, subject string) (out []wire.AuditEntry, err error) {
	if !a.conn.Connected() {
		return nil, fmt.Errorf("audit: %w", wire.ErrDown)
	}
	ask := struct {
		Seq   uint64 `json:"seq"`
		Next  string `json:"next_by_subj,omitempty"`
		Batch int    `json:"batch"`
		Bytes int    `json:"max_bytes"`
	}{max(from, 1), subject, n, readBytes}
	data, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	inbox := a.conn.nc.NewInbox()
	answers, err := a.conn.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	defer func() { err = errors.Join(err, answers.Unsubscribe()) }()
	if err := a.conn.nc.PublishRequest(api(a.conn.domain)+"DIRECT.GET."+auditStream, inbox, data); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return nil, fmt.Errorf("audit: read: %w", err)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			sequence, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("audit: read: %w", err)
			}
			out = append(out, wire.AuditEntry{Sequence: sequence, Data: m.Data})
		case "204", "404": // the end, or an empty stream
			return out, nil
		case "503":
			return nil, fmt.Errorf("audit: read: %w", nats.ErrNoResponders) // no such stream
		default:
			return nil, fmt.Errorf("audit: read: %s %s", status, m.Header.Get("Description"))
		}
	}
}
