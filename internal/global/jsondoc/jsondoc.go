// Package jsondoc reads and writes stored documents in JSON.
package jsondoc

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

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

// List returns the documents in JSON below a prefix, by the rest of their keys.
func List[T any](ctx context.Context, docs wire.DocumentStore, prefix string) (map[string]*T, error) {
	keys, err := docs.List(ctx, prefix+"*")
	if err != nil {
		return nil, err
	}
	out := map[string]*T{}
	for key := range keys {
		v, _, err := Read[T](ctx, docs, key)
		if err != nil {
			return nil, err
		}
		if v != nil { // deleted meanwhile
			out[strings.TrimPrefix(key, prefix)] = v
		}
	}
	return out, nil
}

// Write writes a document in JSON over the one of a revision, 0 for a new one, as [wire.DocumentStore.Put] does.
func Write(ctx context.Context, docs wire.DocumentStore, key string, v any, revision uint64) error {
	data, err := json.Marshal(v)
	if err == nil {
		_, err = docs.Put(ctx, key, data, revision)
	}
	return err
}
