// Package share is the arithmetic of the ledger. It divides permits and passes among children ([Division], [Passes],
// [Split], [Fill], [Place]) and computes the view of a room, which tells visitors their turn ([Prospect]). Both tiers
// use it. It decides how many permits go where. This is policy: safety does not depend on it.
package share
