package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/wire"
)

// Streams of notifications to visitors.
const (
	PushStream   = "VESTIBULE_PUSH"
	OutboxStream = "VESTIBULE_OUTBOX"
)

// notifierKey is the document with the secret of notifications. Notifiers read no other: they connect to the Internet,
// and the keys of tickets are not for them.
const notifierKey = "notifier"

// pushStream holds the newest state of each subscription, about 800 bytes, and the marks of notified ones. A single
// server syncs each write: marks come in batches.
var pushStream = &jetstream.StreamConfig{
	Name: PushStream, Subjects: []string{wire.Pushes}, MaxAge: 24 * time.Hour, MaxBytes: 256 << 20, MaxMsgsPerSubject: 1,
}

// outboxStream holds the notifications that are due and not delivered yet. A single server does not
// sync each write: what is lost with it is found again in the subscriptions.
var outboxStream = &jetstream.StreamConfig{
	Name: OutboxStream, Subjects: []string{wire.Outboxes}, Retention: jetstream.WorkQueuePolicy,
	PersistMode: jetstream.AsyncPersistMode, MaxAge: time.Hour, MaxBytes: 64 << 20, Duplicates: 10 * time.Minute,
}

// EnsurePushes creates the streams of notifications if they do not exist, with replicas or [Auto].
func (c *Conn) EnsurePushes(ctx context.Context, replicas int) error {
	var errs []error
	for _, config := range []*jetstream.StreamConfig{pushStream, outboxStream} {
		_, err := (&stream{conn: c, config: config, replicas: replicas}).open(ctx)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	js, err := c.jetStream()
	if err != nil {
		return err
	}
	return makeShards(ctx, js)
}

// holdFor is how long a process holds a notification.
const holdFor = 40 * time.Second

// makeShards makes the consumers of the outbox. Notifiers may not: a consumer can send stored data anywhere.
func makeShards(ctx context.Context, js jetstream.JetStream) error {
	for shard := range wire.OutboxShards {
		_, err := js.CreateConsumer(ctx, OutboxStream, jetstream.ConsumerConfig{
			Durable: shardName(shard), FilterSubject: wire.OutboxSubject(shard), AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: holdFor, MaxDeliver: -1, MaxAckPending: 4096,
		})
		if err != nil && !errors.Is(err, jetstream.ErrConsumerExists) {
			return fmt.Errorf("consumer %s: %w", shardName(shard), err)
		}
	}
	return nil
}

// Outbox returns since when the oldest notification waits, the zero time for none.
func (c *Conn) Outbox(ctx context.Context) (oldest time.Time, err error) {
	s, err := (&stream{conn: c, config: outboxStream}).open(ctx)
	if err != nil {
		return oldest, err
	}
	if state := s.CachedInfo().State; state.Msgs > 0 {
		oldest = state.FirstTime
	}
	return oldest, nil
}

func shardName(shard int) string { return fmt.Sprintf("shard-%d", shard) }

// StorePush stores the state of a subscription, empty for none any more. It returns nil once it is stored.
func (c *Conn) StorePush(ctx context.Context, room, visitor uint64, record []byte) error {
	return c.store(ctx, wire.PushSubject(room, visitor), record)
}

func (c *Conn) store(ctx context.Context, subject string, record []byte) error {
	if !c.Connected() {
		return wire.ErrDown
	}
	answer, err := c.Ask(ctx, subject, record)
	if err != nil {
		return err
	}
	var ack struct {
		Stream string
		Error  *struct{ Description string }
	}
	if err := json.Unmarshal(answer, &ack); err != nil {
		return fmt.Errorf("store a subscription: %w", err)
	}
	if ack.Error != nil {
		return fmt.Errorf("store a subscription: %s", ack.Error.Description)
	}
	if ack.Stream != PushStream {
		return fmt.Errorf("store a subscription: it went to stream %q", ack.Stream)
	}
	return nil
}

// Pushes is a notifier's access to the streams. It is safe for concurrent use.
type Pushes struct{ conn *Conn }

// NewPushes returns the streams on conn, of global's servers.
func NewPushes(conn *Conn) *Pushes { return &Pushes{conn} }

// Secret returns the notifiers' document, nil for none: also before the first global of a fleet creates the bucket.
func (p *Pushes) Secret(ctx context.Context) ([]byte, error) {
	data, _, err := NewDocuments(p.conn, 0, notifierKey).Get(ctx, notifierKey)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	return data, err
}

// Follower takes the contents of the stream of subscriptions.
type Follower struct {
	Set   func(room, visitor, seq uint64, record []byte) // with its number in the stream
	Marks func(marks []byte)
	Read  func(until time.Time) // everything stored until then was taken
}

// Follow has f take all that is stored, and from then on every change. It returns when ctx ends, or when the stream is
// lost.
func (p *Pushes) Follow(ctx context.Context, f Follower) error {
	const batch = 1000
	source := &stream{conn: p.conn, config: pushStream}
	look := time.NewTicker(followEvery)
	defer look.Stop()
	q := question{Seq: 1, Next: ">", Batch: batch} // all: to match subjects costs the server milliseconds
	for checked := (time.Time{}); ; {
		asked := time.Now()
		within, cancel := context.WithTimeout(ctx, readWithin)
		got, err := source.read(within, q)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, m := range got {
			if room, visitor, ok := wire.PushOf(m.subject); ok {
				f.Set(room, visitor, m.sequence, m.data)
			} else {
				f.Marks(m.data)
			}
			q.Seq = m.sequence + 1
		}
		if len(got) > 0 { // the server sends less than asked for
			continue
		}
		f.Read(asked)
		if time.Since(checked) > checkEvery {
			checked = time.Now()
			s, err := source.open(ctx)
			if err != nil {
				return err
			}
			if s.CachedInfo().State.LastSeq+1 < q.Seq {
				return errors.New("the stream of subscriptions has begun anew")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

// A follower asks for changes this often, and whether the stream is the same.
const (
	followEvery = 100 * time.Millisecond
	checkEvery  = 5 * time.Second
	readWithin  = 10 * time.Second
)

// End ends a subscription, unless it has changed since seq.
func (p *Pushes) End(ctx context.Context, room, visitor, seq uint64) error {
	js, err := p.conn.jetStream()
	if err != nil {
		return err
	}
	_, err = js.Publish(ctx, wire.PushSubject(room, visitor), nil, jetstream.WithExpectLastSequencePerSubject(seq))
	if api, ok := errors.AsType[*jetstream.APIError](err); ok &&
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return nil
	}
	return err
}

// Mark stores marks.
func (p *Pushes) Mark(ctx context.Context, marks []byte) error {
	return p.conn.store(ctx, wire.MarksSubject(rand.Uint64()), marks)
}

// Enqueue adds notifications to the outbox, once for each ID.
func (p *Pushes) Enqueue(ctx context.Context, due []Due) error {
	js, err := p.conn.jetStream()
	if err != nil {
		return err
	}
	acks := make([]jetstream.PubAckFuture, 0, len(due))
	for _, d := range due {
		m := &nats.Msg{Subject: wire.OutboxSubject(d.Shard), Data: d.Data, Header: nats.Header{jetstream.MsgIDHeader: {d.ID}}}
		ack, err := js.PublishMsgAsync(m)
		if err != nil {
			return err
		}
		acks = append(acks, ack)
	}
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Due is a notification for the outbox.
type Due struct {
	Shard int
	ID    string
	Data  []byte
}

// Delivery is a notification to deliver. This process holds it until one of its functions is called, or its time ends.
type Delivery struct {
	Data    []byte
	Tries   int // with this one
	At      time.Time
	message jetstream.Msg
}

// Done removes it.
func (d *Delivery) Done() error { return d.message.Ack() }

// Drop removes it as failed.
func (d *Delivery) Drop() error { return d.message.Term() }

// Again has it delivered after a delay.
func (d *Delivery) Again(after time.Duration) error { return d.message.NakWithDelay(after) }

// Deliver calls each with the notifications of a shard, up to many at a time, until ctx ends or the stream is lost. Any
// number of processes share a shard.
func (p *Pushes) Deliver(ctx context.Context, shard, many int, each func(*Delivery)) error {
	s, err := (&stream{conn: p.conn, config: outboxStream}).open(ctx)
	if err != nil {
		return err
	}
	c, err := s.Consumer(ctx, shardName(shard))
	if err != nil {
		return err
	}
	it, err := c.Messages(jetstream.PullMaxMessages(many), jetstream.PullExpiry(5*time.Second))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, it.Drain)
	defer stop()
	defer it.Stop()
	for {
		m, err := it.Next()
		if ctx.Err() != nil && errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil { // others take the fetched ones
			if err := m.Nak(); err != nil {
				return err
			}
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		each(&Delivery{Data: m.Data(), Tries: int(meta.NumDelivered), At: meta.Timestamp, message: m})
	}
}
