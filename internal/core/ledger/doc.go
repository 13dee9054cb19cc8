// Package ledger has the values that both tiers of the ledger of rights use: settings of a
// room, the list of data centres, and helpers for messages of a hop. The ledger says who may
// admit how many.
//
//	ledger          values and messages of a hop
//	ledger/share    arithmetic: how rights are divided, and the view that visitors wait by
//	ledger/root     the coordinator, which lends rights to data centres
//	ledger/region   the aggregator of a data centre: child of the coordinator, parent of its edges
//
// A right is one unit of total_active_users (T) or of new_users_per_minute
// (R). It is free, lent to a child, or busy: a right of T from the admission
// until the session's ticket can be accepted nowhere, a right of R for 60
// seconds after its use. A right must be owned before it is spent, so both
// limits hold by construction and in every sliding window.
//
// Each hop keeps two growing numbers per holder, granted (written only by the lender)
// and returned (written only by the holder); held is their difference. A
// lender never takes back: it states how many idle rights to keep, and the
// holder returns the rest.
//
//	parent:  Observe(now, wire.Report)     Grants(now) []wire.Grant
//	child:   Report(now) []wire.Report     Apply(now, wire.Grant)
//
// Nothing in these packages reads a clock, does I/O or starts a goroutine. The tests of this
// package run coordinators, aggregators and edges together.
package ledger
