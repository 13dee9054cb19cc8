package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"vestibule/internal/edge/http1"
)

// A fault at the beginning of an answer's body is found before the visitor gets anything, so that the visitor gets an
// error instead of a part. Package front does the same.

const (
	// The longest counted body, in bytes, that is read before the answer goes on.
	wholeBody = 4 << 10

	// How long an answer waits for its first chunk. Chunks that come with the head take no time.
	firstChunk = 50 * time.Millisecond
)

// readFault marks err with [http1.ErrAnswer] if it is a fault of the answer, not of the connection or the visitor.
func readFault(err error) error {
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.Canceled) || errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrBodyReadAfterClose) {
		return err
	}
	return fmt.Errorf("%w: %w", http1.ErrAnswer, err)
}

// beginBody reads the beginning of the answer's body. The error is [http1.ErrAnswer].
func beginBody(r *http.Response) error {
	switch {
	case r.StatusCode == http.StatusSwitchingProtocols || r.Body == http.NoBody || r.ContentLength > wholeBody ||
		r.ContentLength == 0:
		return nil
	case r.ContentLength > 0:
		whole := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, whole); err != nil {
			if !errors.Is(err, context.Canceled) {
				err = fmt.Errorf("%w: the answer ends before its Content-Length: %w", http1.ErrAnswer, err)
			}
			return err
		}
		r.Body = &begunBody{ReadCloser: r.Body, rest: whole}
		return nil
	case len(r.TransferEncoding) == 0: // to the end
		return nil
	}
	first := make(chan piece, 1)
	b := &begunBody{ReadCloser: r.Body, first: first}
	go func() { // ends with the body
		buf := make([]byte, wholeBody)
		n, err := b.ReadCloser.Read(buf)
		first <- piece{buf[:n], err}
	}()
	late := time.NewTimer(firstChunk)
	defer late.Stop()
	select {
	case got := <-first:
		if err := readFault(got.err); errors.Is(err, http1.ErrAnswer) && got.err != nil {
			return err
		}
		b.first, b.rest, b.err = nil, got.data, got.err
	case <-late.C:
	}
	r.Body = b
	return nil
}

// piece is the result of a read.
type piece struct {
	data []byte
	err  error
}

// begunBody is a body of which a part was read.
type begunBody struct {
	io.ReadCloser
	first <-chan piece // of a read in progress; nil for none
	rest  []byte
	err   error // behind rest
}

func (b *begunBody) Read(p []byte) (int, error) {
	if b.first != nil {
		got := <-b.first
		b.first, b.rest, b.err = nil, got.data, got.err
	}
	if len(b.rest) > 0 {
		n := copy(p, b.rest)
		b.rest = b.rest[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.ReadCloser.Read(p)
}
