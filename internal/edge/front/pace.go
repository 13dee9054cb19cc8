package front

import "time"

// The least pace of a visitor: the time for which a request waits for the visitor may not exceed paceGrace and one
// second per MinRate bytes that the visitor has sent or taken. So a visitor that sends a byte every other second does
// not keep a connection for long, and one that has sent much may pause. A site that is slow costs the visitor nothing.
const (
	paceGrace = 10 * time.Second
	MinRate   = 500 // bytes per second
)

// Pace is the pace of one request's visitor. One goroutine at a time uses it. The zero value is the beginning.
type Pace struct {
	bytes  int64
	waited time.Duration
}

// Left returns how long the request may wait for the visitor now: patience, or less.
func (p *Pace) Left(patience time.Duration) time.Duration {
	return max(0, min(patience, paceGrace+p.earned()-p.waited))
}

// Lag returns for how long the visitor has owed the next bytes at [MinRate].
func (p *Pace) Lag() time.Duration {
	return max(0, p.waited-p.earned())
}

// earned returns the time that the bytes so far allow, a day at most.
func (p *Pace) earned() time.Duration {
	return time.Duration(min(p.bytes/MinRate, 24*60*60)) * time.Second
}

// Add notes n bytes for which the request waited.
func (p *Pace) Add(n int, waited time.Duration) {
	p.bytes += int64(n)
	p.waited += waited
}
