package natsbus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"vestibule/internal/core/wire"
)

// jetStream returns the JetStream of the connection's domain.
func (c *Conn) jetStream() (jetstream.JetStream, error) {
	if c.domain != "" {
		return jetstream.NewWithDomain(c.nc, c.domain)
	}
	return jetstream.New(c.nc)
}

// Auto as a number of replicas is three on a cluster and one on a single server. A cluster has at least three
// servers: JetStream needs a majority for every write, so two are worse than one.
const Auto = -1

// alone is the error of a JetStream server outside of a cluster about replicas. There is no other reliable test: a
// single server with a leaf node has a cluster name too, and a bucket of another domain is on other servers than
// the connected one.
const alone jetstream.ErrorCode = 10074

// makeBucket creates a bucket with the given number of replicas. A cluster without enough servers for three is an
// error, not a reason for a single copy.
func makeBucket(ctx context.Context, js jetstream.JetStream, name string, replicas int) (jetstream.KeyValue, error) {
	config := jetstream.KeyValueConfig{
		Bucket: name, Description: "vestibule", Storage: jetstream.FileStorage, History: 1,
	}
	return replicated(replicas, func(n int) (jetstream.KeyValue, error) {
		config.Replicas = n
		return js.CreateKeyValue(ctx, config)
	})
}

// replicated calls create with the given number of replicas, or resolves [Auto].
func replicated[T any](replicas int, create func(replicas int) (T, error)) (T, error) {
	if replicas != Auto {
		return create(replicas)
	}
	made, err := create(3)
	if api, ok := errors.AsType[jetstream.JetStreamError](err); ok && api.APIError() != nil &&
		api.APIError().ErrorCode == alone {
		return create(1)
	}
	return made, err
}

// bucket opens a KV bucket, and creates it with the given number of replicas (or [Auto]) if needed; with replicas 0
// it only opens.
func (c *Conn) bucket(ctx context.Context, name string, replicas int) (jetstream.KeyValue, error) {
	if !c.Connected() {
		return nil, fmt.Errorf("bucket %s: %w", name, wire.ErrDown)
	}
	js, err := c.jetStream()
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", name, err)
	}
	kv, err := js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) && replicas != 0 {
		kv, err = makeBucket(ctx, js, name, replicas)
		switch {
		case errors.Is(err, jetstream.ErrBucketExists): // another node was faster
			kv, err = js.KeyValue(ctx, name)
		case err != nil:
			err = fmt.Errorf("it does not exist and cannot be created; if NATS has users, create it with vestibule nats-config provision: %w",
				err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", name, err)
	}
	return kv, nil
}

// stream returns the stream of an existing KV bucket.
func (c *Conn) stream(ctx context.Context, bucket string) (jetstream.Stream, error) {
	js, err := c.jetStream()
	if err != nil {
		return nil, err
	}
	return js.Stream(ctx, "KV_"+bucket)
}
