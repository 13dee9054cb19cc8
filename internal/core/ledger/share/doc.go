// Package share is the arithmetic of the ledger: it divides rights and passes among children
// ([Division], [Passes], [Split], [Fill], [Place]) and computes the view of a room that tells
// visitors their turn ([Prospect]). Both tiers use it. It decides how many rights go where,
// which is policy and never part of safety.
package share
