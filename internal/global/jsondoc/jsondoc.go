// Package jsondoc reads and writes stored documents in JSON.
package jsondoc

import (
	"context"
	"encoding/json"
	"fmt"

	"vestibule/internal/core/wire"
)

// Read returns a stored document in JSON and its revision; (nil, 0) if it does not exist. It ignores unknown fields.
func Read[T any](ctx context.Context, docs wire.DocumentStore, key string) (v *T, revision uint64, err error) {
	data, revision, err := docs.Get(ctx, key)
	if err != nil || data == nil {
		return nil, revision, err
	}
	v = new(T)
	if err := json.Unmarshal(data, v); err != nil {
		return nil, revision, fmt.Errorf("document %s: %w", key, err)
	}
	return v, revision, nil
}

// Write writes a document in JSON over the one of a revision, 0 for a new one, as [wire.DocumentStore.Put] does.
func Write(ctx context.Context, docs wire.DocumentStore, key string, v any, revision uint64) error {
	data, err := json.Marshal(v)
	if err == nil {
		_, err = docs.Put(ctx, key, data, revision)
	}
	return err
}
