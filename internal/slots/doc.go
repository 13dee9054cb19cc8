// Package slots is who may admit how many: the ledger of rights at the two
// upper tiers, and the arithmetic that divides slots.
//
// A right is one unit of total_active_users (T) or of new_users_per_minute
// (R). It is free, lent to a child, or busy: a right of T from the admission
// until the session's ticket can be accepted nowhere, a right of R for 60
// seconds after its use. A right must be owned before it is spent, so both
// limits hold by construction and in every sliding window.
//
// [Allocator] is the root: it lends rights to data centres. [Aggregator] is
// one data centre: a child of global and the parent of its edges. Each hop
// keeps two growing numbers per holder, granted (written only by the lender)
// and returned (written only by the holder); held is their difference. A
// lender never takes back: it states how many idle rights to keep, and the
// holder returns the rest.
//
//	parent:  Observe(now, wire.Report)     Grants(now) []wire.Grant
//	child:   Report(now) []wire.Report     Apply(now, wire.Grant)
//
// Inside an Allocator, the centres are who there is and who may be lent to, the pool of every
// room what each of them holds of it, and its clock is fleet time.
//
// Inside an Aggregator, a roster tells which edges there are, their lives what becomes of
// them and what is presumed of whom nobody hears, and the books of every room what its
// edges have and counted. What a successor is to know is stored; the uplink is the bond with
// global. The bearings are how all these stand at one moment; by them the free rights of a
// room are divided among edges, which is a division.
//
// How many rights go where ([Place], [Fill], [Split]) is policy and never part
// of safety. Nothing here reads a clock, does I/O or starts a goroutine; an
// Aggregator and an Allocator each belong to one goroutine.
package slots
