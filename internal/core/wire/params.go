package wire

import "time"

// Params are the protocol's timeouts and intervals. All nodes of a fleet use the same: otherwise parent and child would
// disagree on the end of a lease. The zero value is not usable; see [DefaultParams].
type Params struct {
	EdgeLease     time.Duration // an edge admits for this long after an answered report
	RegionalLease time.Duration // the same for a data centre and global, with partition_policy cap

	ReportFast time.Duration // between reports of an edge with news
	ReportIdle time.Duration // between reports of an edge without news
	ReportGap  time.Duration // minimum between reports
	SyncFast   time.Duration // the same between regional and global
	SyncIdle   time.Duration
	SyncGap    time.Duration

	Isolation time.Duration // an edge without a lease for this long is isolated: on_isolation applies

	Knock   time.Duration // how long a newcomer is held during a demand signal
	Hold    time.Duration // how long a visitor at the head of the queue is long-polled
	Refresh time.Duration // between polls of a visitor far back in the queue
	Nearest time.Duration // between polls of a visitor near the head
}

// DefaultParams returns the production values.
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

// slack bounds, in seconds, how much a ticket outlives the session duration.
const slack = 20

// Life returns the ticket life in whole seconds for the session duration d. A visitor has at least d after every
// request, although a ticket is renewed only once it is older than a tenth of d, or 20 s. So a permit returns soon
// after the session duration, however long that is.
func Life(d time.Duration) uint32 {
	return uint32((d + min(d/10, slack*time.Second) + time.Second - 1) / time.Second)
}

// RenewAfter returns the minimum number of seconds that a renewal must add to a ticket of the given life.
func RenewAfter(life uint32) uint32 { return max(1, min(life/11, slack)) }
