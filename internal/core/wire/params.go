package wire

import "time"

// Params are the protocol's times. A fleet uses one set of them: a parent and
// a child that differ in a lease would not agree on when it ends. The zero
// value is not usable; see [DefaultParams].
type Params struct {
	EdgeLease     time.Duration // an edge admits for so long after a report that was answered
	RegionalLease time.Duration // the same for a data centre and global, under partition_policy cap

	ReportFast time.Duration // between reports of an edge that has something to say
	ReportIdle time.Duration // between reports of an edge that has nothing to say
	ReportGap  time.Duration // least time between reports, however urgent
	SyncFast   time.Duration // the same between regional and global
	SyncIdle   time.Duration
	SyncGap    time.Duration

	Isolation time.Duration // an edge without a lease for so long is isolated: on_isolation applies

	Knock   time.Duration // a newcomer is held so long while a right is asked for
	Hold    time.Duration // someone at the head of the line is held so long for a turn
	Refresh time.Duration // between polls of someone who waits far back
	Nearest time.Duration // between polls of someone whose turn is near
}

// DefaultParams returns the times that a fleet is run with.
func DefaultParams() Params {
	return Params{
		EdgeLease:     3 * time.Second,
		RegionalLease: 60 * time.Second,
		ReportFast:    250 * time.Millisecond,
		ReportIdle:    time.Second,
		ReportGap:     20 * time.Millisecond,
		SyncFast:      500 * time.Millisecond,
		SyncIdle:      2 * time.Second,
		SyncGap:       20 * time.Millisecond,
		Isolation:     10 * time.Second,
		Knock:         200 * time.Millisecond,
		Hold:          25 * time.Second,
		Refresh:       20 * time.Second,
		Nearest:       2 * time.Second,
	}
}

// RateWindow is the window of new_users_per_minute.
const RateWindow = time.Minute

// slack bounds in seconds what a ticket lives longer than the session duration.
const slack = 20

// Life returns for how many whole seconds a ticket is stamped, so that a
// visitor has at least the session duration d after every request although
// tickets are renewed only once they are older than a tenth of it, or than
// 20 s. So a slot is in use again soon after the session duration, however long
// that is.
func Life(d time.Duration) uint32 {
	return uint32((d + min(d/10, slack*time.Second) + time.Second - 1) / time.Second)
}

// RenewAfter returns by how many seconds a renewal must lengthen a ticket of
// the given life to be worth making.
func RenewAfter(life uint32) uint32 { return max(1, min(life/11, slack)) }
