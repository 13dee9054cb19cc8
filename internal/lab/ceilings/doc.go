// Package ceilings is a model of another ledger: a lender counts each child against a ceiling that it stores before it
// grants. It is an experiment beside the ledger in use; decision 99 has what it showed.
//
// Invariants: a child never has more out than its stored ceiling. The ceilings of unheard children, the outstanding
// permits of heard ones and the free permits sum to at most the limit, over every expiry second from the watermark on.
//
// [Lender] and [Child] are pure: now is an argument, and the store is a message with an expected revision. [World] and
// the tree above several data centres play them against cuts, lost, late and doubled messages, replaced leaders that
// continue, lost answers of the store, clocks, ends, permits of R, edges that are gone, and a store that comes back
// older. The judge knows the sessions, not the ledgers. Every [Rule] can be taken out; the directed worlds show the
// hole that it closes.
package ceilings
