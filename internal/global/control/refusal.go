package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"vestibule/internal/global/control/api"
	"vestibule/internal/global/roomstore"
)

// RefusalError says why an operation was refused. Notes name every fault.
type RefusalError struct {
	Status int
	Notes  []api.Note
}

func (e *RefusalError) Error() string {
	if len(e.Notes) == 0 {
		return http.StatusText(e.Status)
	}
	return e.Notes[0].Message
}

func refusef(status, code int, format string, args ...any) *RefusalError {
	return &RefusalError{status, []api.Note{{Code: code, Message: fmt.Sprintf(format, args...)}}}
}

func noRoute(r *http.Request) *RefusalError {
	return refusef(http.StatusNotFound, codeNoRoute, "No route for the URI: %s %s", r.Method, short(r.URL.Path))
}

// badBody returns the refusal of a body that cannot be read, nil for nil.
func badBody(err error) error {
	if err == nil {
		return nil
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return refusef(http.StatusRequestEntityTooLarge, codeInvalid, "the body must be at most %d bytes: invalid data",
			large.Limit)
	}
	return refusef(http.StatusBadRequest, codeInvalid, "the body must be one JSON value: %v: invalid data", err)
}

// at adds the place of a fault of JSON.
func at(data []byte, err error) error {
	fault, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err
	}
	before := data[:max(0, min(int(fault.Offset)-1, len(data)))]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return fmt.Errorf("line %d, column %d: %w", line, column, err)
}

var errNotFound = refusef(http.StatusNotFound, codeNotFound, "Object not found.")

// explain returns the refusal for an error of the store.
func explain(err error) *RefusalError {
	if r, ok := errors.AsType[*RefusalError](err); ok {
		return r
	}
	if busy, ok := errors.AsType[*busyError](err); ok {
		return refusef(http.StatusTooManyRequests, codeNotNow, "%v: nothing was changed: try again", busy)
	}
	if file, ok := errors.AsType[*roomstore.FromFileError](err); ok { // not 409: the hosted product's clients would retry
		return refusef(http.StatusBadRequest, codeFromFile, "%v", file)
	}
	if large, ok := errors.AsType[*roomstore.TooLargeError](err); ok {
		return refusef(http.StatusBadRequest, codeInvalid, "%v: invalid data", large)
	}
	if errors.Is(err, roomstore.ErrUnknown) {
		return refusef(http.StatusServiceUnavailable, codeNotNow, "%v: look before you try again", roomstore.ErrUnknown)
	}
	if errors.Is(err, roomstore.ErrRestoring) {
		return refusef(http.StatusServiceUnavailable, codeNotNow, "%v", roomstore.ErrRestoring)
	}
	return refusef(http.StatusServiceUnavailable, codeNotNow, "the store cannot be used now: nothing was changed")
}
