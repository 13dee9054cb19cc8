// Package ledger has the values that both tiers of the ledger of permits use: settings of a
// room, the list of data centres, and helpers for messages of a hop. The ledger decides how many
// visitors each node may admit.
//
//	ledger          values and messages of a hop
//	ledger/share    arithmetic: the division of permits, and the view that visitors wait by
//	ledger/root     the coordinator, which lends permits to data centres
//	ledger/region   the aggregator of a data centre: child of the coordinator, parent of its edges
//
// A permit is one unit of total_active_users (T) or of new_users_per_minute
// (R). It is free, lent to a child, or busy: a permit of T from the admission
// until no node accepts the session's ticket any more, a permit of R for 60
// seconds after its use. A permit must be held before it is spent, so both
// limits hold by construction and in every sliding window.
//
// Each hop keeps a [wire.Allocation] per child and kind of permit: two growing counters,
// Granted (written by the parent) and Returned (written by the child), and the idle
// target Keep. The child holds the difference of the counters. A parent never takes
// permits back: it lowers Keep, and the child returns the rest.
//
//	parent:  Observe(now, wire.Report)     Grants(now) []wire.Grant
//	child:   Report(now) []wire.Report     Apply(now, wire.Grant)
//
// Nothing in these packages reads a clock, does I/O or starts a goroutine. The tests of this
// package run coordinators, aggregators and edges together.
package ledger
