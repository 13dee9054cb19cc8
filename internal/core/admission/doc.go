// Package admission is the edge's core: it decides, from memory alone, whether
// a visitor is served, admitted, held for a moment or queued.
//
// An [Engine] is a child of its data centre's regional aggregator. It owns
// rights that the regional granted (credit) and admits only with a right of T
// and a right of R in hand, under a valid lease, charging both in the step
// that decides. What happened it reports as growing counters per expiry
// second; what it may do next comes down in grants.
//
// The walk of one request: [Engine.Arrive] answers with a [Decision]. Where
// the decision is Hold, the shell keeps the request open and calls
// [Engine.Hold]; rights that arrive later are given to the held visitor who
// joined first by [Engine.Release], and one who waited too long is told so by
// [Engine.GiveUp].
//
// Nothing here reads a clock, draws a random number of its own, does I/O or
// starts a goroutine. An Engine is not safe for concurrent use: the shell
// holds one mutex around it. Its memory is bounded by the limits of its rooms
// and by [Limits]; visitors who wait and are not held take none.
package admission
