package front

import (
	"crypto/tls"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

// maxUnsent bounds the bytes of answers that wait for the end of the bytes read. A buffer has the same length.
const maxUnsent = 32 << 10

// outbox sends the frames of a connection. Any goroutine may use it.
type outbox struct {
	f        *shared
	conn     *tls.Conn
	accepted *conn

	wmu     sync.Mutex
	out     []byte
	writeBy time.Time
	broken  bool
}

// writeUntil notes a new deadline of writes, which the caller has set.
func (o *outbox) writeUntil(by time.Time) {
	o.wmu.Lock()
	defer o.wmu.Unlock()
	o.writeBy = by
}

// add adds frames to those that are sent next.
func (o *outbox) add(b []byte) {
	o.wmu.Lock()
	defer o.wmu.Unlock()
	if o.out == nil {
		o.out = o.f.opts.Buffers.Get()[:0]
	}
	o.out = append(o.out, b...)
}

// put adds frames of the reader, which sends them before it waits.
func (o *outbox) put(b []byte) {
	o.wmu.Lock()
	full := len(o.out) > 0 && len(o.out)+len(b) > maxUnsent
	o.wmu.Unlock()
	if full {
		o.flush(o.f.opts.Timeouts.Header) // the next one tells of an error
	}
	o.add(b)
}

// sendTogether is send, but first lets other streams whose answers are there add them, for one write.
func (o *outbox) sendTogether(b []byte, patience time.Duration) bool {
	o.wmu.Lock()
	fits := len(o.out)+len(b) <= maxUnsent
	o.wmu.Unlock()
	if !fits {
		return o.send(b, patience)
	}
	o.add(b)
	runtime.Gosched()
	return o.flush(patience)
}

// flush sends all frames within patience.
func (o *outbox) flush(patience time.Duration) bool { return o.send(nil, patience) }

// send sends frames, behind those that are unsent, within patience. It reports whether it could.
func (o *outbox) send(b []byte, patience time.Duration) bool {
	o.wmu.Lock()
	defer o.wmu.Unlock()
	if len(o.out) > 0 {
		o.out = append(o.out, b...)
		b = o.out
	}
	if o.broken || len(b) == 0 {
		return !o.broken
	}
	if left := time.Until(o.writeBy); left > 2*patience || left < patience/2 {
		o.writeBy = time.Now().Add(patience)
		o.broken = o.conn.SetWriteDeadline(o.writeBy) != nil
	}
	if !o.broken {
		if _, err := o.conn.Write(b); err != nil {
			o.f.opts.Log.Debug("answer to a visitor not written", slog.Any("error", err))
			o.broken = true
			o.f.close(o.accepted.accepted) // which ends the reader
		}
	}
	if cap(o.out) == maxUnsent {
		o.f.opts.Buffers.Put(o.out[:maxUnsent])
	}
	o.out = nil
	return !o.broken
}

// linger sends the last frames, and waits for the client to take them: a close would reset the connection and drop
// them.
func (o *outbox) linger() {
	over := time.Now().Add(lingerFor)
	if o.conn.SetDeadline(over) != nil { // also of a write in progress
		return
	}
	o.writeUntil(over)
	if !o.flush(lingerFor) || o.conn.CloseWrite() != nil {
		return
	}
	b := make([]byte, firstBuffer)
	for left := connWindow; left > 0; { // what may be on its way; a flood goes on
		n, err := o.conn.Read(b)
		if err != nil {
			return
		}
		left -= n
	}
}
