package natsbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/wire"
)

// Documents are the few small documents that every node needs: the room set, the keys, the pages. Global writes
// them; every node watches them.
type Documents struct {
	conn     *Conn
	bucket   string
	replicas int
	watched  []string
	wrote    chan struct{} // this node wrote a document: Watch polls at once

	opened atomic.Pointer[jetstream.KeyValue] // the bucket of the last write, nil after a failed one
}

const (
	documentsBucket = "vestibule_documents"
	controlBucket   = "vestibule_control" // API tokens and secrets of draws, readable by globals only
)

// NewDocuments returns the documents on conn; Watch follows those named. replicas is for the creation of the
// bucket, 0 for readers.
func NewDocuments(conn *Conn, replicas int, watched ...string) *Documents {
	return &Documents{
		conn: conn, bucket: documentsBucket, replicas: replicas, watched: watched, wrote: make(chan struct{}, 1),
	}
}

// NewControl returns the documents for globals only: API tokens and secrets of draws.
func NewControl(conn *Conn, replicas int) *Documents {
	d := NewDocuments(conn, replicas)
	d.bucket = controlBucket
	return d
}

// Get returns a document and its revision, or (nil, 0). The result may be stale: base no decision on it except a
// following Put.
func (d *Documents) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	kv, err := d.conn.bucket(ctx, d.bucket, d.replicas)
	if err != nil {
		return nil, 0, err
	}
	e, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("document %s: %w", key, err)
	}
	return e.Value(), e.Revision(), nil
}

// copyHeard is how recently the leader must have heard from a replica for it to be current.
const copyHeard = 3 * time.Second

// Current implements [wire.DocumentFeed]: the leader of the stream is asked, and has heard of every copy.
func (d *Documents) Current(ctx context.Context) error {
	if !d.conn.Connected() {
		return fmt.Errorf("bucket %s: %w", d.bucket, wire.ErrDown)
	}
	stream, err := d.conn.stream(ctx, d.bucket) // asks the leader
	if err != nil {
		return fmt.Errorf("bucket %s: %w", d.bucket, err)
	}
	c := stream.CachedInfo().Cluster
	if c == nil {
		return nil // one server
	}
	if c.Leader == "" {
		return fmt.Errorf("bucket %s has no leader", d.bucket)
	}
	for _, r := range c.Replicas {
		if r.Offline || !r.Current || r.Lag > 0 || r.Active > copyHeard {
			return fmt.Errorf("bucket %s: the copy of %s may be behind", d.bucket, r.Name)
		}
	}
	return nil
}

// Put writes a document with the expected revision (0: does not exist). It returns [wire.ErrChanged] if the
// revision differs. After any other error the document may or may not be written.
func (d *Documents) Put(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	// Checking that the bucket exists costs as much as a write to a small cluster.
	opened := d.opened.Load()
	if opened == nil || !d.conn.Connected() {
		kv, err := d.conn.bucket(ctx, d.bucket, d.replicas)
		if err != nil {
			return 0, err
		}
		opened = &kv
		d.opened.Store(opened)
	}
	var next uint64
	var err error
	if revision == 0 {
		next, err = (*opened).Create(ctx, key, data)
	} else {
		next, err = (*opened).Update(ctx, key, data, revision)
	}
	if errors.Is(err, jetstream.ErrKeyExists) {
		return 0, fmt.Errorf("document %s: %w", key, wire.ErrChanged)
	}
	if err != nil {
		d.opened.Store(nil) // the bucket may be gone: the next write creates it
		return 0, fmt.Errorf("document %s: %w", key, err)
	}
	select {
	case d.wrote <- struct{}{}:
	default: // it is about to poll
	}
	return next, nil
}

// Limit returns the maximum size of a document in bytes: that of one message. Before the first connection it is the
// default.
func (d *Documents) Limit() int {
	limit := int(d.conn.nc.MaxPayload())
	if limit == 0 {
		limit = 1 << 20
	}
	return limit - 1<<10 // space for headers
}

// List returns the documents that match a pattern ("page.*").
func (d *Documents) List(ctx context.Context, pattern string) (map[string]wire.Written, error) {
	kv, err := d.conn.bucket(ctx, d.bucket, d.replicas)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := kv.Watch(ctx, pattern, jetstream.MetaOnly(), jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", pattern, err)
	}
	defer func() {
		if err := w.Stop(); err != nil {
			d.conn.log.Debug("list did not end cleanly", slog.Any("error", err))
		}
	}()
	out := map[string]wire.Written{}
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("list %s: %w", pattern, ctx.Err())
		case e, ok := <-w.Updates():
			if !ok {
				return nil, fmt.Errorf("list %s: ended by the server", pattern)
			}
			if e == nil { // complete
				return out, nil
			}
			out[e.Key()] = wire.Written{At: e.Created(), Revision: e.Revision()}
		}
	}
}

// Delete deletes a document with the expected revision, leaving a tombstone of a few bytes. It returns
// [wire.ErrChanged] if the document was written since.
func (d *Documents) Delete(ctx context.Context, key string, revision uint64) error {
	kv, err := d.conn.bucket(ctx, d.bucket, d.replicas)
	if err != nil {
		return err
	}
	err = kv.Delete(ctx, key, jetstream.LastRevision(revision))
	if api, ok := errors.AsType[*jetstream.APIError](err); ok &&
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return fmt.Errorf("document %s: %w", key, wire.ErrChanged)
	}
	if err != nil {
		return fmt.Errorf("document %s: %w", key, err)
	}
	return nil
}

// Watch calls handle with the watched documents, first in their current state and then after every change, one at a
// time, until ctx ends; with nil for a missing or deleted one. After a reconnect, and if the store was replaced, it
// repeats them all, since a change may have been missed. It retries for ever and returns ctx's error.
func (d *Documents) Watch(ctx context.Context, handle func(key string, data []byte)) error {
	log := d.conn.log
	logged, missing := false, false
	for {
		opened, err := d.watchOnce(ctx, handle)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errAgain) || errors.Is(err, errOther) {
			continue
		}
		if opened {
			missing = false
		}
		if errors.Is(err, jetstream.ErrBucketNotFound) && !missing {
			for _, key := range d.watched {
				handle(key, nil)
			}
			missing = true
		}
		if opened || !logged {
			level := slog.LevelWarn
			if errors.Is(err, jetstream.ErrBucketNotFound) {
				level = slog.LevelInfo // the first global of a fleet creates it
			}
			log.Log(ctx, level, "documents cannot be watched yet", slog.Any("error", err))
			logged = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func (d *Documents) watchOnce(ctx context.Context, handle func(key string, data []byte)) (opened bool, err error) {
	again := d.conn.link.next()
	open, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := d.conn.bucket(open, d.bucket, d.replicas); err != nil { // it may need to be created
		return false, err
	}
	stream, err := d.conn.stream(open, d.bucket)
	if err != nil {
		return false, fmt.Errorf("watch documents: %w", err)
	}
	// Read before the watch begins, so that any later replacement of the store is detected.
	seen := stampOf(stream.CachedInfo())
	revisions := map[string]uint64{} // of the existing documents
	handled := map[string]uint64{}   // newest handled revision of each, deletions included
	for _, key := range d.watched {
		if err := d.poll(ctx, stream, key, handle, revisions, handled); err != nil {
			return false, fmt.Errorf("watch documents: %w", err)
		}
		if handled[key] == 0 {
			handle(key, nil)
		}
	}
	ask := time.NewTicker(askEvery)
	defer ask.Stop()
	look := time.NewTicker(storeEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-again:
			return true, errAgain
		case <-look.C:
			now, err := readStamp(ctx, stream)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return true, jetstream.ErrBucketNotFound
			}
			if err != nil {
				d.conn.log.Debug("document store not checked", slog.Any("error", err))
				continue
			}
			if !now.follows(&seen, revisions) {
				d.conn.log.Error("the document store lost data, or was restored from an older state")
				return true, errOther
			}
			seen = now
		case <-ask.C:
		case <-d.wrote:
		}
		for _, key := range d.watched {
			if err := d.poll(ctx, stream, key, handle, revisions, handled); err != nil {
				d.conn.log.Debug("document not polled", slog.String("document", key), slog.Any("error", err))
			}
		}
	}
}

// askEvery is the poll interval of a watch. It polls instead of consuming: a creator of a consumer chooses its
// delivery subject, which permissions cannot restrict, so nodes exposed to visitors create none.
const askEvery = 500 * time.Millisecond

// poll handles the newest state of a document, if newer than handled.
func (d *Documents) poll(
	ctx context.Context, stream jetstream.Stream, key string, handle func(string, []byte),
	revisions, handled map[string]uint64,
) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	m, err := stream.GetMsg(ctx, handled[key]+1, jetstream.WithGetMsgSubject("$KV."+d.bucket+"."+key))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("document %s: %w", key, err)
	}
	handled[key] = m.Sequence
	if m.Header.Get("KV-Operation") != "" || m.Header.Get(jetstream.MarkerReasonHeader) != "" { // deleted
		delete(revisions, key)
		handle(key, nil)
		return nil
	}
	revisions[key] = m.Sequence
	handle(key, m.Data)
	return nil
}

// storeEvery is how often a watch checks the identity of the store: nothing reports that it was emptied or
// restored.
const storeEvery = 5 * time.Second

// errOther means that the store is not the one that was watched.
var errOther = errors.New("watch documents: the store was replaced")

// stamp identifies a store and its state.
type stamp struct {
	made        time.Time
	first, last uint64 // revisions
}

func stampOf(info *jetstream.StreamInfo) stamp {
	return stamp{info.Created, info.State.FirstSeq, info.State.LastSeq}
}

// readStamp returns the stamp of a store.
func readStamp(ctx context.Context, stream jetstream.Stream) (stamp, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	info, err := stream.Info(ctx)
	if err != nil {
		return stamp{}, err
	}
	return stampOf(info), nil
}

// follows reports whether a store's state can be a successor of before with these revisions.
func (s *stamp) follows(before *stamp, revisions map[string]uint64) bool {
	if !before.made.IsZero() && (!s.made.Equal(before.made) || s.last < before.last) {
		return false
	}
	for _, revision := range revisions {
		if revision < s.first || revision > s.last {
			return false
		}
	}
	return true
}
