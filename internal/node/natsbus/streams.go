package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/wire"
)

// stream is a stream on global's servers. Only globals write and read it. Messages cannot be deleted or purged: they
// expire after MaxAge, or the oldest beyond MaxBytes, which the server reserves.
type stream struct {
	conn     *Conn
	config   *jetstream.StreamConfig
	replicas int         // for its creation; 0 does not create it
	made     atomic.Bool // it existed at the last use
}

// makeStream creates a stream with the given number of replicas.
func makeStream(
	ctx context.Context, js jetstream.JetStream, config jetstream.StreamConfig, replicas int,
) (jetstream.Stream, error) {
	config.Description, config.Storage, config.Discard = "vestibule", jetstream.FileStorage, jetstream.DiscardOld
	config.DenyDelete, config.DenyPurge, config.AllowDirect = true, true, true
	return replicated(replicas, func(n int) (jetstream.Stream, error) {
		if config.Replicas = n; n > 1 {
			config.PersistMode = jetstream.DefaultPersistMode // the only one of replicas
		}
		return js.CreateStream(ctx, config)
	})
}

// open returns the stream and creates it if needed.
func (s *stream) open(ctx context.Context) (jetstream.Stream, error) {
	js, err := s.jetStream()
	if err != nil {
		return nil, err
	}
	got, err := js.Stream(ctx, s.config.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) && s.replicas != 0 {
		// another node was faster
		if got, err = makeStream(ctx, js, *s.config, s.replicas); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			got, err = js.Stream(ctx, s.config.Name)
		}
	}
	return got, s.wrap(err)
}

func (s *stream) jetStream() (jetstream.JetStream, error) {
	if !s.conn.Connected() {
		return nil, s.wrap(wire.ErrDown)
	}
	js, err := s.conn.jetStream()
	return js, s.wrap(err)
}

func (s *stream) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("stream %s: %w", s.config.Name, err)
}

// publish adds a message. It returns wire.ErrChanged if an option expects another sequence.
func (s *stream) publish(
	ctx context.Context, subject string, data []byte, opts ...jetstream.PublishOpt,
) (uint64, error) {
	js, err := s.jetStream()
	if err != nil {
		return 0, err
	}
	ack, err := js.Publish(ctx, subject, data, append(opts, jetstream.WithExpectStream(s.config.Name))...)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok &&
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return 0, s.wrap(wire.ErrChanged)
	}
	if err != nil {
		return 0, s.wrap(err)
	}
	return ack.Sequence, nil
}

// readBytes bounds one response of the server, but for its first message.
const readBytes = 4 << 20

// question selects messages of a stream.
type question struct {
	Seq   uint64     `json:"seq,omitempty"`
	Since *time.Time `json:"start_time,omitempty"`
	Next  string     `json:"next_by_subj,omitempty"`
	Last  []string   `json:"multi_last,omitempty"`
	Batch int        `json:"batch"`
	Bytes int        `json:"max_bytes"`
}

// read returns messages, the oldest first. The result may be stale.
func (s *stream) read(ctx context.Context, q question) (out []message, err error) {
	if !s.conn.Connected() {
		return nil, s.wrap(wire.ErrDown)
	}
	q.Bytes = readBytes
	data, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	inbox := s.conn.nc.NewInbox()
	answers, err := s.conn.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, s.wrap(err)
	}
	defer func() { err = errors.Join(err, answers.Unsubscribe()) }()
	if err := s.conn.nc.PublishRequest(api(s.conn.domain)+"DIRECT.GET."+s.config.Name, inbox, data); err != nil {
		return nil, s.wrap(err)
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return nil, s.wrap(err)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			sequence, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
			if err != nil {
				return nil, s.wrap(err)
			}
			out = append(out, message{sequence, m.Header.Get(jetstream.SubjectHeader), m.Data})
		case "204", "404": // the end, or an empty stream
			return out, nil
		case "503":
			return nil, s.wrap(nats.ErrNoResponders) // no stream
		default:
			return nil, s.wrap(fmt.Errorf("%s %s", status, m.Header.Get("Description")))
		}
	}
}

// message is a stored message.
type message struct {
	sequence uint64
	subject  string
	data     []byte
}

// auditStream holds the changes and their authors: about 200,000 changes of one room.
var auditStream = &jetstream.StreamConfig{
	Name: "VESTIBULE_AUDIT", Subjects: []string{wire.Audits}, MaxAge: 400 * 24 * time.Hour, MaxBytes: 256 << 20,
}

// Audit is the stream of changes and their authors.
type Audit struct{ *stream }

// NewAudit returns the stream on conn. replicas is for its creation.
func NewAudit(conn *Conn, replicas int) *Audit {
	return &Audit{&stream{conn: conn, config: auditStream, replicas: replicas}}
}

// Bounds implements audit.Stream. The leader of the stream answers.
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

// Append implements audit.Stream.
func (a *Audit) Append(ctx context.Context, subject string, data []byte, last uint64) (uint64, error) {
	return a.publish(ctx, subject, data, jetstream.WithExpectLastSequence(last))
}

// Read implements audit.Stream.
func (a *Audit) Read(ctx context.Context, from uint64, n int, subject string) (out []wire.AuditEntry, err error) {
	got, err := a.read(ctx, question{Seq: max(from, 1), Next: subject, Batch: n})
	for _, m := range got {
		out = append(out, wire.AuditEntry{Sequence: m.sequence, Data: m.data})
	}
	return out, err
}

// historyStreams hold the history, by [wire.HistoryLevel]. A busy room writes about 5 MB a day.
var historyStreams = [...]*jetstream.StreamConfig{
	wire.HistoryLog:     historyStream(wire.HistoryLog, "LOG", time.Hour, 64<<20),
	wire.HistorySeconds: historyStream(wire.HistorySeconds, "SECONDS", 25*time.Hour, 256<<20),
	wire.HistoryMinutes: historyStream(wire.HistoryMinutes, "MINUTES", 33*24*time.Hour, 256<<20),
	wire.HistoryHours:   historyStream(wire.HistoryHours, "HOURS", 62*24*time.Hour, 32<<20),
	wire.HistoryMonths:  historyStream(wire.HistoryMonths, "MONTHS", 431*24*time.Hour, 96<<20),
}

func historyStream(level wire.HistoryLevel, name string, age time.Duration, bytes int64) *jetstream.StreamConfig {
	return &jetstream.StreamConfig{
		Name: "VESTIBULE_HISTORY_" + name, Subjects: []string{wire.HistorySubject(level, "*")}, MaxAge: age, MaxBytes: bytes,
		Duplicates: 10 * time.Minute, // two leaders write one message
	}
}

// History holds the history of rooms. It is safe for concurrent use.
type History struct{ streams []*stream }

// NewHistory returns the streams on conn. replicas is for their creation.
func NewHistory(conn *Conn, replicas int) *History {
	h := &History{}
	for _, config := range historyStreams {
		h.streams = append(h.streams, &stream{conn: conn, config: config, replicas: replicas})
	}
	return h
}

// Write implements history.Store. It makes the stream first: candidates subscribe to the log, so a message without a
// stream would only lack its acknowledgement.
func (h *History) Write(ctx context.Context, level wire.HistoryLevel, of, id string, data []byte) error {
	s := h.streams[level]
	if !s.made.Load() {
		if _, err := s.open(ctx); err != nil {
			return err
		}
	}
	_, err := s.publish(ctx, wire.HistorySubject(level, of), data, jetstream.WithMsgID(id))
	s.made.Store(err == nil)
	return err
}

// Read implements history.Store.
func (h *History) Read(
	ctx context.Context, level wire.HistoryLevel, of string, since time.Time, each func(data []byte) (more bool),
) error {
	const batch = 256
	q := question{Since: &since, Next: wire.HistorySubject(level, of), Batch: batch}
	for {
		got, err := h.read(ctx, level, q)
		if err != nil {
			return err
		}
		for _, m := range got {
			if !each(m.data) {
				return nil
			}
		}
		if len(got) == 0 {
			return nil
		}
		q.Since, q.Seq = nil, got[len(got)-1].sequence+1
	}
}

// read returns messages of a level, none before the first was written. While no server has the stream, that is an
// error.
func (h *History) read(ctx context.Context, level wire.HistoryLevel, q question) ([]message, error) {
	s := h.streams[level]
	got, err := s.read(ctx, q)
	if !errors.Is(err, nats.ErrNoResponders) {
		return got, err
	}
	js, e := s.jetStream()
	if e != nil {
		return nil, e
	}
	if _, e = js.Stream(ctx, s.config.Name); errors.Is(e, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	return nil, errors.Join(err, s.wrap(e))
}

// Newest implements history.Store.
func (h *History) Newest(ctx context.Context, level wire.HistoryLevel, of string) (data []byte, err error) {
	got, err := h.read(ctx, level, question{Last: []string{wire.HistorySubject(level, of)}, Batch: 1})
	for _, m := range got {
		data = m.data
	}
	return data, err
}
