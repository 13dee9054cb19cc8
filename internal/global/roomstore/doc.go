// Package roomstore keeps the rooms of a fleet in the store.
//
// All rooms have one authority: the rooms file of the leading global, or the store itself, which the API changes at
// any candidate. The state records which of the two it is.
//
// A [State] is all rooms and hosts at one version. A [Draft] changes it and checks the result by every rule between
// rooms. Both are values, without clock or I/O. [Store] reads a state, lets a writer draft a change, and writes it
// compare-and-set; after a concurrent write it starts again. Then it writes the rooms document that every node
// follows, which is derived from the state alone.
//
// Values are compressed and divided into parts of about 128 KiB of JSON, named by their content: a change of one of
// 10,000 rooms writes one part.
package roomstore
