package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"vestibule/internal/global/control/api"
)

// Call serves an operation for a principal that the caller has authenticated, with the role check and the audit entry
// of [Server.ServeHTTP]. remote is the address of the client, and path is below [Prefix], with its query. body is sent
// as JSON, nil for none. The result of the operation is stored in result, nil for none: a history as it is, and all
// else by way of JSON. The error of a refused operation is a [*RefusalError]. While the store does not answer, nothing
// is served from memory, except with [Noting].
func (s *Server) Call(
	ctx context.Context, who Principal, remote, method, path string, body, result any,
) error {
	var sent bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&sent).Encode(body); err != nil {
			return fmt.Errorf("%s %s: the body: %w", method, path, err)
		}
	}
	note, noting := ctx.Value(noteKey{}).(func(string))
	if ctx = context.WithValue(ctx, principalKey{}, who); !noting {
		ctx = context.WithValue(ctx, currentKey{}, true)
	}
	r, err := http.NewRequestWithContext(ctx, method, Prefix+path, &sent)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	r.RemoteAddr = remote
	if revision, ok := ctx.Value(expectKey{}).(uint64); ok {
		r.Header.Set("If-Match", etag(revision))
	}
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	if w.stats, _ = result.(*api.Stats); w.stats != nil {
		result = nil
	}
	s.out.serve(w, r, s.operations)
	var answer struct {
		Errors   []api.Note
		Messages []api.Note
		Result   json.RawMessage
	}
	if err := json.Unmarshal(w.body.Bytes(), &answer); err != nil {
		return fmt.Errorf("%s %s: status %d: %w", method, path, w.status, err)
	}
	if w.status != http.StatusOK {
		return &RefusalError{w.status, answer.Errors}
	}
	for _, m := range answer.Messages {
		if noting {
			note(m.Message)
		}
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return fmt.Errorf("%s %s: the result: %w", method, path, err)
	}
	return nil
}

type noteKey struct{}

// Noting returns a context for [Server.Call] whose operations may answer from memory while the store does not answer.
// note then gets a message with the age of the answer.
func Noting(ctx context.Context, note func(message string)) context.Context {
	return context.WithValue(ctx, noteKey{}, note)
}

type expectKey struct{}

// Expecting returns a context for [Server.Call] whose changes are refused unless the room has a revision.
func Expecting(ctx context.Context, revision uint64) context.Context {
	return context.WithValue(ctx, expectKey{}, revision)
}

// Status returns the HTTP status of an error of [Server.Call]: 500 unless it is a refusal.
func Status(err error) int {
	if r, ok := errors.AsType[*RefusalError](err); ok {
		return r.Status
	}
	return http.StatusInternalServerError
}
